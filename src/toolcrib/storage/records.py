"""The values that a store keeps between runs, and its limits."""

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
