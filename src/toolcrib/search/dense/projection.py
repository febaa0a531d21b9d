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

from toolcrib.search.dense.embedder import EmbedQueries, ProjectableEmbedder, Vectors, call_embedder
from toolcrib.search.dense.vector_checks import check_width, non_finite_error, validate_shape
from toolcrib.search.dense.vector_table import AXES_SAMPLE_SIZE, normalize_vectors, principal_axes

PROJECTED_DIMENSIONS: Final = 40
# Queries that are remembered: people and models ask the same again.
MAX_CACHED_QUERIES: Final = 1_024
# No vector is as short as this, unless it is none.
_NOTHING: Final = 1e-37


@dataclass(frozen=True, slots=True, eq=False)
class QueryProjection:
    """Some axes, and what reads queries along them."""

    axes: Vectors
    embed_queries: EmbedQueries

    @classmethod
    def fit(cls, vectors: Vectors, embedder: ProjectableEmbedder) -> QueryProjection:
        """The axes of the vectors of a catalog."""
        sample = normalize_vectors(vectors[:: -(-len(vectors) // AXES_SAMPLE_SIZE)])
        axes = np.ascontiguousarray(principal_axes(sample)[:, :PROJECTED_DIMENSIONS])
        kept = sample @ axes
        # The rest of two vectors has nothing in common: on the whole, so much of them has.
        likeness = float(np.einsum("ij,ij->", kept, kept)) / len(kept)
        read = call_embedder(embedder.build_projected_embedder, axes)

        @lru_cache(MAX_CACHED_QUERIES)
        def remembered(texts: tuple[str, ...]) -> Vectors:
            rows = validate_shape(call_embedder(read, texts), len(texts))
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
        raise non_finite_error()
    factors = [likeness / long if long > _NOTHING else 0.0 for long in lengths]
    if len(factors) == 1:
        return rows * factors[0]
    scaled: Vectors = rows * np.array(factors, np.float32)[:, None]
    return scaled
