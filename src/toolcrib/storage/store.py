"""The `Store` protocol: what a gateway keeps between runs, and the stored values.

A store is synchronous, fast and thread-safe; call it from an event loop through a thread. Every
failure raises `InvalidStore` with a message that names the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from toolcrib.safety.pinning import Pin
from toolcrib.storage.access import KeyUsage, StoredKey
from toolcrib.storage.audit import AuditFilter, AuditRow
from toolcrib.storage.definitions import DefinitionVersion, SavedQuery
from toolcrib.storage.llm_usage import LlmUsage
from toolcrib.storage.results import StoredResult
from toolcrib.storage.time_series import Resolution, SeriesAmount

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


class Store(Protocol):
    """Keeps manifests, pins, usage totals, counters and the token usage of LLMs."""

    @property
    def notice(self) -> str:
        """A notice for the operator, such as a damaged file that was moved; empty if none."""

    def get_manifest(self, server: str) -> ServerManifest | None:
        """Return a server's manifest."""

    def list_manifests(self) -> dict[str, ServerManifest]:
        """Return the manifests of all servers, by server."""

    def put_manifest(self, server: str, manifest: ServerManifest) -> None:
        """Store a server's manifest in place of the previous one."""

    def forget_server(self, server: str) -> None:
        """Delete a server's manifest and pins; its tools are trusted on first use again."""

    def get_pins(self, server: str) -> dict[str, Pin]:
        """Return a server's pins by tool name."""

    def list_quarantined(self) -> dict[str, dict[str, Pin]]:
        """Return the pins that wait for approval, by server and tool name, both sorted."""

    def put_pins(self, server: str, pins: Iterable[Pin]) -> None:
        """Store pins. A candidate that was approved in the meantime stays approved."""

    def approve(self, server: str, tool: str | None = None, *, fingerprint: str | None = None) -> list[str]:
        """Approve the candidates of a server or of one tool; return the approved tools.

        With a `fingerprint`, approve only the candidate that has it. This protects against a
        candidate that was replaced after the user reviewed it.
        """

    def reject(self, server: str, tool: str, fingerprint: str) -> bool:
        """Reject a candidate, so that it no longer waits; return whether it was still the candidate."""

    def list_rejections(self) -> frozenset[tuple[str, str, str]]:
        """Return server, tool and fingerprint of every rejected candidate."""

    def list_definition_versions(self, server: str, tool: str) -> list[DefinitionVersion]:
        """Return the earlier approved definitions of a tool, newest first."""

    def put_saved_query(self, saved: SavedQuery) -> None:
        """Save a test query in place of an earlier one with the same text."""

    def list_saved_queries(self) -> list[SavedQuery]:
        """Return the saved test queries, the oldest first."""

    def delete_saved_query(self, query: str) -> bool:
        """Delete a saved test query; return whether it existed."""

    def get_revision(self) -> int:
        """Return a number that grows whenever a process changes pins. The call is cheap."""

    def record_calls(self, calls: Iterable[ToolUsage]) -> None:
        """Add tool calls to the usage totals."""

    def get_usage(self) -> dict[str, ToolUsageTotal]:
        """Return the usage totals by tool id."""

    def add_stats(self, amounts: Mapping[str, int]) -> None:
        """Add amounts to counters; a new counter starts at zero."""

    def get_stats(self) -> dict[str, int]:
        """Return all counters by name."""

    def add_llm_usage(self, rows: Iterable[LlmUsage]) -> None:
        """Add requests and tokens to the rows of their day, key and model."""

    def list_llm_usage(self, since_day: str = "") -> list[LlmUsage]:
        """Return the usage from a day on, sorted by day, key and model."""

    def put_result(self, result: StoredResult, max_bytes: int) -> None:
        """Store a large tool result; delete expired results, and the oldest over the limits."""

    def get_result(self, handle: str, owner: str, now: float) -> StoredResult | None:
        """Return an owner's result, or None if there is none or it has expired."""

    def count_results(self) -> tuple[int, int]:
        """Return the number of stored results and their compressed bytes."""

    def append_audit(self, rows: Sequence[AuditRow], *, durable: bool = False) -> None:
        """Append rows to the audit log. Durable rows survive a crash of the machine."""

    def list_audit(self, where: AuditFilter, limit: int) -> list[AuditRow]:
        """Return audit rows: the newest first, or with `where.after` the oldest after that id first."""

    def prune_audit(self, before: float, max_rows: int) -> int:
        """Delete some of the audit rows that are too old or too many; return how many."""

    def add_series(self, amounts: Sequence[SeriesAmount]) -> None:
        """Add amounts to the time series of every resolution."""

    def list_series(self, resolution: Resolution, since: float) -> list[SeriesAmount]:
        """Return the amounts of a resolution since a time, sorted by time."""

    def prune_series(self, now: float) -> None:
        """Delete the amounts that are too old or too many."""

    def put_key(self, key: StoredKey) -> None:
        """Store an API key."""

    def list_keys(self) -> list[StoredKey]:
        """Return the stored API keys, the oldest first."""

    def delete_key(self, id: str) -> bool:
        """Delete an API key; return whether it existed."""

    def add_key_usage(self, usage: Sequence[KeyUsage]) -> None:
        """Add requests to the usage of API keys."""

    def get_key_usage(self) -> dict[str, KeyUsage]:
        """Return the usage of API keys, by hash."""

    def put_profile(self, name: str, settings: Mapping[str, Any], at: float) -> None:
        """Store an access profile in place of a previous one."""

    def list_profiles(self) -> dict[str, dict[str, Any]]:
        """Return the settings of the stored access profiles, by name."""

    def delete_profile(self, name: str) -> bool:
        """Delete a stored access profile; return whether it existed."""

    def close(self) -> None:
        """Close the store."""
