"""A journal: what a process has recorded but not yet written to the database, in files on its own machine.

The operating system keeps what was written to a file when the process is killed. A later process finds
the files of a dead one and writes their lines to the database. The position up to which lines are in the
database is part of the same transaction, so that no line is written twice.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import IO, Any, Final, Literal, NamedTuple

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

JournalKind = Literal["audit", "calls", "keys", "llm"]
# While the database is unavailable, lines over this size are only kept in memory.
MAX_JOURNAL_BYTES: Final = 64 * 1024 * 1024
# At most this many lines of a dead process are written in one transaction.
MAX_RECOVERED_LINES: Final = 1_000
# Positions of journals whose files were never read again, such as those of a machine that is gone, are kept this long.
KEEP_MARKS_SECONDS: Final = 400 * 86_400
_LOCK_SUFFIX: Final = ".lock"
_log = logging.getLogger(__name__)


class JournalMark(NamedTuple):
    """The position in a journal up to which a transaction writes its lines."""

    key: str
    position: int


class Journal:
    """The journal of one process and one kind. Without a folder it does nothing. Thread-safe.

    A journal is a sequence of files, named after the number of lines before them. `take` ends the current
    file and `finish` deletes the files whose lines are in the database.
    """

    def __init__(self, folder: Path | None, kind: JournalKind) -> None:
        self._folder = folder
        self._kind = kind
        self._key = f"{kind}-{secrets.token_hex(8)}"
        self._lock = Lock()
        # Locked while this process lives. Created with the first line.
        self._lock_file: IO[bytes] | None = None
        self._file: int | None = None
        self._path = Path()
        self._line_count = 0
        # Files that have ended, with the number of lines up to their end.
        self._ended: list[tuple[Path, int]] = []
        self._bytes = 0
        self._is_failing = False
        # Whether the lines of dead processes are in the database.
        self.is_recovered = folder is None

    def append(self, values: object) -> None:
        """Append a line of JSON. If the file cannot be written, the line is only in the memory of the caller."""
        if self._folder is None:
            return
        line = (json.dumps(values, separators=(",", ":")) + "\n").encode()
        with self._lock:
            try:
                if self._bytes + len(line) <= MAX_JOURNAL_BYTES:
                    self._write_line(line)
                else:
                    self._end_file()
            except OSError as error:
                self._end_file()
                if not self._is_failing:
                    self._is_failing = True
                    _log.warning(
                        "%s cannot be written, so a killed gateway loses its last rows: %s", self._folder, error
                    )
            self._line_count += 1

    def take(self) -> JournalMark | None:
        """Return the mark of all lines so far. Call it together with taking what the lines record from a buffer."""
        with self._lock:
            self._end_file()
            return JournalMark(self._key, self._line_count) if self._line_count else None

    def finish(self, mark: JournalMark | None) -> None:
        """Delete the files whose lines are in the database."""
        with self._lock:
            while mark and self._ended and self._ended[0][1] <= mark.position:
                path, _ = self._ended.pop(0)
                with suppress(OSError):
                    self._bytes -= path.stat().st_size
                    path.unlink()

    def close(self) -> JournalMark | None:
        """Delete the lock if all lines are in the database; return the mark that is no longer needed."""
        with self._lock:
            self._end_file()
            if self._folder is None or self._lock_file is None:
                return None
            self._lock_file.close()
            self._lock_file = None
            if self._ended:
                return None
            (self._folder / f"{self._key}{_LOCK_SUFFIX}").unlink(missing_ok=True)
            return JournalMark(self._key, self._line_count)

    def list_abandoned(self) -> Iterator[AbandonedJournal]:
        """Yield the journals of the same kind whose processes have died; each is locked until the next one."""
        if self._folder is None:
            return
        for path in sorted(self._folder.glob(f"{self._kind}-*{_LOCK_SUFFIX}")):
            abandoned = AbandonedJournal(self._folder, path.stem)
            with suppress(FileNotFoundError), path.open("r+b") as file:
                if path.stem == self._key or not _try_lock(file) or not path.exists():
                    continue
                yield abandoned
            # Windows does not delete an open file.
            if not abandoned.list_files():
                path.unlink(missing_ok=True)

    def _write_line(self, line: bytes) -> None:
        if self._file is None:
            self._open_file()
        assert self._file is not None
        written = os.write(self._file, line)
        self._bytes += written
        if written < len(line):
            raise OSError("the disk is full")

    def _open_file(self) -> None:
        assert self._folder is not None
        if self._lock_file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock_file = _create_locked(self._folder / f"{self._key}{_LOCK_SUFFIX}")
        self._path = self._folder / f"{self._key}.{self._line_count:012}"
        self._file = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)

    def _end_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._ended.append((self._path, self._line_count))


class AbandonedJournal:
    """The journal of a process that has died."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self.key = key

    def write_lines(self, get_position: Callable[[str], int], apply: ApplyLines, *, one_by_one: bool = False) -> None:
        """Write the lines after the stored position. A line that another version of Toolcrib wrote may be left out."""
        for lines, mark in self.iter_batches(get_position(self.key), one_by_one=one_by_one):
            try:
                apply(lines, mark)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                if not one_by_one:
                    self.write_lines(get_position, apply, one_by_one=True)
                    return
                _log.warning("%s: a line of another version is left out: %r", self.key, error)

    def iter_batches(self, position: int, *, one_by_one: bool = False) -> Iterator[tuple[list[Any], JournalMark]]:
        """Yield the lines after a position in batches, each with its mark.

        An incomplete last line is ignored, and so is a line that was damaged, for example by a crash of the machine.
        """
        batch_lines = 1 if one_by_one else MAX_RECOVERED_LINES
        for path in self.list_files():
            number = int(path.suffix[1:])
            *lines, _ = path.read_bytes().split(b"\n")
            for start in range(max(position - number, 0), len(lines), batch_lines):
                batch = lines[start : start + batch_lines]
                yield list(_parse_lines(batch, path)), JournalMark(self.key, number + start + len(batch))

    def list_files(self) -> list[Path]:
        """Return the files with lines, in their order."""
        return sorted(self._folder.glob(f"{self.key}.[0-9]*"))


def _parse_lines(lines: Iterable[bytes], path: Path) -> Iterator[Any]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError as error:
            _log.warning("%s: a damaged line is left out: %s", path, error)


# Writes the lines of a dead process to the database, with their mark in the same transaction.
ApplyLines = Callable[[Sequence[Any], JournalMark], None]


def _create_locked(path: Path) -> IO[bytes]:
    """Create a file and lock it."""
    if sys.platform == "win32":
        file = path.open("xb")
        # Another process may look for a moment whether the file is locked.
        while not _try_lock(file):
            time.sleep(0.01)
        return file
    # Locked before it has its name, so that no other process takes it for abandoned.
    new = path.with_suffix(".new")
    file = new.open("xb")
    _try_lock(file)
    new.rename(path)
    return file


def _try_lock(file: IO[bytes]) -> bool:
    """Lock a file until it is closed; return False if another process has locked it or locks are not supported."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
