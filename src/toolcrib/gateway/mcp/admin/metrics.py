"""Prometheus metrics of the MCP gateway, updated on each scrape."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from threading import Lock
from typing import Final, get_args

from toolcrib.errors import InvalidStore
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.metrics import CounterMetric, MetricsRegistry
from toolcrib.hub.safety_review import EventKind

_STATES: Final = ("configured", "known", "started", "in use")
# The label for tools of removed servers. Prometheus treats an empty label as a missing one.
_REMOVED_SERVER: Final = ""


class GatewayMetrics:
    """Metrics of servers, tools, calls, searches, sessions and tokens."""

    def __init__(self, metrics: MetricsRegistry) -> None:
        self._lock = Lock()
        self._reported: dict[tuple[str, ...], float] = {}
        self._servers = metrics.gauge("toolcrib_servers", "Servers by state.", "state")
        self._unreachable = metrics.gauge("toolcrib_servers_unreachable", "Unreachable servers.")
        self._tools = metrics.gauge("toolcrib_tools", "Available tools by server.", "server")
        self._quarantined = metrics.gauge("toolcrib_tools_quarantined", "Quarantined tools.")
        self._sessions = metrics.gauge("toolcrib_mcp_sessions", "Open MCP sessions.")
        self._all_tokens = metrics.gauge("toolcrib_tokens_of_all", "Estimated tokens of all definitions.")
        self._saved = metrics.gauge("toolcrib_tokens_saved", "Estimated tokens saved for clients.")
        self._searches = metrics.counter("toolcrib_searches_total", "Searches by MCP clients.")
        self._lists = metrics.counter("toolcrib_listings_total", "Tool lists sent.")
        self._safety = metrics.counter("toolcrib_safety_events_total", "Tools reported once, by kind.", "kind")
        self._calls = metrics.counter("toolcrib_calls_total", "Tool calls.", "server")
        self._failures = metrics.counter(
            "toolcrib_call_failures_total", "Tool calls that failed or returned an error.", "server"
        )
        self._seconds = metrics.counter("toolcrib_call_seconds_total", "Total duration of tool calls.", "server")

    def refresh(self, router: McpRouter) -> None:
        """Update all metrics. It is thread-safe and may wait for the disk.

        While the store is unavailable, the totals do not change.
        """
        hub = router.hub
        with suppress(InvalidStore):
            hub.flush()
        with self._lock:
            states = Counter(upstream.state for upstream in list(router.pool.servers.values()))
            for state in _STATES:
                self._servers.set(states.get(state, 0), state=state)
            self._unreachable.set(len(router.pool.unreachable_servers()))
            self._tools.clear()
            for tools in hub.directory.servers:
                self._tools.set(len(tools.entries), server=tools.server.name)
            self._quarantined.set(sum(len(tools.quarantined) for tools in hub.directory.servers))
            self._sessions.set(router.client_count)
            self._all_tokens.set(hub.get_view().total_tokens)
            counts = hub.get_stats()
            self._saved.set(counts.get("tokens_saved", 0))
            self._increase_to(self._searches, counts.get("searches", 0))
            self._increase_to(self._lists, counts.get("listings", 0))
            for kind in get_args(EventKind):
                self._increase_to(self._safety, counts.get(f"safety_{kind}", 0), kind=kind)
            with suppress(InvalidStore):
                self._update_by_server(router)

    def _update_by_server(self, router: McpRouter) -> None:
        entries = router.hub.directory.entries
        calls: Counter[str] = Counter()
        failures: Counter[str] = Counter()
        seconds: dict[str, float] = {}
        for tool, usage in router.hub.store.get_usage().items():
            server = entries[tool].server if tool in entries else _REMOVED_SERVER
            calls[server] += usage.calls
            failures[server] += usage.failures
            seconds[server] = seconds.get(server, 0.0) + usage.seconds
        for server in calls:
            self._increase_to(self._calls, calls[server], server=server)
            self._increase_to(self._failures, failures[server], server=server)
            self._increase_to(self._seconds, seconds[server], server=server)

    def _increase_to(self, counter: CounterMetric, total: float, **labels: str) -> None:
        """Increase a counter to a total. A total that decreased is ignored."""
        key = (counter.name, *labels.values())
        before = self._reported.get(key, 0.0)
        if total >= before:
            counter.add(total - before, **labels)
            self._reported[key] = total
