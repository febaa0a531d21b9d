"""What an embedder gave, held to what it promised: one row a text, all of one width, no holes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolcrib.errors import EmbeddingFailed
from toolcrib.search.dense.embedder import Vectors

MAX_WIDTH = 16_384
DEFAULT_SOURCE = "the embedder"


def validate_vectors(found: Any, count: int, source: str = DEFAULT_SOURCE) -> Vectors:
    """The rows as floats of 32 bits. What cannot be one row a text raises `EmbeddingFailed`."""
    rows = validate_shape(found, count, source)
    if not np.isfinite(rows).all():
        raise non_finite_error(source)
    return rows


def validate_shape(found: Any, count: int, source: str = DEFAULT_SOURCE) -> Vectors:
    """The same, for those who see by themselves whether every number is one."""
    try:
        if isinstance(found, np.ndarray) and found.dtype == np.float32:
            rows = found
        else:
            # A number beyond 32 bits becomes infinite, which is told below.
            with np.errstate(over="ignore"):
                rows = _real(np.asarray(found)).astype(np.float32, copy=False)
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
    return rows


def non_finite_error(source: str = DEFAULT_SOURCE) -> EmbeddingFailed:
    """What to raise of rows with a hole."""
    return EmbeddingFailed(
        f"{source} gave a vector with a number that is infinite or none (NaN); "
        "look at the model's precision, or use another model"
    )


def validate_provisional(
    found: Any, count: int, source: str = DEFAULT_SOURCE
) -> tuple[Vectors, NDArray[np.bool_]]:
    """What `at_once` gave: the rows, and which of them are as good as those of `tools`."""
    vectors, is_read = found if isinstance(found, tuple) and len(found) == 2 else (None, None)
    if (
        not isinstance(is_read, np.ndarray)
        or is_read.dtype != np.bool_
        or is_read.shape != (count,)
    ):
        raise EmbeddingFailed(
            f"{source} gave {_shown(found)} at once for {count} texts; its `at_once` should give a "
            "tuple of two: the vectors, and a numpy array with one bool a text, True where the "
            "vector is as good as that of `tools`; or not be there at all"
        )
    return validate_vectors(vectors, count, source), is_read


def check_width(side: str, vectors: Vectors, width: int) -> None:
    """Refuse vectors that cannot lie in the space of those there are: they are another model's."""
    if vectors.shape[1] != width:
        raise EmbeddingFailed(
            f"the embedder gives {side} {vectors.shape[1]} numbers, where it gave tools {width}; "
            "all must come from one model: if it was changed, start anew with the new one, and "
            "clear what is cached of the old one or give the new one another name"
        )


def _shown(found: Any) -> str:
    if isinstance(found, tuple):
        return f"a tuple of {', '.join(type(one).__name__ for one in found[:3]) or 'nothing'}"
    return type(found).__name__


def _real(found: NDArray[Any]) -> NDArray[Any]:
    if found.dtype.kind == "c":
        raise TypeError("its numbers are complex")
    return found
