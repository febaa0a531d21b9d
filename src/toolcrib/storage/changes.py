"""The log of changes in a store: which servers, keys and profiles changed, in the order of the commits.

The log has one row per topic and subject, with the number of the last change. So it stays small, and a
process that missed any number of changes finds all of them with one query.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from toolcrib.storage.sql_database import SqlConnection

# The subject of `server` is its name; the others have no subject.
ChangeTopic = Literal["server", "keys", "profiles", "requests"]

_RECORD: Final = (
    "INSERT INTO changes (topic, subject, number) SELECT ?, ?, number FROM revision WHERE TRUE "
    "ON CONFLICT (topic, subject) DO UPDATE SET number = excluded.number"
)


class Change(NamedTuple):
    """A change of what a store contains. Numbers grow."""

    number: int
    topic: ChangeTopic
    subject: str


class RecordedChange(NamedTuple):
    """The number of a new change, and of the previous change with the same topic and subject; 0 if none."""

    number: int
    previous: int


def record_change(connection: SqlConnection, topic: ChangeTopic, subject: str = "") -> RecordedChange:
    """Add a change to the log.

    The row of `revision` stays locked until the commit, so numbers commit in order.
    """
    connection.execute("UPDATE revision SET number = number + 1")
    query = "SELECT number FROM changes WHERE topic = ? AND subject = ?"
    previous = connection.execute(query, (topic, subject)).fetchone()
    connection.execute(_RECORD, (topic, subject))
    return RecordedChange(read_revision(connection), previous[0] if previous else 0)


def read_changes(connection: SqlConnection, after: int) -> list[Change]:
    """Return the changes after a number, the oldest first."""
    query = "SELECT number, topic, subject FROM changes WHERE number > ? ORDER BY number"
    return [Change(*row) for row in connection.execute(query, (after,))]


def read_revision(connection: SqlConnection) -> int:
    """Return the number of the last change."""
    return int(connection.execute("SELECT number FROM revision").fetchone()[0])
