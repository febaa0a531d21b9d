"""The hub: the tools of all servers, checked, stored and searchable."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import RLock
from typing import Any, Final

from toolcrib.config.parser import read_profile
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import AccessProfile, GatewayConfig
from toolcrib.core.catalog import Catalog
from toolcrib.embedders.fallback import FallbackRanker
from toolcrib.errors import InvalidStore, StoreUnavailable, UnknownProfile
from toolcrib.hub.directory import (
    MAX_DISPLAYED_NAME_CHARS,
    ServerTools,
    ToolDefinition,
    ToolDirectory,
    build_server_tools,
    filter_storable,
    parse_definitions,
    set_requests,
)
from toolcrib.hub.overrides import apply_overrides, apply_profile
from toolcrib.hub.safety_review import (
    OtherToolNames,
    SafetyEvent,
    SafetyReview,
    ScanRecord,
    review_definitions,
    scan_definitions,
)
from toolcrib.hub.view import EXPRESSION_MODE, AccessView
from toolcrib.safety.hidden_text import SafetyFinding, escape_invisible
from toolcrib.safety.pinning import Pin
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.search.lexical.fields import TOOL_FIELDS
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.ranker import Ranker
from toolcrib.storage.changes import Change, RecordedChange
from toolcrib.storage.journal import JournalMark
from toolcrib.storage.manifests import ServerManifest
from toolcrib.storage.pins import MAX_PINS_PER_SERVER, PinSummary
from toolcrib.storage.store import Store
from toolcrib.storage.tool_usage import ToolUsageTotal

FULL_ACCESS: Final = AccessProfile("")
# Calls and counters are buffered until `flush`, so that requests do not wait for the disk. While the store
# is unavailable, the calls of at most this number of tools are counted.
MAX_UNWRITTEN_TOOLS: Final = 50_000
# The search engine indexes only the beginning of a server's instructions.
MAX_INSTRUCTION_CHARS: Final = 2_000
# The search fields of a tool, with the public name as the name.
PUBLIC_NAME_FIELDS: Final = replace(
    TOOL_FIELDS, extract_texts=lambda tool: (tool.id, *TOOL_FIELDS.extract_texts(tool)[1:])
)
# Safety events that are remembered to report each of them once.
MAX_REPORTED_EVENTS: Final = 10_000
_STORE_NOTICE: Final = "store"
_log = logging.getLogger(__name__)


@contextmanager
def _pause_garbage_collection() -> Iterator[None]:
    """Collect no cycles for a time. Reading many definitions makes none, and looking for them takes as long."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # Moves all objects to the oldest generation, so that they are not searched for cycles soon.
            gc.freeze()
            gc.unfreeze()
            gc.enable()


class Hub:
    """Keeps the tool directory, the search engine and the store in step. Thread-safe."""

    def __init__(self, config: GatewayConfig, store: Store, rankers: Mapping[str, Ranker] = RANKERS) -> None:
        self.config = config
        self.store = store
        # Updates can take long. Readers and counters only need `_lock`, which is held briefly.
        self._update_lock = RLock()
        self._lock = RLock()
        self._server_tools: dict[str, ServerTools] = {}
        # How many servers have a tool with this name.
        self._name_counts: Counter[str] = Counter()
        self._scans: dict[str, ScanRecord] = {}
        # Servers that a user has forgotten. Their tools stay available until they are listed again.
        self.forgotten_servers: frozenset[str] = frozenset()
        self._rankers = {**rankers, EXPRESSION_MODE: LexicalRanker(field_config=PUBLIC_NAME_FIELDS)}
        self._engine = SearchEngine(Catalog(), self._rankers)
        self._views: dict[str, AccessView] = {}
        # Holds the buffered calls and counters too, until they are in the store.
        self._journal = store.open_journal("calls")
        self._calls: dict[str, ToolUsageTotal] = {}
        self._stats: dict[str, int] = {}
        self._stored_stats: dict[str, int] = {}
        self._revision = store.get_revision()
        # The last change of each server that this hub made itself, and the pins it read last.
        self._own_changes: dict[str, int] = {}
        self._known_pins: dict[str, dict[str, Pin]] = {}
        # The pins of all servers, while their manifests are loaded.
        self._pin_states: Mapping[str, Mapping[str, PinSummary]] | None = None
        # What servers listed while the store could not be written.
        self._unstored: dict[str, tuple[ServerConfig, ServerManifest] | None] = {}
        # Called with the changes of other processes, after the hub has applied them.
        self.on_changes: list[Callable[[Sequence[Change]], None]] = []
        self._reported_events: set[tuple[str, SafetyEvent]] = set()
        self.directory = ToolDirectory()
        # Notices for the operator, by topic.
        self.notices: dict[str, str] = {}
        self._stored_profiles: Mapping[str, AccessProfile] = {}
        # Example requests that were written for tools, by the fingerprint of the definition.
        self._requests = store.list_example_requests()
        self.refresh_profiles()
        self._load_manifests()

    @property
    def engine(self) -> SearchEngine:
        """The search engine over the current tools."""
        return self._engine

    @property
    def embedder_error(self) -> str:
        """Why the configured embedder is not in use at the moment; empty if it is."""
        fallbacks = (ranker for ranker in self._rankers.values() if isinstance(ranker, FallbackRanker))
        errors = (ranker.primary_error for ranker in fallbacks)
        return next((str(error) for error in errors if error), "")

    @property
    def profiles(self) -> Mapping[str, AccessProfile]:
        """The access profiles of the store and of the configuration, which has priority."""
        return {**self._stored_profiles, **self.config.profiles} if self._stored_profiles else self.config.profiles

    def refresh_profiles(self) -> None:
        """Read the access profiles of the store again."""
        stored = {name: read_profile(name, settings) for name, settings in self.store.list_profiles().items()}
        with self._lock:
            if stored != self._stored_profiles:
                self._stored_profiles, self._views = stored, {}

    def knows_tools_of(self, server: ServerConfig) -> bool:
        """Return whether a server has listed its tools, in this run or an earlier one."""
        return server.name in self._server_tools

    def get_view(self, profile: str | None = None) -> AccessView:
        """Return the view of a profile; without a profile, the view of all tools."""
        name = profile or ""
        with self._lock:
            view = self._views.get(name)
            if view is None:
                if name and name not in self.profiles:
                    raise UnknownProfile(f"there is no profile {name!r}; add it to `profiles`")
                rights = self.profiles[name] if name else FULL_ACCESS
                directory, engine = self.directory, self._engine
                if rights.overrides or rights.pins:
                    directory = apply_profile(directory, rights, self.config.tool_search)
                    engine = engine.with_catalog(_update_catalog(engine.catalog, directory))
                view = AccessView(directory, rights, self.config.tool_search, engine)
                self._views[name] = view
            return view

    def update_server(self, server: ServerConfig, manifest: ServerManifest) -> bool:
        """Store a server's manifest and update its tools; return whether they changed."""
        with self._update_lock:
            if self.config.servers.get(server.name) != server:
                # The server was reconfigured in the meantime; its successor lists for itself.
                return False
            self._unstored.pop(server.name, None)
            # A record of a scan is trusted only if it comes from the store with its definitions.
            tools = self._build_server_tools(server, replace(manifest, scan=""))
            record = self._scans.get(server.name)
            scanned = replace(manifest, scan=record.encode()) if record else manifest
            self._try_to_store(server.name, lambda: self.store.put_manifest(server.name, scanned))
            if server.name in self._unstored:
                self._unstored[server.name] = (server, manifest)
            self.forgotten_servers -= {server.name}
            changed = self._server_tools.get(server.name) != tools
            if changed:
                self._set_tools(server.name, tools)
                self._rebuild()
            return changed

    def reconfigure(self, config: GatewayConfig) -> None:
        """Switch to another configuration; unchanged servers keep their tools."""
        with self._update_lock:
            self.config = config
            self._load_manifests()

    def refresh(self) -> bool:
        """Apply what other processes changed in the store; return whether tools changed.

        Tools that could not be stored before are stored.
        """
        with self._update_lock:
            changes = self.store.list_changes(self._revision)
            before = self._server_tools
            for server, manifest in filter(None, list(self._unstored.values())):
                self.update_server(server, manifest)
            if not changes:
                return before != self._server_tools
            if any(change.topic == "profiles" for change in changes):
                self.refresh_profiles()
            by_servers = (change for change in changes if change.topic == "server")
            servers = {each.subject for each in by_servers if self._own_changes.get(each.subject) != each.number}
            if any(change.topic == "requests" for change in changes):
                self._requests = self.store.list_example_requests()
                self._server_tools = {n: set_requests(t, self._requests) for n, t in self._server_tools.items()}
                self._rebuild()
            if servers:
                self._load_manifests(servers)
            self._revision = changes[-1].number
            is_changed = before != self._server_tools
        for function in self.on_changes:
            function(changes)
        return is_changed

    def record_call(self, tool_id: str, succeeded: bool, seconds: float) -> None:
        """Record a tool call for the usage statistics."""
        usage = (1, int(not succeeded), time.time(), seconds)
        with self._lock:
            self._journal.append([{tool_id: usage}, {}])
            self._buffer_amounts({tool_id: ToolUsageTotal(*usage)}, {})

    def add_counts(self, **amounts: int) -> None:
        """Add amounts to counters."""
        with self._lock:
            self._journal.append([{}, amounts])
            self._buffer_amounts({}, amounts)

    def _buffer_amounts(self, calls: Mapping[str, ToolUsageTotal], amounts: Mapping[str, int]) -> None:
        for id, usage in calls.items():
            known = self._calls.get(id)
            if known is not None or len(self._calls) < MAX_UNWRITTEN_TOOLS:
                self._calls[id] = usage if known is None else known + usage
        for name, amount in amounts.items():
            self._stats[name] = self._stats.get(name, 0) + amount

    def get_stats(self) -> dict[str, int]:
        """Return all counters, including amounts that are not yet written.

        While the store is unavailable, the stored amounts are those that were read last.
        """
        with self._lock:
            with suppress(StoreUnavailable):
                self._stored_stats = self.store.get_stats()
            stored = self._stored_stats
            names = stored | self._stats
            return {name: stored.get(name, 0) + self._stats.get(name, 0) for name in names}

    def flush(self) -> None:
        """Write buffered calls and counters to the store."""
        self.store.recover_lines(self._journal, self._write_lines)
        with self._lock:
            calls, self._calls = self._calls, {}
            stats, self._stats = self._stats, {}
            mark = self._journal.take()
        try:
            self.store.add_calls(calls, stats, mark)
        except InvalidStore:
            # Write them at the next flush.
            with self._lock:
                self._buffer_amounts(calls, stats)
            raise
        self._journal.finish(mark)

    def _write_lines(self, lines: Sequence[Any], mark: JournalMark) -> None:
        """Write the calls and counters of a process that was killed."""
        calls: dict[str, ToolUsageTotal] = {}
        amounts: Counter[str] = Counter()
        for usages, counts in lines:
            for id, fields in usages.items():
                usage = ToolUsageTotal(*fields)
                calls[id] = calls[id] + usage if id in calls else usage
            amounts.update(counts)
        self.store.add_calls(calls, amounts, mark)

    def close(self) -> None:
        """Flush and close the store."""
        try:
            self.flush()
        except StoreUnavailable as error:
            _log.error("the last calls are not counted: %s", error)
        self.store.close()

    @_pause_garbage_collection()
    def _load_manifests(self, names: Collection[str] | None = None) -> None:
        """Build the tools of all configured servers, or of some, from their stored manifests."""
        if names is None:
            manifests = self.store.list_manifests()
            self._pin_states = self.store.list_pin_states()
        else:
            manifests = {name: found for name in names if (found := self.store.get_manifest(name))}
        previous, self._server_tools = self._server_tools, dict(self._server_tools)
        forgotten = set() if names is None else set(self.forgotten_servers - set(names))
        for name in previous.keys() - self.config.servers.keys():
            self._set_tools(name, None)
        for name, server in self.config.servers.items():
            if names is not None and name not in names:
                continue
            manifest, tools = manifests.get(name), previous.get(name)
            if manifest and manifest.identity == compute_server_identity(server) and server.enabled:
                self._set_tools(name, self._build_server_tools(server, manifest))
            elif not manifest and tools and tools.server == server:
                forgotten.add(name)
            else:
                self._set_tools(name, None)
        self._pin_states = None
        self.forgotten_servers = frozenset(forgotten)
        self._rebuild()

    def _set_tools(self, name: str, tools: ServerTools | None) -> None:
        """Replace or remove the tools of a server."""
        before = self._server_tools.pop(name, None)
        self._name_counts.subtract(entry.remote_name for entry in (before.entries if before else ()))
        if tools is None:
            self._scans.pop(name, None)
        else:
            self._server_tools[name] = tools
            self._name_counts.update(entry.remote_name for entry in tools.entries)

    def _build_server_tools(self, server: ServerConfig, manifest: ServerManifest) -> ServerTools:
        parsed = parse_definitions(
            manifest.tools, server=server.id, server_description=manifest.instructions[:MAX_INSTRUCTION_CHARS]
        )
        findings = self._scan_definitions(server, manifest, parsed.definitions)
        review = self._review_definitions(server, manifest, parsed.definitions, findings)
        tools = build_server_tools(
            server,
            self.config.tool_search,
            parsed.definitions,
            quarantined=review.quarantined,
            changed=review.changed,
            findings=findings,
        )
        tools = apply_overrides(tools, self.config.overrides, self.config.tool_search)
        tools = set_requests(tools, self._requests) if self._requests else tools
        return replace(
            tools,
            problems=(*manifest.problems, *parsed.problems),
            instructions=manifest.instructions,
            repaired_tools=manifest.repaired_tools,
        )

    def _scan_definitions(
        self, server: ServerConfig, manifest: ServerManifest, definitions: Sequence[ToolDefinition]
    ) -> dict[str, tuple[SafetyFinding, ...]]:
        """Return the findings of all suspicious tools, by name."""
        if self.config.safety.scan == "off":
            self._scans.pop(server.name, None)
            return {}
        record = ScanRecord.decode(manifest.scan)
        if record is None or not record.covers(definitions):
            record = scan_definitions(definitions, self._scans.get(server.name, ScanRecord()))
        self._scans[server.name] = record
        listed = self._server_tools.get(server.name)
        own_names = frozenset(entry.remote_name for entry in listed.entries) if listed else frozenset()
        new_names = record.fingerprints.keys()
        return record.find_suspicious(definitions, OtherToolNames(self._name_counts, own_names, new_names))

    def _review_definitions(
        self,
        server: ServerConfig,
        manifest: ServerManifest,
        definitions: tuple[ToolDefinition, ...],
        findings: Mapping[str, tuple[SafetyFinding, ...]],
    ) -> SafetyReview:
        """Decide which tools of a server are trusted; store the pins and report the events."""
        pins = {} if self.config.safety.changed == "off" else self._read_pins(server.name, definitions)
        if pins is None:
            return SafetyReview({})
        review = review_definitions(self.config.safety, definitions, findings, pins, manifest.seen_at)
        if review.pins:
            if len(pins.keys() | {pin.tool for pin in review.pins}) > MAX_PINS_PER_SERVER:
                # Raises an error that names the remedy.
                self.store.put_pins(server.name, review.pins)
            self._try_to_store(server.name, lambda: self.store.put_pins(server.name, review.pins))
            self._known_pins[server.name] = {**pins, **{pin.tool: pin for pin in review.pins}}
        for event in review.events:
            self._report_event(server, event)
        return review

    def _read_pins(self, server: str, definitions: Sequence[ToolDefinition]) -> dict[str, Pin] | None:
        """Return the pins of a server, or None if they approve exactly these definitions.

        While the store is unavailable, return those that were read last.
        """
        try:
            if self._is_approved(server, definitions):
                return None
            self._known_pins[server] = self.store.get_pins(server)
        except StoreUnavailable:
            if server not in self._known_pins:
                raise
        return self._known_pins[server]

    def _is_approved(self, server: str, definitions: Sequence[ToolDefinition]) -> bool:
        """Return whether the pins of a server approve exactly these definitions."""
        record = self._scans.get(server)
        if record is None:
            return False
        states = (self._pin_states or self.store.list_pin_states(server)).get(server, {})
        approved = {name: pin.fingerprint for name, pin in states.items() if pin.state == "approved"}
        if len(approved) != len(states) or approved != record.fingerprints:
            return False
        self._known_pins[server] = {
            one.name: Pin(one.name, approved[one.name], one.raw, first_seen=states[one.name].first_seen)
            for one in definitions
        }
        return True

    def _try_to_store(self, server: str, write: Callable[[], RecordedChange | None]) -> None:
        """Write to the store. If that fails, for example because the disk is full, the tools are used anyway."""
        try:
            change = write()
            # After a change of another process, the server is read again with the next refresh.
            if change and (change.previous <= self._revision or change.previous == self._own_changes.get(server)):
                self._own_changes[server] = change.number
            self.notices.pop(_STORE_NOTICE, None)
        except InvalidStore as error:
            self._unstored.setdefault(server, None)
            if _STORE_NOTICE not in self.notices:
                _log.warning("the tools of servers cannot be stored: %s", error)
            self.notices[_STORE_NOTICE] = f"the tools of servers cannot be stored: {error}"

    def _report_event(self, server: ServerConfig, event: SafetyEvent) -> None:
        """Log and count a safety event. Without pins, the same event would be found at every list."""
        if (server.name, event) in self._reported_events:
            return
        if len(self._reported_events) < MAX_REPORTED_EVENTS:
            self._reported_events.add((server.name, event))
        tool = escape_invisible(event.tool, MAX_DISPLAYED_NAME_CHARS)
        _log.warning("%s: %s is %s: %s", server.name, tool, event.kind, event.reason)
        self.add_counts(**{f"safety_{event.kind}": 1})

    def _rebuild(self) -> None:
        tools = (self._server_tools.get(name) for name in self.config.servers)
        max_name_chars = self.config.tool_search.max_name_chars
        directory = ToolDirectory(tuple(filter(None, tools)), max_name_chars)
        engine = self._engine.with_catalog(_update_catalog(self._engine.catalog, directory))
        with self._lock:
            self.directory, self._engine, self._views = directory, engine, {}


def _update_catalog(catalog: Catalog, directory: ToolDirectory) -> Catalog:
    """Return the catalog of a directory, derived from a previous one so that only changes are indexed."""
    tools = {entry.name: entry.tool for entry in directory}
    if not catalog.slot_count:
        return Catalog(tools.values())
    removed = [tool.id for tool in catalog if tool.id not in tools]
    # A relisted tool is an equal object; indexing it again would be expensive.
    added = [tool for tool in tools.values() if catalog.get(tool.id) != tool]
    updated = catalog.without(removed) if removed else catalog
    return updated.with_tools(added) if added else updated


def compute_server_identity(server: ServerConfig) -> str:
    """Return a digest of how a server is started or reached."""
    fields: list[Any] = [server.transport, server.command, *server.args, server.url, server.cwd]
    if server.openapi:
        fields += [server.openapi, server.base_url]
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()


def build_manifest(server: ServerConfig, tools: Iterable[Any], details: Mapping[str, Any]) -> ServerManifest:
    """Return a manifest for the store; `details` are further fields of it."""
    storable, problems = filter_storable(tools)
    manifest = ServerManifest(
        server.name, compute_server_identity(server), storable, seen_at=time.time(), problems=problems
    )
    return replace(manifest, **details)
