from __future__ import annotations

import pytest

from tests.gateway.mcp.harness import client, config_of, gateway, plain, until
from toolcrib.gateway.mcp.server import token_savings as savings_module
from toolcrib.gateway.mcp.server.router import Front

NAMES = [f"tool_{number}" for number in range(20)]


def counts(front: Front) -> dict[str, int]:
    return front.service.stats()


@pytest.mark.anyio
async def test_lists_and_finds_are_weighed_against_all_tools() -> None:
    config = config_of(plain("many", NAMES), mode="search")
    async with gateway(config) as front, client(front) as connected:
        everything = front.service.view().tokens
        await connected.list_tools()
        await until(lambda: counts(front).get("listings"))
        first = counts(front)
        assert first["tokens_of_all"] == everything
        assert 0 < first["tokens_listed"] < everything
        assert first["tokens_saved"] == everything - first["tokens_listed"]

        await connected.call_tool("search_tools", {"query": "tool_7"})
        await connected.call_tool("many___tool_7", {})
        await until(lambda: counts(front).get("tokens_found"))
        second = counts(front)
        sent = second["tokens_listed"] + second["tokens_found"]
        assert second["tokens_saved"] == second["tokens_of_all"] - sent
        assert 0 < second["tokens_found"] < everything


@pytest.mark.anyio
async def test_a_client_that_is_shown_all_is_spared_nothing() -> None:
    async with gateway(config_of(plain("few"))) as front, client(front) as connected:
        await connected.list_tools()
        await until(lambda: counts(front).get("listings"))
        assert counts(front)["tokens_saved"] == 0


@pytest.mark.anyio
async def test_many_answers_do_not_wait_to_be_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(savings_module, "MAX_UNWEIGHED", 3)
    monkeypatch.setattr("toolcrib.gateway.mcp.gateway.HOUSEKEEPING_SECONDS", 3600)
    async with gateway(config_of(plain("few"))) as front, client(front) as connected:
        for _ in range(3):
            await connected.list_tools()
        assert counts(front)["listings"] == 3
