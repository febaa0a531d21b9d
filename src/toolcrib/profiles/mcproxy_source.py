"""MCProxy as programmed: Tantivy's raw scores, and a list that stays once it was sent.

Everything is as recorded, defects included, with two exceptions: a search under a limit of 0, which
made the program panic, has no limit here, and `a AND NOT b`, which found nothing, finds tools.
Tantivy rounds the lengths of fields above forty words; here all lengths are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Final, NamedTuple

import numpy as np
import regex

from toolcrib.core import text
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidQuery
from toolcrib.profiles.mcproxy import (
    EMPTY_SESSION,
    SEARCH_TOOL_NAME,
    McproxyListing,
    McproxyMatch,
    McproxySession,
    McproxyToolSearch,
)
from toolcrib.search.lexical import fields
from toolcrib.search.lexical.boolean import LeafMatch, evaluate_query
from toolcrib.search.lexical.postings import Posting
from toolcrib.search.lexical.ranker import LexicalIndex, LexicalRanker
from toolcrib.search.query.expression import Not, Or, PhraseNode, QueryNode, WordNode, map_leaves, parse_expression
from toolcrib.search.ranker import Scores, Slots
from toolcrib.session.disclosure import ALPHABETICAL, SERVER_PRIORITY

SEARCH_DESCRIPTION: Final = (
    "Search through {hidden} additional available tools. "
    "Provide a search query to find relevant tools by name or description."
)
QUERY_DESCRIPTION: Final = "Search query to find relevant tools by name or description"
FOUND: Final = "Found {count} tool(s) matching '{query}':"
NOW_AVAILABLE: Final = (
    "These tools are now available in your current session. Use `tools/list` to see the updated tool list."
)


K1: Final = 1.2
B: Final = 0.75
# Terms of this many bytes or more are not indexed.
TERM_BYTES_LIMIT: Final = 40
DEFAULT_FIELD: Final = "searchable_text"
FIELDS: Final[Mapping[str, Callable[[Tool], str]]] = {
    "name": lambda tool: tool.name,
    "description": lambda tool: tool.description,
    "server": lambda tool: tool.server,
    DEFAULT_FIELD: lambda tool: f"{tool.name} {tool.description}",
}

_TERM = regex.compile(r"[\p{Alphabetic}\p{N}]+")
_SINGLE_QUOTED = regex.compile(r"(?<![^\s(:])'([^'\"]*)'(?![^\s)])")
# Text that Tantivy's grammar does not accept as a word.
_NOT_A_WORD_PATTERN = regex.compile(r"[`:{}\[\]]|^[+<>-]")


class TantivyQuery(NamedTuple):
    """A query as Tantivy parses it; `quoted` if it is only valid as one phrase."""

    node: QueryNode
    quoted: bool


class SourceToolSearch(McproxyToolSearch):
    """The middleware as programmed."""

    search_description: ClassVar[str] = SEARCH_DESCRIPTION
    query_description: ClassVar[str] = QUERY_DESCRIPTION
    full_score: ClassVar[float] = 10.0

    @property
    def is_enabled(self) -> bool:
        """Whether the middleware is enabled; a limit of 0 hides every tool."""
        return self.config.enabled

    def list_tools(self, session: McproxySession = EMPTY_SESSION) -> McproxyListing:
        """Return the tools to list; a selection stays as first sent, whatever happens to it."""
        total, limit = len(self.catalog), self.config.max_tools
        if not self.is_enabled or (not session.exposed and total <= limit):
            return McproxyListing(tuple(self.catalog), session)
        if not session.exposed:
            visible = (*self.order_tools()[:limit], self.build_search_tool(total - limit))
            return McproxyListing(visible, McproxySession(visible))
        if any(tool.name == SEARCH_TOOL_NAME for tool in session.exposed):
            return McproxyListing(session.exposed, session)
        hidden = max(0, total - len(session.exposed))
        return McproxyListing((*session.exposed, self.build_search_tool(hidden)), session)

    def order_tools(self) -> list[Tool]:
        """Return all tools in selection order; every strategy sorts again, so the last decides."""
        keys: dict[str, Callable[[Tool], tuple[str, ...]]] = {
            SERVER_PRIORITY: lambda tool: (tool.server, tool.name),
            ALPHABETICAL: lambda tool: (tool.name,),
        }
        tools = list(self.catalog)
        for strategy in self.config.selection_order:
            if strategy in keys:
                tools.sort(key=keys[strategy])
        return tools

    def find_matches(self, query: str) -> list[McproxyMatch]:
        """Return the best tools for a query by BM25, at most as many as the limit."""
        parsed = parse_tantivy_query(query)
        if parsed is None:
            return []
        all_slots = np.ones(self.catalog.slot_count, np.bool_)
        scored = evaluate_query(parsed.node, self._search_leaf, all_slots)
        if scored is None:
            return []
        slots = np.flatnonzero(scored.matches)
        best = slots[np.argsort(-scored.scores[slots], kind="stable")].tolist()
        tools = tuple(self.catalog)
        found = [McproxyMatch(tools[slot], float(scored.scores[slot])) for slot in best]
        return found[: self.config.max_tools or None]

    def render_found(self, query: str, found: Sequence[Tool]) -> str:
        """Return the text that lists the found tools for the model."""
        parts = [FOUND.format(count=len(found), query=query)]
        for number, tool in enumerate(found, 1):
            description = f"\n   {tool.description}" if tool.description else ""
            parts.append(f"{number}. **{tool.name}**{description}")
        return "\n\n".join([*parts, NOW_AVAILABLE])

    @cached_property
    def _indexes(self) -> dict[str, LexicalIndex]:
        return {field: _index_field(self.catalog, field, read_text) for field, read_text in FIELDS.items()}

    def _search_leaf(self, leaf: WordNode | PhraseNode, field: str) -> LeafMatch | None:
        index = self._indexes[field or DEFAULT_FIELD]
        match = index.match_leaf(leaf)
        if match is None:
            return None
        slots, impacts = match.posting
        if leaf.is_prefix:
            return LeafMatch(Posting(slots, _score_phrase_prefix(index, leaf, slots)), match.max_score)
        return LeafMatch(Posting(slots, impacts * np.float32(K1 + 1)), match.max_score)


def split_terms(source: str) -> list[str]:
    """Return the terms of a text by Tantivy's default tokenizer: no stemming, accents kept."""
    terms = (term.lower() for term in _TERM.findall(source))
    return [term for term in terms if len(term.encode()) < TERM_BYTES_LIMIT]


def parse_tantivy_query(query: str) -> TantivyQuery | None:
    """Parse a query; if it is invalid, retry it in quotes. None if that fails too."""
    for source, quoted in ((query, False), (f'"{query}"', True)):
        try:
            return TantivyQuery(_parse_strictly(source), quoted)
        except InvalidQuery:
            continue
    return None


def _parse_strictly(query: str) -> QueryNode:
    node = parse_expression(_SINGLE_QUOTED.sub(r'"\1"', query), FIELDS)
    clauses = node.nodes if isinstance(node, Or) else (node,)
    if clauses and all(isinstance(clause, Not) for clause in clauses):
        raise InvalidQuery("all clauses are negated")
    return map_leaves(node, _to_tantivy_leaf)


def _to_tantivy_leaf(leaf: WordNode | PhraseNode) -> WordNode | PhraseNode:
    """Return a parsed leaf with Tantivy's meaning: a word of several terms is a phrase."""
    has_several_terms = len(split_terms(leaf.text)) > 1
    if isinstance(leaf, PhraseNode):
        if leaf.is_prefix and not has_several_terms:
            raise InvalidQuery(f"the phrase prefix {leaf.text!r} has fewer than two words")
        return leaf
    if _NOT_A_WORD_PATTERN.search(leaf.text):
        raise InvalidQuery(f"{leaf.text!r} is not a word")
    # The star is dropped: Tantivy supports prefixes of phrases, but not of words.
    return PhraseNode(leaf.text) if has_several_terms else WordNode(leaf.text)


def _index_field(catalog: Catalog, field: str, read_text: Callable[[Tool], str]) -> LexicalIndex:
    """Return an index of one field, with its own statistics."""
    lengths = [len(split_terms(read_text(tool))) for tool in catalog]
    average = sum(lengths) / max(1, len(lengths)) or 1.0
    return LexicalRanker(
        field_config=fields.FieldConfig(
            fields=(fields.SearchField(field, weight=1.0, b=B, pivot=average),),
            extract_texts=lambda tool: (read_text(tool),),
            find_words=split_terms,
            analyze_word=lambda term: text.TextWord(term, term, (term,)),
            is_stop_word=lambda term: False,
        ),
        k1=K1,
    ).fit(catalog)


def _score_phrase_prefix(index: LexicalIndex, phrase: WordNode | PhraseNode, slots: Slots) -> Scores:
    """Return the scores of the tools that match a phrase prefix: those of its complete words.

    With one word before the prefix, Tantivy does not score; such a tool has score 1.
    """
    complete_words = split_terms(phrase.text)[:-1]
    scores = np.ones(len(slots), np.float32)
    if len(complete_words) > 1:
        match = index.match_leaf(PhraseNode(" ".join(complete_words)))
        assert match is not None, "a phrase of words is never empty"
        matched, impacts = match.posting
        scores = impacts[np.isin(matched, slots)] * np.float32(K1 + 1)
    return scores
