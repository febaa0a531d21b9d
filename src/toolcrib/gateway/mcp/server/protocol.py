"""What of the protocol is said without the SDK, so that the first answers need not wait for it.

A contract test holds all of this to what the SDK says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolcrib import __version__

HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSION: Final = "2026-07-28"
VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_KEY: Final = "io.modelcontextprotocol/clientInfo"
LEVEL_KEY: Final = "io.modelcontextprotocol/logLevel"
SERVER_KEY: Final = "io.modelcontextprotocol/serverInfo"

SERVER_INFO: Final = {"name": "toolcrib", "version": __version__}
_CAPABILITIES: Final[dict[str, dict[str, bool]]] = {
    "completions": {},
    "logging": {},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "tools": {"listChanged": True},
}
# What of a result belongs to one era only.
_STATELESS_KEYS: Final = ("resultType", "ttlMs", "cacheScope")
_CACHEABLE_METHODS: Final = frozenset(
    {
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "server/discover",
    }
)


def build_initialize_result(version: str) -> dict[str, Any]:
    """The answer to a client that wants to speak this version."""
    version = version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
    return {"protocolVersion": version, "capabilities": _CAPABILITIES, "serverInfo": SERVER_INFO}


def build_discover_result() -> dict[str, Any]:
    """The answer to a client without a handshake that asks what we are."""
    return {"supportedVersions": [STATELESS_VERSION], "capabilities": _CAPABILITIES}


def stamp_result(method: str, result: Mapping[str, Any], *, is_stateless: bool) -> dict[str, Any]:
    """A result with what its era asks for, and without what belongs to the other."""
    stamped = {key: value for key, value in result.items() if key not in _STATELESS_KEYS}
    if not is_stateless:
        return stamped
    stamped["resultType"] = result.get("resultType") or "complete"
    if method in _CACHEABLE_METHODS:
        stamped["ttlMs"] = result.get("ttlMs", 0)
        stamped["cacheScope"] = "private"
    meta = result.get("_meta")
    stamped["_meta"] = {
        **(meta if isinstance(meta, Mapping) else {}),
        SERVER_KEY: dict(SERVER_INFO),
    }
    return stamped
