"""What turns texts into vectors: ours, or one that a user brings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, ParamSpec, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from toolcrib.errors import EmbeddingFailed, ToolcribError

Vectors = NDArray[np.float32]
EmbedQueries = Callable[[Sequence[str]], Vectors]

# How likely a name is that of a service where nobody can tell: most that queries mention are.
DEFAULT_SERVICE_PROBABILITY: Final = 0.75

_MAX_FAULT_CHARS: Final = 300

_Asked = ParamSpec("_Asked")
_Answer = TypeVar("_Answer")


class Embedder(Protocol):
    """Two methods: queries and tools may be read differently, but meet in one space.

    Both return one row a text, all rows of one width. Rows need not have length one. Whatever they
    raise means that the embedder is down: a search raises `EmbeddingFailed`, or falls back.
    """

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """What people and models ask for."""

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        """What tools say of themselves: `toolcrib.search.dense.tool_text`."""


@runtime_checkable
class ProvisionalEmbedder(Embedder, Protocol):
    """An embedder that can say something of a tool at once, and more when it has time to read it."""

    def embed_provisional(self, texts: Sequence[str]) -> tuple[Vectors, NDArray[np.bool_]]:
        """Vectors that need no waiting, and which of them are as good as those of `tools`."""


@runtime_checkable
class ProjectableEmbedder(Embedder, Protocol):
    """An embedder of rough vectors, cheap to make: a few numbers of each do in a large catalog."""

    def build_projected_embedder(self, axes: Vectors) -> EmbedQueries:
        """What reads queries as `queries` does, but tells only their numbers along some axes.

        The axes are the columns. Rows need not have length one.
        """


class ServiceNameEmbedder(Embedder, Protocol):
    """An embedder that can tell names of services from those of places, people and all else."""

    def score_service_names(self, text: str, names: Sequence[str]) -> Sequence[float]:
        """How likely each of the names that a query mentions is that of a service, from 0 to 1."""


def call_embedder(
    function: Callable[_Asked, _Answer], *args: _Asked.args, **options: _Asked.kwargs
) -> _Answer:
    """What an embedder answers. It may be anybody's, so anything it raises is an `EmbeddingFailed`."""
    try:
        return function(*args, **options)
    except ToolcribError:
        raise
    except Exception as fault:
        said = f"{type(fault).__name__}: {fault}"[:_MAX_FAULT_CHARS]
        raise EmbeddingFailed(
            f"the embedder raised {said}; see that it has what it needs, or put a ranker behind it "
            "that needs less, with `WithFallback`"
        ) from fault


def score_service_names(embedder: Embedder, text: str, names: Sequence[str]) -> Sequence[float]:
    """What an embedder says of names; of one that says nothing, a guess."""
    # Asked for by name: to ask whether it is a `NamingEmbedder` takes longer than many an answer.
    tell: Callable[[str, Sequence[str]], Sequence[float]] | None
    tell = getattr(embedder, "services", None)
    if tell is None:
        return [DEFAULT_SERVICE_PROBABILITY] * len(names)
    told = call_embedder(tell, text, names)
    try:
        likely = [float(each) for each in told] if len(told) == len(names) else []
    except Exception:  # Anybody's: what it gave may fail in any way when it is looked at.
        likely = []
    # In plain Python: a query names a handful. What is no number is in no order either.
    if len(likely) != len(names) or not all(0 <= each <= 1 for each in likely):
        raise EmbeddingFailed(
            f"the embedder gave {type(told).__name__} for the services among {len(names)} names; "
            "its `services` should give a list of one number a name, each from 0 to 1, or not be "
            "there at all"
        )
    return likely
