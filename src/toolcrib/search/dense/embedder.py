"""The interface of an embedder, and the checks of what it returns.

An embedder may be the shipped encoder or one that a user brings. Whatever it raises, and any result
that is not one vector a text, becomes an `EmbeddingFailed`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, ParamSpec, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from toolcrib.errors import EmbeddingFailed, ToolcribError

Vectors = NDArray[np.float32]

MAX_WIDTH: Final = 16_384
# The probability that a name is that of a service, for embedders that do not estimate it: most
# names in queries are.
DEFAULT_SERVICE_PROBABILITY: Final = 0.75

_SOURCE: Final = "the embedder"
_MAX_ERROR_CHARS: Final = 300

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


class Embedder(Protocol):
    """Embeds queries and tools in one vector space, possibly in different ways.

    Both methods return one row a text, all of the same width; rows need not have unit length. If a
    method raises, the embedder is considered down: a search raises `EmbeddingFailed` or falls back.
    """

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of queries."""

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of tool texts, as `toolcrib.search.dense.tool_text` builds them."""


@runtime_checkable
class ProvisionalEmbedder(Embedder, Protocol):
    """An embedder that can return provisional vectors of tools without delay."""

    def embed_provisional(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of tools that depend on their texts alone; those of `embed_tools` are better."""


@runtime_checkable
class StoringEmbedder(Embedder, Protocol):
    """An embedder that stores the vectors of tools between runs."""

    def read_stored(self, texts: Sequence[str]) -> Vectors | None:
        """Return what `embed_tools` returns if the vectors of all texts are stored, else None."""


def call_embedder(function: Callable[_Params, _Result], *args: _Params.args, **options: _Params.kwargs) -> _Result:
    """Call a method of an embedder. Whatever it raises becomes an `EmbeddingFailed`."""
    try:
        return function(*args, **options)
    except ToolcribError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:_MAX_ERROR_CHARS]
        raise EmbeddingFailed(
            f"the embedder raised {reason}; check that it has what it needs, or add a ranker to "
            "fall back on with `FallbackRanker`"
        ) from error


def score_service_names(embedder: Embedder, text: str, names: Sequence[str]) -> Sequence[float]:
    """Return the probability that each name is that of a service; a default if unknown."""
    # `isinstance` with a protocol takes longer than many an embedder takes to answer.
    score: Callable[[str, Sequence[str]], Sequence[float]] | None
    score = getattr(embedder, "score_service_names", None)
    if score is None:
        return [DEFAULT_SERVICE_PROBABILITY] * len(names)
    scores = call_embedder(score, text, names)
    try:
        probabilities = [float(each) for each in scores] if len(scores) == len(names) else []
    except Exception:  # The object comes from a user's embedder and may fail in any way.
        probabilities = []
    # Written so that NaN fails too.
    if len(probabilities) != len(names) or not all(0 <= each <= 1 for each in probabilities):
        raise EmbeddingFailed(
            f"the embedder returned {type(scores).__name__} for {len(names)} names; its "
            "`score_service_names` should return a list of one number a name, each from 0 to 1, or "
            "not exist"
        )
    return probabilities


def validate_vectors(result: Any, count: int, source: str = _SOURCE) -> Vectors:
    """Return the result of an embedder as float32 rows, one a text.

    Raises `EmbeddingFailed` if it is not a table of that many rows of finite numbers.
    """
    try:
        if isinstance(result, np.ndarray) and result.dtype == np.float32:
            rows = result
        else:
            # A number beyond the range of float32 becomes infinite, which is checked below.
            with np.errstate(over="ignore"):
                rows = _check_real(np.asarray(result)).astype(np.float32, copy=False)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise EmbeddingFailed(
            f"{source} returned {type(result).__name__}, which is not a table of numbers "
            f"({error}); it should return one row of floats a text, all of the same width"
        ) from error
    if rows.ndim != 2 or len(rows) != count or not 1 <= rows.shape[1] <= MAX_WIDTH:
        raise EmbeddingFailed(
            f"{source} returned vectors of the shape {rows.shape} for {count} texts; it should "
            f"return one row a text, of 1 to {MAX_WIDTH:,} numbers"
        )
    if not np.isfinite(rows).all():
        raise EmbeddingFailed(
            f"{source} returned a vector with an infinite number or NaN; check the model's precision, "
            "or use another model"
        )
    return rows


def check_width(side: str, vectors: Vectors, width: int) -> None:
    """Raise `EmbeddingFailed` if vectors have another width than those of the tools."""
    if vectors.shape[1] != width:
        raise EmbeddingFailed(
            f"the embedder returns {vectors.shape[1]} numbers for {side}, but returned {width} for "
            "tools; all vectors must come from one model: if it was changed, restart with the new "
            "one, and clear the cache of the old one or give the new one another name"
        )


def _check_real(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind == "c":
        raise TypeError("its numbers are complex")
    return values
