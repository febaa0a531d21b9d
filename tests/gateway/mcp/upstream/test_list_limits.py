"""Servers with more tools than the gateway reads or stores."""

from __future__ import annotations

import pytest

from tests.gateway.mcp.harness import build_config, connect_client, gateway, list_tool_names, plain_server, wait_until
from toolcrib.gateway.mcp.upstream import connection
from toolcrib.storage import pins

pytestmark = pytest.mark.anyio


async def test_tools_over_the_limit_are_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert connection.MAX_LIST_ENTRIES <= pins.MAX_PINS_PER_SERVER
    monkeypatch.setattr(connection, "MAX_LIST_ENTRIES", 2)
    config = build_config(plain_server("bad", ["echo", "pid", "hang"]))
    async with gateway(config) as router, connect_client(router) as connected:
        assert len(await list_tool_names(connected)) == 2
    assert "bad lists 2 tools or more" in caplog.text


async def test_full_store_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in ("storage.pins", "hub.hub"):
        monkeypatch.setattr(f"toolcrib.{module}.MAX_PINS_PER_SERVER", 1)
    async with gateway(build_config(plain_server("bad", ["echo", "pid"]))) as router:
        await wait_until(lambda: "the log says why" in router.pool.unreachable_servers().get("bad", ""))
    assert "under more than 1 different names" in caplog.text
