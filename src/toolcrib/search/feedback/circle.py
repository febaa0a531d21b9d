"""Those who learn from one another: what each has taught, none counting for more than a part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from toolcrib.search.feedback.experience import MAX_WEIGHT, Experience, Use, shares, supported

# A voice has room of its own: who talks most takes nobody else's, and what others have taught does
# not fade by what he says.
MAX_VOICES: Final = 1_000
MAX_PAIRS_A_VOICE: Final = 10_000
# One voice alone gives a pair at most half of what all together can.
MAX_WEIGHT_A_VOICE: Final = MAX_WEIGHT / 2


class Circle:
    """The evidence of several callers, each with an experience of his own under one salt.

    Those who record take turns; others may search meanwhile.
    """

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._reader = Experience(salt)
        self._now = _Moment({})

    @property
    def voices(self) -> Mapping[str, Experience]:
        """What each has taught; who has spoken last stands last."""
        return self._now.voices

    @property
    def pairs(self) -> int:
        """How many pairs of a word and a tool are kept, for all voices together."""
        return sum(one.pairs for one in self.voices.values())

    @property
    def tool_ids(self) -> frozenset[str]:
        """The tools that somebody has given evidence for."""
        return self._now.tool_ids

    def record(self, voice: str, use: Use) -> None:
        """Learn from a use of this voice's."""
        known = self.voices.get(voice) or Experience(self._salt, max_pairs=MAX_PAIRS_A_VOICE)
        known.record(use)
        self._put(voice, known)

    def restore(self, voice: str, rows: Mapping[int, Mapping[str, float]]) -> None:
        """Take back what a voice has taught before, in place of what it has now."""
        known = Experience.from_rows(rows, self._salt, max_pairs=MAX_PAIRS_A_VOICE)
        self._put(voice, known)

    def silence(self, voice: str) -> None:
        """Drop what a voice has taught."""
        self._now = _Moment({name: one for name, one in self.voices.items() if name != voice})

    def support(self, query: str) -> dict[str, float]:
        """The tools that served queries with these words, each with how much says so: 0 to 1."""
        return supported(self._shares(query))

    def words_for(self, query: str, tool_id: str) -> dict[str, float]:
        """The words of a query that speak for a tool, and what each adds to its support."""
        return {word: share[tool_id] for word, share in self._shares(query) if tool_id in share}

    def _put(self, voice: str, known: Experience) -> None:
        others = {name: one for name, one in self.voices.items() if name != voice}
        for oldest in [*others][: max(len(others) + 1 - MAX_VOICES, 0)]:
            del others[oldest]
        self._now = _Moment({**others, voice: known} if known.pairs else others)

    def _shares(self, query: str) -> Iterator[tuple[str, dict[str, float]]]:
        now = self._now
        if not now.voices:
            return iter(())
        words = self._reader.words(query)
        asked = [(one.written, now.row(one.digest)) for one in words]
        return shares(asked, len(now.tool_ids))


class _Moment:
    """What the voices say between one piece of evidence and the next, put together when asked for."""

    def __init__(self, voices: Mapping[str, Experience]) -> None:
        # In the order in which they last gave evidence.
        self.voices = voices
        self._rows: dict[int, Mapping[str, float]] = {}

    @cached_property
    def tool_ids(self) -> frozenset[str]:
        """The tools that somebody has given evidence for."""
        return frozenset().union(*(one.tool_ids for one in self.voices.values()))

    def row(self, digest: int) -> Mapping[str, float]:
        """What all voices say of one word."""
        known = self._rows.get(digest)
        if known is None:
            known = _together(one.row(digest) for one in self.voices.values())
            if known:
                self._rows[digest] = known
        return known


def _together(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """What all voices say of one word."""
    found: dict[str, float] = {}
    for row in rows:
        for tool_id, weight in row.items():
            heard = found.get(tool_id, 0.0) + min(weight, MAX_WEIGHT_A_VOICE)
            found[tool_id] = min(heard, MAX_WEIGHT)
    return found
