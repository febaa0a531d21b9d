"""Keyword ranking: three points for a term in the name, one for a term in the description only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import regex

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import MatchReason, Ranking, analyze_slots, ranking_from_scores

NAME_POINTS = 3
DESCRIPTION_POINTS = 1
EXACT_NAME_POINTS = 100

# From the first letter or digit to the last. `str.isalnum` treats the vowel signs of Indic scripts
# as punctuation.
_INSIDE = regex.compile(r"(?s)[\p{Alphabetic}\p{N}](?:.*[\p{Alphabetic}\p{N}])?")


class KeywordQuery(NamedTuple):
    """The terms of a query, and the tool name that the whole query may be."""

    terms: tuple[str, ...]
    name: str


class KeywordTexts(NamedTuple):
    """The searchable texts of a tool, in lowercase."""

    name: str
    description: str


def parse_keywords(query: str) -> KeywordQuery:
    """Split a query at spaces, and strip punctuation around the terms and the whole query."""
    terms = (_strip_punctuation(word) for word in query.split())
    return KeywordQuery(tuple(term for term in terms if term), _strip_punctuation(query))


def build_texts(name: str, description: str) -> KeywordTexts:
    """Return the searchable texts of a tool."""
    return KeywordTexts(name.lower(), description.lower())


def score_keywords(query: KeywordQuery, texts: KeywordTexts) -> int:
    """Return the points of all terms, repeated ones included, plus those of an exact name."""
    points = sum(_points(term, texts) for term in query.terms)
    return points + EXACT_NAME_POINTS * (query.name == texts.name)


@dataclass(frozen=True, slots=True)
class KeywordRanker:
    """Ranks by terms that occur in names and descriptions."""

    syntax: Syntax = field(default="words", init=False, repr=False)

    def fit(self, catalog: Catalog) -> KeywordIndex:
        return KeywordIndex(catalog, analyze_slots(catalog, _tool_texts, {}))


@dataclass(frozen=True, slots=True, eq=False)
class KeywordIndex:
    """The names and descriptions of one catalog."""

    catalog: Catalog
    texts: Mapping[int, KeywordTexts]

    def rank(self, query: ParsedQuery) -> Ranking:
        """Return every tool with a point, relative to all terms occurring in the name."""
        keywords = parse_keywords(query.text)
        best = NAME_POINTS * len(keywords.terms)
        found = ((slot, score_keywords(keywords, texts)) for slot, texts in self.texts.items())
        return ranking_from_scores({slot: min(1.0, points / best) for slot, points in found if points})

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """Return every term with a point; last the name, if the query is exactly that."""
        texts = self.texts.get(slot)
        if texts is None:
            return ()
        keywords = parse_keywords(query.text)
        total = score_keywords(keywords, texts)
        by_term = [
            MatchReason(term, "name" if term in texts.name else "description", points / total)
            for term in keywords.terms
            if (points := _points(term, texts))
        ]
        if keywords.name == texts.name:
            by_term.append(MatchReason(keywords.name, "name", EXACT_NAME_POINTS / total))
        return tuple(by_term)

    def with_catalog(self, catalog: Catalog) -> KeywordIndex:
        """Return an index of a later catalog, built from this one."""
        return KeywordIndex(catalog, analyze_slots(catalog, _tool_texts, self.texts, self.catalog))


def _points(term: str, texts: KeywordTexts) -> int:
    if term in texts.name:
        return NAME_POINTS
    return DESCRIPTION_POINTS if term in texts.description else 0


def _strip_punctuation(text: str) -> str:
    match = _INSIDE.search(text)
    return str(match[0]).lower() if match else ""


def _tool_texts(tool: Tool) -> KeywordTexts:
    return build_texts(tool.name, tool.description)
