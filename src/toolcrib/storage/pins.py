"""The table of pins in a store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from toolcrib.errors import InvalidStore
from toolcrib.safety.pinning import Pin
from toolcrib.storage import definitions
from toolcrib.storage.manifests import decode_object, encode_json
from toolcrib.storage.sql_database import DamagedValue, SqlConnection

MAX_PINS_PER_SERVER: Final = 20_000

_FIELDS: Final = "tool, fingerprint, definition, state, first_seen, candidate, candidate_fingerprint"
# A candidate that was approved in the meantime stays approved.
_PUT: Final = (
    f"INSERT INTO pins (server, {_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (server, tool) DO UPDATE SET fingerprint = excluded.fingerprint, "
    "definition = excluded.definition, state = excluded.state, "
    "candidate = excluded.candidate, candidate_fingerprint = excluded.candidate_fingerprint "
    "WHERE NOT (pins.state = 'approved' AND excluded.state = 'changed' "
    "AND pins.fingerprint = excluded.candidate_fingerprint)"
)


class PinSummary(NamedTuple):
    """The fingerprint of a trusted definition, its state, and when the tool was first seen."""

    fingerprint: str
    state: str
    first_seen: float


def read_pins(connection: SqlConnection, server: str) -> dict[str, Pin]:
    """Return a server's pins by tool name."""
    query = f"SELECT {_FIELDS} FROM pins WHERE server = ? ORDER BY tool"
    return {row[0]: _pin_from_row(row) for row in connection.execute(query, (server,))}


def read_states(connection: SqlConnection, server: str | None = None) -> dict[str, dict[str, PinSummary]]:
    """Return the pins of all servers or of one without their definitions, which take long to read."""
    clause, values = ("", ()) if server is None else ("WHERE server = ?", (server,))
    query = f"SELECT server, tool, fingerprint, state, first_seen FROM pins {clause}"
    states: dict[str, dict[str, PinSummary]] = {}
    for name, tool, *summary in connection.execute(query, values):
        states.setdefault(name, {})[tool] = PinSummary(*summary)
    return states


def read_quarantined(connection: SqlConnection) -> dict[str, dict[str, Pin]]:
    """Return the pins that wait for approval, by server and tool name, both sorted."""
    query = f"SELECT server, {_FIELDS} FROM pins WHERE state = 'changed' ORDER BY server, tool"
    pins: dict[str, dict[str, Pin]] = {}
    for server, *row in connection.execute(query):
        pins.setdefault(server, {})[row[0]] = _pin_from_row(row)
    return pins


def write_pins(connection: SqlConnection, server: str, pins: Iterable[Pin], rows: Iterable[tuple[object, ...]]) -> None:
    """Store pins with their encoded rows."""
    definitions.keep_versions(connection, server, ((pin.tool, pin.fingerprint) for pin in pins))
    connection.executemany(_PUT, rows)
    query = "SELECT count(*) FROM pins WHERE server = ?"
    if connection.execute(query, (server,)).fetchone()[0] > MAX_PINS_PER_SERVER:
        raise InvalidStore(
            f"the server {server!r} has listed tools under more than "
            f"{MAX_PINS_PER_SERVER:,} different names, which is the limit; if you trust "
            f"the server, run `toolcrib approve --forget {server}`"
        )


def approve_pins(connection: SqlConnection, server: str, tool: str | None, fingerprint: str | None) -> list[str]:
    """Approve the candidates of a server, of one tool or with one fingerprint; return the approved tools."""
    selected = {"server": server, "tool": tool, "candidate_fingerprint": fingerprint}
    terms = {name: value for name, value in selected.items() if value is not None}
    condition = " AND ".join(f"{name} = ?" for name in terms)
    condition += " AND state = 'changed' AND candidate IS NOT NULL"
    values = tuple(terms.values())
    query = f"SELECT tool, candidate_fingerprint FROM pins WHERE {condition} ORDER BY tool"
    replacements = connection.execute(query, values).fetchall()
    definitions.keep_versions(connection, server, replacements)
    connection.execute(
        "UPDATE pins SET state = 'approved', fingerprint = candidate_fingerprint, "
        f"definition = candidate, candidate = NULL, candidate_fingerprint = '' WHERE {condition}",
        values,
    )
    return [tool for tool, _ in replacements]


def encode_pins(server: str, pins: Iterable[Pin]) -> list[tuple[object, ...]]:
    """Return the rows of pins."""
    return [_row_from_pin(server, pin) for pin in pins]


def _row_from_pin(server: str, pin: Pin) -> tuple[object, ...]:
    description = f"the definition of {pin.tool!r}"
    candidate = None if pin.candidate is None else encode_json(dict(pin.candidate), description)
    return (
        server,
        pin.tool,
        pin.fingerprint,
        encode_json(dict(pin.definition), description),
        pin.state,
        pin.first_seen,
        candidate,
        pin.candidate_fingerprint,
    )


def _pin_from_row(row: Any) -> Pin:
    tool, fingerprint, definition, state, first_seen, candidate, candidate_fingerprint = row
    if state not in ("approved", "changed"):
        raise DamagedValue(f"{state!r} for the state of a pin")
    return Pin(
        tool,
        fingerprint,
        decode_object(definition),
        state,
        first_seen,
        None if candidate is None else decode_object(candidate),
        candidate_fingerprint,
    )
