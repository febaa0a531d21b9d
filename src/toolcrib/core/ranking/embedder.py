"""What turns texts into vectors: ours, or one that a user brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


class Embedder(Protocol):
    """Two methods: queries and tools may be read differently, but meet in one space.

    Both return one row a text, all rows of one width. Rows need not have length one.
    """

    def queries(self, texts: Sequence[str]) -> Vectors:
        """What people and models ask for."""

    def tools(self, texts: Sequence[str]) -> Vectors:
        """What tools say of themselves: `toolcrib.core.ranking.passage`."""


@runtime_checkable
class PromptEmbedder(Embedder, Protocol):
    """An embedder that can say something of a tool at once, and more when it has time to read it."""

    def at_once(self, texts: Sequence[str]) -> tuple[Vectors, NDArray[np.bool_]]:
        """Vectors that need no waiting, and which of them are as good as those of `tools`."""
