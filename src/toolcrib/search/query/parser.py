"""Parse a query once, for the engine and every ranker.

`ParsedQuery` holds what rankers need to know about a query. The English translation, the segments
and the names are computed on first use, so a ranker that does not need them does not pay for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, Literal

from toolcrib.encoder.glossary import translate_to_english
from toolcrib.errors import InvalidQuery, QueryTooLong
from toolcrib.search.query.expression import (
    QueryNode,
    drop_false_operators,
    has_operators,
    has_unbalanced_signs,
    parse_expression,
    parse_plain_words,
)
from toolcrib.search.query.preamble import strip_preamble
from toolcrib.search.query.segments import drop_statements, find_names, split_passages, split_segments

# Queries are often repeated, and parsed again for the reasons of their hits.
MAX_CACHED_QUERIES: Final = 1_024

# How operators are read; a pattern is not a query in words at all, but a regular expression.
Syntax = Literal["strict", "lenient", "words", "pattern"]

# Two letters or digits, or one character of a script in which it can be a word.
_WORD = re.compile("[^\\W_]{2}|[\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]")


@dataclass(frozen=True)
class ParsedQuery:
    """A query as the rankers see it.

    Attributes:
        text: The query as written.
        syntax: How operators are read.
        operators: The query as an expression, or None if it consists of plain words.
        notes: What the caller should know about how the query was parsed.
    """

    text: str
    syntax: Syntax = "words"
    operators: QueryNode | None = None
    notes: tuple[str, ...] = ()

    @cached_property
    def request(self) -> ParsedQuery:
        """This query without its preamble; the query itself if it has none."""
        request = strip_preamble(self.text)
        return self if request == self.text else parse_query(request, self.syntax)

    @property
    def english(self) -> str:
        """The text in English; the text itself if it is English already."""
        return self.translated.text

    @cached_property
    def translated(self) -> ParsedQuery:
        """This query in English; the query itself if it is English already."""
        english = translate_to_english(self.text)
        return self if english == self.text else parse_query(english, self.syntax)

    @cached_property
    def core(self) -> ParsedQuery:
        """This query without sentences that are not requests; the query itself if there are none."""
        core = drop_statements(self.text)
        return self if core == self.text else parse_query(core, self.syntax)

    @cached_property
    def segments(self) -> tuple[ParsedQuery, ...]:
        """The requests that the query consists of, in English; empty if it is a single request."""
        texts = split_segments(self.english)
        if len(texts) < 2:
            return ()
        return tuple(parse_query(text, self.syntax) for text in texts)

    @cached_property
    def passages(self) -> tuple[ParsedQuery, ...]:
        """The sentences of a single request in several sentences, in English; empty for other queries."""
        if self.segments:
            return ()
        return tuple(parse_query(text, self.syntax) for text in split_passages(self.english))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The capitalized names that the query mentions, such as those of services."""
        return find_names(self.text)


def has_words(text: str) -> bool:
    """Return whether a text has more than single letters, signs and emoji."""
    return _WORD.search(text) is not None


@lru_cache(maxsize=MAX_CACHED_QUERIES)
def parse_query(text: str, syntax: Syntax = "strict") -> ParsedQuery:
    """Parse a query.

    "strict" raises `InvalidQuery` for a malformed expression, unless it is prose with a stray quote or
    parenthesis, or with too many words; that is searched as plain words, with a note. "lenient" is for text written by
    people and models who may not know the query language: it falls back to plain words with a note.
    "words" treats operators as plain words, and "pattern" leaves the text as it is.
    """
    if syntax in ("words", "pattern") or not has_operators(text):
        return ParsedQuery(text, syntax)
    expression = text if syntax == "strict" else drop_false_operators(text)
    try:
        return ParsedQuery(text, syntax, parse_expression(expression))
    except InvalidQuery as error:
        # A stray sign, or hundreds of words, mean that the text is not an expression.
        is_prose = isinstance(error, QueryTooLong) or has_unbalanced_signs(expression)
        if syntax == "strict" and not is_prose:
            raise
        notes = (f"read as plain words: {error}",)
        return ParsedQuery(text, syntax, parse_plain_words(expression), notes)
