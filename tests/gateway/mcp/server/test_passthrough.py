"""Results, notifications, prompts, resources and completions pass through unchanged."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from tests.gateway.mcp.harness import (
    STATELESS,
    build_config,
    call_text,
    connect_client,
    gateway,
    list_tool_names,
    part_text,
    plain_server,
    wait_until,
    with_search_settings,
)
from toolcrib.config.server_settings import ServerConfig
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.mcp.upstream.subscriptions import LOG_LEVELS

pytestmark = [
    pytest.mark.anyio,
    # These tests use deprecated features of the handshake revision.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

TOOLS = ["echo", "seen", "picture", "fail", "error", "progress", "log", "touch"]
OLD = plain_server("old", [*TOOLS, "big"], prompts=["greet"], resources=["memo://old", "memo://both"])
NEW = plain_server("new", TOOLS, STATELESS, prompts=["greet"], resources=["memo://new", "memo://both"])
CONFIG = build_config(OLD, NEW, mode="direct")
BOTH_REVISIONS = pytest.mark.parametrize("revision", ["legacy", STATELESS])
SERVERS = pytest.mark.parametrize("server", ["old", "new"])


@pytest.fixture(scope="module")
async def router() -> AsyncIterator[McpRouter]:
    async with gateway(CONFIG) as router:
        yield router


async def send_raw(connected: Client, method: str, **params: Any) -> dict[str, Any]:
    """A request and its result as they are on the wire."""
    data: dict[str, Any] = {"method": method, "params": params}
    opts: Any = {}
    connected.session._stamp(data, opts)
    return await connected.session._dispatcher.send_raw_request(method, data["params"], opts)


@BOTH_REVISIONS
async def test_definitions_are_listed_unchanged_except_for_the_name(router: McpRouter, revision: str) -> None:
    async with connect_client(router, revision) as connected:
        result = await send_raw(connected, "tools/list")
    listed = {tool["name"]: tool for tool in result["tools"]}
    assert listed["new___echo"] == {
        "name": "new___echo",
        "description": "Give back the text that it was given.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        "_meta": {"vendor/key": [1, {"deep": None}]},
        "vendorField": {"kept": True},
        "annotations": {"readOnlyHint": False, "vendorHint": 1},
    }
    stamped = {"resultType", "ttlMs", "cacheScope"} <= result.keys()
    assert stamped == (revision == STATELESS)


@BOTH_REVISIONS
@SERVERS
async def test_results_pass_through_unchanged(router: McpRouter, revision: str, server: str) -> None:
    async with connect_client(router, revision) as connected:
        arguments = {"text": "é\u2028", "deep": [None, 1.5, {"a": 1}]}
        result = await send_raw(connected, "tools/call", name=f"{server}___echo", arguments=arguments)
        picture = await send_raw(connected, "tools/call", name=f"{server}___picture", arguments={})
    assert result["structuredContent"] == arguments
    assert result["vendorField"] == {"deep": [None, 1.5]}
    assert result["_meta"]["vendor/key"] == "kept"
    assert "isError" not in result
    image = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png", "vendorField": 1}
    assert picture["content"] == [image, {"type": "unheard-of", "x": [1]}]
    assert picture["isError"] is False


@BOTH_REVISIONS
@SERVERS
async def test_call_metadata_is_forwarded_without_connection_metadata(
    router: McpRouter, revision: str, server: str
) -> None:
    async with connect_client(router, revision) as connected:
        meta = {"vendor/key": 1, "traceparent": "00-1-2-3"}
        result = await send_raw(connected, "tools/call", name=f"{server}___seen", arguments={}, _meta=meta)
    received = json.loads(result["content"][0]["text"])
    assert received["name"] == "seen"
    assert received["_meta"]["vendor/key"] == 1
    client_info = received["_meta"].get("io.modelcontextprotocol/clientInfo", {"name": "toolcrib"})
    assert client_info["name"] == "toolcrib"


@BOTH_REVISIONS
@SERVERS
async def test_errors_pass_through_unchanged(router: McpRouter, revision: str, server: str) -> None:
    async with connect_client(router, revision) as connected:
        failed = await connected.call_tool(f"{server}___fail", {})
        with pytest.raises(MCPError) as caught:
            await connected.call_tool(f"{server}___error", {})
    assert failed.is_error
    assert part_text(failed.content[0]) == "it went wrong"
    assert caught.value.error.code == -32050
    assert caught.value.error.data == {"why": "because"}


@BOTH_REVISIONS
@SERVERS
async def test_progress_reaches_the_caller(router: McpRouter, revision: str, server: str) -> None:
    received: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, total, message))

    async with connect_client(router, revision) as connected:
        await connected.call_tool(f"{server}___progress", {}, progress_callback=on_progress)
    assert received == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


@BOTH_REVISIONS
@SERVERS
async def test_cancelled_call_is_cancelled_at_the_server(revision: str, server: str) -> None:
    # A separate server: after a cancellation its messages cannot be attributed to a call.
    config = plain_server(server, ["hang", "cancelled"], STATELESS if server == "new" else "legacy")
    async with gateway(build_config(config)) as router, connect_client(router, revision) as connected:
        upstream = router.pool.servers[server]
        before = json.loads(await call_text(connected, f"{server}___cancelled"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connected.call_tool, f"{server}___hang", {})
            await wait_until(lambda: upstream.state == "in use")
            tasks.cancel_scope.cancel()
        await wait_until(lambda: upstream.state == "started")
        after = json.loads(await call_text(connected, f"{server}___cancelled"))
    assert len(after) == len(before) + 1


@SERVERS
async def test_log_messages_reach_only_the_caller(router: McpRouter, server: str) -> None:
    received: list[Any] = []
    received_by_other: list[Any] = []
    async with (
        connect_client(router, "legacy", logging_callback=_collect_into(received)) as subscriber,
        connect_client(router, "legacy", logging_callback=_collect_into(received_by_other)),
    ):
        await subscriber.call_tool(f"{server}___log", {})
        await wait_until(lambda: len(received) == 2)
        await subscriber.set_logging_level("warning")
        await subscriber.call_tool(f"{server}___log", {})
        await wait_until(lambda: len(received) == 3)
    assert [(params.level, params.data) for params in received] == [
        ("debug", server),
        ("error", server),
        ("error", server),
    ]
    assert received_by_other == []


@SERVERS
async def test_stateless_client_receives_requested_log_levels(router: McpRouter, server: str) -> None:
    received: list[Any] = []
    async with connect_client(router, STATELESS, logging_callback=_collect_into(received)) as connected:
        await connected.call_tool(f"{server}___log", {})
        meta: Any = {"io.modelcontextprotocol/logLevel": "error"}
        await connected.call_tool(f"{server}___log", {}, meta=meta)
        await wait_until(lambda: received)
    assert [params.level for params in received] == ["error"]


def _collect_into(received: list[Any]) -> Callable[[Any], Any]:
    async def on_log(params: Any) -> None:
        received.append(params)

    return on_log


@BOTH_REVISIONS
async def test_prompts_of_all_servers_are_listed(router: McpRouter, revision: str) -> None:
    async with connect_client(router, revision) as connected:
        listed = await send_raw(connected, "prompts/list")
        assert [prompt["name"] for prompt in listed["prompts"]] == ["old___greet", "new___greet"]
        assert listed["prompts"][0]["vendorField"] == 1
        for server in ("old", "new"):
            got = await connected.get_prompt(f"{server}___greet")
            assert part_text(got.messages[0].content) == f"greet of {server}"
        with pytest.raises(MCPError, match="Unknown prompt: greet"):
            await connected.get_prompt("greet")


async def test_duplicate_prompt_names_are_qualified(router: McpRouter) -> None:
    router.hub.reconfigure(with_search_settings(CONFIG, prefix=False))
    try:
        async with connect_client(router) as connected:
            listed = [prompt.name for prompt in (await connected.list_prompts()).prompts]
            got = await connected.get_prompt(listed[1])
    finally:
        router.hub.reconfigure(CONFIG)
    assert listed == ["greet", "new___greet"]
    assert part_text(got.messages[0].content) == "greet of new"


@BOTH_REVISIONS
async def test_resources_of_all_servers_are_listed(router: McpRouter, revision: str) -> None:
    async with connect_client(router, revision) as connected:
        listed = await connected.list_resources()
        templates = await connected.list_resource_templates()
        read = await connected.read_resource("memo://new")
        both = await connected.read_resource("memo://both")
        with pytest.raises(MCPError):
            await connected.read_resource("memo://nothing")
    uris = [str(resource.uri) for resource in listed.resources]
    assert uris == ["memo://old", "memo://both", "memo://new", "memo://both"]
    assert [template.uri_template for template in templates.resource_templates] == ["old://{name}", "new://{name}"]
    assert read.contents[0].text == "memo://new of new"  # type: ignore[union-attr]
    # If two servers have a resource, the first one returns it.
    assert both.contents[0].text == "memo://both of old"  # type: ignore[union-attr]


async def test_resource_changes_reach_subscribers(router: McpRouter) -> None:
    received: list[Any] = []
    received_by_other: list[Any] = []

    def collect_methods(events: list[Any]) -> Callable[[Any], Any]:
        async def on_message(message: Any) -> None:
            events.append(getattr(message, "method", ""))

        return on_message

    async with (
        connect_client(router, "legacy", message_handler=collect_methods(received)) as subscriber,
        connect_client(router, "legacy", message_handler=collect_methods(received_by_other)),
        connect_client(router) as stateless,
    ):
        await subscriber.list_resources()
        await subscriber.subscribe_resource("memo://old")
        async with stateless.listen(resource_subscriptions=["memo://old"]) as changes:
            # The gateway subscribes at the server in the background.
            with anyio.fail_after(20):
                while not received:
                    await subscriber.call_tool("old___touch", {"uri": "memo://old"})
                    await anyio.sleep(0.02)
                event: Any = await anext(changes)
        assert str(event.uri) == "memo://old"
        await subscriber.unsubscribe_resource("memo://old")
        count = len(received)
        await subscriber.call_tool("old___touch", {"uri": "memo://old"})
        await call_text(subscriber, "old___echo", {"text": "after"})
    assert set(received) == {"notifications/resources/updated"}
    assert len(received) == count
    assert received_by_other == []


@BOTH_REVISIONS
async def test_completions_come_from_the_owning_server(router: McpRouter, revision: str) -> None:
    async with connect_client(router, revision) as connected:
        await connected.list_resources()
        prompt = types.PromptReference(name="new___greet")
        got = await connected.complete(prompt, {"name": "who", "value": "Al"})
        template = types.ResourceTemplateReference(uri="memo://new")
        other = await connected.complete(template, {"name": "who", "value": "Bo"})
    assert json.loads(got.completion.values[0])["name"] == "greet"
    assert got.completion.values[1] == "Al"
    assert other.completion.values[1] == "Bo"


async def test_oversized_result_is_an_error() -> None:
    small = plain_server("old", ["big"], given={"max_result_bytes": 2000})
    async with gateway(build_config(small)) as router, connect_client(router) as connected:
        assert await call_text(connected, "old___big", {"count": 1500}) == "x" * 1500
        result = await connected.call_tool("old___big", {"count": 3000})
    assert result.is_error
    assert "more than 2,000 bytes" in part_text(result.content[0])


async def test_paginated_list_is_read_completely() -> None:
    paged = plain_server("paged", [f"tool{number}" for number in range(7)], page=2)
    async with gateway(build_config(paged)) as router, connect_client(router) as connected:
        assert await list_tool_names(connected) == [f"paged___tool{number}" for number in range(7)]


def test_log_levels_are_those_of_the_sdk() -> None:
    assert types.LoggingLevel.__args__ == LOG_LEVELS  # type: ignore[attr-defined]


async def test_a_server_that_is_away_does_not_hide_the_error_of_one_that_was_reached() -> None:
    reached = plain_server("reached", ["echo"], resources=["docs://one"])
    away = ServerConfig("away", transport="http", url="http://127.0.0.1:9/mcp")
    async with gateway(build_config(reached, away), wait=False) as router, connect_client(router) as connected:
        await wait_until(lambda: router.pool.servers["reached"].connection and router.pool.servers["away"].error)
        with pytest.raises(MCPError) as caught:
            await connected.read_resource("docs://other")
    assert "away" not in str(caught.value)
    assert "start it, or correct `url`" in router.pool.servers["away"].error


async def test_unknown_resource_is_not_asked_of_servers_without_resources() -> None:
    async with gateway(build_config(plain_server("plain"))) as router, connect_client(router) as connected:
        with pytest.raises(MCPError, match="Resource not found: docs://other"):
            await connected.read_resource("docs://other")
