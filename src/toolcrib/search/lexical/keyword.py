"""Keyword ranking: three points for a term in the name, one for a term only in the description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import regex

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import MatchReason, Ranking, analyze_slots, ranking_from_scores

NAME_POINTS = 3
DESCRIPTION_POINTS = 1
EXACT_NAME_POINTS = 100

# From the first letter or digit to the last. `str.isalnum` would not do: it takes the vowel signs
# of Indic scripts for punctuation.
_INSIDE = regex.compile(r"(?s)[\p{Alphabetic}\p{N}](?:.*[\p{Alphabetic}\p{N}])?")


class KeywordQuery(NamedTuple):
    """A query as it is read: its terms, and the name it may be as a whole."""

    terms: tuple[str, ...]
    name: str


class KeywordTexts(NamedTuple):
    """What is searched of a tool, in lower case."""

    name: str
    description: str


def parse_keywords(query: str) -> KeywordQuery:
    """Read a query: terms end at spaces, and punctuation around a term or the whole is dropped."""
    terms = (_strip_punctuation(word) for word in query.split())
    return KeywordQuery(tuple(term for term in terms if term), _strip_punctuation(query))


def build_texts(name: str, description: str) -> KeywordTexts:
    """What is searched of a tool."""
    return KeywordTexts(name.lower(), description.lower())


def score_keywords(query: KeywordQuery, texts: KeywordTexts) -> int:
    """The points of every term, a repeated one counted again, and those of an exact name."""
    points = sum(_points(term, texts) for term in query.terms)
    return points + EXACT_NAME_POINTS * (query.name == texts.name)


@dataclass(frozen=True, slots=True)
class KeywordRanker:
    """Ranks by terms found inside names and descriptions."""

    syntax: ClassVar[Syntax] = "words"

    def fit(self, catalog: Catalog) -> KeywordIndex:
        """Fit to a catalog."""
        return KeywordIndex(catalog, analyze_slots(catalog, _tool_texts, {}))


@dataclass(frozen=True, slots=True, eq=False)
class KeywordIndex:
    """The names and descriptions of one catalog."""

    catalog: Catalog
    texts: Mapping[int, KeywordTexts]

    def rank(self, query: ParsedQuery) -> Ranking:
        """Every tool with a point, scored against all terms standing in the name."""
        asked = parse_keywords(query.text)
        best = NAME_POINTS * len(asked.terms)
        found = ((slot, score_keywords(asked, searched)) for slot, searched in self.texts.items())
        return ranking_from_scores(
            {slot: min(1.0, points / best) for slot, points in found if points}
        )

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """Every term with a point, and last the name when the query is exactly that."""
        searched = self.texts.get(slot)
        if searched is None:
            return ()
        asked = parse_keywords(query.text)
        whole = score_keywords(asked, searched)
        by_term = [
            MatchReason(term, "name" if term in searched.name else "description", points / whole)
            for term in asked.terms
            if (points := _points(term, searched))
        ]
        if asked.name == searched.name:
            by_term.append(MatchReason(asked.name, "name", EXACT_NAME_POINTS / whole))
        return tuple(by_term)

    def with_catalog(self, catalog: Catalog) -> KeywordIndex:
        """This index brought to a later catalog."""
        return KeywordIndex(catalog, analyze_slots(catalog, _tool_texts, self.texts, self.catalog))


def _points(term: str, searched: KeywordTexts) -> int:
    if term in searched.name:
        return NAME_POINTS
    return DESCRIPTION_POINTS if term in searched.description else 0


def _strip_punctuation(text: str) -> str:
    inside = _INSIDE.search(text)
    return str(inside[0]).lower() if inside else ""


def _tool_texts(tool: Tool) -> KeywordTexts:
    return build_texts(tool.name, tool.description)
