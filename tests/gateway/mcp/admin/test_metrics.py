from __future__ import annotations

from tests.gateway.mcp.harness import config_of, plain
from toolcrib.gateway.mcp.admin.metrics import Figures
from toolcrib.gateway.mcp.server.router import Front
from toolcrib.gateway.mcp.server.token_savings import Savings
from toolcrib.gateway.metrics import Metrics
from toolcrib.hub.hub import Service, manifest_of
from toolcrib.storage import open_store


def test_calls_of_tools_that_are_gone_are_no_servers() -> None:
    server = plain("gone")
    service = Service(config_of(server), open_store("sqlite://"))
    echo = {"name": "echo", "inputSchema": {"type": "object"}}
    service.learn(server, manifest_of(server, [echo], {}))
    service.note_call("gone___echo", True, 0.5)
    for _ in range(2):
        service.note_call("old___echo", False, 0.5)
    metrics = Metrics()
    Figures(metrics).refresh(Front(service, Savings(service)))
    lines = metrics.text().splitlines()
    assert 'toolcrib_calls_total{server="gone"} 1' in lines
    assert 'toolcrib_calls_total{server=""} 2' in lines
    service.close()
