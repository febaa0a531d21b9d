"""What every ranker is: fitted once to a catalog, then asked many times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog

Slots = NDArray[np.integer[Any]]
Scores = NDArray[np.floating[Any]]
# How well the tools in some slots fit. In plain Python: it is asked about a page, mostly a handful.
Fits = Callable[[list[int]], list[float]]


@dataclass(frozen=True, slots=True)
class MatchReason:
    """Why a tool was found: which term hit which field, and its share of the tool's score.

    The shares of a tool's reasons add up to 1.
    """

    term: str
    field: str
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class Note:
    """Something to tell the asker. A note about tools is for those who get to see one of them."""

    text: str
    slots: Slots | None = None


# From this score on a hit fits, where a ranker does not know better.
DEFAULT_THRESHOLD: Final = 0.25


class Ranking(NamedTuple):
    """The slots that match, ascending, each with a score from 0 to 1, and what to tell the asker.

    A hit below the `floor` is only the nearest there is to what was asked. What is held against the
    floor is the score, unless a ranker has a better measure of fitting than the one it orders by.
    """

    slots: Slots
    scores: Scores
    notes: tuple[Note, ...] = ()
    threshold: float = DEFAULT_THRESHOLD
    # Asked about the few that are chosen.
    fits: Fits | None = None
    # Where tools far from the top are scored roughly: the ranking of just some slots, scored exactly.
    closer: Callable[[Slots], Ranking] | None = None
    # Where the query asks for several things: those of them that no tool in some slots fits.
    unfit: Callable[[list[int]], tuple[str, ...]] | None = None

    def filter_slots(self, mask: NDArray[np.bool_]) -> Ranking:
        """What is left of it if only these of its slots are kept."""
        return self._replace(slots=self.slots[mask], scores=self.scores[mask])

    def uncovered_segments(self, chosen: Sequence[tuple[int, float]]) -> tuple[str, ...]:
        """The needs of the query that none of some hits, slots and scores, fits."""
        return () if self.unfit is None else self.unfit(_slots(chosen))

    def margin(self, chosen: Sequence[tuple[int, float]]) -> float:
        """How far the best fitting of some hits, slots and scores, is above the floor, or below."""
        if self.fits is None:
            return max(score for _, score in chosen) - self.threshold
        return max(self.fits(_slots(chosen))) - self.threshold


class Index(Protocol):
    """A ranker fitted to one catalog. Asking it changes nothing."""

    def rank(self, query: str) -> Ranking:
        """Every tool that matches. Nothing found is an empty ranking; a bad query raises."""

    def reasons(self, query: str, slot: int) -> tuple[MatchReason, ...]:
        """Why this query finds the tool in this slot; empty when it does not."""

    def with_catalog(self, catalog: Catalog) -> Index:
        """This index brought to a later catalog, without fitting what has not changed."""


@runtime_checkable
class WarmableIndex(Protocol):
    """An index that is good at once and gets better with work that can be done ahead."""

    def warm_up(self, max_tools: int) -> int:
        """Do the work for up to so many tools, and say for how many it is left."""


@runtime_checkable
class SimilarityIndex(Protocol):
    """An index that can tell how alike tools are to each other."""

    def pairwise_similarity(self, slots: list[int]) -> NDArray[np.float32]:
        """How alike the tools in these slots are, each to each."""


class Ranker(Protocol):
    """A way to rank, not yet fitted."""

    @property
    def prefers_exact_names(self) -> bool:
        """Whether a query which is a tool's name is answered with that tool."""

    def fit(self, catalog: Catalog) -> Index:
        """Fit to a catalog."""


def _slots(chosen: Sequence[tuple[int, float]]) -> list[int]:
    return [slot for slot, _ in chosen]


def warm_up_index(index: Index, max_tools: int) -> int:
    """What settling an index leaves to do: nothing, if it is none that settles."""
    return index.warm_up(max_tools) if isinstance(index, WarmableIndex) else 0


def pairwise_similarity(index: Index, slots: list[int]) -> NDArray[np.float32]:
    """How alike an index finds tools; if it cannot tell, each is like itself alone."""
    if isinstance(index, SimilarityIndex):
        return index.pairwise_similarity(slots)
    return np.eye(len(slots), dtype=np.float32)


def ranking_from_scores(scores: dict[int, float]) -> Ranking:
    """A ranking from scores by slot, for rankers that look at one tool at a time."""
    slots = np.array(sorted(scores), dtype=np.int32)
    values = np.array([scores[slot] for slot in slots.tolist()], dtype=np.float32)
    return Ranking(slots, values)
