"""Amounts over time, per client, in steps of a minute, an hour and a day, and their table in a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from toolcrib.storage.sql_database import SqlConnection

Resolution = Literal["minute", "hour", "day"]

RESOLUTION_SECONDS: Final[dict[Resolution, int]] = {"minute": 60, "hour": 3_600, "day": 86_400}
# How long amounts of each resolution are kept.
KEPT_SECONDS: Final[dict[Resolution, int]] = {"minute": 86_400, "hour": 62 * 86_400, "day": 1_100 * 86_400}
# Over this number of rows, the oldest of the finest resolution are deleted.
MAX_SERIES_ROWS: Final = 500_000

_ADD: Final = (
    "INSERT INTO time_series (resolution, start, client, name, amount) VALUES (?, ?, ?, ?, ?) "
    "/* distinct */ ON CONFLICT (resolution, start, client, name) DO UPDATE SET amount = time_series.amount + excluded.amount"
)


@dataclass(frozen=True, slots=True)
class SeriesAmount:
    """An amount with a name, such as `calls`, of one client in the step that contains a time."""

    at: float
    client: str
    name: str
    amount: int


def add_amounts(connection: SqlConnection, amounts: Iterable[SeriesAmount]) -> None:
    """Add amounts to their step of every resolution."""
    totals: Counter[tuple[int, int, str, str]] = Counter()
    for amount in amounts:
        for seconds in RESOLUTION_SECONDS.values():
            totals[seconds, int(amount.at // seconds) * seconds, amount.client, amount.name] += amount.amount
    connection.executemany(_ADD, [(*key, total) for key, total in sorted(totals.items())])


def read_amounts(connection: SqlConnection, resolution: Resolution, since: float) -> list[SeriesAmount]:
    """Return the amounts of a resolution, from the step that contains a time on, sorted by time."""
    seconds = RESOLUTION_SECONDS[resolution]
    query = (
        "SELECT start, client, name, amount FROM time_series WHERE resolution = ? AND start >= ? "
        "ORDER BY start, client, name"
    )
    return [SeriesAmount(*row) for row in connection.execute(query, (seconds, int(since // seconds) * seconds))]


def prune_amounts(connection: SqlConnection, now: float) -> None:
    """Delete amounts that are too old, and the oldest minutes over `MAX_SERIES_ROWS`."""
    for resolution, seconds in RESOLUTION_SECONDS.items():
        oldest = now - KEPT_SECONDS[resolution]
        connection.execute("DELETE FROM time_series WHERE resolution = ? AND start < ?", (seconds, oldest))
    connection.execute(
        "DELETE FROM time_series WHERE (resolution, start, client, name) IN (SELECT resolution, start, client, name "
        "FROM time_series ORDER BY resolution DESC, start DESC, client, name LIMIT -1 OFFSET ?)",
        (MAX_SERIES_ROWS,),
    )
