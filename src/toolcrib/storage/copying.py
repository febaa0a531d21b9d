"""Copy all tables of a store to an empty one, also from SQLite to PostgreSQL and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from toolcrib.errors import InvalidStore
from toolcrib.storage.sql_database import SqlConnection, SqlDatabase

# A copy may take longer than other transactions.
COPY_TIMEOUT_SECONDS: Final = 3_600
_BATCH_ROWS: Final = 200


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

    return target.write(copy_to, durable=True, timeout_seconds=COPY_TIMEOUT_SECONDS)


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
