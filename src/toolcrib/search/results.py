"""What a search gives: hits, how sure it is of them, and why a tool is or is not among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from toolcrib.core.tool import Tool
from toolcrib.search.ranker import MatchReason

# The confidence of a hit that just fits.
CONFIDENCE_THRESHOLD: Final = 0.5
# Why one query finds the tool in a slot.
Reasons = Callable[[int], tuple[MatchReason, ...]]


class Hit:
    """A tool that was found, and how well it fits: 0 to 1, comparable between queries."""

    # By hand: as a frozen dataclass, making ten hits would take a fifth of a search.
    __slots__ = ("_reasons", "score", "slot", "tool")

    def __init__(self, tool: Tool, score: float, slot: int, reasons: Reasons) -> None:
        self.tool = tool
        self.score = score
        self.slot = slot
        self._reasons = reasons

    @property
    def reasons(self) -> tuple[MatchReason, ...]:
        """Which term hit which field, and its share of the score; the strongest first."""
        return self._reasons(self.slot)

    def has_same_text(self, other: Hit) -> bool:
        """Whether another tool goes by the same name and is described in the same words, if in any."""
        mine, its = self.tool, other.tool
        said = mine.description.strip()
        return bool(said) and (mine.name, said) == (its.name, its.description.strip())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hit) and (self.tool, self.score) == (other.tool, other.score)

    def __hash__(self) -> int:
        return hash((self.tool, self.score))

    def __repr__(self) -> str:
        return f"Hit({self.tool.id!r}, {self.score})"


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits, best first; `more` says that there are others behind them."""

    query: str
    mode: str
    hits: tuple[Hit, ...]
    has_more: bool = False
    notes: tuple[str, ...] = ()
    # How sure it is that one of these hits fits, from 0 to 1, and from where on that is enough.
    confidence: float = 0.0
    confidence_threshold: float = CONFIDENCE_THRESHOLD
    # Where several needs were asked for, the result of each.
    parts: tuple[SearchResult, ...] = ()
    # Of the needs that were asked for, those that none of the best hits fits, on this page and before
    # it and at least five, if others have one that does. Within one query it goes by the ranker's
    # floor, whatever the border.
    uncovered: tuple[str, ...] = ()

    @property
    def is_confident(self) -> bool:
        """Whether one of these hits fits. If not, they are only the nearest there is."""
        return bool(self.hits) and self.confidence >= self.confidence_threshold

    def with_threshold(self, threshold: float) -> SearchResult:
        """The same, confident only from this confidence on. Needs within one query stay as they are."""
        parts = tuple(one.with_threshold(threshold) for one in self.parts)
        needs = find_uncovered(parts) if parts else self.uncovered
        return replace(self, confidence_threshold=threshold, parts=parts, uncovered=needs)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


def find_uncovered(results: Sequence[SearchResult]) -> tuple[str, ...]:
    """The needs that none of these results serves, if there is one that is served."""
    if not any(one.is_confident for one in results):
        return ()
    needs = ((one.uncovered if one.is_confident else (one.query,)) for one in results)
    return tuple(dict.fromkeys(chain.from_iterable(needs)))


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one tool was returned, or was not. `rank` counts from 1; None if it does not match."""

    tool: Tool
    is_returned: bool
    rank: int | None
    score: float
    verdict: str
    reasons: tuple[MatchReason, ...] = ()


@dataclass(frozen=True, slots=True)
class HitGroup:
    """Hits that do the same on several servers: the best one, and the others."""

    best: Hit
    others: tuple[Hit, ...] = ()


def group_hits(
    hits: Sequence[Hit], are_duplicates: Callable[[Hit, Hit], bool]
) -> tuple[HitGroup, ...]:
    """The hits in their order, each with those after it that do the same on another server."""
    groups: list[list[Hit]] = []
    for hit in hits:
        for group in groups:
            servers = {one.tool.server for one in group}
            if hit.tool.server not in servers and are_duplicates(group[0], hit):
                group.append(hit)
                break
        else:
            groups.append([hit])
    return tuple(HitGroup(best, tuple(others)) for best, *others in groups)
