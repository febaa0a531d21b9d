"""What use has taught, kept in SQLite: for each word that a voice has used, the weight of each tool.

Nothing tells which words stood together or when: rows have no order but that of their hashes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from toolcrib.files.sqlite_file import number

# More are not read. Whoever writes them keeps to a limit on what he knows, which is lower.
MAX_LESSONS: Final = 500_000
# How the id begins of a tool whose name is not to be kept.
HASHED: Final = "#"

Act = Callable[[sqlite3.Connection], Any]
_NUMBER: Final = "SELECT number FROM lessons_state"


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one voice of a circle has taught about a word, which is known by a hash.

    Without weights it takes the place of one that was kept, which is thereby dropped.
    """

    circle: str
    voice: str
    word: str
    weights: Mapping[str, float]


class LessonStore(Protocol):
    """Where the lessons of a deployment outlive its processes, which share them."""

    def number(self) -> int:
        """A number that is another one whenever lessons have changed. Cheap to ask."""

    def load(self, check: str) -> tuple[int, list[Lesson]]:
        """All lessons under the salt that has this check, and the number they belong to."""

    def put(self, lessons: Iterable[Lesson], since: int, check: str) -> int | None:
        """Keep these, and give the number from now on; None, and nothing is kept, if others have
        written since that number. Lessons under another salt are dropped."""

    def tools(self) -> dict[str, int]:
        """The tools that something was learned of, each with how many words led to it."""

    def forget(self, tool_id: str | None = None) -> None:
        """Drop what was learned of a tool, or everything."""


class SqliteLessons:
    """Lessons in a store's file. `read` and `write` do an act on its connection."""

    def __init__(self, read: Callable[[Act], Any], write: Callable[[Act], Any]) -> None:
        self._read = read
        self._write = write

    def number(self) -> int:
        """A number that is another one whenever lessons have changed."""
        return int(self._read(lambda connection: number(connection, _NUMBER)))

    def load(self, check: str) -> tuple[int, list[Lesson]]:
        """All lessons under the salt that has this check, and the number they belong to."""
        asked = "SELECT circle, voice, word, weights FROM lessons ORDER BY 1, 2, 3 LIMIT ?"

        def act(connection: sqlite3.Connection) -> tuple[int, list[Lesson]]:
            at = number(connection, _NUMBER)
            if _check(connection) != check:
                return at, []
            rows = connection.execute(asked, (MAX_LESSONS,))
            lessons = (
                Lesson(circle, voice, word, _weights(text)) for circle, voice, word, text in rows
            )
            return at, [lesson for lesson in lessons if lesson.weights]

        # A write, so that nobody else writes between the number and the rows.
        found: tuple[int, list[Lesson]] = self._write(act)
        return found

    def put(self, lessons: Iterable[Lesson], since: int, check: str) -> int | None:
        """Keep these, unless others have written since; gives the number from now on."""
        keys: list[tuple[str, str, str]] = []
        kept: list[tuple[str, str, str, str]] = []
        for one in lessons:
            key = (one.circle, one.voice, one.word)
            if one.weights:
                kept.append((*key, _text(one.weights)))
            else:
                keys.append(key)

        def act(connection: sqlite3.Connection) -> int | None:
            if number(connection, _NUMBER) != since:
                return None
            if _check(connection) != check:
                connection.execute("DELETE FROM lessons")
                connection.execute("UPDATE lessons_state SET salt_check = ?", (check,))
            connection.executemany(
                "DELETE FROM lessons WHERE circle = ? AND voice = ? AND word = ?", keys
            )
            connection.executemany("INSERT OR REPLACE INTO lessons VALUES (?, ?, ?, ?)", kept)
            return _next(connection)

        written: int | None = self._write(act)
        return written

    def tools(self) -> dict[str, int]:
        """The tools that something was learned of, each with how many words led to it."""
        asked = "SELECT word, weights FROM lessons LIMIT ?"

        def act(connection: sqlite3.Connection) -> dict[str, int]:
            words: dict[str, set[str]] = {}
            for word, text in connection.execute(asked, (MAX_LESSONS,)):
                for tool_id in _weights(text):
                    words.setdefault(tool_id, set()).add(word)
            return {tool_id: len(words[tool_id]) for tool_id in sorted(words)}

        found: dict[str, int] = self._read(act)
        return found

    def forget(self, tool_id: str | None = None) -> None:
        """Drop what was learned of a tool, or everything."""
        asked = "SELECT circle, voice, word, weights FROM lessons"

        def act(connection: sqlite3.Connection) -> None:
            left: list[tuple[str, str, str, str]] = []
            rows = [] if tool_id is None else connection.execute(asked).fetchall()
            for circle, voice, word, text in rows:
                weights = _weights(text)
                weights.pop(str(tool_id), None)
                if weights:
                    left.append((circle, voice, word, _text(weights)))
            connection.execute("DELETE FROM lessons")
            connection.executemany("INSERT INTO lessons VALUES (?, ?, ?, ?)", left)
            _next(connection)

        self._write(act)


def _next(connection: sqlite3.Connection) -> int:
    connection.execute("UPDATE lessons_state SET number = number + 1")
    return number(connection, _NUMBER)


def _check(connection: sqlite3.Connection) -> str:
    return str(connection.execute("SELECT salt_check FROM lessons_state").fetchone()[0])


def _text(weights: Mapping[str, float]) -> str:
    return json.dumps(dict(weights), separators=(",", ":"))


def _weights(text: object) -> dict[str, float]:
    """The weights of a row; none of a row that says something else."""
    try:
        said = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    if not isinstance(said, dict):
        return {}
    return {
        id: float(weight)
        for id, weight in said.items()
        if isinstance(weight, int | float) and not isinstance(weight, bool) and weight > 0
    }
