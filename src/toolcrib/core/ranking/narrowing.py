"""Vectors by fewer numbers: for those that are rough anyway, and should be compared in no time.

Along the principal axes of a catalog a few numbers say most of what its vectors say. Here the others
are let go, of all tools alike. What the others say of a sketch is mostly noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from toolcrib.core.ranking.embedder import QueryReader, RoughEmbedder, Vectors, answer
from toolcrib.core.ranking.vectors import SAMPLE, extreme, principal_axes, unit

NUMBERS: Final = 48


@dataclass(frozen=True, slots=True, eq=False)
class Narrowing:
    """Some axes; how queries are read along them; and how alike what is the same along them is."""

    axes: Vectors
    queries: QueryReader
    likeness: np.float32

    @classmethod
    def of(cls, vectors: Vectors, embedder: RoughEmbedder) -> Narrowing:
        """The axes of the vectors of a catalog."""
        sample = unit(vectors[:: -(-len(vectors) // SAMPLE)])
        axes = np.ascontiguousarray(principal_axes(sample)[:, :NUMBERS])
        kept = sample @ axes
        # The rest of two vectors has nothing in common: on the whole, so much of them has.
        likeness = np.einsum("ij,ij->", kept, kept) / np.float32(len(kept))
        return cls(axes, answer(embedder.along, axes), likeness)

    def scaled(self, rows: Vectors) -> Vectors:
        """What was read of queries, of the length that makes likeness what it is by all numbers."""
        with np.errstate(over="ignore"):
            lengths = np.sqrt(np.vecdot(rows, rows))
        if extreme(lengths):
            return unit(rows) * self.likeness
        whole: Vectors = rows * (self.likeness / lengths)[:, None]
        return whole
