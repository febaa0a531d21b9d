"""Texts joined into one, so that a single scan goes through thousands of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
import re2
import regex
from numpy.typing import NDArray

from toolcrib.search.regex.deadline import Deadline
from toolcrib.search.regex.script import SEPARATOR, Script
from toolcrib.search.regex.spelling import automaton, backtracker, unrolled
from toolcrib.search.regex.syntax import Pattern, required

Indexes = NDArray[np.int64]
Runs = Iterator[tuple[int, int]]

_RE2_MEMORY_BYTES = 1 << 21
# The clock is looked at between chunks. RE2 at its slowest, when its automaton outgrows its
# memory, takes 5 to 10 ns a byte and instruction.
_CHUNK_STEPS = 2_000_000
_LONGEST_TEXT_STEPS = 10_000_000
_SMALLEST_CHUNK_BYTES = 1 << 12
_CHUNK_BYTES = 1 << 15
_LONG_TEXT_BYTES = 1 << 14
_CHUNK_TEXTS = 1_000
_MOST_SIEVES = 4
_MOST_UNROLLED = 5_000
_COMPILED_CHARACTERS_A_SECOND = 200_000


class Blob:
    """Different texts of one script, each followed by the separator, as UTF-8."""

    def __init__(self, texts: Iterable[str], script: Script) -> None:
        self._script = script
        self._bytes = "".join(script.write(text) + SEPARATOR for text in texts).encode()
        ends = np.flatnonzero(np.frombuffer(self._bytes, np.uint8) == ord(SEPARATOR)) + 1
        self._bounds = np.concatenate([np.zeros(1, np.int64), ends])
        self._sizes = np.diff(self._bounds)

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def matching(self, pattern: Pattern, deadline: Deadline) -> Indexes:
        """The ascending indexes of the texts in which the pattern is found."""
        maybe = np.arange(len(self))
        if not len(self):
            return maybe
        for node in islice(chain([pattern.tree], required(pattern.tree)), _MOST_SIEVES):
            spelling = automaton(node, self._script, deadline.remaining_seconds)
            sieve = spelling and self._sieve(spelling.text)
            if not spelling or not sieve:
                continue
            decides = spelling.exact and node is pattern.tree
            if not decides and sieve.search(SEPARATOR.encode()):
                continue  # Found even in an empty text, it would hold nothing back.
            found, too_long = self._sifted(maybe, sieve, deadline)
            if decides:
                return _merged(found, self._backtracked(too_long, pattern, deadline))
            maybe = _merged(found, too_long)
        return self._backtracked(maybe, pattern, deadline)

    def _sieve(self, spelling: str) -> Any:
        """RE2 for runs of neighbouring texts with hits, or None if that is too much for it."""
        options = re2.Options()
        options.max_mem = _RE2_MEMORY_BYTES
        options.log_errors = False
        if self._script.is_ascii:
            options.encoding = re2.Options.Encoding.LATIN1
        text = rf"(?:{spelling})[^\n]*\n"
        try:
            return re2.compile(rf"(?m){text}(?:[^\n]*?{text})*".encode(), options)
        except re2.error:
            return None

    def _sifted(self, texts: Indexes, sieve: Any, deadline: Deadline) -> tuple[Indexes, Indexes]:
        """Those of the texts the sieve is found in, and those too long to try it on."""

        def runs(chunk: bytes, first: int) -> Runs:
            deadline.remaining_seconds()
            return _runs(sieve.finditer(chunk), partial(chunk.count, SEPARATOR.encode()), first)

        fitting = max(_CHUNK_STEPS // sieve.programsize, _SMALLEST_CHUNK_BYTES)
        is_too_long = self._sizes[texts] > max(_LONGEST_TEXT_STEPS // sieve.programsize, fitting)
        found = self._scanned(texts[~is_too_long], min(fitting, _CHUNK_BYTES), runs)
        return found, texts[is_too_long]

    def _backtracked(self, texts: Indexes, pattern: Pattern, deadline: Deadline) -> Indexes:
        """Those of the texts in which `regex` finds the pattern."""
        is_long = self._sizes[texts] > _LONG_TEXT_BYTES
        return _merged(
            self._searched(texts[~is_long], pattern, deadline, in_steps=False),
            self._searched(texts[is_long], pattern, deadline, in_steps=True),
        )

    def _searched(
        self, texts: Indexes, pattern: Pattern, deadline: Deadline, *, in_steps: bool
    ) -> Indexes:
        if not len(texts):
            return texts
        look = deadline.remaining_seconds
        spelling = backtracker(pattern.tree, self._script, look, in_steps=in_steps)
        # What a text left in a capture must not be there in the next text of a run.
        times = "" if pattern.remembers else "++"
        text = rf"^(?:[^\n]*?(?:{spelling})[^\n]*+\n){times}"
        # Compiling cannot be stopped, so what will not be ready in time is not begun; a part in a
        # dozen nested repeats, or repeated a million times, would even take all memory or crash.
        is_huge = unrolled(pattern.tree) > _MOST_UNROLLED
        if is_huge or len(text) > look() * _COMPILED_CHARACTERS_A_SECOND:
            raise deadline.missed()
        compiled = regex.compile(text, regex.VERSION0 | regex.MULTILINE)

        def runs(chunk: bytes, first: int) -> Runs:
            text = chunk.decode()
            matches = compiled.finditer(text, timeout=look())
            return _runs(matches, partial(text.count, SEPARATOR), first)

        try:
            return self._scanned(texts, _CHUNK_BYTES, runs)
        except TimeoutError:
            raise deadline.missed() from None

    def _scanned(
        self, texts: Indexes, most_bytes: int, runs: Callable[[bytes, int], Runs]
    ) -> Indexes:
        """Those of the texts that are in one of the runs."""
        found: list[tuple[int, int]] = []
        for first, end in self._cuts(texts, most_bytes):
            found.extend(runs(self._joined(texts[first:end]), first))
        firsts, ends = np.array(found, np.int64).reshape(-1, 2).T
        steps = np.zeros(len(texts) + 1, np.int8)
        steps[firsts] += 1
        steps[ends] -= 1
        return texts[np.cumsum(steps[:-1], dtype=np.int8) > 0]

    def _cuts(self, texts: Indexes, most_bytes: int) -> Iterator[tuple[int, int]]:
        """First and end of each chunk of texts; a longer text is a chunk of its own."""
        sizes = np.cumsum(self._sizes[texts])
        first = passed = 0
        while first < len(texts):
            fitting = int(sizes.searchsorted(passed + most_bytes, "right"))
            end = max(first + 1, min(fitting, first + _CHUNK_TEXTS))
            yield first, end
            first, passed = end, int(sizes[end - 1])

    def _joined(self, texts: Indexes) -> bytes:
        first, last = texts[0], texts[-1]
        if last - first < len(texts):
            return self._bytes[self._bounds[first] : self._bounds[last + 1]]
        starts, ends = self._bounds[texts].tolist(), self._bounds[texts + 1].tolist()
        return b"".join(map(self._bytes.__getitem__, map(slice, starts, ends)))


def _runs(matches: Iterable[Any], texts_between: Callable[[int, int], int], text: int) -> Runs:
    """First and end of the texts in each match, of which the one to begin with is `text`."""
    at = 0
    for match in matches:
        start, end = match.span()
        first = text + texts_between(at, start)
        text = first + texts_between(start, end)
        yield first, text
        at = end


def _merged(some: Indexes, others: Indexes) -> Indexes:
    return np.sort(np.concatenate([some, others]), kind="stable")
