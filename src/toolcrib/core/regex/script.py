"""The characters of some texts, and how each is written where the texts are joined."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, groupby
from typing import NamedTuple

from toolcrib.core.regex.syntax import Chars, Literal

SEPARATOR = "\n"


class Ranges(NamedTuple):
    """The written characters from each first to each last, or all others if `negated`."""

    spans: tuple[tuple[str, str], ...]
    negated: bool


class Script(NamedTuple):
    """An alphabet in which the separator and lone surrogates are written as unused characters."""

    letters: str
    stand_ins: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, letters: Iterable[str]) -> Script:
        """The script of texts that have these letters."""
        known = frozenset(letters)
        unwritable = [SEPARATOR, *sorted(filter(_is_surrogate, known))]
        points = chain(range(0xD800), range(0xE000, 0x110000))
        unused = (char for char in map(chr, points) if char not in known and char != SEPARATOR)
        stand_ins = tuple(zip(unwritable, unused, strict=False))
        if len(stand_ins) < len(unwritable):
            raise ValueError("the texts use every Unicode character; leave one of them unused")
        return cls("".join(sorted(known)), stand_ins)

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
        for char, stand_in in self.stand_ins:
            text = text.replace(char, stand_in)
        return text

    def ranges(self, node: Literal | Chars) -> Ranges:
        """The written characters that the node matches, of all that are in the script."""
        return _ranges(self, node)


def _is_surrogate(char: str) -> bool:
    return "\ud800" <= char <= "\udfff"


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
