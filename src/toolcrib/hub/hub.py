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

from toolcrib.config.settings import Config, Profile, Server
from toolcrib.core.catalog import Catalog
from toolcrib.embedders.fallback import WithFallback
from toolcrib.errors import UnknownProfile
from toolcrib.hub.definitions import Definition, keepable, read_definitions
from toolcrib.hub.directory import Directory, Shelf, shelf_of
from toolcrib.hub.view import View
from toolcrib.safety.finding import Finding
from toolcrib.safety.pinning import judge, repinned
from toolcrib.safety.scan import scan
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.search.ranker import Ranker
from toolcrib.storage.store import Manifest, Store, Usage

EVERYTHING: Final = Profile("")
# Calls and counters are kept until `flush`: a gateway under load should not wait for its disk.
MAX_UNWRITTEN: Final = 10_000
# What a tool server says of itself that is of use to a search.
MAX_INSTRUCTIONS: Final = 2_000
CHANGED: Final = "its definition is not the one that was approved"
HOSTILE: Final = "its definition looks hostile"


class Service:
    """The tools of all servers and the engine over them. Safe to use from several threads."""

    def __init__(
        self,
        config: Config,
        store: Store,
        rankers: Mapping[str, Ranker] = RANKERS,
    ) -> None:
        self.config = config
        self.store = store
        # Taking in a large list takes long. Whoever wants to see or count something need not wait.
        self._learning = RLock()
        self._lock = RLock()
        self._shelves: dict[str, Shelf] = {}
        # Servers that a person has forgotten. What they have is shown until they are listed anew.
        self.forgotten: frozenset[str] = frozenset()
        self._rankers = rankers
        self._engine = SearchEngine(Catalog(), rankers)
        self._views: dict[str, View] = {}
        self._calls: deque[Usage] = deque(maxlen=MAX_UNWRITTEN)
        self._stats: dict[str, int] = {}
        self._revision = store.revision()
        self.directory = Directory()
        # What a person should know of how the gateway is run, by what it is about.
        self.notices: dict[str, str] = {}
        self._recall()

    @property
    def engine(self) -> SearchEngine:
        """The engine over the tools of the moment."""
        return self._engine

    @property
    def embedder_fault(self) -> str:
        """Why the user's own embedder is not asked at the moment; empty while it is."""
        faults = (one.fault for one in self._rankers.values() if isinstance(one, WithFallback))
        return next((str(fault) for fault in faults if fault), "")

    def knows(self, server: Server) -> bool:
        """Whether the tools of a server have been seen, now or the last time it was up."""
        return server.name in self._shelves

    def view(self, profile: str | None = None) -> View:
        """What a profile sees; without one, all there is."""
        name = profile or ""
        with self._lock:
            view = self._views.get(name)
            if view is None:
                if name and name not in self.config.profiles:
                    raise UnknownProfile(f"there is no profile {name!r}; add it to `profiles`")
                given = self.config.profiles[name] if name else EVERYTHING
                view = View(self.directory, given, self.config.tool_search, self._engine)
                self._views[name] = view
            return view

    def learn(self, server: Server, manifest: Manifest) -> bool:
        """Take in what a server says it has; keep it; say whether that changed anything."""
        with self._learning:
            if self.config.servers.get(server.name) != server:
                # It was configured anew while it listed; whoever took its place lists for itself.
                return False
            shelf = self._shelf(server, manifest)
            self.store.put_manifest(server.name, manifest)
            self.forgotten -= {server.name}
            changed = self._shelves.get(server.name) != shelf
            if changed:
                self._shelves[server.name] = shelf
                self._rebuild()
            return changed

    def reconfigure(self, config: Config) -> None:
        """Go on under another configuration; what is known of its servers stays known."""
        with self._learning:
            gone = self.config.servers.keys() - config.servers.keys()
            self.config = config
            for name in gone:
                self._shelves.pop(name, None)
            self._recall()

    def reread_pins(self) -> bool:
        """Judge anew where somebody has approved something; say whether that changed anything."""
        with self._learning:
            revision = self.store.revision()
            if revision == self._revision:
                return False
            self._revision = revision
            before = dict(self._shelves)
            self._recall()
            return before != self._shelves

    def note_call(self, tool_id: str, ok: bool, seconds: float) -> None:
        """Count a call of a tool."""
        with self._lock:
            self._calls.append(Usage(tool_id, ok, seconds, time.time()))

    def count(self, **amounts: int) -> None:
        """Add to the counters."""
        with self._lock:
            for name, amount in amounts.items():
                self._stats[name] = self._stats.get(name, 0) + amount

    def stats(self) -> dict[str, int]:
        """All counters, those not yet written included."""
        with self._lock:
            kept = self.store.stats()
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
            self.store.note_calls(calls)
        if stats:
            self.store.add_stats(stats)

    def close(self) -> None:
        """Write what is left and let go of the store."""
        self.flush()
        self.store.close()

    def _recall(self) -> None:
        """What is known of the configured servers from the last time they were up."""
        manifests = self.store.manifests()
        forgotten = set()
        for server in self.config.servers.values():
            manifest, shelf = manifests.get(server.name), self._shelves.get(server.name)
            if manifest and manifest.identity == identity(server) and server.enabled:
                self._shelves[server.name] = self._shelf(server, manifest)
            elif not manifest and shelf and shelf.server == server:
                forgotten.add(server.name)
            else:
                self._shelves.pop(server.name, None)
        self.forgotten = frozenset(forgotten)
        self._rebuild()

    def _shelf(self, server: Server, manifest: Manifest) -> Shelf:
        read = read_definitions(
            manifest.tools,
            server=server.alias or server.name,
            server_description=manifest.instructions[:MAX_INSTRUCTIONS],
        )
        findings = self._findings(server, read.read)
        held = self._held(server, manifest, read.read, findings)
        shelf = shelf_of(
            server,
            self.config.tool_search,
            read.read,
            held=held,
            findings=findings,
            faults=(*manifest.faults, *read.faults),
            instructions=manifest.instructions,
        )
        return replace(shelf, altered=manifest.altered)

    def _findings(
        self, server: Server, definitions: Iterable[Definition]
    ) -> dict[str, tuple[Finding, ...]]:
        """What is suspicious about which tool."""
        if self.config.safety.scan == "off":
            return {}
        others = self._names_of_others(server)
        scanned = ((one.name, scan(one.raw, others)) for one in definitions)
        return {name: found for name, found in scanned if found}

    def _held(
        self,
        server: Server,
        manifest: Manifest,
        definitions: Iterable[Definition],
        findings: Mapping[str, tuple[Finding, ...]],
    ) -> dict[str, str]:
        """Which tools are held back until a person has seen them, and why."""
        safety = self.config.safety
        grave: set[str] = set()
        if safety.scan == "block":
            grave = {name for name, found in findings.items() if found[0].severity == "high"}
        if safety.changed == "off":
            return dict.fromkeys(grave, HOSTILE)
        pins = self.store.pins(server.name)
        verdicts = judge(pins, (one.raw for one in definitions))
        repins = repinned(verdicts.values(), manifest.seen, changed=safety.changed, held=grave)
        if repins:
            self.store.put_pins(server.name, repins)
            self._revision = self.store.revision()
        held = {name: HOSTILE for name in grave if verdicts[name].kind != "same"}
        if safety.changed == "block":
            changed = [name for name, one in verdicts.items() if one.kind == "changed"]
            held |= {name: CHANGED for name in changed if name not in held}
        return held

    def _names_of_others(self, server: Server) -> frozenset[str]:
        return frozenset(
            entry.remote_name
            for shelf in self._shelves.values()
            if shelf.server.name != server.name
            for entry in shelf.entries
        )

    def _rebuild(self) -> None:
        shelves = (self._shelves.get(name) for name in self.config.servers)
        chars = self.config.tool_search.max_name_chars
        directory = Directory(tuple(filter(None, shelves)), chars)
        engine = self._engine.updated(_successor(self._engine.catalog, directory))
        with self._lock:
            self.directory, self._engine, self._views = directory, engine, {}


def _successor(catalog: Catalog, directory: Directory) -> Catalog:
    """The catalog of this directory, made from an earlier one, so that only changes are indexed."""
    now = {entry.name: entry.tool for entry in directory}
    gone = [tool.id for tool in catalog if tool.id not in now]
    # A list that is read again has the same tools as new objects, and reading them all is dear.
    new = [tool for tool in now.values() if catalog.get(tool.id) != tool]
    later = catalog.without(gone) if gone else catalog
    return later.with_tools(new) if new else later


def identity(server: Server) -> str:
    """A digest of what makes a server this server: how it is started or reached, no more."""
    said: list[Any] = [server.transport, server.command, *server.args, server.url, server.cwd]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def manifest_of(server: Server, tools: Iterable[Any], said: Mapping[str, Any]) -> Manifest:
    """What a server says of itself, to be kept."""
    kept, faults = keepable(tools)
    manifest = Manifest(server.name, identity(server), kept, seen=time.time(), faults=faults)
    return replace(manifest, **said)
