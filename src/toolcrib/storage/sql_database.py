"""What a store needs of a database: connections that run SQL, transactions and notices of changes.

The statements of `storage` are written once, in the style of `sqlite3`: `?` or `:name` for values.
They use only what SQLite 3.25 and PostgreSQL have in common; `postgres/dialect.py` translates the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")
OnMessage = Callable[[str], None]

# The message to a listener that should read everything again.
MISSED_MESSAGES: Final = ""
CHANGES_MESSAGE: Final = "changes"


class DamagedValue(ValueError):
    """A stored value cannot be read."""


class SqlCursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """The number of changed rows."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the remaining rows."""


class SqlConnection(Protocol):
    """A connection of `sqlite3`, or one that behaves like it."""

    def execute(self, sql: str, values: Any = ..., /) -> SqlCursor:
        """Run a statement."""

    def executemany(self, sql: str, values: Iterable[Any], /) -> SqlCursor:
        """Run a statement once per item of values."""


class SqlDatabase(Protocol):
    """Runs functions with a connection. Thread-safe; failures raise `InvalidStore`."""

    @property
    def copy_statements(self) -> tuple[str, ...]:
        """The statements that follow after all rows of another store were inserted."""

    @property
    def notice(self) -> str:
        """A notice for the operator, such as a damaged file that was moved; empty if none."""

    @property
    def is_available(self) -> bool:
        """Whether the database could be reached at the last attempt."""

    def run(self, read: Callable[[SqlConnection], T], /) -> T:
        """Run a function that only reads."""

    def write(
        self,
        write: Callable[[SqlConnection], T],
        /,
        *,
        durable: bool = False,
        lock: str = "",
        notify: str = "",
        timeout_seconds: float | None = None,
    ) -> T:
        """Run a function in a transaction. A durable write survives a crash of the machine.

        With a `lock`, no other transaction with the same lock runs at the same time. With `notify`, the
        listeners get this message after the commit. A server breaks a transaction after a timeout, which
        `timeout_seconds` replaces.
        """

    def listen(self, on_message: OnMessage, /) -> None:
        """Call a function with every message of this or another process, in a thread of the database.

        It is called with `MISSED_MESSAGES` when messages may have been missed, such as after a new
        connection. Processes that share a SQLite file do not get messages of each other; poll for changes.
        """

    def close(self) -> None:
        """Close the database."""
