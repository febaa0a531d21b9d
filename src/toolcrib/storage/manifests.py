"""What servers reported about themselves, and their table in a store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolcrib.errors import InvalidStore
from toolcrib.storage.sql_database import DamagedValue, SqlConnection

# Over this number, the manifests that were not seen for longest are deleted.
MAX_SERVERS: Final = 10_000
MAX_VALUE_BYTES: Final = 64 * 1024 * 1024

_PUT: Final = (
    "INSERT INTO manifests (server, identity, body, seen) VALUES (?, ?, ?, ?) ON CONFLICT (server) DO UPDATE SET "
    "identity = excluded.identity, body = excluded.body, seen = excluded.seen"
)
_PRUNE: Final = (
    "DELETE FROM manifests WHERE server IN (SELECT server FROM manifests ORDER BY seen DESC, server LIMIT -1 OFFSET ?)"
)
_PUT_SCAN: Final = (
    "INSERT INTO scans (server, digest, body) VALUES (?, ?, ?) ON CONFLICT (server) DO UPDATE SET "
    "digest = excluded.digest, body = excluded.body"
)
_PRUNE_SCANS: Final = "DELETE FROM scans WHERE server NOT IN (SELECT server FROM manifests)"


@dataclass(frozen=True, slots=True)
class ServerManifest:
    """What a server reported about itself when it was last connected."""

    server: str
    # A digest of how the server is started; another digest means another server.
    identity: str
    # The definitions as the server sent them, in its order.
    tools: tuple[dict[str, Any], ...] = ()
    instructions: str = ""
    protocol: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    seen_at: float = 0.0
    # Definitions that could not be stored, and names of tools that were stored in part.
    problems: tuple[str, ...] = ()
    repaired_tools: tuple[str, ...] = ()
    # What the safety scan found in these definitions, as JSON; empty if it is not known.
    scan: str = field(default="", compare=False)


def write_manifest(connection: SqlConnection, server: str, manifest: ServerManifest, body: str) -> bool:
    """Store a manifest with its encoded body; return whether it differs from the previous one.

    The oldest manifests over the limit are deleted. A change of the scan alone is not a difference.
    """
    query = "SELECT 1 FROM manifests WHERE server = ? AND identity = ? AND body = ?"
    is_known = connection.execute(query, (server, manifest.identity, body)).fetchone()
    connection.execute(_PUT, (server, manifest.identity, body, manifest.seen_at))
    if manifest.scan:
        connection.execute(_PUT_SCAN, (server, _compute_digest(body), manifest.scan))
    connection.execute(_PRUNE, (MAX_SERVERS,))
    connection.execute(_PRUNE_SCANS)
    return not is_known


def read_manifests(connection: SqlConnection, server: str | None = None) -> dict[str, ServerManifest]:
    """Return the manifests of all servers, sorted, or of one server."""
    clause, values = ("", ()) if server is None else ("WHERE manifests.server = ?", (server,))
    query = (
        "SELECT manifests.server, identity, manifests.body, seen, digest, scans.body FROM manifests "
        f"LEFT JOIN scans ON scans.server = manifests.server {clause} ORDER BY manifests.server"
    )
    return {row[0]: _manifest_from_row(*row) for row in connection.execute(query, values)}


def encode_manifest(manifest: ServerManifest) -> str:
    """Return the body of a manifest as JSON."""
    fields = {
        "tools": manifest.tools,
        "instructions": manifest.instructions,
        "protocol": manifest.protocol,
        "info": dict(manifest.info),
        "faults": manifest.problems,
        "altered": manifest.repaired_tools,
    }
    return encode_json(fields, f"the manifest of {manifest.server!r}")


def encode_json(value: object, description: str) -> str:
    """Return a value as JSON in ASCII; `description` names it in errors."""
    try:
        text = json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidStore(f"{description} is not valid JSON and cannot be stored: {error}") from error
    if len(text) > MAX_VALUE_BYTES:
        raise InvalidStore(f"{description} has {len(text):,} bytes; the limit is {MAX_VALUE_BYTES:,}; make it smaller")
    return text


def decode_object(text: str) -> dict[str, Any]:
    """Return the object in a stored text."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise DamagedValue(str(error)) from error
    if not isinstance(value, dict):
        raise DamagedValue(f"{type(value).__name__} for an object")
    return value


def delete_manifest(connection: SqlConnection, server: str) -> None:
    """Delete a server's manifest."""
    connection.execute("DELETE FROM manifests WHERE server = ?", (server,))
    connection.execute("DELETE FROM scans WHERE server = ?", (server,))


def _compute_digest(body: str) -> str:
    return hashlib.blake2b(body.encode(), digest_size=16).hexdigest()


def _manifest_from_row(
    server: str, identity: str, body: str, seen: float, digest: str | None, scan: str | None
) -> ServerManifest:
    fields = decode_object(body)
    return ServerManifest(
        server,
        identity,
        tools=tuple(fields.get("tools", ())),
        instructions=fields.get("instructions", ""),
        protocol=fields.get("protocol", ""),
        info=fields.get("info", {}),
        seen_at=seen,
        problems=tuple(fields.get("faults", ())),
        repaired_tools=tuple(fields.get("altered", ())),
        # An older version of Toolcrib may have replaced the manifest and not its scan.
        scan=scan if scan and digest == _compute_digest(body) else "",
    )
