"""The interface of a ranker, and the ranking it returns.

A `Ranker` is fitted to a catalog once and gives an `Index`, which ranks many queries. Tools are
referred to by *slot*: the row number of a tool in its catalog and in every index of it. A slot
stays the same when other tools come or go, and is empty once its tool is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.search.query.parser import ParsedQuery, Syntax

Slots = NDArray[np.integer[Any]]
Scores = NDArray[np.floating[Any]]
# A slot and its score.
Candidate = tuple[int, float]

# An index of fewer tools is built fast enough without a file, and one with more changes is built again.
MIN_STORED_TOOLS: Final = 1_000
MAX_CHANGES_OF_STORED: Final = 500
# Identifies the format of stored indexes. Another value is needed when equal tools give other arrays or texts to embed.
STORED_FORMAT: Final = "1"

# The minimum score of a hit that fits, for rankers without a calibration.
DEFAULT_THRESHOLD: Final = 0.25
EMPTY_CATALOG: Final = Catalog()

Analysis = TypeVar("Analysis")


@dataclass(frozen=True, slots=True)
class MatchReason:
    """A reason why a tool matches: which term hit which field, and its share of the score.

    The shares of a tool's reasons add up to 1.
    """

    term: str
    field: str
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class Note:
    """A message about a search. If it is about tools, it is for callers who may see one of them."""

    text: str
    slots: Slots | None = None


class Ranking(NamedTuple):
    """The slots that match a query, ascending, each with a score from 0 to 1.

    A hit fits if it reaches the `threshold`; below that it is only the nearest match. What is
    compared with the threshold is the score, or the best of the slot's `fits` if a ranker has a
    better measure than the score it orders by.
    """

    slots: Slots
    scores: Scores
    notes: tuple[Note, ...] = ()
    threshold: float = DEFAULT_THRESHOLD
    # How well each slot fits: a row for the whole query, then one for each of its segments.
    fits: Scores | None = None
    segments: tuple[str, ...] = ()
    # False if some tools were compared by provisional vectors; `warm_up` changes that.
    fully_encoded: bool = True

    def filter_slots(self, mask: NDArray[np.bool_]) -> Ranking:
        """Return the ranking of those of its slots that the mask selects."""
        fits = None if self.fits is None else self.fits[:, mask]
        return self._replace(slots=self.slots[mask], scores=self.scores[mask], fits=fits)

    def fits_of(self, slots: list[int] | Slots) -> Scores:
        """Return the fits of some slots of this ranking, in the order of the slots."""
        rows = self.scores[None] if self.fits is None else self.fits
        return rows.take(self.slots.searchsorted(slots), axis=1)

    def top(self, count: int) -> list[Candidate]:
        """Return the best slots, highest score first; equal scores in catalog order."""
        slots, scores = self.slots, self.scores
        # Sorting a few is faster than sorting all, so slots with a low score are dropped first. The
        # cut-off is found in every 16th score: at least `count` of all the scores reach it.
        for step, many in ((16, 256), (1, 4)):
            if len(scores) > many * count:
                sample = scores[::step].copy()
                sample.partition(len(sample) - count)
                kept = (scores >= sample[len(sample) - count]).nonzero()[0]
                slots, scores = slots.take(kept), scores.take(kept)
        best = list(zip(slots.tolist(), scores.tolist(), strict=True))
        # Slots ascend and the sort is stable, so equal scores stay in catalog order.
        best.sort(key=itemgetter(1), reverse=True)
        return best[:count]

    def judge(self, best: list[Candidate]) -> tuple[list[float], tuple[str, ...]]:
        """Return how well each of the best slots fits, and the segments without a fitting slot.

        No segment is returned if none is covered: then the query was split wrongly.
        """
        if self.fits is None or not best:
            return [score for _, score in best], ()
        rows = self.fits_of([slot for slot, _ in best])
        if not self.segments:
            return rows[0].tolist(), ()
        segments = zip(self.segments, rows[1:].max(axis=1).tolist(), strict=True)
        uncovered = tuple(segment for segment, fit in segments if fit < self.threshold)
        is_split_wrongly = len(uncovered) == len(self.segments)
        return rows.max(axis=0).tolist(), () if is_split_wrongly else uncovered

    def notes_about(self, slots: list[int]) -> tuple[str, ...]:
        """Return the notes that are general, or about one of these slots.

        Notes about other tools could reveal tools that the caller may not see.
        """
        return tuple(note.text for note in self.notes if note.slots is None or np.isin(note.slots, slots).any())


class Index(Protocol):
    """A ranker fitted to one catalog."""

    def rank(self, query: ParsedQuery) -> Ranking:
        """Return every tool that matches. Raises `InvalidQuery` if the query cannot be read."""

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """Return why the query matches the tool in a slot; empty if it does not."""

    def with_catalog(self, catalog: Catalog) -> Index:
        """Return an index of a later catalog, built from this one."""


@runtime_checkable
class WarmableIndex(Protocol):
    """An index that can be searched immediately and gets better with work done ahead."""

    def warm_up(self, max_tools: int) -> int:
        """Do the work for up to `max_tools` tools; return for how many tools it is left."""


@runtime_checkable
class SimilarityIndex(Protocol):
    """An index that can compare tools with each other."""

    def pairwise_similarity(self, slots: list[int]) -> NDArray[np.float32]:
        """Return the similarity of each of these tools to each other, as a square matrix."""


class ArrayStore(Protocol):
    """Keeps the arrays of one index between runs. An error of reading or writing is not raised."""

    def read(self) -> Mapping[str, NDArray[Any]] | None:
        """Return the arrays that were written last; None if there are none, or if they are damaged."""

    def write(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the arrays."""


class Ranker(Protocol):
    """A way to rank tools."""

    @property
    def syntax(self) -> Syntax:
        """How queries are parsed. Unless they are patterns, an exact tool name ranks first."""

    def fit(self, catalog: Catalog) -> Index:
        """Return an index of a catalog."""


def match_slots(catalog: Catalog, digests: NDArray[np.uint64]) -> tuple[Slots, list[int]]:
    """Return the slot of each stored tool, given their `Catalog.digests`, and the slots of other tools.

    The slot of a tool that the catalog does not have is -1.
    """
    current = catalog.digests
    order = np.argsort(current[:, 0])
    places = np.searchsorted(current[order, 0], digests[:, 0])
    slots = np.append(order, -1)[places]
    is_same = (current[slots] == digests).all(axis=1) & digests.any(axis=1) & (slots >= 0)
    slots[~is_same] = -1
    is_other = catalog.occupied_mask.copy()
    is_other[slots[is_same]] = False
    return slots, is_other.nonzero()[0].tolist()


def warm_up_index(index: Index, max_tools: int) -> int:
    """Warm up an index if it can be; return for how many tools work is left."""
    return index.warm_up(max_tools) if isinstance(index, WarmableIndex) else 0


def pairwise_similarity(index: Index, slots: list[int]) -> NDArray[np.float32]:
    """Return the similarity of tools; if the index cannot compare, each is similar to itself only."""
    if isinstance(index, SimilarityIndex):
        return index.pairwise_similarity(slots)
    return np.eye(len(slots), dtype=np.float32)


def top_slots(scores: Scores, count: int) -> NDArray[np.intp]:
    """Return the slots of the best scores, highest first; equal scores in catalog order."""
    if len(scores) > count:
        least = np.partition(scores, len(scores) - count)[len(scores) - count]
        slots = (scores >= least).nonzero()[0]
    else:
        slots = np.arange(len(scores))
    best: NDArray[np.intp] = slots[np.argsort(-scores[slots], kind="stable")][:count]
    return best


def ranking_from_scores(scores: dict[int, float]) -> Ranking:
    """Return a ranking from scores by slot, for rankers that score one tool at a time."""
    slots = np.array(sorted(scores), dtype=np.int32)
    values = np.array([scores[slot] for slot in slots.tolist()], dtype=np.float32)
    return Ranking(slots, values)


def analyze_slots(
    catalog: Catalog,
    analyze: Callable[[Tool], Analysis],
    previous: Mapping[int, Analysis],
    since: Catalog = EMPTY_CATALOG,
) -> dict[int, Analysis]:
    """Return the analysis of every tool by slot.

    `previous` is the analysis of an earlier catalog, `since`; only tools changed since then are
    analyzed.
    """
    changed: Iterable[int] | None = catalog.changed_slots(since)
    if changed is None:
        changed, previous = range(catalog.slot_count), {}
    analyses = dict(previous)
    for slot in changed:
        tool = catalog.tool_at(slot)
        if tool is None:
            analyses.pop(slot, None)
        else:
            analyses[slot] = analyze(tool)
    return analyses
