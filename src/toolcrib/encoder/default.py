"""The model that comes with the package, loaded when it is first asked something."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.resources import files
from typing import Any, Final
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from toolcrib.encoder.backend import fastest_encoder
from toolcrib.encoder.glossary import glossaries, in_english
from toolcrib.encoder.npz import arrays
from toolcrib.encoder.static import Sketcher
from toolcrib.encoder.tokenizer import WordPiece, vocabulary
from toolcrib.encoder.transformer import MAX_TOKENS, Array, Encoder, Probe

# Tools whose vectors are remembered, so that another engine or mode need not read them again.
MOST_REMEMBERED: Final = 20_000
# Queries whose vectors are remembered: models ask the same again, and reasons are asked for after hits.
MOST_QUERIES: Final = 1_024

_DATA = files("toolcrib.encoder") / "data"


class Shipped:
    """An embedder that reads queries and tools, and sketches tools it has not read."""

    def __init__(self) -> None:
        self._read: dict[str, Array] = {}
        self._asked: dict[tuple[str, ...], Array] = {}
        self._named: dict[str, Array] = {}

    def queries(self, texts: Sequence[str]) -> Array:
        """What queries mean. Those that were asked together before are not read again.

        They are known as a whole, since which texts are read together may show in the last digit of
        a vector: the same question has the same answer, remembered or not.
        """
        known = self._asked
        asked = tuple(texts)
        vectors = known.get(asked)
        if vectors is None:
            vectors, told = self._questions.encode_and_probe(_read(texts), self._service)
            vectors.flags.writeable = False
            if len(known) >= MOST_QUERIES:
                known = self._asked = {}
                self._named = {}
            known[asked] = vectors
            # Which of a query's names are services' is asked right after.
            self._named.update(zip(texts, told, strict=True))
        return vectors

    def services(self, text: str, names: Sequence[str]) -> list[float]:
        """How likely each of the names that a query mentions is that of a service, from 0 to 1."""
        told = self._named.get(text)
        if told is None:
            _, (told,) = self._questions.encode_and_probe(_read([text]), self._service)
        places = (self._pieces.place(in_english(text), name, MAX_TOKENS) for name in names)
        return [_likelihood(told[place]) for place in places]

    def tools(self, texts: Sequence[str]) -> Array:
        """What tools mean, read with care. No tool is read twice while it is remembered."""
        # Another thread may begin a new memory meanwhile; the old one stays whole.
        known = self._read
        unread = [text for text in dict.fromkeys(texts) if text not in known]
        fresh = dict(zip(unread, self._encoder.encode(_read(unread)), strict=True))
        vectors = np.array([fresh[text] if text in fresh else known[text] for text in texts])
        if len(known) + len(fresh) > MOST_REMEMBERED:
            known = self._read = {}
        known.update(fresh)
        return vectors

    def at_once(self, texts: Sequence[str]) -> tuple[Array, NDArray[np.bool_]]:
        """What tools mean: as it was read where it is remembered, and roughly where not."""
        vectors = self._sketcher.tools(_read(texts))
        read = self._read
        is_read = np.array([text in read for text in texts], np.bool_)
        if is_read.any():
            vectors[is_read] = [read[text] for text in texts if text in read]
        return vectors, is_read

    @cached_property
    def version(self) -> str:
        """How texts are read, for those who keep vectors: told by all that has a part in it."""
        parts = [_checksums("encoder.npz"), _checksums("questions.npz"), glossaries()]
        return hashlib.blake2b(" ".join(parts).encode(), digest_size=8).hexdigest()

    @property
    def sketches(self) -> Sketches:
        """The rough half by itself."""
        return Sketches(self)

    @cached_property
    def _pieces(self) -> WordPiece:
        return WordPiece(vocabulary())

    @cached_property
    def _encoder(self) -> Encoder:
        """Reads tools."""
        return fastest_encoder(self._pieces, self._weights)

    @cached_property
    def _questions(self) -> Encoder:
        """Reads queries: with half of the layers, which learnt to say of queries what all of them say."""
        return fastest_encoder(self._pieces, {**self._weights, **_weights("questions.npz")})

    @cached_property
    def _weights(self) -> dict[str, NDArray[Any]]:
        return _weights("encoder.npz")

    @cached_property
    def _service(self) -> Probe:
        return Probe(**_weights("service.npz"))

    @cached_property
    def _sketcher(self) -> Sketcher:
        return Sketcher(self._pieces, _weights("sketcher.npz"))


class Sketches:
    """An embedder that only sketches: microseconds a text, for those who cannot wait."""

    def __init__(self, model: Shipped) -> None:
        self._model = model

    def queries(self, texts: Sequence[str]) -> Array:
        """What queries mean, roughly."""
        return self._model._sketcher.queries(_read(texts))

    def along(self, axes: Array) -> Callable[[Sequence[str]], Array]:
        """What reads queries by their numbers along some axes alone."""
        read = self._model._sketcher.queries_along(axes)
        return lambda texts: read(_read(texts))

    def tools(self, texts: Sequence[str]) -> Array:
        """What tools mean, roughly."""
        return self._model._sketcher.tools(_read(texts))


def _read(texts: Sequence[str]) -> list[str]:
    """Texts as the model reads them: in English, the only language it knows."""
    return list(map(in_english, texts))


def _likelihood(told: Array) -> float:
    """Of all that was told of a name's pieces. Of a name beyond what is read of a text it is nothing."""
    return 1 / (1 + math.exp(-float(told.mean()))) if len(told) else 0.0


def _checksums(name: str) -> str:
    with (_DATA / name).open("rb") as file, ZipFile(file) as weights:
        return " ".join(f"{one.filename} {one.CRC}" for one in weights.infolist())


def _weights(name: str) -> dict[str, NDArray[Any]]:
    with (_DATA / name).open("rb") as file:
        return arrays(file)


SHIPPED = Shipped()
