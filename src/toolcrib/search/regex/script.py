"""The characters of some texts, and how each is written where the texts are joined."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, groupby
from typing import NamedTuple

import regex

from toolcrib.errors import InvalidTool
from toolcrib.search.regex.syntax import Chars, Literal

SEPARATOR = "\n"


class Ranges(NamedTuple):
    """The written characters from each first to each last, or all others if `negated`."""

    spans: tuple[tuple[str, str], ...]
    negated: bool


@dataclass(frozen=True)
class Script:
    """An alphabet in which some characters are written as others, which no text has.

    These are the separator, lone surrogates, which UTF-8 cannot write, and characters that are
    part of a word to `regex` and not to `re`, or the other way round.
    """

    letters: str
    stand_ins: dict[int, str] = field(compare=False)

    @classmethod
    def of(cls, letters: Iterable[str]) -> Script:
        """The script of texts that have these letters."""
        known = "".join(sorted(set(letters)))
        words = frozenset(re.findall(r"\w", known))
        disputed = words.symmetric_difference(regex.findall(r"\w", known))
        unwritable = sorted({SEPARATOR, *filter(_is_surrogate, known), *disputed})
        unused = {is_word: _unused(known, is_word) for is_word in (False, True)}
        try:
            return cls(known, {ord(char): next(unused[char in words]) for char in unwritable})
        except StopIteration:
            raise InvalidTool("the tools use every character there is; leave one unused") from None

    @property
    def is_ascii(self) -> bool:
        """Whether these are all ASCII characters."""
        return self.letters.isascii()

    @property
    def newline(self) -> str:
        """How a newline is written."""
        return self.write("\n")

    def write(self, text: str) -> str:
        """The text as it is written between separators."""
        return text.translate(self.stand_ins)

    def ranges(self, node: Literal | Chars) -> Ranges:
        """The written characters that the node matches, of all that are in the script."""
        return _ranges(self, node)


def _is_surrogate(char: str) -> bool:
    return "\ud800" <= char <= "\udfff"


def _unused(known: str, is_word: bool) -> Iterator[str]:
    """Characters that can be written, are not known, and are or are not word characters."""
    taken = frozenset(known + SEPARATOR)
    for char in map(chr, chain(range(0xD800), range(0xE000, 0x110000))):
        if char not in taken and bool(regex.match(r"\w", char)) == is_word:
            yield char


@lru_cache(maxsize=1024)
def _order(script: Script) -> list[str]:
    return sorted({SEPARATOR, *script.write(script.letters)})


@lru_cache(maxsize=1024)
def _ranges(script: Script, node: Literal | Chars) -> Ranges:
    members = frozenset(script.write(_members(script.letters, node)))
    inside: list[tuple[str, str]] = []
    outside: list[tuple[str, str]] = []
    # Ranges may run across characters that no text has, which keeps them few.
    for is_member, run in groupby(_order(script), members.__contains__):
        chars = list(run)
        (inside if is_member else outside).append((chars[0], chars[-1]))
    if len(outside) < len(inside):
        return Ranges(tuple(outside), negated=True)
    return Ranges(tuple(inside), negated=False)


def _members(letters: str, node: Literal | Chars) -> str:
    if isinstance(node, Literal):
        return node.char if node.char in letters else ""
    # `re` itself tells: no table of ours or of another engine can then disagree with it.
    return "".join(re.compile(node.source, node.flags).findall(letters))
