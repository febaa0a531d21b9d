"""Fuzzy ranking: similarity of spelling, and a bonus for each word that occurs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import QueryTooLong
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import MatchReason, Ranking, analyze_slots, ranking_from_scores

TOKEN_BONUS = 0.12
MIN_SCORE = 0.05
# The query is compared with the whole text of every tool, so its length is limited.
MAX_QUERY_CHARS = 500


def build_haystack(name: str, description: str, hint: str) -> str:
    """Return the text of a tool that is searched."""
    return f"{name} {description} {hint}".lower()


def find_words(query: str, haystack: str) -> list[str]:
    """Return the words of a query that occur in a text; repeated words are repeated."""
    return [word for word in query.lower().split() if word in haystack]


def score_haystack(query: str, haystack: str, token_bonus: float = TOKEN_BONUS) -> float:
    """Return the spelling similarity (0 to 1) plus the bonus of each word found, to 4 digits."""
    similarity = SequenceMatcher(None, query.lower(), haystack).ratio()
    return round(similarity + token_bonus * len(find_words(query, haystack)), 4)


@dataclass(frozen=True, slots=True)
class FuzzyRanker:
    """Ranks by similarity of spelling. Compares every query with every tool."""

    syntax: Syntax = field(default="words", init=False, repr=False)

    token_bonus: float = TOKEN_BONUS

    def fit(self, catalog: Catalog) -> FuzzyIndex:
        return FuzzyIndex(catalog, analyze_slots(catalog, _text, {}), self.token_bonus)


@dataclass(frozen=True, slots=True, eq=False)
class FuzzyIndex:
    """The searchable text of every tool of one catalog."""

    catalog: Catalog
    haystacks: Mapping[int, str]
    token_bonus: float

    def rank(self, query: ParsedQuery) -> Ranking:
        """Return every tool above the minimum score, relative to the best possible score."""
        text = query.text.strip()
        if not text:
            return ranking_from_scores({})
        if len(text) > MAX_QUERY_CHARS:
            raise QueryTooLong(f"the query has {len(text):,} characters; in mode fuzzy the limit is {MAX_QUERY_CHARS}")
        best = 1 + self.token_bonus * len(text.split())
        raw = {slot: score_haystack(text, haystack, self.token_bonus) for slot, haystack in self.haystacks.items()}
        return ranking_from_scores({slot: score / best for slot, score in raw.items() if score > MIN_SCORE})

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """Return the words that occur in a tool, and the share of the spelling similarity last."""
        text = query.text.strip()
        tool = self.catalog.tool_at(slot)
        if tool is None or not text:
            return ()
        total = score_haystack(text, self.haystacks[slot], self.token_bonus)
        if total <= MIN_SCORE:
            return ()
        words = find_words(text, self.haystacks[slot])
        share = self.token_bonus / total
        by_word = (MatchReason(word, _field(tool, word), share) for word in words)
        # The score is rounded, so the rest may be slightly below zero.
        return (*by_word, MatchReason(text, "spelling", max(0.0, 1 - share * len(words))))

    def with_catalog(self, catalog: Catalog) -> FuzzyIndex:
        """Return an index of a later catalog, built from this one."""
        haystacks = analyze_slots(catalog, _text, self.haystacks, since=self.catalog)
        return FuzzyIndex(catalog, haystacks, self.token_bonus)


def _text(tool: Tool) -> str:
    return build_haystack(tool.name, tool.description, tool.hint)


def _field(tool: Tool, word: str) -> str:
    if word in tool.name.lower():
        return "name"
    return "description" if word in tool.description.lower() else "hint"
