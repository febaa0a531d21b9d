"""The model that comes with the package, loaded when it is first asked something."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from toolcrib.model.choice import fastest_encoder
from toolcrib.model.encoder import Array, Encoder
from toolcrib.model.sketch import Sketcher
from toolcrib.model.wordpiece import WordPiece

_DATA = files("toolcrib.model") / "data"


class Shipped:
    """An embedder that reads queries and tools, and sketches tools it has not read."""

    def queries(self, texts: Sequence[str]) -> Array:
        """What queries mean."""
        return self._encoder.encode(texts)

    def tools(self, texts: Sequence[str]) -> Array:
        """What tools mean, read with care."""
        return self._encoder.encode(texts)

    def at_once(self, texts: Sequence[str]) -> tuple[Array, NDArray[np.bool_]]:
        """What tools mean, roughly; none of them is read."""
        return self._sketcher.tools(texts), np.zeros(len(texts), np.bool_)

    @property
    def sketches(self) -> Sketches:
        """The rough half by itself."""
        return Sketches(self)

    @cached_property
    def _pieces(self) -> WordPiece:
        return WordPiece((_DATA / "vocabulary.txt").read_text(encoding="utf-8").splitlines())

    @cached_property
    def _encoder(self) -> Encoder:
        return fastest_encoder(self._pieces, _weights("encoder.npz"))

    @cached_property
    def _sketcher(self) -> Sketcher:
        return Sketcher(self._pieces, _weights("sketcher.npz"))


class Sketches:
    """An embedder that only sketches: microseconds a text, for those who cannot wait."""

    def __init__(self, model: Shipped) -> None:
        self._model = model

    def queries(self, texts: Sequence[str]) -> Array:
        """What queries mean, roughly."""
        return self._model._sketcher.queries(texts)

    def tools(self, texts: Sequence[str]) -> Array:
        """What tools mean, roughly."""
        return self._model._sketcher.tools(texts)


def _weights(name: str) -> dict[str, NDArray[np.generic]]:
    with (_DATA / name).open("rb") as file, np.load(file) as arrays:
        return dict(arrays)


SHIPPED = Shipped()
