"""Prefix ranking: a point for a whole word, half a point for each word that starts with it."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import EMPTY_CATALOG, MatchReason, Ranking, ranking_from_scores

WORD_POINTS = 1.0
PREFIX_POINTS = 0.5

Key = TypeVar("Key", bound=Hashable)

_WORD = re.compile(r"\w+")


def distinct_words(text: str) -> tuple[str, ...]:
    """Return the distinct words of a text in order; `send_email` is one word."""
    return tuple(dict.fromkeys(_WORD.findall(text.lower())))


def tool_words(tool: Tool) -> tuple[str, ...]:
    """Return the distinct words of a tool's name, description and tags."""
    return distinct_words(" ".join((tool.name, tool.description, *tool.tags)))


def match_points(query_word: str, word: str) -> float:
    """Return the points of a word that starts with a word of the query."""
    return WORD_POINTS if word == query_word else PREFIX_POINTS


def tally_points(query_words: Iterable[str], postings: Mapping[str, Iterable[Key]]) -> dict[Key, float]:
    """Return the points of every key in the order of finding: whole words first, then prefixes.

    `postings` maps each indexed word to the keys that contain it.
    """
    found: dict[Key, float] = {}
    for query_word in query_words:
        longer = (word for word in postings if word != query_word and word.startswith(query_word))
        for word in (query_word, *longer):
            for key in postings.get(word, ()):
                found[key] = found.get(key, 0.0) + match_points(query_word, word)
    return found


@dataclass(frozen=True, slots=True)
class PrefixRanker:
    """Ranks by whole words and prefixes."""

    syntax: Syntax = field(default="words", init=False, repr=False)

    def fit(self, catalog: Catalog) -> PrefixIndex:
        return PrefixIndex(EMPTY_CATALOG, {}).with_catalog(catalog)


@dataclass(frozen=True, slots=True, eq=False)
class PrefixIndex:
    """The words of one catalog, each with the slots of the tools that contain it."""

    catalog: Catalog
    postings: Mapping[str, tuple[int, ...]]

    def tally_points(self, query: str) -> dict[int, float]:
        """Return the points of every matching tool by slot, in the order of finding."""
        return tally_points(distinct_words(query), self.postings)

    def rank(self, query: ParsedQuery) -> Ranking:
        """Return every tool with a point, relative to one point for each word of the query."""
        best = len(distinct_words(query.text))
        return ranking_from_scores(
            {slot: min(1.0, score / best) for slot, score in self.tally_points(query.text).items()}
        )

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        """Return every word of the tool that starts with a word of the query."""
        tool = self.catalog.tool_at(slot)
        if tool is None:
            return ()
        found = [
            (word, match_points(query_word, word))
            for query_word in distinct_words(query.text)
            for word in tool_words(tool)
            if word.startswith(query_word)
        ]
        total = sum(share_points for _, share_points in found)
        return tuple(MatchReason(word, _field(tool, word), share_points / total) for word, share_points in found)

    def with_catalog(self, catalog: Catalog) -> PrefixIndex:
        """Return an index of a later catalog; only the words of changed tools are updated."""
        slots: Iterable[int] | None = catalog.changed_slots(self.catalog)
        earlier, postings = self.catalog, dict(self.postings)
        if slots is None:
            slots, earlier, postings = range(catalog.slot_count), EMPTY_CATALOG, {}
        removed, added = _words_by_slot(earlier, slots), _words_by_slot(catalog, slots)
        for word in {**removed, **added}:
            kept = {*postings.get(word, ())} - {*removed.get(word, ())}
            # Assigned in place, so that a word keeps its position in the order of finding.
            postings[word] = tuple(sorted(kept.union(added.get(word, ()))))
            if not postings[word]:
                del postings[word]
        return PrefixIndex(catalog, postings)


def _words_by_slot(catalog: Catalog, slots: Iterable[int]) -> dict[str, list[int]]:
    """Return the slots that contain each word."""
    found: dict[str, list[int]] = {}
    for slot in slots:
        tool = catalog.tool_at(slot)
        for word in tool_words(tool) if tool else ():
            found.setdefault(word, []).append(slot)
    return found


def _field(tool: Tool, word: str) -> str:
    if word in distinct_words(tool.name):
        return "name"
    return "description" if word in distinct_words(tool.description) else "tags"
