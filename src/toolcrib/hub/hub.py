"""Service: what the servers say is read, judged, kept and made searchable; all wiring is here."""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from threading import RLock
from typing import Any, Final

from toolcrib.config.settings import AccessProfile, GatewayConfig, ServerConfig
from toolcrib.core.catalog import Catalog
from toolcrib.embedders.fallback import FallbackRanker
from toolcrib.errors import UnknownProfile
from toolcrib.hub.definitions import ToolDefinition, filter_storable, parse_definitions
from toolcrib.hub.directory import ServerTools, ToolDirectory, build_server_tools
from toolcrib.hub.view import AccessView
from toolcrib.safety.finding import SafetyFinding
from toolcrib.safety.pinning import compare_with_pins, update_pins
from toolcrib.safety.scan import scan_definition
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.search.ranker import Ranker
from toolcrib.storage.store import ServerManifest, Store, ToolUsage

FULL_ACCESS: Final = AccessProfile("")
# Calls and counters are kept until `flush`: a gateway under load should not wait for its disk.
MAX_UNWRITTEN_CALLS: Final = 10_000
# What a tool server says of itself that is of use to a search.
MAX_INSTRUCTION_CHARS: Final = 2_000
CHANGED_REASON: Final = "its definition is not the one that was approved"
HOSTILE_REASON: Final = "its definition looks hostile"


class Hub:
    """The tools of all servers and the engine over them. Safe to use from several threads."""

    def __init__(
        self,
        config: GatewayConfig,
        store: Store,
        rankers: Mapping[str, Ranker] = RANKERS,
    ) -> None:
        self.config = config
        self.store = store
        # Taking in a large list takes long. Whoever wants to see or count something need not wait.
        self._update_lock = RLock()
        self._lock = RLock()
        self._server_tools: dict[str, ServerTools] = {}
        # Servers that a person has forgotten. What they have is shown until they are listed anew.
        self.forgotten_servers: frozenset[str] = frozenset()
        self._rankers = rankers
        self._engine = SearchEngine(Catalog(), rankers)
        self._views: dict[str, AccessView] = {}
        self._calls: deque[ToolUsage] = deque(maxlen=MAX_UNWRITTEN_CALLS)
        self._stats: dict[str, int] = {}
        self._revision = store.get_revision()
        self.directory = ToolDirectory()
        # What a person should know of how the gateway is run, by what it is about.
        self.notices: dict[str, str] = {}
        self._load_manifests()

    @property
    def engine(self) -> SearchEngine:
        """The engine over the tools of the moment."""
        return self._engine

    @property
    def embedder_error(self) -> str:
        """Why the user's own embedder is not asked at the moment; empty while it is."""
        faults = (
            one.primary_error for one in self._rankers.values() if isinstance(one, FallbackRanker)
        )
        return next((str(fault) for fault in faults if fault), "")

    def knows_tools_of(self, server: ServerConfig) -> bool:
        """Whether the tools of a server have been seen, now or the last time it was up."""
        return server.name in self._server_tools

    def get_view(self, profile: str | None = None) -> AccessView:
        """What a profile sees; without one, all there is."""
        name = profile or ""
        with self._lock:
            view = self._views.get(name)
            if view is None:
                if name and name not in self.config.profiles:
                    raise UnknownProfile(f"there is no profile {name!r}; add it to `profiles`")
                given = self.config.profiles[name] if name else FULL_ACCESS
                view = AccessView(self.directory, given, self.config.tool_search, self._engine)
                self._views[name] = view
            return view

    def update_server(self, server: ServerConfig, manifest: ServerManifest) -> bool:
        """Take in what a server says it has; keep it; say whether that changed anything."""
        with self._update_lock:
            if self.config.servers.get(server.name) != server:
                # It was configured anew while it listed; whoever took its place lists for itself.
                return False
            shelf = self._build_server_tools(server, manifest)
            self.store.put_manifest(server.name, manifest)
            self.forgotten_servers -= {server.name}
            changed = self._server_tools.get(server.name) != shelf
            if changed:
                self._server_tools[server.name] = shelf
                self._rebuild()
            return changed

    def reconfigure(self, config: GatewayConfig) -> None:
        """Go on under another configuration; what is known of its servers stays known."""
        with self._update_lock:
            gone = self.config.servers.keys() - config.servers.keys()
            self.config = config
            for name in gone:
                self._server_tools.pop(name, None)
            self._load_manifests()

    def refresh_pins(self) -> bool:
        """Judge anew where somebody has approved something; say whether that changed anything."""
        with self._update_lock:
            revision = self.store.get_revision()
            if revision == self._revision:
                return False
            self._revision = revision
            before = dict(self._server_tools)
            self._load_manifests()
            return before != self._server_tools

    def record_call(self, tool_id: str, ok: bool, seconds: float) -> None:
        """Count a call of a tool."""
        with self._lock:
            self._calls.append(ToolUsage(tool_id, ok, seconds, time.time()))

    def add_counts(self, **amounts: int) -> None:
        """Add to the counters."""
        with self._lock:
            for name, amount in amounts.items():
                self._stats[name] = self._stats.get(name, 0) + amount

    def get_stats(self) -> dict[str, int]:
        """All counters, those not yet written included."""
        with self._lock:
            kept = self.store.get_stats()
            return {
                name: kept.get(name, 0) + self._stats.get(name, 0) for name in kept | self._stats
            }

    def flush(self) -> None:
        """Write what was counted."""
        with self._lock:
            calls, stats = list(self._calls), self._stats
            self._calls.clear()
            self._stats = {}
        if calls:
            self.store.record_calls(calls)
        if stats:
            self.store.add_stats(stats)

    def close(self) -> None:
        """Write what is left and let go of the store."""
        self.flush()
        self.store.close()

    def _load_manifests(self) -> None:
        """What is known of the configured servers from the last time they were up."""
        manifests = self.store.list_manifests()
        forgotten = set()
        for server in self.config.servers.values():
            manifest, shelf = manifests.get(server.name), self._server_tools.get(server.name)
            if manifest and manifest.identity == compute_server_identity(server) and server.enabled:
                self._server_tools[server.name] = self._build_server_tools(server, manifest)
            elif not manifest and shelf and shelf.server == server:
                forgotten.add(server.name)
            else:
                self._server_tools.pop(server.name, None)
        self.forgotten_servers = frozenset(forgotten)
        self._rebuild()

    def _build_server_tools(self, server: ServerConfig, manifest: ServerManifest) -> ServerTools:
        read = parse_definitions(
            manifest.tools,
            server=server.alias or server.name,
            server_description=manifest.instructions[:MAX_INSTRUCTION_CHARS],
        )
        findings = self._scan_definitions(server, read.definitions)
        held = self._find_quarantined(server, manifest, read.definitions, findings)
        shelf = build_server_tools(
            server,
            self.config.tool_search,
            read.definitions,
            quarantined=held,
            findings=findings,
            problems=(*manifest.problems, *read.problems),
            instructions=manifest.instructions,
        )
        return replace(shelf, repaired_tools=manifest.repaired_tools)

    def _scan_definitions(
        self, server: ServerConfig, definitions: Iterable[ToolDefinition]
    ) -> dict[str, tuple[SafetyFinding, ...]]:
        """What is suspicious about which tool."""
        if self.config.safety.scan == "off":
            return {}
        others = self._get_other_tool_names(server)
        scanned = ((one.name, scan_definition(one.raw, others)) for one in definitions)
        return {name: found for name, found in scanned if found}

    def _find_quarantined(
        self,
        server: ServerConfig,
        manifest: ServerManifest,
        definitions: Iterable[ToolDefinition],
        findings: Mapping[str, tuple[SafetyFinding, ...]],
    ) -> dict[str, str]:
        """Which tools are held back until a person has seen them, and why."""
        safety = self.config.safety
        grave: set[str] = set()
        if safety.scan == "block":
            grave = {name for name, found in findings.items() if found[0].severity == "high"}
        if safety.changed == "off":
            return dict.fromkeys(grave, HOSTILE_REASON)
        pins = self.store.get_pins(server.name)
        verdicts = compare_with_pins(pins, (one.raw for one in definitions))
        repins = update_pins(
            verdicts.values(), manifest.seen_at, changed=safety.changed, quarantined=grave
        )
        if repins:
            self.store.put_pins(server.name, repins)
            self._revision = self.store.get_revision()
        held = {name: HOSTILE_REASON for name in grave if verdicts[name].status != "same"}
        if safety.changed == "block":
            changed = [name for name, one in verdicts.items() if one.status == "changed"]
            held |= {name: CHANGED_REASON for name in changed if name not in held}
        return held

    def _get_other_tool_names(self, server: ServerConfig) -> frozenset[str]:
        return frozenset(
            entry.remote_name
            for shelf in self._server_tools.values()
            if shelf.server.name != server.name
            for entry in shelf.entries
        )

    def _rebuild(self) -> None:
        shelves = (self._server_tools.get(name) for name in self.config.servers)
        chars = self.config.tool_search.max_name_chars
        directory = ToolDirectory(tuple(filter(None, shelves)), chars)
        engine = self._engine.with_catalog(_update_catalog(self._engine.catalog, directory))
        with self._lock:
            self.directory, self._engine, self._views = directory, engine, {}


def _update_catalog(catalog: Catalog, directory: ToolDirectory) -> Catalog:
    """The catalog of this directory, made from an earlier one, so that only changes are indexed."""
    now = {entry.name: entry.tool for entry in directory}
    gone = [tool.id for tool in catalog if tool.id not in now]
    # A list that is read again has the same tools as new objects, and reading them all is dear.
    new = [tool for tool in now.values() if catalog.get(tool.id) != tool]
    later = catalog.without(gone) if gone else catalog
    return later.with_tools(new) if new else later


def compute_server_identity(server: ServerConfig) -> str:
    """A digest of what makes a server this server: how it is started or reached, no more."""
    said: list[Any] = [server.transport, server.command, *server.args, server.url, server.cwd]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def build_manifest(
    server: ServerConfig, tools: Iterable[Any], details: Mapping[str, Any]
) -> ServerManifest:
    """What a server says of itself, to be kept."""
    kept, faults = filter_storable(tools)
    manifest = ServerManifest(
        server.name, compute_server_identity(server), kept, seen_at=time.time(), problems=faults
    )
    return replace(manifest, **details)
