"""Texts joined into one, so that a single scan goes through thousands of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
import re2
import regex
from numpy.typing import NDArray

from toolcrib.core.regex.deadline import Deadline
from toolcrib.core.regex.script import SEPARATOR, Script
from toolcrib.core.regex.spelling import automaton, backtracker
from toolcrib.core.regex.syntax import Node, Pattern, required

Mask = NDArray[np.bool_]

_RE2_MEMORY_BYTES = 1 << 21
# The clock is looked at once a window. RE2 at its slowest, when its automaton outgrows its memory,
# takes about 10 ns a byte and instruction.
_WINDOW_STEPS = 500_000
_WINDOW_BYTES = 1 << 16
_WINDOW_TEXTS = 1_000
_MOST_SIEVES = 4


class Blob:
    """Different texts of one script, each followed by the separator, as UTF-8."""

    def __init__(self, texts: Iterable[str], script: Script) -> None:
        self._script = script
        self._bytes = "".join(script.write(text) + SEPARATOR for text in texts).encode()
        ends = np.flatnonzero(np.frombuffer(self._bytes, np.uint8) == ord(SEPARATOR)) + 1
        self._bounds = np.concatenate([np.zeros(1, np.int64), ends])

    def matching(self, pattern: Pattern, deadline: Deadline) -> Mask:
        """For each text, whether the pattern is found in it."""
        maybe = np.ones(len(self._bounds) - 1, np.bool_)
        for node in islice(chain([pattern.tree], required(pattern.tree)), _MOST_SIEVES):
            spelling = automaton(node, self._script, deadline.remaining_seconds)
            sieve = spelling and self._sieve(spelling.text)
            if spelling is None or sieve is None:
                continue
            decides = spelling.exact and node is pattern.tree
            if not decides and sieve.search(SEPARATOR.encode()):
                continue  # Found even in an empty text, it would hold nothing back.
            found, too_long = self._sifted(sieve, maybe, deadline)
            if decides:
                return found | self._backtracked(pattern, too_long, deadline)
            maybe = found | too_long
        return self._backtracked(pattern, maybe, deadline)

    def _sieve(self, spelling: str) -> Any:
        """RE2 for runs of neighbouring texts with hits, or None if it takes too much memory."""
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

    def _sifted(self, sieve: Any, wanted: Mask, deadline: Deadline) -> tuple[Mask, Mask]:
        """The wanted texts the sieve holds, and those too long to try it between two looks."""
        most_bytes = min(_WINDOW_STEPS // sieve.programsize, _WINDOW_BYTES)
        too_long = wanted & (np.diff(self._bounds) > most_bytes)
        spans: list[tuple[int, int]] = []
        for first, last in self._windows(wanted & ~too_long, most_bytes):
            deadline.remaining_seconds()
            start, end = self._bounds[[first, last]].tolist()
            spans.extend(match.span() for match in sieve.finditer(self._bytes, start, end))
        starts, ends = np.array(spans, np.int64).reshape(-1, 2).T
        steps = np.zeros(len(self._bounds), np.int8)
        steps[np.searchsorted(self._bounds, starts, "right") - 1] += 1
        steps[np.searchsorted(self._bounds, ends)] -= 1
        return np.cumsum(steps[:-1], dtype=np.int8) > 0, too_long

    def _backtracked(self, pattern: Pattern, wanted: Mask, deadline: Deadline) -> Mask:
        """The wanted texts that `regex` finds the pattern in."""
        found = np.zeros_like(wanted)
        if not wanted.any():
            return found
        search = self._backtracker(pattern, deadline)
        for first, last in self._windows(wanted, _WINDOW_BYTES):
            start, end = self._bounds[[first, last]].tolist()
            text = self._bytes[start:end].decode()
            at = 0
            try:
                for match in search.finditer(text, timeout=deadline.remaining_seconds()):
                    first += text.count(SEPARATOR, at, match.start())
                    run = text.count(SEPARATOR, match.start(), match.end())
                    found[first : first + run] = True
                    first += run
                    at = match.end()
            except TimeoutError:
                raise deadline.missed() from None
        return found

    def _backtracker(self, pattern: Pattern, deadline: Deadline) -> Any:
        """`regex` for runs of neighbouring texts with hits, or for single ones if it remembers."""
        spelling = backtracker(pattern.tree, self._script, deadline.remaining_seconds)
        times = "" if pattern.remembers else "++"
        text = rf"^(?:[^\n]*?(?:{spelling})[^\n]*+\n){times}"
        return regex.compile(text, regex.VERSION0 | regex.MULTILINE)

    def _windows(self, wanted: Mask, most_bytes: int) -> Iterator[tuple[int, int]]:
        """The wanted texts, first and last, in stretches small enough to be gone through at once."""
        turns = np.flatnonzero(np.diff(wanted, prepend=False, append=False)).reshape(-1, 2)
        for first, end in turns.tolist():
            while first < end:
                fitting = int(np.searchsorted(self._bounds, self._bounds[first] + most_bytes, "right"))
                last = max(first + 1, min(end, fitting - 1, first + _WINDOW_TEXTS))
                yield first, last
                first = last
