"""What a store needs of a database: connections that run SQL, transactions and notices of changes.

The statements of `storage` are written once, in the style of `sqlite3`: `?` or `:name` for values.
They use only what SQLite 3.25 and PostgreSQL have in common; `postgres/dialect.py` translates the rest.
`copy_tables` copies all tables of a database to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from toolcrib.errors import InvalidStore

T = TypeVar("T")
OnMessage = Callable[[str], None]

# The message to a listener that should read everything again.
MISSED_MESSAGES: Final = ""
CHANGES_MESSAGE: Final = "changes"
# A copy may take longer than other transactions.
COPY_TIMEOUT_SECONDS: Final = 3_600
_BATCH_ROWS: Final = 200


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


SqlFunction = Callable[[SqlConnection], T]


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

    def run(self, read: SqlFunction[T], /) -> T:
        """Run a function that only reads."""

    def write(
        self, write: SqlFunction[T], /, *, durable: bool = False, lock: str = "", notify: str = "", seconds: float = 0
    ) -> T:
        """Run a function in a transaction. A durable write survives a crash of the machine.

        With a `lock`, no other transaction with the same lock runs at the same time. With `notify`, the
        listeners get this message after the commit. A server breaks a transaction after a timeout, which
        `seconds` replaces.
        """

    def listen(self, on_message: OnMessage, /) -> None:
        """Call a function with every message of this or another process, in a thread of the database.

        It is called with `MISSED_MESSAGES` when messages may have been missed, such as after a new
        connection. Processes that share a SQLite file do not get messages of each other; poll for changes.
        """

    def close(self) -> None:
        """Close the database."""


class CopiedTable(NamedTuple):
    """The columns of a table that is copied; the first ones, which are its key, are separated from the others."""

    key: tuple[str, ...]
    values: tuple[str, ...]


COPIED_TABLES: Final[Mapping[str, CopiedTable]] = {
    name: CopiedTable(tuple(key.split()), tuple(values.split()))
    for name, key, values in (
        ("manifests", "server", "identity body seen"),
        ("scans", "server", "digest body"),
        ("pins", "server tool", "fingerprint definition state first_seen candidate candidate_fingerprint"),
        ("definition_versions", "server tool fingerprint", "definition replaced_at"),
        ("rejections", "server tool", "fingerprint at"),
        ("saved_queries", "query", "tools created_at"),
        ("example_requests", "fingerprint", "tool requests model written_at"),
        ("changes", "topic subject", "number"),
        ("api_keys", "id", "hash name profile created_at created_by tokens_per_day requests_per_day"),
        ("key_usage", "hash", "requests last_used"),
        ("access_profiles", "name", "body created_at"),
        ("oauth_tokens", "name", "body claimed_until"),
        ("usage", "tool_id", "calls failures seconds last_used"),
        ("counters", "name", "amount"),
        ("llm_usage", "day key model", "requests input_tokens output_tokens cached_tokens saved_tokens"),
        ("time_series", "resolution start client name", "amount"),
        (
            "audit",
            "id",
            "at action outcome key_name user_name profile client session server tool seconds request_bytes "
            "result_bytes request_id details",
        ),
        ("results", "handle", "owner tool body created expires"),
        ("shared_values", "kind key", "body expires_at"),
        ("vectors", "key", "vector stored_at"),
    )
}


def copy_tables(source: SqlDatabase, target: SqlDatabase) -> dict[str, int]:
    """Copy all rows in one transaction of the target, which must be empty; return the number of rows by table."""

    def copy_to(written: SqlConnection) -> dict[str, int]:
        counts = _count_rows(written)
        if filled := [f"{name} has {count:,} rows" for name, count in counts.items() if count]:
            raise InvalidStore(f"the target is not empty ({filled[0]}); choose an empty database or a new file")
        counts = source.run(lambda read: _copy_rows(read, written))
        for statement in target.copy_statements:
            written.execute(statement)
        return counts

    return target.write(copy_to, durable=True, seconds=COPY_TIMEOUT_SECONDS)


def _copy_rows(source: SqlConnection, target: SqlConnection) -> dict[str, int]:
    for name, table in COPIED_TABLES.items():
        columns = (*table.key, *table.values)
        marks = ", ".join("?" * len(columns))
        insert = f"INSERT INTO {name} ({', '.join(columns)}) /* with ids */ VALUES ({marks})"
        for rows in _iterate_rows(source, name, table):
            target.executemany(insert, rows)
    number = source.execute("SELECT number FROM revision").fetchone()[0]
    target.execute("UPDATE revision SET number = ?", (number,))
    counts = _count_rows(source)
    if counts != _count_rows(target):
        raise InvalidStore("the source was written during the copy; stop all gateways that use it, and copy again")
    return counts


def _iterate_rows(source: SqlConnection, name: str, table: CopiedTable) -> Iterator[list[tuple[object, ...]]]:
    """Yield the rows of a table in batches, in the order of the key, so that few are in memory."""
    key = ", ".join(table.key)
    query = f"SELECT {', '.join((*table.key, *table.values))} FROM {name}"
    order = f"ORDER BY {key} LIMIT {_BATCH_ROWS}"
    rows = source.execute(f"{query} {order}").fetchall()
    while rows:
        yield rows
        marks = ", ".join("?" * len(table.key))
        last = tuple(rows[-1][: len(table.key)])
        rows = source.execute(f"{query} WHERE ({key}) > ({marks}) {order}", last).fetchall()


def _count_rows(connection: SqlConnection) -> dict[str, int]:
    return {name: int(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]) for name in COPIED_TABLES}
