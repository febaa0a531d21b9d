"""What an embedder gave, held to what it promised: one row a text, all of one width, no holes."""

from __future__ import annotations

from typing import Any

import numpy as np

from toolcrib.core.ranking.embedder import Vectors
from toolcrib.errors import EmbeddingFailed

MAX_WIDTH = 16_384


def checked_rows(found: Any, count: int, source: str) -> Vectors:
    """The rows as floats of 32 bits. What cannot be one row a text raises `EmbeddingFailed`."""
    try:
        if isinstance(found, np.ndarray) and found.dtype == np.float32:
            rows = found
        else:
            # A number beyond 32 bits becomes infinite, which is told below.
            with np.errstate(over="ignore"):
                rows = np.asarray(found, dtype=np.float32)
    except (TypeError, ValueError, RuntimeError, OverflowError) as fault:
        raise EmbeddingFailed(
            f"{source} gave {type(found).__name__} that is no table of numbers ({fault}); "
            "it should give one row of floats a text, all of one width"
        ) from fault
    if rows.ndim != 2 or len(rows) != count or not 1 <= rows.shape[1] <= MAX_WIDTH:
        raise EmbeddingFailed(
            f"{source} gave vectors of the shape {rows.shape} for {count} texts; it should give "
            f"one row a text, of 1 to {MAX_WIDTH:,} numbers"
        )
    if not np.isfinite(rows).all():
        raise EmbeddingFailed(
            f"{source} gave a vector with a number that is infinite or none (NaN); "
            "look at the model's precision, or use another model"
        )
    return rows
