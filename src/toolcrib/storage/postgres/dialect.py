"""Translate the statements of a store, which are written for `sqlite3`, to PostgreSQL and psycopg."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from psycopg import Connection, Cursor

_NAMED_VALUE: Final = re.compile(r"(?<![:\w]):(\w+)")
# Statements that add rows only, and those that are marked because no two of their rows have the same key: one
# PostgreSQL statement must not update a row twice.
_NEW_ROWS: Final = re.compile(r"INSERT INTO (\w+ \([\w, ]+\)) VALUES \([?, ]+\)")
_DISTINCT_ROWS: Final = re.compile(r"INSERT INTO (\w+) \(([\w, ]+)\) VALUES \([?, ]+\) /\* distinct \*/ (.+)")
_SPELLINGS: Final = {
    "%": "%%",
    "?": "%s",
    "LIMIT -1": "LIMIT ALL",
    "instr(": "strpos(",
    "/* with ids */": "OVERRIDING SYSTEM VALUE",
}


@lru_cache(maxsize=512)
def translate_sql(sql: str) -> str:
    """Return a statement with the placeholders and spellings of PostgreSQL. No literal may contain a `?`."""
    for ours, theirs in _SPELLINGS.items():
        sql = sql.replace(ours, theirs)
    return _NAMED_VALUE.sub(r"%(\1)s", sql)


class PostgresConnection:
    """Runs statements for `sqlite3` with a connection of psycopg."""

    def __init__(self, connection: Connection[Any]) -> None:
        self._connection = connection

    def execute(self, sql: str, values: Any = (), /) -> Cursor[Any]:
        """Run a statement."""
        return self._connection.execute(translate_sql(sql).encode(), values)

    def executemany(self, sql: str, values: Iterable[Any], /) -> Cursor[Any]:
        """Run a statement once per item of values, in one round trip.

        New rows are copied, and rows with different keys are sent as one value, because psycopg needs
        several times as long for a statement per row.
        """
        rows = list(values)
        if len(rows) == 1:
            return self.execute(sql, rows[0])
        cursor = self._connection.cursor()
        if new := _NEW_ROWS.fullmatch(sql):
            with cursor.copy(f"COPY {new[1]} FROM STDIN".encode()) as copy:
                for row in rows:
                    copy.write_row(row)
        elif rows and (distinct := _DISTINCT_ROWS.fullmatch(sql)):
            table, columns, rest = distinct.groups()
            source = f"json_populate_recordset(NULL::{table}, %s)"
            names = columns.split(", ")
            body = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
            cursor.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {source} {rest}".encode(), (body,))
        else:
            cursor.executemany(translate_sql(sql).encode(), rows)
        return cursor
