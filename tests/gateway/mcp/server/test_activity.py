"""Searches, calls and lists of MCP clients become audit rows and time series."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from mcp import MCPError
from mcp_types import Implementation

from tests.gateway.mcp.harness import (
    PROFILE,
    STATELESS,
    build_config,
    connect_client,
    gateway,
    plain_server,
    wait_until,
)
from toolcrib.config.settings import AccessProfile, AuditConfig
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.storage.audit import AuditFilter, AuditRow

pytestmark = pytest.mark.anyio

SECRET = "sk-abcdefghijklmnopqrstuvwx"
NAMES = [f"tool_{number}" for number in range(20)]
CONFIG = build_config(
    plain_server("many", NAMES),
    plain_server("notes", [{"name": "write", "fails": True}]),
    profiles=[AccessProfile("recorded", record_content=True), AccessProfile("notes", servers=("notes",))],
    mode="search",
)


@pytest.fixture(scope="module")
async def router() -> AsyncIterator[McpRouter]:
    async with gateway(CONFIG) as running:
        yield running


async def read_rows(router: McpRouter, client: str, count: int) -> list[AuditRow]:
    """Return the rows of a client in their order, when there are enough.

    The SDK lists again after a call of a tool that is not in the list, so later lists are left out.
    """

    def read() -> list[AuditRow]:
        rows = router.hub.store.list_audit(AuditFilter(client=client, after=0), 100)
        return [row for number, row in enumerate(rows) if row.action != "list" or not number]

    await wait_until(lambda: len(read()) >= count)
    return read()


def client_info(name: str) -> Implementation:
    return Implementation(name=name, version="1.2")


@pytest.mark.parametrize("revision", ["legacy", STATELESS])
async def test_search_and_calls_are_recorded_in_order(router: McpRouter, revision: str) -> None:
    name = f"client-{revision}"
    async with connect_client(router, revision, client_info=client_info(name)) as client:
        await client.list_tools()
        await client.call_tool("search_tools", {"query": f"tool_7 with {SECRET}"})
        await client.call_tool("describe_tool", {"names": ["many___tool_7"]})
        await client.call_tool("call_tool", {"name": "many___tool_7", "arguments": {"text": "private"}})
        await client.call_tool("many___tool_3", {"text": "private"})
        await client.call_tool("many___nothing", {})
        rows = await read_rows(router, name, 6)
    listed, search, described, called, direct, refused = rows
    assert [row.action for row in rows] == ["list", "search", "describe", "call", "call", "call"]
    assert {row.client for row in rows} == {name}
    # A stateless request belongs to no session.
    assert len({row.session for row in rows}) == 1 and bool(rows[0].session) == (revision != STATELESS)
    assert listed.details["mode"] == "search" and listed.details["tools"] == 3
    assert listed.details["tokens_sent"] > 0 and listed.details["tokens_full"] > 0
    assert search.details["query"] == "tool_7 with [redacted]"
    assert search.details["hits"] == ["many___tool_7"] and search.details["confident"] in (True, False)
    assert described.details["hits"] == ["many___tool_7"]
    assert (called.server, called.tool, called.outcome) == ("many", "many___tool_7", "ok")
    assert (direct.server, direct.tool) == ("many", "many___tool_3")
    assert called.seconds > 0 and called.request_bytes > 10 and called.result_bytes > 10
    # Arguments and results are recorded only on request.
    assert called.details == {} and "private" not in str(rows)
    assert refused.outcome == "refused" and refused.server == "" and "many___nothing" in refused.details["error"]


async def test_call_by_risk_is_recorded_with_the_tool_that_was_called() -> None:
    config = build_config(plain_server("many", ["echo"]), mode="search", call_tools="by_risk")
    async with gateway(config) as router, connect_client(router, client_info=client_info("careful")) as client:
        for name in ("call_read_tool", "call_write_tool", "call_destructive_tool"):
            await client.call_tool(name, {"name": "many___echo", "arguments": {"text": "x"}})
        rows = await read_rows(router, "careful", 3)
    assert {(row.server, row.tool) for row in rows} == {("many", "many___echo")}


async def test_profile_can_switch_on_arguments_without_secrets(router: McpRouter) -> None:
    token = PROFILE.set("recorded")
    try:
        async with connect_client(router, client_info=client_info("recorded")) as client:
            arguments = {"text": "hello", "apiKey": "12345", "nested": {"password": {"a": "b"}, "list": [SECRET]}}
            await client.call_tool("many___tool_3", arguments)
    finally:
        PROFILE.reset(token)
    (row,) = await read_rows(router, "recorded", 1)
    assert row.profile == "recorded"
    assert row.details["arguments"] == {
        "text": "hello",
        "apiKey": "[redacted]",
        "nested": {"password": "[redacted]", "list": ["[redacted]"]},
    }
    assert "tool_3" in row.details["result"]


async def test_time_series_count_calls_errors_and_tokens_by_client(router: McpRouter) -> None:
    async with connect_client(router, client_info=client_info("counted")) as client:
        await client.list_tools()
        for _ in range(3):
            await client.call_tool("many___tool_1", {})
        await client.call_tool("many___missing", {})
        await client.call_tool("search_tools", {"query": "tool_1"})
    await read_rows(router, "counted", 6)
    store = router.hub.store
    await wait_until(lambda: any(each.client == "counted" for each in store.list_series("day", 0.0)))
    amounts = {each.name: each.amount for each in store.list_series("day", 0.0) if each.client == "counted"}
    assert (amounts["calls"], amounts["errors"], amounts["searches"]) == (4, 1, 1)
    assert amounts["tokens_full"] > amounts["tokens_sent"] > 0
    assert sum(amount for name, amount in amounts.items() if name.startswith("bucket_")) == 4


async def test_clients_are_known_with_their_mode_and_what_they_were_shown(router: McpRouter) -> None:
    async with connect_client(router, "legacy", client_info=client_info("claude-code")) as client:
        await client.list_tools()
        seen = next(each for each in router.activity.list_clients() if each.client == "claude-code")
        assert (seen.version, seen.mode, seen.lists) == ("1.2", "search", 1)
        assert [tool["name"] for tool in seen.shown][:3] == ["search_tools", "describe_tool", "call_tool"]
        assert seen.mode_reason == 'the mode is set to "search"'


async def test_refused_request_is_recorded(router: McpRouter) -> None:
    token = PROFILE.set("unknown")
    try:
        async with connect_client(router, client_info=client_info("refused")) as client:
            with pytest.raises(MCPError, match="no profile"):
                await client.call_tool("many___tool_1", {})
    finally:
        PROFILE.reset(token)
    (row,) = await read_rows(router, "refused", 1)
    assert (row.action, row.outcome, row.tool) == ("call", "refused", "many___tool_1")
    assert "no profile 'unknown'" in row.details["error"]


async def test_nothing_is_recorded_when_it_is_switched_off() -> None:
    config = replace(CONFIG, audit=AuditConfig(enabled=False))
    async with gateway(config) as router, connect_client(router) as client:
        await client.list_tools()
        await client.call_tool("many___tool_1", {})
        await wait_until(lambda: router.hub.get_stats().get("listings"))
        assert router.hub.store.list_audit(AuditFilter(), 10) == []
        assert router.hub.store.list_series("day", 0.0) == []


@pytest.mark.parametrize(
    ("settings", "revision", "client", "mode", "reason"),
    [
        ({}, STATELESS, "any", "direct", "20 tools are not more than maxToolsLimit, 50"),
        ({"max_tools_limit": 0}, STATELESS, "any", "direct", "maxToolsLimit is 0, so all tools are listed"),
        (
            {"max_tools_limit": 5},
            STATELESS,
            "any",
            "search",
            "20 tools are more than maxToolsLimit, 5; the list of this protocol revision may not change between requests",
        ),
        (
            {"max_tools_limit": 5},
            "legacy",
            "cursor",
            "search",
            "20 tools are more than maxToolsLimit, 5; this client reads the list once",
        ),
        (
            {"max_tools_limit": 5},
            "legacy",
            "any",
            "dynamic",
            "20 tools are more than maxToolsLimit, 5; this client reads a list that changed",
        ),
    ],
)
async def test_reason_for_the_mode_is_known(
    settings: dict[str, Any], revision: str, client: str, mode: str, reason: str
) -> None:
    async with (
        gateway(build_config(plain_server("many", NAMES), **settings)) as router,
        connect_client(router, revision, client_info=client_info(client)) as connected,
    ):
        await connected.list_tools()
        (seen,) = router.activity.list_clients()
        assert (seen.mode, seen.mode_reason) == (mode, reason)
