"""The result of a search: hits, its confidence in them, and explanations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from itertools import chain
from numbers import Real
from typing import Any, Final

from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig
from toolcrib.search.ranker import MatchReason

# The confidence of a hit that just reaches its ranker's threshold.
CONFIDENCE_THRESHOLD: Final = 0.5
# How steeply the confidence grows around the ranker's threshold.
CONFIDENCE_SLOPE: Final = 20
# A hit whose score is below this share of the best one is a stranger among the results.
MIN_SCORE_SHARE: Final = 0.5
_MAX_CELL_CHARS: Final = 200


class Hit:
    """A tool that was found.

    `score` is from 0 to 1 and comparable between queries. `confidence` is how likely the tool fits,
    from 0 to 1. `reasons` are empty until `SearchEngine.with_reasons` fills them in.
    """

    # A frozen dataclass would add a fifth to the time of a search with ten hits.
    __slots__ = ("confidence", "reasons", "score", "slot", "tool")

    def __init__(
        self, tool: Tool, score: float, slot: int, confidence: float = 0.0, reasons: tuple[MatchReason, ...] = ()
    ) -> None:
        self.tool = tool
        self.score = score
        self.slot = slot
        self.confidence = confidence
        self.reasons = reasons

    def has_same_text(self, other: Hit) -> bool:
        """Return whether another tool has the same name and the same non-empty description."""
        description = self.tool.description.strip()
        return bool(description) and (self.tool.name, description) == (other.tool.name, other.tool.description.strip())

    def to_dict(self) -> dict[str, Any]:
        """Return the hit as JSON values."""
        return {
            "tool": self.tool.to_dict(),
            "score": self.score,
            "confidence": self.confidence,
            "reasons": [asdict(reason) for reason in self.reasons],
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hit) and (self.tool, self.score) == (other.tool, other.score)

    def __hash__(self) -> int:
        return hash((self.tool, self.score))

    def __repr__(self) -> str:
        return f"Hit({self.tool.id!r}, score={self.score:.3f}, confidence={self.confidence:.2f})"


def compute_confidence(margin: float) -> float:
    """Return the confidence in a hit that is above its ranker's threshold by this margin."""
    return round(1 / (1 + math.exp(-CONFIDENCE_SLOPE * margin)), 6)


@dataclass(frozen=True, slots=True, repr=False)
class SearchResult:
    """The hits of a search, best first.

    Attributes:
        has_more: Whether more hits follow this page.
        confidence: How likely it is that one of these hits fits, from 0 to 1.
        confidence_threshold: The confidence from which on the result is confident.
        parts: The result of each query, if there were several.
        uncovered: The segments of the query, or the queries, that none of the best hits fits,
            provided that a hit fits another one. The best hits are those up to the end of this
            page, and at least five. Segments of one query are measured by the ranker's threshold.
        fully_encoded: False if the catalog is large and `SearchEngine.warm_up` has not encoded all of
            its tools. Until it has, results stay the same, however many tools are encoded; afterwards
            they are better.
    """

    query: str
    mode: str
    hits: tuple[Hit, ...]
    has_more: bool = False
    notes: tuple[str, ...] = ()
    confidence: float = 0.0
    confidence_threshold: float = CONFIDENCE_THRESHOLD
    parts: tuple[SearchResult, ...] = ()
    uncovered: tuple[str, ...] = ()
    fully_encoded: bool = True

    @property
    def confident(self) -> bool:
        """Whether one of these hits fits. If not, they are only the nearest tools."""
        return bool(self.hits) and self.confidence >= self.confidence_threshold

    @property
    def fitting_hits(self) -> tuple[Hit, ...]:
        """The hits that fit, which a session loads; none if the result is not confident.

        A hit fits if it is confident itself and its score is not far below the best one.
        """
        if not self.confident:
            return ()
        min_score = MIN_SCORE_SHARE * max(hit.score for hit in self.hits)
        return tuple(hit for hit in self.hits if hit.confidence >= self.confidence_threshold and hit.score >= min_score)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "query": self.query,
            "mode": self.mode,
            "hits": [hit.to_dict() for hit in self.hits],
            "has_more": self.has_more,
            "notes": list(self.notes),
            "confident": self.confident,
            "confidence": self.confidence,
            "confidence_threshold": self.confidence_threshold,
            "parts": [part.to_dict() for part in self.parts],
            "uncovered": list(self.uncovered),
            "fully_encoded": self.fully_encoded,
        }

    def __repr__(self) -> str:
        hits = ", ".join(f"{hit.tool.id} {hit.score:.2f}" for hit in self.hits)
        verdict = "confident" if self.confident else "not confident"
        return f"SearchResult({self.query!r}, {self.mode}, {verdict} ({self.confidence:.2f}), hits=[{hits}])"

    def _repr_html_(self) -> str:
        """Return the hits as a table, for notebooks."""
        verdict = " No tool fits well; these are the nearest." if self.hits and not self.confident else ""
        rows = "".join(
            f"<tr><td>{hit.score:.2f}</td><td>{hit.confidence:.2f}</td><td><code>{escape(hit.tool.id)}</code></td>"
            f"<td>{escape(hit.tool.description[:_MAX_CELL_CHARS])}</td></tr>"
            for hit in self.hits
        )
        return (
            f"<p>{len(self.hits)} hits for <q>{escape(self.query)}</q> in mode {escape(self.mode)}.{verdict}</p>"
            f"<table><tr><th>score</th><th>confidence</th><th>tool</th><th>description</th></tr>{rows}</table>"
        )

    def with_threshold(self, threshold: float) -> SearchResult:
        """Return the same result, confident only from this confidence on."""
        if isinstance(threshold, bool) or not isinstance(threshold, Real) or not 0 <= threshold <= 1:
            raise InvalidConfig(f"a confidence threshold is a number from 0 to 1, not {threshold!r}")
        parts = tuple(part.with_threshold(threshold) for part in self.parts)
        uncovered = find_uncovered(parts) if parts else self.uncovered
        return replace(self, confidence_threshold=threshold, parts=parts, uncovered=uncovered)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


def find_uncovered(results: Sequence[SearchResult]) -> tuple[str, ...]:
    """Return the queries and segments that these results do not cover; none if all are uncovered."""
    if not any(result.confident for result in results):
        return ()
    uncovered = (result.uncovered if result.confident else (result.query,) for result in results)
    return tuple(dict.fromkeys(chain.from_iterable(uncovered)))


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
    """Duplicate tools on several servers: the best hit, and the others."""

    best: Hit
    others: tuple[Hit, ...] = ()


def group_hits(hits: Sequence[Hit], are_duplicates: Callable[[Hit, Hit], bool]) -> tuple[HitGroup, ...]:
    """Return the hits in their order, each with its duplicates on other servers."""
    groups: list[list[Hit]] = []
    for hit in hits:
        for group in groups:
            servers = {member.tool.server for member in group}
            if hit.tool.server not in servers and are_duplicates(group[0], hit):
                group.append(hit)
                break
        else:
            groups.append([hit])
    return tuple(HitGroup(best, tuple(others)) for best, *others in groups)
