"""Vectors by fewer numbers: for those that are rough anyway, and should be compared in no time.

Along the principal axes of a catalog a few numbers say most of what its vectors say. Here the others
are let go, of all tools alike. What the others say of a sketch is mostly noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from toolcrib.core.ranking.embedder import QueryReader, RoughEmbedder, Vectors, answer
from toolcrib.core.ranking.rows import check_width, checked_rows
from toolcrib.core.ranking.vectors import SAMPLE, extreme, lengths, principal_axes, unit

NUMBERS: Final = 40
# Queries that are remembered: people and models ask the same again.
MOST_QUERIES: Final = 1_024


@dataclass(frozen=True, slots=True, eq=False)
class Narrowing:
    """Some axes, and what reads queries along them."""

    axes: Vectors
    queries: QueryReader

    @classmethod
    def of(cls, vectors: Vectors, embedder: RoughEmbedder) -> Narrowing:
        """The axes of the vectors of a catalog."""
        sample = unit(vectors[:: -(-len(vectors) // SAMPLE)])
        axes = np.ascontiguousarray(principal_axes(sample)[:, :NUMBERS])
        kept = sample @ axes
        # The rest of two vectors has nothing in common: on the whole, so much of them has.
        likeness = np.einsum("ij,ij->", kept, kept) / np.float32(len(kept))
        read = answer(embedder.along, axes)

        @lru_cache(MOST_QUERIES)
        def remembered(texts: tuple[str, ...]) -> Vectors:
            rows = checked_rows(answer(read, texts), len(texts))
            check_width("queries", rows, axes.shape[1])
            scaled = _scaled(rows, likeness)
            scaled.flags.writeable = False
            return scaled

        return cls(axes, lambda texts: remembered(tuple(texts)))


def _scaled(rows: Vectors, likeness: np.float32) -> Vectors:
    """Rows of the length that makes their likeness what it is by all numbers."""
    long = lengths(rows)
    if extreme(long):
        return unit(rows) * likeness
    whole: Vectors = rows * (likeness / long)
    return whole
