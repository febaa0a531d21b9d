"""FTS5 of SQLite in memory: four weighted columns; the words of a query are joined with OR."""

import json
import sqlite3

from benchmarks.engines.contender import LIMIT, parameter_text, terms
from benchmarks.generate import Row

TABLES = """
    CREATE TABLE tool (number INTEGER PRIMARY KEY, id TEXT UNIQUE, server TEXT);
    CREATE INDEX by_server ON tool (server);
    CREATE VIRTUAL TABLE word USING fts5 (name, description, parameters, tags);
"""
# The plus keeps SQLite from asking FTS5 once per allowed row.
FOUND = """
    SELECT tool.id FROM (
        SELECT rowid AS number, bm25(word, 5, 2, 1, 2) AS score FROM word
        WHERE word MATCH ? {filter} ORDER BY score LIMIT ?
    ) AS hit JOIN tool USING (number) ORDER BY hit.score
"""
EVERYTHING = FOUND.format(filter="")
OF_SERVER = FOUND.format(filter="AND +rowid IN (SELECT number FROM tool WHERE server = ?)")
ALLOWED = FOUND.format(filter="AND +rowid IN (SELECT number FROM tool WHERE id IN (SELECT value FROM json_each(?)))")

Columns = tuple[str, str, str, str, str, str]


class FTS5:
    """Names are split in Python, since FTS5 does not know camelCase."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:")
        self._database.executescript(TABLES)

    def prepare(self, row: Row) -> Columns:
        name = " ".join(terms(row["id"]))
        return row["id"], row["server"], name, row["description"], parameter_text(row), _tags(row)

    def fit(self, tools: list[Columns]) -> None:
        with self._database:
            for tool in tools:
                self._insert(tool)

    def search(self, query: str) -> list[str]:
        return self._find(EVERYTHING, _match(query), LIMIT)

    def search_server(self, query: str, server: str) -> list[str]:
        return self._find(OF_SERVER, _match(query), server, LIMIT)

    def search_allowed(self, query: str, allowed: frozenset[str]) -> list[str]:
        return self._find(ALLOWED, _match(query), json.dumps([*allowed]), LIMIT)

    def add(self, tool: Columns) -> None:
        with self._database:
            self._insert(tool)

    def remove(self, id: str) -> None:
        with self._database:
            delete = "DELETE FROM tool WHERE id = ? RETURNING number"
            for (number,) in self._database.execute(delete, (id,)).fetchall():
                self._database.execute("DELETE FROM word WHERE rowid = ?", (number,))

    def _insert(self, tool: Columns) -> None:
        insert = "INSERT INTO tool (id, server) VALUES (?, ?)"
        number = self._database.execute(insert, tool[:2]).lastrowid
        self._database.execute(
            "INSERT INTO word (rowid, name, description, parameters, tags) VALUES (?, ?, ?, ?, ?)", (number, *tool[2:])
        )

    def _find(self, statement: str, *values: object) -> list[str]:
        return [id for (id,) in self._database.execute(statement, values)]


def _match(query: str) -> str:
    return " OR ".join(f'"{word}"' for word in terms(query)) or '""'


def _tags(row: Row) -> str:
    return " ".join(row["tags"])


def contender() -> FTS5:
    """Return the engine."""
    return FTS5()
