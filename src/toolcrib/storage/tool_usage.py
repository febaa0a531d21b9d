"""Totals of tool calls and named counters, and their tables in a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toolcrib.storage.sql_database import SqlConnection

# Over this number, the tools that were not used for longest are deleted.
MAX_USED_TOOLS: Final = 50_000
MAX_COUNTERS: Final = 1_000

_ADD_CALLS: Final = (
    "INSERT INTO usage (tool_id, calls, failures, seconds, last_used) VALUES (?, ?, ?, ?, ?) "
    "/* distinct */ ON CONFLICT (tool_id) DO UPDATE SET calls = usage.calls + excluded.calls, "
    "failures = usage.failures + excluded.failures, seconds = usage.seconds + excluded.seconds, "
    "last_used = CASE WHEN usage.last_used > excluded.last_used THEN usage.last_used ELSE excluded.last_used END"
)
_PRUNE: Final = (
    "DELETE FROM usage WHERE tool_id IN (SELECT tool_id FROM usage ORDER BY last_used DESC, tool_id LIMIT -1 OFFSET ?)"
)
_ADD_AMOUNT: Final = (
    "INSERT INTO counters (name, amount) SELECT ?, ? WHERE (SELECT count(*) FROM counters) < ? "
    "OR EXISTS (SELECT 1 FROM counters WHERE name = ?) "
    "ON CONFLICT (name) DO UPDATE SET amount = counters.amount + excluded.amount"
)


@dataclass(frozen=True, slots=True)
class ToolUsageTotal:
    """The totals of calls of a tool."""

    calls: int
    failures: int
    last_used: float
    seconds: float = 0.0

    def __add__(self, other: ToolUsageTotal) -> ToolUsageTotal:
        """Return the totals of both."""
        return ToolUsageTotal(
            self.calls + other.calls,
            self.failures + other.failures,
            max(self.last_used, other.last_used),
            self.seconds + other.seconds,
        )


def add_calls(connection: SqlConnection, totals: Mapping[str, ToolUsageTotal]) -> None:
    """Add calls to the totals of their tools."""
    # Sorted, because two replicas that lock rows in the same order do not deadlock.
    ordered = sorted(totals.items(), key=lambda item: item[0])
    rows = [(id, each.calls, each.failures, each.seconds, each.last_used) for id, each in ordered]
    connection.executemany(_ADD_CALLS, rows)


def prune_calls(connection: SqlConnection) -> None:
    """Delete the tools over the limit."""
    connection.execute(_PRUNE, (MAX_USED_TOOLS,))


def read_calls(connection: SqlConnection) -> dict[str, ToolUsageTotal]:
    """Return the totals by tool id."""
    query = "SELECT tool_id, calls, failures, last_used, seconds FROM usage ORDER BY tool_id"
    return {id: ToolUsageTotal(*totals) for id, *totals in connection.execute(query)}


def add_amounts(connection: SqlConnection, amounts: Mapping[str, int]) -> None:
    """Add amounts to counters; a new counter is ignored if there are too many."""
    connection.executemany(
        _ADD_AMOUNT, [(name, amount, MAX_COUNTERS, name) for name, amount in sorted(amounts.items())]
    )


def read_amounts(connection: SqlConnection) -> dict[str, int]:
    """Return all counters by name."""
    return dict(connection.execute("SELECT name, amount FROM counters ORDER BY name").fetchall())
