from __future__ import annotations

import pytest

from tests.gateway.mcp.harness import (
    build_config,
    connect_client,
    gateway,
    plain_server,
    wait_until,
)
from toolcrib.gateway.mcp.server import token_savings as savings_module
from toolcrib.gateway.mcp.server.router import McpRouter

NAMES = [f"tool_{number}" for number in range(20)]


def counts(front: McpRouter) -> dict[str, int]:
    return front.hub.get_stats()


@pytest.mark.anyio
async def test_lists_and_finds_are_weighed_against_all_tools() -> None:
    config = build_config(plain_server("many", NAMES), mode="search")
    async with gateway(config) as front, connect_client(front) as connected:
        everything = front.hub.get_view().total_tokens
        await connected.list_tools()
        await wait_until(lambda: counts(front).get("listings"))
        first = counts(front)
        assert first["tokens_of_all"] == everything
        assert 0 < first["tokens_listed"] < everything
        assert first["tokens_saved"] == everything - first["tokens_listed"]

        await connected.call_tool("search_tools", {"query": "tool_7"})
        await connected.call_tool("many___tool_7", {})
        await wait_until(lambda: counts(front).get("tokens_found"))
        second = counts(front)
        sent = second["tokens_listed"] + second["tokens_found"]
        assert second["tokens_saved"] == second["tokens_of_all"] - sent
        assert 0 < second["tokens_found"] < everything


@pytest.mark.anyio
async def test_a_client_that_is_shown_all_is_spared_nothing() -> None:
    async with (
        gateway(build_config(plain_server("few"))) as front,
        connect_client(front) as connected,
    ):
        await connected.list_tools()
        await wait_until(lambda: counts(front).get("listings"))
        assert counts(front)["tokens_saved"] == 0


@pytest.mark.anyio
async def test_many_answers_do_not_wait_to_be_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(savings_module, "MAX_PENDING_RESPONSES", 3)
    monkeypatch.setattr("toolcrib.gateway.mcp.gateway.HOUSEKEEPING_SECONDS", 3600)
    async with (
        gateway(build_config(plain_server("few"))) as front,
        connect_client(front) as connected,
    ):
        for _ in range(3):
            await connected.list_tools()
        assert counts(front)["listings"] == 3
