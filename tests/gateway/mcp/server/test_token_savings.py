"""Token savings are counted for lists and search results."""

from __future__ import annotations

import pytest

from tests.gateway.mcp.harness import build_config, connect_client, gateway, plain_server, wait_until
from toolcrib.gateway import audit
from toolcrib.gateway.mcp.server import activity
from toolcrib.gateway.mcp.server.router import McpRouter

NAMES = [f"tool_{number}" for number in range(20)]


def get_counts(router: McpRouter) -> dict[str, int]:
    return router.hub.get_stats()


@pytest.mark.anyio
async def test_lists_and_results_are_compared_with_all_tools() -> None:
    config = build_config(plain_server("many", NAMES), mode="search")
    async with gateway(config) as router, connect_client(router) as connected:
        everything = router.hub.get_view().total_tokens
        await connected.list_tools()
        await wait_until(lambda: get_counts(router).get("listings"))
        first = get_counts(router)
        assert first["tokens_of_all"] == everything
        assert 0 < first["tokens_listed"] < everything
        assert first["tokens_saved"] == everything - first["tokens_listed"]

        await connected.call_tool("search_tools", {"query": "tool_7"})
        await connected.call_tool("many___tool_7", {})
        await wait_until(lambda: get_counts(router).get("tokens_found"))
        second = get_counts(router)
        sent = second["tokens_listed"] + second["tokens_found"]
        assert second["tokens_saved"] == second["tokens_of_all"] - sent
        assert 0 < second["tokens_found"] < everything


@pytest.mark.anyio
async def test_full_list_saves_nothing() -> None:
    async with gateway(build_config(plain_server("few"))) as router, connect_client(router) as connected:
        await connected.list_tools()
        await wait_until(lambda: get_counts(router).get("listings"))
        assert get_counts(router)["tokens_saved"] == 0


@pytest.mark.anyio
async def test_full_batch_is_counted_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "MAX_PENDING_RESPONSES", 3)
    monkeypatch.setattr(audit, "FLUSH_SECONDS", 3600)
    async with gateway(build_config(plain_server("few"))) as router, connect_client(router) as connected:
        for _ in range(3):
            await connected.list_tools()
        assert get_counts(router)["listings"] == 3
