"""Token usage of the LLM gateway per day, API key and model, and its table in a store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Final

from toolcrib.storage.sql_database import SqlConnection

# Over this number of rows, those of the oldest days are deleted.
MAX_USAGE_ROWS: Final = 100_000

_FIELDS: Final = "day, key, model, requests, input_tokens, output_tokens, cached_tokens, saved_tokens"
_ADD: Final = (
    f"INSERT INTO llm_usage ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (day, key, model) DO UPDATE SET requests = llm_usage.requests + excluded.requests, "
    "input_tokens = llm_usage.input_tokens + excluded.input_tokens, output_tokens = llm_usage.output_tokens + excluded.output_tokens, "
    "cached_tokens = llm_usage.cached_tokens + excluded.cached_tokens, saved_tokens = llm_usage.saved_tokens + excluded.saved_tokens"
)
_PRUNE: Final = (
    "DELETE FROM llm_usage WHERE (day, key, model) IN "
    "(SELECT day, key, model FROM llm_usage ORDER BY day DESC, key, model LIMIT -1 OFFSET ?)"
)


@dataclass(frozen=True, slots=True)
class LlmUsage:
    """Requests and tokens of one API key and one model on one day in UTC (`2026-11-17`).

    `input_tokens` includes `cached_tokens`, which were read from the provider's prompt cache.
    `saved_tokens` estimates the tokens of the tools that were not sent.
    """

    day: str
    key: str
    model: str
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    saved_tokens: int = 0


@dataclass(frozen=True, slots=True)
class KeyTotals:
    """The requests and tokens of an API key, in and out, over some rows."""

    requests: int = 0
    tokens: int = 0

    def __add__(self, other: KeyTotals) -> KeyTotals:
        return KeyTotals(self.requests + other.requests, self.tokens + other.tokens)


def sum_by_key(rows: Iterable[LlmUsage]) -> dict[str, KeyTotals]:
    """Return the totals of each key."""
    totals: dict[str, KeyTotals] = {}
    for row in rows:
        used = KeyTotals(row.requests, row.input_tokens + row.output_tokens)
        totals[row.key] = totals.get(row.key, KeyTotals()) + used
    return totals


def add_usage(connection: SqlConnection, rows: Iterable[LlmUsage]) -> None:
    """Add amounts to the rows of the table."""
    connection.executemany(_ADD, sorted(map(astuple, rows)))
    if connection.execute("SELECT count(*) FROM llm_usage").fetchone()[0] > MAX_USAGE_ROWS:
        connection.execute(_PRUNE, (MAX_USAGE_ROWS,))


def read_usage(connection: SqlConnection, since_day: str = "") -> list[LlmUsage]:
    """Return the rows from a day on, sorted by day, key and model."""
    query = f"SELECT {_FIELDS} FROM llm_usage WHERE day >= ? ORDER BY day, key, model"
    return [LlmUsage(*row) for row in connection.execute(query, (since_day,))]
