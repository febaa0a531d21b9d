"""JSON read piece by piece, so that a thread that reads a large body lets the others run.

The parser itself holds the interpreter until it is done, which for some megabytes of brackets is
seconds. So it is given pieces: whole members of a list or an object, as many as fit, and only what
is larger than a piece is opened here. Whether a piece is valid is the parser's to say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json

PIECE_BYTES: Final = 64 << 10
MAX_CONTAINERS: Final = 500_000
# As deep as the parser goes.
MAX_DEPTH: Final = 200
# What is nested deeper than this is opened here, too.
_DEPTH_OF_A_MEMBER: Final = 12
# Texts may be full of brackets; those are worth looking at more closely than this.
_BYTES_A_BRACKET: Final = 16

# Possessive repeats: matching takes linear time, whatever the text is.
_STRING: Final = rb'"(?:[^"\\]++|\\.)*+"'


def _nested(depth: int) -> bytes:
    """A pattern of what stands in brackets, to this depth."""
    inner = rb"\[\]"
    for _ in range(depth):
        inner = rb'[\[{](?:[^\[\]{}"]++|' + _STRING + rb"|" + inner + rb")*+[\]}]"
    return inner


_MEMBER: Final = rb'(?:[^\[\]{}",]++|' + _STRING + rb"|" + _nested(_DEPTH_OF_A_MEMBER) + rb")*+"
_MEMBERS: Final = re.compile(rb"(?:" + _MEMBER + rb",)*", re.DOTALL)
_LAST: Final = re.compile(_MEMBER + rb"[\]}]", re.DOTALL)
_SCALAR: Final = re.compile(_STRING + rb'|[^ \t\r\n,\[\]{}":]+', re.DOTALL)
_SPACE: Final = re.compile(rb"[ \t\r\n]*", re.DOTALL)
_KEY: Final = re.compile(_STRING + rb"[ \t\r\n]*:", re.DOTALL)
_STRINGS: Final = re.compile(_STRING, re.DOTALL)
_CLOSING: Final = {b"[": b"]", b"{": b"}"}


def _end(pattern: re.Pattern[bytes], data: bytes, start: int, end: int) -> int:
    """Return where the match of a pattern ends; `start` if there is none."""
    match = pattern.match(data, start, end)
    return match.end() if match else start


class TooManyContainers(ValueError):
    """JSON with more lists and objects than anybody needs."""


@dataclass(slots=True)
class _Open:
    """A list or an object that is being put together; `key` is that of the member that is open."""

    value: Any
    kind: bytes
    key: Any = None
    after_comma: bool = False

    def add(self, members: Any) -> None:
        if isinstance(self.value, list):
            self.value.extend(members)
        else:
            self.value.update(members)

    def put(self, member: Any) -> None:
        self.add([member] if isinstance(self.value, list) else {self.key: member})


class _Reader:
    """One text."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._containers = 0
        self._open: list[_Open] = []

    def read(self) -> Any:
        self._skip_space()
        if self._next not in _CLOSING:
            return self._parsed(self._data, 0)
        self._begin()
        while True:
            done = self._go_on()
            if done is not None:
                break
        self._skip_space()
        if self._at != len(self._data):
            raise self._fault("there is more after the end")
        return done.value

    @property
    def _next(self) -> bytes:
        return self._data[self._at : self._at + 1]

    def _begin(self) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise self._fault("it is nested too deep")
        self._count(1)
        self._open.append(_Open([] if self._next == b"[" else {}, self._next))
        self._at += 1

    def _go_on(self) -> _Open | None:
        """Read on in what is open; what has ended, if nothing else is open."""
        here = self._open[-1]
        start, end = self._at, min(len(self._data), self._at + PIECE_BYTES)
        cut = _end(_MEMBERS, self._data, start, end)
        last = _LAST.match(self._data, cut, end)
        if last is not None:
            return self._end(here, start, last.end() - 1)
        if cut > start:
            self._take(here, start, cut - 1)
            self._at = cut
            here.after_comma = True
            return None
        return self._one(here)

    def _end(self, here: _Open, start: int, end: int) -> _Open | None:
        """The last members of what is open."""
        if self._data[end : end + 1] != _CLOSING[here.kind]:
            raise self._fault("a bracket does not fit")
        if self._data[start:end].strip() or here.after_comma:
            self._take(here, start, end)
        self._at = end + 1
        return self._ended()

    def _ended(self) -> _Open | None:
        done = self._open.pop()
        if not self._open:
            return done
        self._open[-1].put(done.value)
        return self._after(self._open[-1])

    def _after(self, here: _Open) -> _Open | None:
        """After a member: a comma, or the end of what is open."""
        self._skip_space()
        sign = self._next
        if sign == b",":
            self._at += 1
            here.after_comma = True
            return None
        if sign != _CLOSING[here.kind]:
            raise self._fault("a comma or a bracket is missing")
        self._at += 1
        return self._ended()

    def _one(self, here: _Open) -> _Open | None:
        """A member that is larger than a piece, or nested deeper."""
        self._skip_space()
        if here.kind == b"{":
            key = _KEY.match(self._data, self._at)
            if key is None:
                raise self._fault("a name is missing")
            here.key = self._parsed(key[0][:-1], self._at)
            self._at = key.end()
            self._skip_space()
        if self._next in _CLOSING:
            self._begin()
            return None
        value = _SCALAR.match(self._data, self._at)
        if value is None:
            raise self._fault("this is no value")
        here.put(self._parsed(value[0], self._at))
        self._at = value.end()
        return self._after(here)

    def _take(self, here: _Open, start: int, end: int) -> None:
        """Parse whole members."""
        piece = self._data[start:end]
        if not piece.strip():
            raise self._fault("a value is missing")
        self._count(_containers(piece))
        here.add(self._parsed(here.kind + piece + _CLOSING[here.kind], start))

    def _parsed(self, piece: bytes, start: int) -> Any:
        try:
            return from_json(piece, cache_strings="keys")
        except ValueError as fault:
            raise ValueError(f"{fault}, counted from byte {start:,}") from fault

    def _count(self, more: int) -> None:
        self._containers += more
        if self._containers > MAX_CONTAINERS:
            raise TooManyContainers(f"more than {MAX_CONTAINERS:,} lists and objects")

    def _skip_space(self) -> None:
        self._at = _end(_SPACE, self._data, self._at, len(self._data))

    def _fault(self, why: str) -> ValueError:
        return ValueError(f"{why} at byte {self._at:,}")


def read_in_pieces(data: bytes) -> Any:
    """The value of a JSON text, or a ValueError; the same value as at once."""
    return _Reader(data).read()


def _containers(piece: bytes) -> int:
    """How many lists and objects there are, or a few more where they are few."""
    count = piece.count(b"[") + piece.count(b"{")
    if count * _BYTES_A_BRACKET < len(piece):
        return count
    bare = _STRINGS.sub(b"", piece)
    return bare.count(b"[") + bare.count(b"{")
