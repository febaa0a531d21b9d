"""The values that a store keeps between runs, its limits and its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

# The limits of a store. Where a limit is reached, the oldest rows are deleted first.
MAX_USED_TOOLS: Final = 50_000
MAX_COUNTERS: Final = 1_000
MAX_SERVERS: Final = 10_000
MAX_PINS_PER_SERVER: Final = 20_000
MAX_VALUE_BYTES: Final = 64 * 1024 * 1024


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


@dataclass(frozen=True, slots=True)
class ToolUsage:
    """One tool call."""

    tool_id: str
    succeeded: bool
    seconds: float
    at: float


@dataclass(frozen=True, slots=True)
class ToolUsageTotal:
    """The totals of all calls of a tool."""

    calls: int
    failures: int
    last_used: float
    seconds: float = 0.0


# One tuple of statements per version of the tables. Released versions never change.
_VERSION_1: Final = (
    "CREATE TABLE manifests (server TEXT PRIMARY KEY, identity TEXT NOT NULL, "
    "body TEXT NOT NULL, seen REAL NOT NULL)",
    "CREATE TABLE pins (server TEXT NOT NULL, tool TEXT NOT NULL, fingerprint TEXT NOT NULL, "
    "definition TEXT NOT NULL, state TEXT NOT NULL, first_seen REAL NOT NULL, candidate TEXT, "
    "candidate_fingerprint TEXT NOT NULL, PRIMARY KEY (server, tool))",
    "CREATE INDEX pins_by_state ON pins (state)",
    "CREATE TABLE revision (number INTEGER NOT NULL)",
    "INSERT INTO revision VALUES (0)",
    "CREATE TABLE usage (tool_id TEXT PRIMARY KEY, calls INTEGER NOT NULL, "
    "failures INTEGER NOT NULL, seconds REAL NOT NULL, last_used REAL NOT NULL)",
    "CREATE INDEX usage_by_time ON usage (last_used)",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, amount INTEGER NOT NULL)",
    "CREATE TABLE sessions (key TEXT PRIMARY KEY, body TEXT NOT NULL, at REAL NOT NULL)",
    "CREATE INDEX sessions_by_time ON sessions (at)",
)

_VERSION_2: Final = (
    "CREATE TABLE lessons (circle TEXT NOT NULL, voice TEXT NOT NULL, word TEXT NOT NULL, "
    "weights TEXT NOT NULL, PRIMARY KEY (circle, voice, word)) WITHOUT ROWID",
    "CREATE TABLE lessons_state (number INTEGER NOT NULL, salt_check TEXT NOT NULL)",
    "INSERT INTO lessons_state VALUES (0, '')",
)

# Learning from use was removed in 0.2.
_VERSION_3: Final = ("DROP TABLE lessons", "DROP TABLE lessons_state")

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (_VERSION_1, _VERSION_2, _VERSION_3)
