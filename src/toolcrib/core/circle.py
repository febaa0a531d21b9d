"""Those who learn from one another: what each has taught, none counting for more than a part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from toolcrib.core.experience import MAX_WEIGHT, Experience, Use, shares, supported

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
        # In the order in which voices last gave evidence. Replaced, never changed.
        self._voices: dict[str, Experience] = {}
        self._tools: int | None = 0

    @property
    def voices(self) -> Mapping[str, Experience]:
        """What each has taught; who has spoken last stands last."""
        return self._voices

    @property
    def pairs(self) -> int:
        """How many pairs of a word and a tool are kept, for all voices together."""
        return sum(one.pairs for one in self._voices.values())

    @property
    def tool_ids(self) -> frozenset[str]:
        """The tools that somebody has given evidence for."""
        return frozenset().union(*(one.tool_ids for one in self._voices.values()))

    def record(self, voice: str, use: Use) -> None:
        """Learn from a use of this voice's."""
        known = self._voices.get(voice) or Experience(self._salt, max_pairs=MAX_PAIRS_A_VOICE)
        known.record(use)
        self._put(voice, known)

    def restore(self, voice: str, rows: Mapping[int, Mapping[str, float]]) -> None:
        """Take back what a voice has taught before, in place of what it has now."""
        known = Experience.from_rows(rows, self._salt, max_pairs=MAX_PAIRS_A_VOICE)
        self._put(voice, known)

    def silence(self, voice: str) -> None:
        """Drop what a voice has taught."""
        self._voices = {name: one for name, one in self._voices.items() if name != voice}
        self._tools = None

    def support(self, query: str) -> dict[str, float]:
        """The tools that served queries with these words, each with how much says so: 0 to 1."""
        return supported(self._shares(query))

    def words_for(self, query: str, tool_id: str) -> dict[str, float]:
        """The words of a query that speak for a tool, and what each adds to its support."""
        return {word: share[tool_id] for word, share in self._shares(query) if tool_id in share}

    def _put(self, voice: str, known: Experience) -> None:
        others = {name: one for name, one in self._voices.items() if name != voice}
        for oldest in [*others][: max(len(others) + 1 - MAX_VOICES, 0)]:
            del others[oldest]
        self._voices = {**others, voice: known} if known.pairs else others
        self._tools = None

    def _shares(self, query: str) -> Iterator[tuple[str, dict[str, float]]]:
        voices = self._voices.values()
        if not voices:
            return iter(())
        words = self._reader.words(query)
        asked = [(one.written, _together(v.row(one.digest) for v in voices)) for one in words]
        if self._tools is None:
            self._tools = len(self.tool_ids)
        return shares(asked, self._tools)


def _together(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """What all voices say of one word."""
    found: dict[str, float] = {}
    for row in rows:
        for tool_id, weight in row.items():
            heard = found.get(tool_id, 0.0) + min(weight, MAX_WEIGHT_A_VOICE)
            found[tool_id] = min(heard, MAX_WEIGHT)
    return found
