"""A vector for every tool of a catalog, compared with a query's in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.ranking.embedder import Vectors

# Slots to a block. A successor copies the blocks it changes and shares the others.
BLOCK: Final = 4_096

_TINY: Final = np.float32(1e-12)


class VectorTable:
    """Vectors of length one by slot; a slot without a tool holds zeros, and is like nothing."""

    __slots__ = ("_blocks", "span", "width")

    def __init__(self, blocks: tuple[Vectors, ...], span: int, width: int) -> None:
        self._blocks = blocks
        self.span = span
        self.width = width

    @classmethod
    def empty(cls, width: int) -> VectorTable:
        """A table without slots."""
        return cls((), 0, width)

    def updated(self, vectors: Mapping[int, Vectors | None], span: int) -> VectorTable:
        """A table in which these slots hold these vectors, or none."""
        blocks = list(self._blocks)
        while BLOCK * len(blocks) < span:
            blocks.append(np.zeros((BLOCK, self.width), np.float32))
        own: set[int] = set(range(len(self._blocks), len(blocks)))
        for slot, vector in vectors.items():
            at, row = divmod(slot, BLOCK)
            if at not in own:
                blocks[at] = blocks[at].copy()
                own.add(at)
            blocks[at][row] = 0 if vector is None else unit(vector)
        return VectorTable(tuple(blocks), span, self.width)

    def likeness(self, vectors: Vectors) -> NDArray[np.float32]:
        """How alike each of some vectors of length one and every slot are: a row of cosines each.

        What it costs is reading the table, so all vectors are held against it in one pass.
        """
        found = np.empty((len(vectors), self.span), np.float32)
        columns = vectors.T
        for at, block in enumerate(self._blocks):
            begin = at * BLOCK
            rows = block[: self.span - begin]
            found[:, begin : begin + len(rows)] = (rows @ columns).T
        return found

    def __getitem__(self, slot: int) -> Vectors:
        at, row = divmod(slot, BLOCK)
        vector: Vectors = self._blocks[at][row]
        return vector


def unit(vectors: Vectors) -> Vectors:
    """Vectors brought to length one; a vector of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    whole: Vectors = (vectors / np.maximum(lengths, _TINY)).astype(np.float32)
    return whole
