"""Fuzzy ranking: how alike a query and a tool's text are spelled, and a bonus per word found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import ClassVar

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import QueryTooLong
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import MatchReason, Ranking, analyze_slots, ranking_from_scores

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

    syntax: ClassVar[Syntax] = "words"

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

    def rank(self, query: ParsedQuery) -> Ranking:
        """Every tool above the noise floor, scored against the best score this query could get."""
        text = query.text.strip()
        if not text:
            return ranking_from_scores({})
        if len(text) > MAX_QUERY_CHARS:
            raise QueryTooLong(
                f"the query has {len(text):,} characters; in mode fuzzy the limit is {MAX_QUERY_CHARS}"
            )
        best = 1 + self.token_bonus * len(text.split())
        raw = {
            slot: score_haystack(text, haystack, self.token_bonus)
            for slot, haystack in self.haystacks.items()
        }
        return ranking_from_scores(
            {slot: one / best for slot, one in raw.items() if one > MIN_SCORE}
        )

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """The words that were found, and last what the likeness of spelling adds to them."""
        text = query.text.strip()
        tool = self.catalog.tool_at(slot)
        if tool is None or not text:
            return ()
        whole = score_haystack(text, self.haystacks[slot], self.token_bonus)
        if whole <= MIN_SCORE:
            return ()
        words = find_words(text, self.haystacks[slot])
        share = self.token_bonus / whole
        by_word = (MatchReason(word, _field(tool, word), share) for word in words)
        # The score is rounded, so what the words leave may be a little less than nothing.
        return (*by_word, MatchReason(text, "spelling", max(0.0, 1 - share * len(words))))

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
