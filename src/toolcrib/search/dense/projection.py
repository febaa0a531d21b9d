"""Vectors by fewer numbers: for those that are rough anyway, and should be compared in no time.

Along the principal axes of a catalog a few numbers say most of what its vectors say. Here the others
are let go, of all tools alike. What the others say of a sketch is mostly noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from toolcrib.search.dense.embedder import QueryReader, RoughEmbedder, Vectors, answer
from toolcrib.search.dense.vector_checks import check_width, not_finite, shaped_rows
from toolcrib.search.dense.vector_table import SAMPLE, principal_axes, unit

NUMBERS: Final = 40
# Queries that are remembered: people and models ask the same again.
MOST_QUERIES: Final = 1_024
# No vector is as short as this, unless it is none.
_NOTHING: Final = 1e-37


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
        likeness = float(np.einsum("ij,ij->", kept, kept)) / len(kept)
        read = answer(embedder.along, axes)

        @lru_cache(MOST_QUERIES)
        def remembered(texts: tuple[str, ...]) -> Vectors:
            rows = shaped_rows(answer(read, texts), len(texts))
            check_width("queries", rows, axes.shape[1])
            scaled = _scaled(rows, likeness)
            scaled.flags.writeable = False
            return scaled

        return cls(axes, lambda texts: remembered(tuple(texts)))


def _scaled(rows: Vectors, likeness: float) -> Vectors:
    """Rows of the length that makes their likeness what it is by all numbers."""
    # In plain Python: of a handful of short rows it tells the lengths sooner than arrays do, and
    # rightly where 32 bits are too few for a square.
    lengths = [math.hypot(*row) for row in rows.tolist()]
    if not all(map(math.isfinite, lengths)):
        raise not_finite()
    factors = [likeness / long if long > _NOTHING else 0.0 for long in lengths]
    if len(factors) == 1:
        return rows * factors[0]
    scaled: Vectors = rows * np.array(factors, np.float32)[:, None]
    return scaled
