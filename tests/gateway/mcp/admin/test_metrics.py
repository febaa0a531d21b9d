"""Metrics of the MCP gateway."""

from __future__ import annotations

import pytest

from tests.gateway.mcp.harness import build_config, plain_server
from toolcrib.errors import InvalidStore
from toolcrib.gateway.mcp.admin.api import collect_stats
from toolcrib.gateway.mcp.admin.metrics import GatewayMetrics
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.metrics import MetricsRegistry
from toolcrib.hub.hub import Hub, build_manifest
from toolcrib.storage import open_store
from toolcrib.storage.audit import AuditRow
from toolcrib.storage.store import Store


def test_calls_of_removed_tools_have_an_empty_server_label() -> None:
    server = plain_server("gone")
    hub = Hub(build_config(server), open_store("sqlite://"))
    echo = {"name": "echo", "inputSchema": {"type": "object"}}
    hub.update_server(server, build_manifest(server, [echo], {}))
    hub.record_call("gone___echo", True, 0.5)
    for _ in range(2):
        hub.record_call("old___echo", False, 0.5)
    metrics = MetricsRegistry()
    GatewayMetrics(metrics).refresh(McpRouter(hub))
    lines = metrics.render().splitlines()
    assert 'toolcrib_calls_total{server="gone"} 1.0' in lines
    assert 'toolcrib_calls_total{server=""} 2.0' in lines
    hub.close()


def test_statistics_are_returned_while_the_disk_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(build_config(plain_server("files")), open_store("sqlite://"))
    router = McpRouter(hub)
    hub.add_counts(searches=3)
    router.audit.record(AuditRow("search"))

    def refuse(*_: object, **__: object) -> None:
        raise InvalidStore("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "append_audit", refuse)
        stats = collect_stats(router, hub.get_view(None))
    assert stats["counts"]["searches"] == 3
    assert "audit" in hub.notices
    hub.close()
