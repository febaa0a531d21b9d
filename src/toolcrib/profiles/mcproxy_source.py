"""MCProxy as its program does it: Tantivy's raw scores, and a list that stays once it is shown.

Everything is as it was recorded, its faults included, but for two: a search under a limit of 0,
which made the program panic, has no limit here; and `a AND NOT b`, which found nothing, finds.
Tantivy rounds the lengths of fields of more than forty words; here every length is exact.
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
from toolcrib.search.query.expression import (
    Not,
    Or,
    PhraseNode,
    QueryNode,
    WordNode,
    map_leaves,
    parse_expression,
)
from toolcrib.search.ranker import Scores, Slots
from toolcrib.session.disclosure import ALPHABETICAL, SERVER_PRIORITY

SEARCH_DESCRIPTION: Final = (
    "Search through {hidden} additional available tools. "
    "Provide a search query to find relevant tools by name or description."
)
QUERY_DESCRIPTION: Final = "Search query to find relevant tools by name or description"
FOUND: Final = "Found {count} tool(s) matching '{query}':"
NOW_AVAILABLE: Final = (
    "These tools are now available in your current session. "
    "Use `tools/list` to see the updated tool list."
)
ONLY_EXCLUDING: Final = "the query only says what not to find; add what to find"
NOT_A_WORD: Final = "{text!r} is not a word; put it in quotes to search for it"
PREFIX_ALONE: Final = "the phrase {text!r} needs two words to be the beginning of something"

K1: Final = 1.2
B: Final = 0.75
# Words of this many bytes and more are not indexed.
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
# What Tantivy's grammar does not take for a word.
_NOT_A_WORD_PATTERN = regex.compile(r"[`:{}\[\]]|^[+<>-]")


class TantivyQuery(NamedTuple):
    """A query as Tantivy reads it; `quoted` if it could only be read as one phrase."""

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
        """The tools to show. A selection stays as it was first shown, whatever becomes of it."""
        total, limit = len(self.catalog), self.config.max_tools
        if not self.is_enabled or (not session.exposed and total <= limit):
            return McproxyListing(tuple(self.catalog), session)
        if not session.exposed:
            shown = (*self.order_tools()[:limit], self.build_search_tool(total - limit))
            return McproxyListing(shown, McproxySession(shown))
        if any(tool.name == SEARCH_TOOL_NAME for tool in session.exposed):
            return McproxyListing(session.exposed, session)
        hidden = max(0, total - len(session.exposed))
        return McproxyListing((*session.exposed, self.build_search_tool(hidden)), session)

    def order_tools(self) -> list[Tool]:
        """All tools in selection order: each strategy sorts anew, so the last one decides."""
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
        """The best tools for a query by BM25, at most as many as the limit."""
        question = parse_tantivy_query(query)
        if question is None:
            return []
        everyone = np.ones(self.catalog.slot_count, np.bool_)
        scored = evaluate_query(question.node, self._search_leaf, everyone)
        if scored is None:
            return []
        slots = np.flatnonzero(scored.matches)
        best = slots[np.argsort(-scored.scores[slots], kind="stable")].tolist()
        tools = tuple(self.catalog)
        found = [McproxyMatch(tools[slot], float(scored.scores[slot])) for slot in best]
        return found[: self.config.max_tools or None]

    def render_found(self, query: str, found: Sequence[Tool]) -> str:
        """What the model reads of the tools that were found."""
        parts = [FOUND.format(count=len(found), query=query)]
        for number, tool in enumerate(found, 1):
            about = f"\n   {tool.description}" if tool.description else ""
            parts.append(f"{number}. **{tool.name}**{about}")
        return "\n\n".join([*parts, NOW_AVAILABLE])

    @cached_property
    def _indexes(self) -> dict[str, LexicalIndex]:
        return {field: _index_field(self.catalog, field, of) for field, of in FIELDS.items()}

    def _search_leaf(self, leaf: WordNode | PhraseNode, field: str) -> LeafMatch | None:
        index = self._indexes[field or DEFAULT_FIELD]
        answer = index.match_leaf(leaf)
        if answer is None:
            return None
        slots, impacts = answer.posting
        if leaf.is_prefix:
            return LeafMatch(
                Posting(slots, _score_phrase_prefix(index, leaf, slots)), answer.max_score
            )
        return LeafMatch(Posting(slots, impacts * np.float32(K1 + 1)), answer.max_score)


def split_terms(written: str) -> list[text.TextWord]:
    """The words of a text in Tantivy's default way: no stems, accents kept."""
    terms = (term.lower() for term in _TERM.findall(written))
    return [text.TextWord(t, t, (t,)) for t in terms if len(t.encode()) < TERM_BYTES_LIMIT]


def parse_tantivy_query(query: str) -> TantivyQuery | None:
    """Read a query; what cannot be read is tried again in quotes. None: that fails as well."""
    for written, quoted in ((query, False), (f'"{query}"', True)):
        try:
            return TantivyQuery(_parse_strictly(written), quoted)
        except InvalidQuery:
            continue
    return None


def _parse_strictly(query: str) -> QueryNode:
    node = parse_expression(_SINGLE_QUOTED.sub(r'"\1"', query), FIELDS)
    clauses = node.nodes if isinstance(node, Or) else (node,)
    if clauses and all(isinstance(clause, Not) for clause in clauses):
        raise InvalidQuery(ONLY_EXCLUDING)
    return map_leaves(node, _to_tantivy_leaf)


def _to_tantivy_leaf(leaf: WordNode | PhraseNode) -> WordNode | PhraseNode:
    """What our grammar read, in Tantivy's meaning: a word of several terms is a phrase."""
    several = len(split_terms(leaf.text)) > 1
    if isinstance(leaf, PhraseNode):
        if leaf.is_prefix and not several:
            raise InvalidQuery(PREFIX_ALONE.format(text=leaf.text))
        return leaf
    if _NOT_A_WORD_PATTERN.search(leaf.text):
        raise InvalidQuery(NOT_A_WORD.format(text=leaf.text))
    # The star is dropped: Tantivy knows beginnings of phrases, but not of words.
    return PhraseNode(leaf.text) if several else WordNode(leaf.text)


def _index_field(catalog: Catalog, field: str, of: Callable[[Tool], str]) -> LexicalIndex:
    """One field by itself, with the statistics of its own."""
    lengths = [len(split_terms(of(tool))) for tool in catalog]
    average = sum(lengths) / max(1, len(lengths)) or 1.0
    return LexicalRanker(
        field_config=fields.FieldConfig(
            fields=(fields.SearchField(field, weight=1.0, b=B, pivot=average),),
            extract_texts=lambda tool: (of(tool),),
            split_words=split_terms,
            is_stop_word=lambda term: False,
        ),
        k1=K1,
    ).fit(catalog)


def _score_phrase_prefix(
    index: LexicalIndex, phrase: WordNode | PhraseNode, slots: Slots
) -> Scores:
    """Scores of the tools that hold the beginning of a phrase: those of its whole words.

    One word before the beginning is not scored by Tantivy; such a tool has 1.
    """
    lead = [word.whole for word in split_terms(phrase.text)[:-1]]
    scores = np.ones(len(slots), np.float32)
    if len(lead) > 1:
        answer = index.match_leaf(PhraseNode(" ".join(lead)))
        assert answer is not None, "a phrase of words asks something"
        held, impacts = answer.posting
        scores = impacts[np.isin(held, slots)] * np.float32(K1 + 1)
    return scores
