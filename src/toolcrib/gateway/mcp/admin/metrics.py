"""The MCP gateway in figures for Prometheus, brought up to date when they are asked for."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import Final

from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.metrics import Counter as Growing
from toolcrib.gateway.metrics import MetricsRegistry

_STATES: Final = ("configured", "known", "started", "in use")
# Tools that are called no more, as their server is gone from the configuration. No server has this
# name, and Prometheus takes it for none.
_REMOVED_SERVER: Final = ""


class GatewayMetrics:
    """What is told of servers, tools, calls, searches, sessions and tokens."""

    def __init__(self, metrics: MetricsRegistry) -> None:
        self._lock = Lock()
        self._reported: dict[tuple[str, str | None], float] = {}
        self._servers = metrics.gauge("toolcrib_servers", "Servers by state.", "state")
        self._unreachable = metrics.gauge("toolcrib_servers_unreachable", "Servers in trouble.")
        self._tools = metrics.gauge("toolcrib_tools", "Tools to be had, by server.", "server")
        self._quarantined = metrics.gauge("toolcrib_tools_held", "Tools that wait for approval.")
        self._sessions = metrics.gauge("toolcrib_mcp_sessions", "MCP sessions that are open.")
        self._all_tokens = metrics.gauge(
            "toolcrib_tokens_of_all", "Tokens of all definitions, about."
        )
        self._saved = metrics.gauge("toolcrib_tokens_saved", "Tokens clients were spared, about.")
        self._searches = metrics.counter("toolcrib_searches_total", "Searches by MCP clients.")
        self._lists = metrics.counter("toolcrib_listings_total", "Lists of tools that were sent.")
        self._calls = metrics.counter("toolcrib_calls_total", "Calls of tools.", "server")
        self._failures = metrics.counter(
            "toolcrib_call_failures_total", "Calls that failed or gave an error.", "server"
        )
        self._seconds = metrics.counter(
            "toolcrib_call_seconds_total", "Time that calls took.", "server"
        )

    def refresh(self, front: McpRouter) -> None:
        """Take the figures of this moment. Safe from any thread, though it may wait for the disk."""
        service = front.hub
        service.flush()
        with self._lock:
            upstreams = list(front.pool.servers.values())
            states = Counter(upstream.state for upstream in upstreams)
            for state in _STATES:
                self._servers.set(states.get(state, 0), state=state)
            self._unreachable.set(len(front.pool.unreachable_servers()))
            self._tools.clear()
            for shelf in service.directory.servers:
                self._tools.set(len(shelf.entries), server=shelf.server.name)
            self._quarantined.set(
                sum(len(shelf.quarantined) for shelf in service.directory.servers)
            )
            self._sessions.set(front.client_count)
            self._all_tokens.set(service.get_view().total_tokens)
            counts = service.get_stats()
            self._saved.set(counts.get("tokens_saved", 0))
            self._increase_to(self._searches, counts.get("searches", 0))
            self._increase_to(self._lists, counts.get("listings", 0))
            self._update_by_server(front)

    def _update_by_server(self, front: McpRouter) -> None:
        entries = front.hub.directory.entries
        calls: Counter[str] = Counter()
        failures: Counter[str] = Counter()
        seconds: dict[str, float] = {}
        for tool, used in front.hub.store.get_usage().items():
            server = entries[tool].server if tool in entries else _REMOVED_SERVER
            calls[server] += used.calls
            failures[server] += used.failures
            seconds[server] = seconds.get(server, 0.0) + used.seconds
        for server in calls:
            self._increase_to(self._calls, calls[server], server)
            self._increase_to(self._failures, failures[server], server)
            self._increase_to(self._seconds, seconds[server], server)

    def _increase_to(self, counter: Growing, total: float, server: str | None = None) -> None:
        """Add what has come since the figures were last told."""
        before = self._reported.get((counter.name, server), 0.0)
        if total >= before:
            labels = {} if server is None else {"server": server}
            counter.add(total - before, **labels)
            self._reported[(counter.name, server)] = total
