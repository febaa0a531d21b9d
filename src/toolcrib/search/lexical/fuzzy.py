"""Fuzzy ranking: how alike a query and a tool's text are spelled, and a bonus per word found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import ClassVar

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import QueryTooLong
from toolcrib.search.ranker import MatchReason, Ranking, ranking_from_scores
from toolcrib.search.slots import analyze_slots

TOKEN_BONUS = 0.12
MIN_SCORE = 0.05
# The work is that of comparing the query with every tool's whole text, letter by letter.
MAX_QUERY_CHARS = 500


def build_haystack(name: str, description: str, hint: str) -> str:
    """The text of a tool that is searched."""
    return f"{name} {description} {hint}".lower()


def find_words(query: str, haystack: str) -> list[str]:
    """The words of a query that stand somewhere in a text, each as often as it was asked for."""
    return [word for word in query.lower().split() if word in haystack]


def score_haystack(query: str, haystack: str, token_bonus: float = TOKEN_BONUS) -> float:
    """The likeness of query and text, 0 to 1, and the bonus of every word found, to 4 digits."""
    likeness = SequenceMatcher(None, query.lower(), haystack).ratio()
    return round(likeness + token_bonus * len(find_words(query, haystack)), 4)


@dataclass(frozen=True, slots=True)
class FuzzyRanker:
    """Ranks by likeness of spelling. Reads every tool's text for every query."""

    prefers_exact_names: ClassVar[bool] = True

    token_bonus: float = TOKEN_BONUS

    def fit(self, catalog: Catalog) -> FuzzyIndex:
        """Fit to a catalog."""
        return FuzzyIndex(catalog, analyze_slots(catalog, _text, {}), self.token_bonus)


@dataclass(frozen=True, slots=True, eq=False)
class FuzzyIndex:
    """The searched text of every tool of one catalog."""

    catalog: Catalog
    haystacks: Mapping[int, str]
    token_bonus: float

    def rank(self, query: str) -> Ranking:
        """Every tool above the noise floor, scored against the best score this query could get."""
        query = query.strip()
        if not query:
            return ranking_from_scores({})
        if len(query) > MAX_QUERY_CHARS:
            raise QueryTooLong(
                f"the query has {len(query):,} characters; in mode fuzzy the limit is {MAX_QUERY_CHARS}"
            )
        best = 1 + self.token_bonus * len(query.split())
        raw = {
            slot: score_haystack(query, text, self.token_bonus)
            for slot, text in self.haystacks.items()
        }
        return ranking_from_scores(
            {slot: one / best for slot, one in raw.items() if one > MIN_SCORE}
        )

    def reasons(self, query: str, slot: int) -> tuple[MatchReason, ...]:
        """The words that were found, and last what the likeness of spelling adds to them."""
        query = query.strip()
        tool = self.catalog.tool_at(slot)
        if tool is None or not query:
            return ()
        whole = score_haystack(query, self.haystacks[slot], self.token_bonus)
        if whole <= MIN_SCORE:
            return ()
        words = find_words(query, self.haystacks[slot])
        share = self.token_bonus / whole
        by_word = (MatchReason(word, _field(tool, word), share) for word in words)
        # The score is rounded, so what the words leave may be a little less than nothing.
        return (*by_word, MatchReason(query, "spelling", max(0.0, 1 - share * len(words))))

    def with_catalog(self, catalog: Catalog) -> FuzzyIndex:
        """This index brought to a later catalog."""
        later = analyze_slots(catalog, _text, self.haystacks, since=self.catalog)
        return FuzzyIndex(catalog, later, self.token_bonus)


def _text(tool: Tool) -> str:
    return build_haystack(tool.name, tool.description, tool.hint)


def _field(tool: Tool, word: str) -> str:
    if word in tool.name.lower():
        return "name"
    return "description" if word in tool.description.lower() else "hint"
