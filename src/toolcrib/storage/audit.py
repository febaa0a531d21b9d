"""Audit rows: who did what, when and with which outcome, and their table in a store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, Literal

from toolcrib.storage.sql_database import SqlConnection

AuditAction = Literal["list", "search", "describe", "call", "llm", "approval", "login", "key", "config"]
AuditOutcome = Literal["ok", "error", "refused"]

# One run of `prune_rows` deletes at most this many rows, so that other writers do not wait long.
MAX_PRUNED_ROWS: Final = 5_000

_FIELDS: Final = (
    "at, action, outcome, key_name, user_name, profile, client, session, server, tool, "
    "seconds, request_bytes, result_bytes, request_id, details"
)
# The attributes of a row in the order of the columns.
_NAMES: Final = _FIELDS.replace("_name", "").split(", ")
_get_values: Final = attrgetter(*_NAMES)
_INSERT: Final = f"INSERT INTO audit ({_FIELDS}) VALUES ({', '.join('?' * 15)})"


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One recorded action. `id` is the position in the log, and 0 before the row is stored."""

    action: AuditAction
    outcome: AuditOutcome = "ok"
    at: float = 0.0
    # Who: the name of the API key, the user of this machine, the access profile and the client.
    key: str = ""
    user: str = ""
    profile: str = ""
    client: str = ""
    # The MCP session or the LLM conversation; empty for a request without one.
    session: str = ""
    server: str = ""
    tool: str = ""
    seconds: float = 0.0
    request_bytes: int = 0
    result_bytes: int = 0
    request_id: str = ""
    # What depends on the action: query, hits, error, arguments and so on.
    details: Mapping[str, Any] = field(default_factory=dict)
    id: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the row as the API and `toolcrib audit --json` print it."""
        return {"id": self.id, **dict(zip(_NAMES, _get_values(self), strict=True)), "details": dict(self.details)}


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Selects audit rows. Empty fields select all; client, tool and key match a part of the text."""

    action: str = ""
    outcome: str = ""
    key: str = ""
    client: str = ""
    session: str = ""
    server: str = ""
    tool: str = ""
    since: float | None = None
    until: float | None = None
    # Rows before or after an id, both exclusive.
    before: int | None = None
    after: int | None = None

    def matches(self, row: AuditRow) -> bool:
        """Return whether a row has the fields of this filter. Times and ids are not compared."""
        exact = (
            (self.action, row.action),
            (self.outcome, row.outcome),
            (self.session, row.session),
            (self.server, row.server),
        )
        parts = ((self.key, row.key), (self.client, row.client), (self.tool, row.tool))
        return all(not wanted or wanted == value for wanted, value in exact) and all(
            wanted.lower() in value.lower() for wanted, value in parts
        )

    def to_condition(self) -> tuple[str, list[object]]:
        """Return an SQL condition with its values."""
        exact = {"action": self.action, "outcome": self.outcome, "session": self.session, "server": self.server}
        parts = {"key_name": self.key, "client": self.client, "tool": self.tool}
        bounds = {"at >= ?": self.since, "at < ?": self.until, "id < ?": self.before, "id > ?": self.after}
        terms: list[tuple[str, object]] = [(f"{name} = ?", value) for name, value in exact.items() if value]
        terms += [(f"instr(lower({name}), ?) > 0", value.lower()) for name, value in parts.items() if value]
        terms += [(term, bound) for term, bound in bounds.items() if bound is not None]
        return " AND ".join(term for term, _ in terms) or "TRUE", [value for _, value in terms]


def append_rows(connection: SqlConnection, rows: Iterable[AuditRow]) -> None:
    """Add rows to the table."""
    connection.executemany(_INSERT, map(_to_values, rows))


def read_rows(connection: SqlConnection, where: AuditFilter, limit: int) -> list[AuditRow]:
    """Return rows: the newest first, or with `where.after` the oldest after that id first."""
    condition, values = where.to_condition()
    order = "ASC" if where.after is not None else "DESC"
    query = f"SELECT {_FIELDS}, id FROM audit WHERE {condition} ORDER BY id {order} LIMIT ?"
    return [_from_values(row) for row in connection.execute(query, (*values, limit))]


def prune_rows(connection: SqlConnection, before: float, max_rows: int) -> int:
    """Delete rows that are older than a time or exceed a number; return how many were deleted."""
    query = (
        "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE at < ? "
        "OR id <= (SELECT coalesce(max(id), 0) FROM audit) - ? ORDER BY id LIMIT ?)"
    )
    return connection.execute(query, (before, max_rows, MAX_PRUNED_ROWS)).rowcount


def _to_values(row: AuditRow) -> tuple[object, ...]:
    return (
        row.at,
        row.action,
        row.outcome,
        # Texts of clients may contain what cannot be stored, and one such row would keep all later ones back.
        *map(clean_text, (row.key, row.user, row.profile, row.client, row.session, row.server, row.tool)),
        row.seconds,
        row.request_bytes,
        row.result_bytes,
        clean_text(row.request_id),
        # Escaped to ASCII, because half a surrogate pair cannot be stored.
        json.dumps(row.details, separators=(",", ":")) if row.details else "{}",
    )


def clean_text(text: str) -> str:
    """Return a text without NUL characters and without halves of surrogate pairs."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _from_values(values: Any) -> AuditRow:
    at, action, outcome, *others = values[:-2]
    return AuditRow(action, outcome, at, *others, **{"details": json.loads(values[-2]), "id": values[-1]})
