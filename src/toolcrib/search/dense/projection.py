"""Project static vectors on a few dimensions, so that a large catalog is compared faster.

Along the principal axes of a catalog a few dimensions carry most of the information. The others are
dropped: in static vectors they are mostly noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from toolcrib.search.dense.embedder import (
    EmbedQueries,
    ProjectableEmbedder,
    Vectors,
    call_embedder,
    check_width,
    non_finite_error,
    validate_shape,
)
from toolcrib.search.dense.vector_table import AXES_SAMPLE_SIZE, normalize_vectors, principal_axes

PROJECTED_DIMENSIONS: Final = 40
# People and models repeat their queries.
MAX_CACHED_QUERIES: Final = 1_024
# Shorter vectors are treated as zero.
_MIN_LENGTH: Final = 1e-37


@dataclass(frozen=True, slots=True, eq=False)
class QueryProjection:
    """The axes of a catalog, and a function that embeds queries along them."""

    axes: Vectors
    embed_queries: EmbedQueries

    @classmethod
    def fit(cls, vectors: Vectors, embedder: ProjectableEmbedder) -> QueryProjection:
        """Return the projection for the vectors of a catalog."""
        sample = normalize_vectors(vectors[:: -(-len(vectors) // AXES_SAMPLE_SIZE)])
        axes = np.ascontiguousarray(principal_axes(sample)[:, :PROJECTED_DIMENSIONS])
        projected = sample @ axes
        # The mean share of a vector that the projection keeps. The dropped parts of two vectors
        # are unrelated, so this share scales their similarity.
        kept_share = float(np.einsum("ij,ij->", projected, projected)) / len(projected)
        embed = call_embedder(embedder.build_projected_embedder, axes)

        @lru_cache(MAX_CACHED_QUERIES)
        def embed_cached(texts: tuple[str, ...]) -> Vectors:
            rows = validate_shape(call_embedder(embed, texts), len(texts))
            check_width("queries", rows, axes.shape[1])
            scaled = _scale(rows, kept_share)
            scaled.flags.writeable = False
            return scaled

        return cls(axes, lambda texts: embed_cached(tuple(texts)))


def _scale(rows: Vectors, length: float) -> Vectors:
    """Return the rows scaled to a length, so that similarities are as with all dimensions."""
    # For a few short rows plain Python is faster than numpy. `hypot` also avoids the overflow of a
    # square in float32.
    lengths = [math.hypot(*row) for row in rows.tolist()]
    if not all(map(math.isfinite, lengths)):
        raise non_finite_error()
    factors = [length / current if current > _MIN_LENGTH else 0.0 for current in lengths]
    if len(factors) == 1:
        return rows * factors[0]
    scaled: Vectors = rows * np.array(factors, np.float32)[:, None]
    return scaled
