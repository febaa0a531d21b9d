"""What a gateway remembers between starts: the promise every store keeps, and the values in it.

A store is synchronous, quick, and safe from any thread; an event loop calls it through
`asyncio.to_thread`. Whatever is wrong with it raises `InvalidStore`, which names the cure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from toolcrib.safety.pin import Pin

__all__ = ["Pin", "ServerManifest", "Store", "ToolUsage", "ToolUsageTotal"]

# The limits of a store; the oldest go first where something has to go.
MAX_SESSIONS: Final = 4096
MAX_USED_TOOLS: Final = 50_000
MAX_COUNTERS: Final = 1_000
MAX_SERVERS: Final = 10_000
MAX_PINS_PER_SERVER: Final = 20_000
MAX_VALUE_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerManifest:
    """What a server said of itself when it was last up."""

    server: str
    # A digest of how the server is started: under another one the manifest is of another server.
    identity: str
    # As the server wrote them, in its order.
    tools: tuple[dict[str, Any], ...] = ()
    instructions: str = ""
    protocol: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)
    seen_at: float = 0.0
    # What of its list could not be kept, and which tools are kept without parts that are wrong.
    problems: tuple[str, ...] = ()
    repaired_tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolUsage:
    """One call of a tool."""

    tool_id: str
    succeeded: bool
    seconds: float
    at: float


@dataclass(frozen=True, slots=True)
class ToolUsageTotal:
    """All calls of a tool."""

    calls: int
    failures: int
    last_used: float
    seconds: float = 0.0


class Store(Protocol):
    """What is kept: manifests, pins, usage, counters and sessions."""

    def get_manifest(self, server: str) -> ServerManifest | None:
        """What this server said of itself when it was last up."""

    def list_manifests(self) -> dict[str, ServerManifest]:
        """The manifests of all servers, by server."""

    def put_manifest(self, server: str, manifest: ServerManifest) -> None:
        """Keep what a server says, in place of what it said before."""

    def forget_server(self, server: str) -> None:
        """Drop a server's manifest and pins: its tools are trusted anew on first use."""

    def get_pins(self, server: str) -> dict[str, Pin]:
        """A server's pins, by the tool's name."""

    def list_quarantined(self) -> dict[str, dict[str, Pin]]:
        """The pins that wait for approval, by server and tool; both in order of name."""

    def put_pins(self, server: str, pins: Iterable[Pin]) -> None:
        """Keep these pins. A candidate that was approved in the meantime stays approved."""

    def approve(
        self, server: str, tool: str | None = None, *, fingerprint: str | None = None
    ) -> list[str]:
        """Trust what waits for approval, of one tool or of the whole server; gives the tools.

        With a `fingerprint`, only the candidate that has it: what a person has seen, and not
        what has taken its place since.
        """

    def get_revision(self) -> int:
        """A number that grows whenever pins change, in whatever process. Cheap to ask."""

    def record_calls(self, calls: Iterable[ToolUsage]) -> None:
        """Count calls of tools."""

    def get_usage(self) -> dict[str, ToolUsageTotal]:
        """How much each tool was used, by the tool's id."""

    def add_stats(self, amounts: Mapping[str, int]) -> None:
        """Add to counters; one that is new begins at zero."""

    def get_stats(self) -> dict[str, int]:
        """All counters, by name."""

    def get_session(self, key: str) -> dict[str, Any] | None:
        """What was kept of a session."""

    def put_session(self, key: str, session: Mapping[str, Any], at: float) -> None:
        """Keep a session, in place of what was kept of it before."""

    def prune_sessions(self, keep: int = MAX_SESSIONS) -> None:
        """Drop all sessions but those that were kept last."""

    @property
    def notice(self) -> str:
        """What the user should know about the store, such as a damaged file that was set aside."""

    def close(self) -> None:
        """Let go of the file. What was kept stays kept."""
