"""A pattern spelled for RE2, which never backtracks, and for `regex`, which knows everything.

Both spellings are for texts that a script has written and a separator has joined: no character
matches the separator, and the multi-line `^` and `$` are the edges of a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from toolcrib.search.regex.script import Ranges, Script
from toolcrib.search.regex.syntax import (
    Atomic,
    Boundary,
    Capture,
    Chars,
    Choice,
    Conditional,
    Edge,
    Greed,
    Literal,
    Look,
    Node,
    Reference,
    Repeat,
    Sequence,
)

# RE2 writes counts out: past the first size it is faster to give them up and let `regex` count,
# past the second it takes long to compile, and longer where its automaton outgrows its memory.
_MOST_INSTRUCTIONS_WITH_COUNTS = 250
_MOST_INSTRUCTIONS = 2_000
_INSTRUCTIONS_A_WIDE_RANGE = 4
_NOTHING_IN_RE2 = r"[^\s\S]"
_NOTHING_IN_REGEX = "(?!)"
# Until Python 3.14.
_EMPTY_TEXT_HAS_NO_INSIDE = re.search(r"\B", "") is None


class Automaton(NamedTuple):
    """RE2's spelling; unless `exact`, it is also found in texts that the pattern is not in."""

    text: str
    exact: bool


def automaton(node: Node, script: Script, look: Callable[[], object]) -> Automaton | None:
    """The node for RE2, without its counts if they make it too large, or None; `look` may raise."""
    for limit, keeps_counts in (
        (_MOST_INSTRUCTIONS_WITH_COUNTS, True),
        (_MOST_INSTRUCTIONS, False),
    ):
        spelling = _AutomatonSpelling(script, look, keeps_counts)
        if spelling.size(node) <= limit:
            text = spelling.spell(node, head=True, tail=True)
            return Automaton(text, spelling.exact)
    return None


def backtracker(node: Node, script: Script, look: Callable[[], object], *, in_steps: bool) -> str:
    """The node for `regex`, always exact, to be run slower `in_steps`; `look` may raise."""
    return _BacktrackerSpelling(script, look, in_steps).spell(node)


def unrolled(node: Node) -> int:
    """About how many parts `regex` makes of the node, of which it writes least counts out."""
    match node:
        case Sequence(parts) | Choice(parts):
            return 1 + sum(map(unrolled, parts))
        case Repeat(body, least, most):
            return 1 + (least + (most != least)) * unrolled(body)
        case Capture(_, body) | Atomic(body) | Look(body):
            return 1 + unrolled(body)
        case Conditional(_, yes, no):
            return 1 + unrolled(yes) + unrolled(no)
    return 1


class _AutomatonSpelling:
    """Spells one node for RE2, and notes in `exact` if it had to allow more than the node does."""

    def __init__(self, script: Script, look: Callable[[], object], keeps_counts: bool) -> None:
        self.exact = True
        self._script = script
        self._look = look
        self._keeps_counts = keeps_counts

    def size(self, node: Node) -> int:
        """About how many instructions the node becomes."""
        match node:
            case Literal() | Chars():
                self._look()
                each = 1 if self._script.is_ascii else _INSTRUCTIONS_A_WIDE_RANGE
                return each * len(self._script.ranges(node).spans) or 1
            case Sequence(parts) | Choice(parts):
                return 1 + sum(map(self.size, parts))
            case Repeat(body, least, most):
                times = max(least, most or 1) if self._keeps_counts else 1
                return 1 + times * self.size(body)
            case Capture(_, body) | Atomic(body):
                return self.size(body)
            case Conditional(_, yes, no):
                return self.size(yes) + self.size(no)
        return 1

    def spell(self, node: Node, *, head: bool, tail: bool) -> str:
        """The node's text; at the `head` or `tail` of the pattern an edge may take a character."""
        match node:
            case Literal() | Chars():
                return _class(self._script.ranges(node), _re2_escape, _NOTHING_IN_RE2)
            case Sequence(parts):
                last = len(parts) - 1
                return "".join(
                    self.spell(part, head=head and at == 0, tail=tail and at == last)
                    for at, part in enumerate(parts)
                )
            case Choice(options):
                return _any_of(self.spell(option, head=head, tail=tail) for option in options)
            case Repeat(body, _, most):
                once = most == 1
                inner = self.spell(body, head=head and once, tail=tail and once)
                return f"(?:{inner}){self._counts(node)}"
            case Capture(_, body):
                return self.spell(body, head=head, tail=tail)
            case Edge():
                return self._edge(node, head, tail)
            case Boundary(_, negated) if self._script.is_ascii:
                self.exact &= not (negated and _EMPTY_TEXT_HAS_NO_INSIDE)
                return r"\B" if negated else r"\b"
        return self._superset(node, head, tail)

    def _superset(self, node: Node, head: bool, tail: bool) -> str:
        """For what RE2 cannot say, something that is found at least wherever the node is."""
        self.exact = False
        match node:
            case Atomic(body):
                return self.spell(body, head=head, tail=tail)
            case Conditional(_, yes, no):
                return _any_of(self.spell(option, head=head, tail=tail) for option in (yes, no))
            case Reference():
                return r"[^\n]*"
        return ""

    def _counts(self, repeat: Repeat) -> str:
        least, most = repeat.least, repeat.most
        self.exact &= repeat.greed is not Greed.ALL
        if self._keeps_counts or max(least, most or 0) <= 1:
            return _counts(least, most)
        self.exact = False
        return _counts(min(least, 1), None)

    def _edge(self, edge: Edge, head: bool, tail: bool) -> str:
        newline = _re2_escape(self._script.newline)
        match edge:
            case Edge.TEXT_START:
                return "^"
            case Edge.TEXT_END:
                return "$"
            case Edge.LINE_START if head:
                return f"(?:^|{newline})"
            case Edge.LINE_END if tail:
                return f"(?:$|{newline})"
            case Edge.LAST_LINE_END if tail:
                return f"{newline}?$"
        return self._superset(edge, head, tail)


class _BacktrackerSpelling:
    """Spells nodes for `regex`, in signs that it and `re` read alike."""

    def __init__(self, script: Script, look: Callable[[], object], in_steps: bool) -> None:
        self._script = script
        self._look = look
        # `regex` repeats single characters in one go, however many, and does not look at its
        # timeout meanwhile; it does if there is another option, be it one that never matches.
        self._other_option = f"|{_NOTHING_IN_REGEX}" if in_steps else ""

    def spell(self, node: Node) -> str:
        """The node's text."""
        match node:
            case Literal() | Chars():
                return self._class(node)
            case Sequence(parts):
                return "".join(map(self.spell, parts))
            case Choice(options):
                return _any_of(map(self.spell, options))
            case Repeat(body, least, most, greed):
                # In `re` a possessive repeat gives nothing back within itself either.
                group = "?>" if greed is Greed.ALL else "?:"
                inner = f"({group}{self.spell(body)}{self._other_option})"
                return f"{inner}{_counts(least, most)}{greed.value}"
            case Capture(number, body):
                return f"(?P<g{number}>{self.spell(body)})"
            case Atomic(body):
                return f"(?>{self.spell(body)})"
            case Look(body, behind, negated):
                sign = ("<" if behind else "") + ("!" if negated else "=")
                return f"(?{sign}{self.spell(body)})"
            case Reference(number, ignore_case):
                return f"(?{'i' if ignore_case else ''}:(?P=g{number}))"
            case Conditional(number, yes, no):
                return f"(?(g{number})(?:{self.spell(yes)})|(?:{self.spell(no)}))"
            case Edge():
                return self._edge(node)
        return self._boundary(node)

    def _class(self, node: Literal | Chars) -> str:
        self._look()
        return _class(self._script.ranges(node), _regex_escape, _NOTHING_IN_REGEX)

    def _edge(self, edge: Edge) -> str:
        newline = _regex_escape(self._script.newline)
        match edge:
            case Edge.TEXT_START:
                return "^"
            case Edge.TEXT_END:
                return "$"
            case Edge.LINE_START:
                return f"(?:^|(?<={newline}))"
            case Edge.LINE_END:
                return f"(?:$|(?={newline}))"
        return f"(?={newline}?$)"

    def _boundary(self, boundary: Boundary) -> str:
        not_empty = "(?!^$)" if boundary.negated and _EMPTY_TEXT_HAS_NO_INSIDE else ""
        if self._script.is_ascii or not boundary.word.flags & re.ASCII:
            return not_empty + (r"\B" if boundary.negated else r"\b")
        word = self._class(boundary.word)
        inside, outside = ("=", "!") if boundary.negated else ("!", "=")
        return f"{not_empty}(?:(?<={word})(?{inside}{word})|(?<!{word})(?{outside}{word}))"


def _class(ranges: Ranges, escape: Callable[[str], str], nothing: str) -> str:
    match ranges:
        case (), False:
            return nothing
        case ((first, last),), False if first == last:
            return escape(first)
    spans = (
        escape(first) if first == last else f"{escape(first)}-{escape(last)}"
        for first, last in ranges.spans
    )
    return f"[{'^' if ranges.negated else ''}{''.join(spans)}]"


def _re2_escape(char: str) -> str:
    return char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):x}}}"


def _regex_escape(char: str) -> str:
    code = ord(char)
    if code < 128:
        return char if char.isalnum() else f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _any_of(texts: Iterable[str]) -> str:
    return f"(?:{'|'.join(texts)})"


def _counts(least: int, most: int | None) -> str:
    match least, most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
    return f"{{{least},{'' if most is None else most}}}"
