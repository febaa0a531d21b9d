"""What use has taught the gateways: noted when it happens, learned and written later, lent to searches.

Whoever calls a tool waits for nothing here but a place in a queue. Everything else is done by
`flush`, from time to time and in a thread of its own.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Final

from toolcrib.search.feedback.circle import Circle
from toolcrib.search.feedback.experience import MAX_ID_CHARS, MAX_WEIGHT, Experience, Use
from toolcrib.storage.feedback import Lesson, LessonStore

# What waits to be learned. More at once is more than there is to learn from.
MAX_UNLEARNED: Final = 10_000
# Pairs of a word and a tool in all circles together: the circle longest without a lesson is
# forgotten first.
MAX_PAIRS: Final = 200_000
# How often others may be faster to write before lessons are given up.
_TRIES: Final = 5
_CHECKED: Final = b"toolcrib lessons"
_log = logging.getLogger(__name__)

Rows = dict[int, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class _Noted:
    circle: tuple[str, ...]
    voice: str
    use: Use


@dataclass(frozen=True, slots=True)
class _Member:
    """What a circle has taught, as it is known at the moment of asking."""

    lessons: Lessons
    circle: tuple[str, ...]

    def support(self, query: str) -> Mapping[str, float]:
        """The tools that served queries with these words."""
        known = self.lessons.known(*self.circle)
        return known.support(query) if known else {}

    def words_for(self, query: str, tool_id: str) -> Mapping[str, float]:
        """The words that speak for a tool."""
        known = self.lessons.known(*self.circle)
        return known.words_for(query, tool_id) if known else {}


class Lessons:
    """The lessons of one deployment, shared with other processes by way of the store.

    Those of one circle learn from one another and from nobody else. `salt` gives the secret under
    which words are hashed; it is asked for when something is first to be learned. Without one,
    nothing is.
    """

    def __init__(self, store: LessonStore, salt: Callable[[], bytes]) -> None:
        self._store = store
        self._make_salt = salt
        self._salt: bytes | None = None
        self._check = ""
        self._number = -1
        self._noted: deque[_Noted] = deque(maxlen=MAX_UNLEARNED)
        # By hash of its name; who was taught last stands last.
        self._circles: dict[str, Circle] = {}
        # What the store has, of each voice of each circle.
        self._kept: dict[tuple[str, str], Rows] = {}
        self._lock = RLock()

    def teacher(self, *circle: str) -> _Member:
        """What a circle has taught, also what it will teach later."""
        self._open()
        return _Member(self, circle)

    def known(self, *circle: str) -> Circle | None:
        """What a circle has taught so far; None if that is nothing."""
        return self._circles.get(self._digest(*circle)) if self._salt else None

    def note(self, circle: tuple[str, ...], voice: str, use: Use) -> None:
        """Note what somebody's use may teach. Its query is forgotten with the next `flush`."""
        self._noted.append(_Noted(circle, voice, use))

    def told(self, *circle: str) -> dict[str, int]:
        """How much is known, in one circle or in all: tools, and words that led to one of them."""
        known = [self.known(*circle)] if circle else list(self._circles.values())
        words = {
            (tool_id, word)
            for one in known
            if one is not None
            for voice in one.voices.values()
            for word, weights in voice.rows.items()
            for tool_id in weights
        }
        return {"tools": len({tool_id for tool_id, _ in words}), "words": len(words)}

    def flush(self) -> None:
        """Learn from what was noted, write it, and take in what other processes have learned."""
        with self._lock:
            noted = [self._noted.popleft() for _ in range(len(self._noted))]
            if noted:
                self._open()
            if not self._salt:
                return
            for _ in range(_TRIES):
                if self._store.number() != self._number:
                    self._reload()
                if not noted:
                    return
                changed = self._learned(noted)
                if not changed:
                    return
                number = self._store.put(changed, self._number, self._check)
                if number is not None:
                    self._number = number
                    self._note_kept(changed)
                    return
            _log.warning("%d lessons were lost: other processes write all the time", len(noted))

    def _open(self) -> None:
        with self._lock:
            if self._salt is None:
                self._salt = self._make_salt()
                if self._salt:
                    digest = hashlib.blake2b(_CHECKED, digest_size=8, key=self._key)
                    self._check = digest.hexdigest()
                    self._reload()

    def _reload(self) -> None:
        """Know what the store knows, and nothing else."""
        self._number, lessons = self._store.load(self._check)
        rows: dict[tuple[str, str], Rows] = {}
        for lesson in lessons:
            word, weights = _word(lesson.word), _weights(lesson.weights)
            if word is not None and weights:
                rows.setdefault((lesson.circle, lesson.voice), {})[word] = weights
        circles: dict[str, Circle] = {}
        for (circle, voice), found in rows.items():
            circles.setdefault(circle, Circle(self._salt or b"")).restore(voice, found)
        self._circles, self._kept = circles, rows

    def _learned(self, noted: list[_Noted]) -> list[Lesson]:
        """Learn, and say what is to be written."""
        touched: dict[str, Circle] = {}
        for one in noted:
            name = self._digest(*one.circle)
            circle = self._circles.pop(name, None) or Circle(self._salt or b"")
            circle.record(self._digest("voice", one.voice), one.use)
            self._circles[name] = touched[name] = circle
        while sum(one.pairs for one in self._circles.values()) > MAX_PAIRS:
            oldest = next(iter(self._circles))
            del self._circles[oldest]
            touched[oldest] = Circle(self._salt or b"")
        return [
            lesson for name, circle in touched.items() for lesson in self._changes(name, circle)
        ]

    def _changes(self, name: str, circle: Circle) -> list[Lesson]:
        """The rows of a circle that are not what the store has."""
        changed: list[Lesson] = []
        before = [voice for known, voice in self._kept if known == name]
        for voice in dict.fromkeys([*circle.voices, *before]):
            known: Experience | None = circle.voices.get(voice)
            now, kept = known.rows if known else {}, self._kept.get((name, voice), {})
            for word in now.keys() | kept.keys():
                weights = now.get(word, {})
                if weights != kept.get(word, {}):
                    changed.append(Lesson(name, voice, f"{word:016x}", weights))
        return changed

    def _note_kept(self, changed: list[Lesson]) -> None:
        for lesson in changed:
            rows = self._kept.setdefault((lesson.circle, lesson.voice), {})
            rows.pop(int(lesson.word, 16), None)
            if lesson.weights:
                rows[int(lesson.word, 16)] = lesson.weights
            elif not rows:
                del self._kept[(lesson.circle, lesson.voice)]

    @property
    def _key(self) -> bytes:
        return hashlib.blake2b(self._salt or b"").digest()

    def _digest(self, *names: str) -> str:
        """What a name is known by: nobody who has the store alone can tell it."""
        told = "\0".join(names).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(told, digest_size=8, key=self._key).hexdigest()


def _word(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


def _weights(said: Mapping[str, float]) -> dict[str, float]:
    """Weights as they may be, whatever a file says."""
    return {
        id: min(weight, MAX_WEIGHT)
        for id, weight in said.items()
        if math.isfinite(weight) and 0 < len(id) <= MAX_ID_CHARS
    }
