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

from toolcrib.encoder.backend import build_encoder
from toolcrib.encoder.glossary import glossary_checksum, translate_to_english
from toolcrib.encoder.npz import load_arrays
from toolcrib.encoder.static import StaticEncoder
from toolcrib.encoder.tokenizer import WordPieceTokenizer, load_vocabulary
from toolcrib.encoder.transformer import MAX_TOKENS, Array, ServiceNameProbe, TransformerEncoder

# Tools whose vectors are remembered, so that another engine or mode need not read them again.
MAX_CACHED_TOOLS: Final = 20_000
# Queries whose vectors are remembered: models ask the same again, and reasons are asked for after hits.
MAX_CACHED_QUERIES: Final = 1_024

_DATA = files("toolcrib.encoder") / "data"


class DefaultEncoder:
    """An embedder that reads queries and tools, and sketches tools it has not read."""

    def __init__(self) -> None:
        self._tool_vectors: dict[str, Array] = {}
        self._query_vectors: dict[tuple[str, ...], Array] = {}
        self._probe_outputs: dict[str, Array] = {}

    def embed_queries(self, texts: Sequence[str]) -> Array:
        """What queries mean. Those that were asked together before are not read again.

        They are known as a whole, since which texts are read together may show in the last digit of
        a vector: the same question has the same answer, remembered or not.
        """
        known = self._query_vectors
        asked = tuple(texts)
        vectors = known.get(asked)
        if vectors is None:
            vectors, told = self._query_encoder.encode_and_probe(
                _translate_all(texts), self._service_probe
            )
            vectors.flags.writeable = False
            if len(known) >= MAX_CACHED_QUERIES:
                known = self._query_vectors = {}
                self._probe_outputs = {}
            known[asked] = vectors
            # Which of a query's names are services' is asked right after.
            self._probe_outputs.update(zip(texts, told, strict=True))
        return vectors

    def score_service_names(self, text: str, names: Sequence[str]) -> list[float]:
        """How likely each of the names that a query mentions is that of a service, from 0 to 1."""
        told = self._probe_outputs.get(text)
        if told is None:
            _, (told,) = self._query_encoder.encode_and_probe(
                _translate_all([text]), self._service_probe
            )
        places = (
            self._tokenizer.find_token_span(translate_to_english(text), name, MAX_TOKENS)
            for name in names
        )
        return [_mean_probability(told[place]) for place in places]

    def embed_tools(self, texts: Sequence[str]) -> Array:
        """What tools mean, read with care. No tool is read twice while it is remembered."""
        # Another thread may begin a new memory meanwhile; the old one stays whole.
        known = self._tool_vectors
        unread = [text for text in dict.fromkeys(texts) if text not in known]
        fresh = dict(zip(unread, self._tool_encoder.encode(_translate_all(unread)), strict=True))
        vectors = np.array([fresh[text] if text in fresh else known[text] for text in texts])
        if len(known) + len(fresh) > MAX_CACHED_TOOLS:
            known = self._tool_vectors = {}
        known.update(fresh)
        return vectors

    def embed_provisional(self, texts: Sequence[str]) -> tuple[Array, NDArray[np.bool_]]:
        """What tools mean: as it was read where it is remembered, and roughly where not."""
        vectors = self._static_encoder.embed_tools(_translate_all(texts))
        read = self._tool_vectors
        is_read = np.array([text in read for text in texts], np.bool_)
        if is_read.any():
            vectors[is_read] = [read[text] for text in texts if text in read]
        return vectors, is_read

    @cached_property
    def version(self) -> str:
        """How texts are read, for those who keep vectors: told by all that has a part in it."""
        parts = [
            _read_checksums("encoder.npz"),
            _read_checksums("questions.npz"),
            glossary_checksum(),
        ]
        return hashlib.blake2b(" ".join(parts).encode(), digest_size=8).hexdigest()

    @property
    def static_embedder(self) -> StaticEmbedder:
        """The rough half by itself."""
        return StaticEmbedder(self)

    @cached_property
    def _tokenizer(self) -> WordPieceTokenizer:
        return WordPieceTokenizer(load_vocabulary())

    @cached_property
    def _tool_encoder(self) -> TransformerEncoder:
        """Reads tools."""
        return build_encoder(self._tokenizer, self._tool_weights)

    @cached_property
    def _query_encoder(self) -> TransformerEncoder:
        """Reads queries: with half of the layers, which learnt to say of queries what all of them say."""
        return build_encoder(
            self._tokenizer, {**self._tool_weights, **_load_weights("questions.npz")}
        )

    @cached_property
    def _tool_weights(self) -> dict[str, NDArray[Any]]:
        return _load_weights("encoder.npz")

    @cached_property
    def _service_probe(self) -> ServiceNameProbe:
        return ServiceNameProbe(**_load_weights("service.npz"))

    @cached_property
    def _static_encoder(self) -> StaticEncoder:
        return StaticEncoder(self._tokenizer, _load_weights("sketcher.npz"))


class StaticEmbedder:
    """An embedder that only sketches: microseconds a text, for those who cannot wait."""

    def __init__(self, model: DefaultEncoder) -> None:
        self._encoder = model

    def embed_queries(self, texts: Sequence[str]) -> Array:
        """What queries mean, roughly."""
        return self._encoder._static_encoder.embed_queries(_translate_all(texts))

    def build_projected_embedder(self, axes: Array) -> Callable[[Sequence[str]], Array]:
        """What reads queries by their numbers along some axes alone."""
        read = self._encoder._static_encoder.build_projected_encoder(axes)
        return lambda texts: read(_translate_all(texts))

    def embed_tools(self, texts: Sequence[str]) -> Array:
        """What tools mean, roughly."""
        return self._encoder._static_encoder.embed_tools(_translate_all(texts))


def _translate_all(texts: Sequence[str]) -> list[str]:
    """Texts as the model reads them: in English, the only language it knows."""
    return list(map(translate_to_english, texts))


def _mean_probability(told: Array) -> float:
    """Of all that was told of a name's pieces. Of a name beyond what is read of a text it is nothing."""
    return 1 / (1 + math.exp(-float(told.mean()))) if len(told) else 0.0


def _read_checksums(name: str) -> str:
    with (_DATA / name).open("rb") as file, ZipFile(file) as weights:
        return " ".join(f"{one.filename} {one.CRC}" for one in weights.infolist())


def _load_weights(name: str) -> dict[str, NDArray[Any]]:
    with (_DATA / name).open("rb") as file:
        return load_arrays(file)


DEFAULT_ENCODER = DefaultEncoder()
