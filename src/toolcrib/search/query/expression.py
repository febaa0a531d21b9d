"""The query language: words, AND OR NOT, ( ), "phrase", prefix*, field:word, +must, -not, boost^2.

    group   = and { [ "OR" ] and }              adjacent words mean OR
    and     = unary { "AND" unary }
    unary   = [ "NOT" | "+" | "-" ] boosted
    boosted = atom [ "^" number ]
    atom    = "(" group ")" | [ field ":" ] ( word [ "*" ] | '"' phrase '"' [ "*" ] | "(" … ")" ) | "*"

A query is parsed into the nodes below. `str` renders a node so that parsing gives the node back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from toolcrib.errors import InvalidQuery, QueryTooLong

MAX_QUERY_CHARS: Final = 4_000
MAX_DEPTH: Final = 32
MAX_BOOST: Final = 1_000
MAX_LEAVES: Final = 300
FIELDS: Final = ("name", "title", "description", "hint", "tags", "category", "server", "parameter", "parameter_text")

# The lookahead for the first character of an operator makes the search faster.
_OPERATOR = re.compile(r"""(?=["()*^:+ANO-])(?:["()*^]|(?<!\S)[+-]|:\S|\b(?:AND|OR|NOT)\b)""")
_UPPERCASE_OPERATOR = re.compile(r"\b(?:AND|OR|NOT)\b")
_LIST_NUMBER = re.compile(r"(?<!\S)(\d\d?|[A-Za-z])\)")
_COMMAND_FLAG = re.compile(r"(?<!\S)-(?=\w(?!\S))")


@dataclass(frozen=True, slots=True)
class WordNode:
    """A word; a prefix of words if `is_prefix`."""

    text: str
    is_prefix: bool = False

    def __str__(self) -> str:
        return f"{self.text}*" if self.is_prefix else self.text


@dataclass(frozen=True, slots=True)
class PhraseNode:
    """Adjacent words; the last one is a prefix if `is_prefix`."""

    text: str
    is_prefix: bool = False

    def __str__(self) -> str:
        escaped = self.text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"{"*" if self.is_prefix else ""}'


@dataclass(frozen=True, slots=True)
class MatchAll:
    """`*`: matches every tool."""

    def __str__(self) -> str:
        return "*"


@dataclass(frozen=True, slots=True)
class FieldNode:
    """A node that is matched in one field only."""

    field: str
    inner: QueryNode

    def __str__(self) -> str:
        return f"{self.field}:{_parenthesize(self.inner)}"


@dataclass(frozen=True, slots=True)
class Boost:
    """A node whose score is multiplied by a factor."""

    inner: QueryNode
    factor: float

    def __str__(self) -> str:
        inner = str(self.inner) if isinstance(self.inner, Boost) else _parenthesize(self.inner)
        return f"{inner}^{f'{self.factor:.4f}'.rstrip('0').rstrip('.')}"


@dataclass(frozen=True, slots=True)
class Not:
    """Excludes the tools that match a node."""

    inner: QueryNode

    def __str__(self) -> str:
        return f"NOT {_render_operand(self.inner)}"


@dataclass(frozen=True, slots=True)
class Must:
    """A node that every hit has to match."""

    inner: QueryNode

    def __str__(self) -> str:
        operand = _render_operand(self.inner)
        # A plus sign before a digit is part of a number.
        return f"+({operand})" if operand[0].isdigit() else f"+{operand}"


@dataclass(frozen=True, slots=True)
class And:
    """Tools that match all nodes."""

    nodes: tuple[QueryNode, ...]

    def __str__(self) -> str:
        return " AND ".join(_parenthesize(node) if isinstance(node, And | Or) else str(node) for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Or:
    """Tools that match any node; more matches score higher."""

    nodes: tuple[QueryNode, ...]

    def __str__(self) -> str:
        return " ".join(_parenthesize(node) if isinstance(node, Or) else str(node) for node in self.nodes)


QueryNode = WordNode | PhraseNode | MatchAll | FieldNode | Boost | Not | Must | And | Or


def parse_expression(text: str, fields: Collection[str] = FIELDS) -> QueryNode:
    """Parse a query; raise `InvalidQuery`, with position and remedy, if it is malformed."""
    if len(text) > MAX_QUERY_CHARS:
        raise QueryTooLong(f"the query has {len(text):,} characters; the limit is {MAX_QUERY_CHARS:,}")
    node = _ExpressionParser(text, fields).parse()
    count = sum(1 for _ in iter_leaves(node))
    if count > MAX_LEAVES:
        raise QueryTooLong(f"the query has {count} words and phrases; with operators the limit is {MAX_LEAVES}")
    return node


def has_operators(text: str) -> bool:
    """Return whether a text may contain operators; if not, it need not be parsed."""
    return _OPERATOR.search(text) is not None


def has_unbalanced_signs(text: str) -> bool:
    """Return whether a quote or a parenthesis of a text has no counterpart, as in prose or code."""
    depth = 0
    for token in _tokenize(text, FIELDS):
        depth += {"open": 1, "close": -1}.get(token.kind, 0)
        if token.kind == "unclosed" or depth < 0:
            return True
    return depth > 0


def drop_false_operators(text: str) -> str:
    """Return a text without characters that only look like operators.

    These are AND, OR and NOT in a text that is all uppercase, the parenthesis of a list number such
    as "1) …", and the minus sign of a command-line flag, as in `docker ps -a`.
    """
    if _UPPERCASE_OPERATOR.sub("", text).isupper():
        text = _UPPERCASE_OPERATOR.sub(lambda found: found.group().lower(), text)
    text = _COMMAND_FLAG.sub("", text)
    return text if "(" in text else _LIST_NUMBER.sub(r"\1", text)


def parse_plain_words(text: str) -> QueryNode:
    """Return a text as a list of words, without operators."""
    nodes = tuple(WordNode(word) for word in _PLAIN_WORD.findall(text[:MAX_QUERY_CHARS]))
    return nodes[0] if len(nodes) == 1 else Or(nodes)


def map_leaves(node: QueryNode, transform: Callable[[WordNode | PhraseNode], QueryNode]) -> QueryNode:
    """Return a query in which each word and phrase is transformed."""
    match node:
        case WordNode() | PhraseNode():
            return transform(node)
        case FieldNode():
            return FieldNode(node.field, map_leaves(node.inner, transform))
        case Boost():
            return Boost(map_leaves(node.inner, transform), node.factor)
        case Must():
            return Must(map_leaves(node.inner, transform))
        case Not():
            return Not(map_leaves(node.inner, transform))
        case And():
            return And(tuple(map_leaves(inner, transform) for inner in node.nodes))
        case Or():
            return Or(tuple(map_leaves(inner, transform) for inner in node.nodes))
        case _:
            return node


def collect_words(node: QueryNode) -> list[str] | None:
    """Return the words of a query that only lists words; None for any other query."""
    if isinstance(node, WordNode):
        return None if node.is_prefix else [node.text]
    if not isinstance(node, Or):
        return None
    words: list[str] = []
    for inner in node.nodes:
        more = collect_words(inner)
        if more is None:
            return None
        words += more
    return words


def has_no_conditions(node: QueryNode) -> bool:
    """Return whether no part of a query excludes tools."""
    match node:
        case Or():
            return all(map(has_no_conditions, node.nodes))
        case Boost():
            return has_no_conditions(node.inner)
        case _:
            return isinstance(node, WordNode | PhraseNode)


def iter_leaves(
    node: QueryNode, field: str = "", factor: float = 1.0
) -> Iterator[tuple[WordNode | PhraseNode, str, float]]:
    """Yield the words and phrases of a query, except excluded ones, with their field and boost."""
    match node:
        case WordNode() | PhraseNode():
            yield node, field, factor
        case FieldNode():
            yield from iter_leaves(node.inner, node.field, factor)
        case Must():
            yield from iter_leaves(node.inner, field, factor)
        case Boost():
            yield from iter_leaves(node.inner, field, factor * node.factor)
        case And() | Or():
            for inner in node.nodes:
                yield from iter_leaves(inner, field, factor)


_PLAIN_WORD = re.compile(r"[^\s\"()*^+:\\]+")
_TOKEN = re.compile(
    r"""
      (?P<open>\()
    | (?P<close>\))
    | "(?P<quote>(?:[^"\\]|\\.)*)"(?P<quote_star>\*)?
    | (?P<unclosed>")
    | \^(?P<boost>\d+(?:\.\d+)?)
    | (?P<field>[A-Za-z_]+):(?=[\w"(*])
    | (?P<must>\+)(?=[^\s\d+)])
    | (?P<not>-)(?=[^\s\d)>-])
    | (?P<all>\*)(?=[\s)^]|$)
    | (?P<word>[^\s()"^*]+)(?P<word_star>\*)?
    | (?P<noise>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_BARE_WORD = re.compile(r"[^\s()\"^*]+")
_ESCAPED = re.compile(r"\\([\\\"])")
_OPERATORS = frozenset(("AND", "OR", "NOT"))


def _render_operand(node: QueryNode) -> str:
    """Render the operand of NOT or +, which also apply to a NOT or a boost that follows."""
    return str(node) if isinstance(node, Not | Boost) else _parenthesize(node)


def _parenthesize(node: QueryNode) -> str:
    """Render a node, in parentheses if it is not a single unit."""
    text = str(node)
    is_unit = isinstance(node, PhraseNode | FieldNode | MatchAll) or (
        isinstance(node, WordNode) and (node.text[0].isalnum() or node.text[0] == "_")
    )
    return text if is_unit else f"({text})"


@dataclass(frozen=True, slots=True)
class _ExpressionToken:
    kind: str
    text: str
    position: int
    star: bool = False


def _tokenize(text: str, fields: Collection[str]) -> Iterator[_ExpressionToken]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        assert found is not None, "the last alternative matches any character"
        kind = found.lastgroup or ""
        kind = kind.removesuffix("_star")
        value = found.group(kind)
        if kind == "field" and text[found.end()].isdigit() and value.lower() not in fields:
            # `localhost:8080` is a word, not a field.
            found = _BARE_WORD.match(text, position)
            assert found is not None, "a field begins with a letter"
            kind, value = "word", found.group()
        star = kind in ("word", "quote") and found.group().endswith("*")
        if kind == "word" and value in _OPERATORS and not star:
            kind = value
        if kind != "noise":
            yield _ExpressionToken(kind, value, position, star)
        position = found.end()


class _ExpressionParser:
    """A recursive descent parser of one query."""

    def __init__(self, text: str, fields: Collection[str]) -> None:
        self._fields = fields
        self._tokens = list(_tokenize(text, fields))
        self._next = 0
        self._end = len(text)

    def parse(self) -> QueryNode:
        node = self._parse_group(0)
        if self._next < len(self._tokens):
            position = self._tokens[self._next].position
            raise InvalidQuery(
                f"the closing parenthesis at character {position + 1} has no opening one; "
                "remove it or put the text in quotes",
                position,
            )
        return node

    def _parse_group(self, depth: int) -> QueryNode:
        nodes: list[QueryNode] = []
        while self._next < len(self._tokens) and not self._next_is("close"):
            if nodes and self._next_is("OR"):
                self._next += 1
            nodes.append(self._parse_and(depth))
        # Together with other nodes, `*` has no effect.
        nodes_to_match = [node for node in nodes if node != MatchAll()] or nodes[:1]
        return nodes_to_match[0] if len(nodes_to_match) == 1 else Or(tuple(nodes_to_match))

    def _parse_and(self, depth: int) -> QueryNode:
        nodes = [self._parse_unary(depth)]
        while self._next_is("AND"):
            self._next += 1
            nodes.append(self._parse_unary(depth))
        return nodes[0] if len(nodes) == 1 else And(tuple(nodes))

    def _parse_unary(self, depth: int) -> QueryNode:
        if depth > MAX_DEPTH:
            raise InvalidQuery(f"the query is nested more than {MAX_DEPTH} deep; write it with fewer parentheses")
        if self._next_is("NOT") or self._next_is("not"):
            self._next += 1
            return Not(self._parse_unary(depth + 1))
        if self._next_is("must"):
            self._next += 1
            return Must(self._parse_unary(depth + 1))
        node = self._parse_atom(depth)
        while self._next_is("boost"):
            node = Boost(node, _parse_boost(self._take()))
        return node

    def _parse_atom(self, depth: int) -> QueryNode:
        if self._next >= len(self._tokens):
            raise InvalidQuery(
                "the query ends where a word was expected; "
                'finish it, or put the operator in quotes to search for it: "AND"',
                self._end,
            )
        token = self._take()
        match token.kind:
            case "word":
                return WordNode(token.text, token.star)
            case "quote":
                return PhraseNode(_ESCAPED.sub(r"\1", token.text), token.star)
            case "all":
                return MatchAll()
            case "field":
                return FieldNode(self._parse_field(token), self._parse_atom(depth + 1))
            case "open":
                return self._parse_parenthesis(token, depth)
            case "unclosed":
                raise InvalidQuery(
                    f"the quote at character {token.position + 1} is never closed; close it or remove it",
                    token.position,
                )
        raise InvalidQuery(
            f"there is {token.text!r} at character {token.position + 1}, where a word was expected; "
            "put it in quotes to search for it",
            token.position,
        )

    def _parse_parenthesis(self, token: _ExpressionToken, depth: int) -> QueryNode:
        node = self._parse_group(depth + 1)
        if not self._next_is("close"):
            raise InvalidQuery(
                f"the parenthesis at character {token.position + 1} is never closed; "
                "close it or put the text in quotes",
                token.position,
            )
        self._next += 1
        return node

    def _parse_field(self, token: _ExpressionToken) -> str:
        field = token.text.lower()
        if field not in self._fields:
            raise InvalidQuery(
                f"there is no field {token.text!r} (character {token.position + 1}); the fields "
                f"are {', '.join(self._fields)}; put the text in quotes to search for it",
                token.position,
            )
        return field

    def _next_is(self, kind: str) -> bool:
        return self._next < len(self._tokens) and self._tokens[self._next].kind == kind

    def _take(self) -> _ExpressionToken:
        token = self._tokens[self._next]
        self._next += 1
        return token


def _parse_boost(token: _ExpressionToken) -> float:
    factor = round(float(token.text), 4)
    if factor > MAX_BOOST:
        raise InvalidQuery(
            f"the boost at character {token.position + 1} is over {MAX_BOOST}; use a smaller one", token.position
        )
    return factor
