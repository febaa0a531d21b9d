"""What goes through the gateway: results, notices, prompts, resources, completions."""

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
from toolcrib.gateway.mcp.server.router import McpRouter

pytestmark = [
    pytest.mark.anyio,
    # What older clients do is what is tested here.
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

TOOLS = [
    "echo",
    "seen",
    "picture",
    "fail",
    "error",
    "progress",
    "log",
    "touch",
]
OLD = plain_server(
    "old", [*TOOLS, "big"], prompts=["greet"], resources=["memo://old", "memo://both"]
)
NEW = plain_server(
    "new", TOOLS, STATELESS, prompts=["greet"], resources=["memo://new", "memo://both"]
)
CONFIG = build_config(OLD, NEW, mode="direct")
BOTH = pytest.mark.parametrize("era", ["legacy", STATELESS])
SERVERS = pytest.mark.parametrize("server", ["old", "new"])


@pytest.fixture(scope="module")
async def front() -> AsyncIterator[McpRouter]:
    async with gateway(CONFIG) as made:
        yield made


async def raw(connected: Client, method: str, **params: Any) -> dict[str, Any]:
    """A request and its result as they are on the wire."""
    data: dict[str, Any] = {"method": method, "params": params}
    opts: Any = {}
    connected.session._stamp(data, opts)
    return await connected.session._dispatcher.send_raw_request(method, data["params"], opts)


@BOTH
async def test_definitions_are_listed_as_they_came_but_for_the_name(
    front: McpRouter, era: str
) -> None:
    async with connect_client(front, era) as connected:
        result = await raw(connected, "tools/list")
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
    assert stamped == (era == STATELESS)


@BOTH
@SERVERS
async def test_results_pass_through_as_they_came(front: McpRouter, era: str, server: str) -> None:
    async with connect_client(front, era) as connected:
        given = {"text": "é\u2028", "deep": [None, 1.5, {"a": 1}]}
        result = await raw(connected, "tools/call", name=f"{server}___echo", arguments=given)
        picture = await raw(connected, "tools/call", name=f"{server}___picture", arguments={})
    assert result["structuredContent"] == given
    assert result["vendorField"] == {"deep": [None, 1.5]}
    assert result["_meta"]["vendor/key"] == "kept"
    assert "isError" not in result
    image = {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png", "vendorField": 1}
    assert picture["content"] == [image, {"type": "unheard-of", "x": [1]}]
    assert picture["isError"] is False


@BOTH
@SERVERS
async def test_what_a_client_says_about_a_call_goes_on_and_about_itself_does_not(
    front: McpRouter, era: str, server: str
) -> None:
    async with connect_client(front, era) as connected:
        meta = {"vendor/key": 1, "traceparent": "00-1-2-3"}
        result = await raw(
            connected, "tools/call", name=f"{server}___seen", arguments={}, _meta=meta
        )
    seen = json.loads(result["content"][0]["text"])
    assert seen["name"] == "seen"
    assert seen["_meta"]["vendor/key"] == 1
    who = seen["_meta"].get("io.modelcontextprotocol/clientInfo", {"name": "toolcrib"})
    assert who["name"] == "toolcrib"


@BOTH
@SERVERS
async def test_errors_pass_through_as_they_came(front: McpRouter, era: str, server: str) -> None:
    async with connect_client(front, era) as connected:
        failed = await connected.call_tool(f"{server}___fail", {})
        with pytest.raises(MCPError) as caught:
            await connected.call_tool(f"{server}___error", {})
    assert failed.is_error
    assert part_text(failed.content[0]) == "it went wrong"
    assert caught.value.error.code == -32050
    assert caught.value.error.data == {"why": "because"}


@BOTH
@SERVERS
async def test_progress_reaches_the_client_that_asked(
    front: McpRouter, era: str, server: str
) -> None:
    heard: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with connect_client(front, era) as connected:
        await connected.call_tool(f"{server}___progress", {}, progress_callback=on_progress)
    assert heard == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


@BOTH
@SERVERS
async def test_a_cancelled_call_is_cancelled_at_the_server(era: str, server: str) -> None:
    # A server of its own: after this, it is in doubt whose its messages are.
    one = plain_server(server, ["hang", "cancelled"], STATELESS if server == "new" else "legacy")
    async with gateway(build_config(one)) as made, connect_client(made, era) as connected:
        upstream = made.pool.servers[server]
        before = json.loads(await call_text(connected, f"{server}___cancelled"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(connected.call_tool, f"{server}___hang", {})
            await wait_until(lambda: upstream.state == "in use")
            tasks.cancel_scope.cancel()
        await wait_until(lambda: upstream.state == "started")
        after = json.loads(await call_text(connected, f"{server}___cancelled"))
    assert len(after) == len(before) + 1


@SERVERS
async def test_log_messages_go_to_the_client_whose_call_it_is(
    front: McpRouter, server: str
) -> None:
    heard: list[Any] = []
    overheard: list[Any] = []
    async with (
        connect_client(front, "legacy", logging_callback=_into(heard)) as one,
        connect_client(front, "legacy", logging_callback=_into(overheard)),
    ):
        await one.call_tool(f"{server}___log", {})
        await wait_until(lambda: len(heard) == 2)
        await one.set_logging_level("warning")
        await one.call_tool(f"{server}___log", {})
        await wait_until(lambda: len(heard) == 3)
    assert [(params.level, params.data) for params in heard] == [
        ("debug", server),
        ("error", server),
        ("error", server),
    ]
    assert overheard == []


@SERVERS
async def test_a_client_without_a_handshake_hears_of_the_log_what_it_asks_for(
    front: McpRouter, server: str
) -> None:
    heard: list[Any] = []
    async with connect_client(front, STATELESS, logging_callback=_into(heard)) as connected:
        await connected.call_tool(f"{server}___log", {})
        meta: Any = {"io.modelcontextprotocol/logLevel": "error"}
        await connected.call_tool(f"{server}___log", {}, meta=meta)
        await wait_until(lambda: heard)
    assert [params.level for params in heard] == ["error"]


def _into(heard: list[Any]) -> Callable[[Any], Any]:
    async def on_log(params: Any) -> None:
        heard.append(params)

    return on_log


@BOTH
async def test_prompts_of_all_servers(front: McpRouter, era: str) -> None:
    async with connect_client(front, era) as connected:
        listed = await raw(connected, "prompts/list")
        assert [prompt["name"] for prompt in listed["prompts"]] == ["old___greet", "new___greet"]
        assert listed["prompts"][0]["vendorField"] == 1
        for server in ("old", "new"):
            got = await connected.get_prompt(f"{server}___greet")
            assert part_text(got.messages[0].content) == f"greet of {server}"
        with pytest.raises(MCPError, match="Unknown prompt: greet"):
            await connected.get_prompt("greet")


async def test_prompts_without_a_prefix_do_not_take_each_others_names(front: McpRouter) -> None:
    front.hub.config = with_search_settings(CONFIG, prefix=False)
    try:
        async with connect_client(front) as connected:
            listed = [prompt.name for prompt in (await connected.list_prompts()).prompts]
            got = await connected.get_prompt(listed[1])
    finally:
        front.hub.config = CONFIG
    assert listed == ["greet", "new___greet"]
    assert part_text(got.messages[0].content) == "greet of new"


@BOTH
async def test_resources_of_all_servers(front: McpRouter, era: str) -> None:
    async with connect_client(front, era) as connected:
        listed = await connected.list_resources()
        templates = await connected.list_resource_templates()
        read = await connected.read_resource("memo://new")
        both = await connected.read_resource("memo://both")
        with pytest.raises(MCPError):
            await connected.read_resource("memo://nothing")
    uris = [str(resource.uri) for resource in listed.resources]
    assert uris == ["memo://old", "memo://both", "memo://new", "memo://both"]
    assert [one.uri_template for one in templates.resource_templates] == [
        "old://{name}",
        "new://{name}",
    ]
    assert read.contents[0].text == "memo://new of new"  # type: ignore[union-attr]
    # Where two servers have it, the first has it.
    assert both.contents[0].text == "memo://both of old"  # type: ignore[union-attr]


async def test_changes_of_a_resource_are_told_to_those_who_follow_it(front: McpRouter) -> None:
    heard: list[Any] = []
    overheard: list[Any] = []

    def into(events: list[Any]) -> Callable[[Any], Any]:
        async def on_message(message: Any) -> None:
            events.append(getattr(message, "method", ""))

        return on_message

    async with (
        connect_client(front, "legacy", message_handler=into(heard)) as one,
        connect_client(front, "legacy", message_handler=into(overheard)),
        connect_client(front) as modern,
    ):
        await one.list_resources()
        await one.subscribe_resource("memo://old")
        async with modern.listen(resource_subscriptions=["memo://old"]) as changes:
            # The server is asked to tell in the background.
            with anyio.fail_after(20):
                while not heard:
                    await one.call_tool("old___touch", {"uri": "memo://old"})
                    await anyio.sleep(0.02)
                event: Any = await anext(changes)
        assert str(event.uri) == "memo://old"
        await one.unsubscribe_resource("memo://old")
        count = len(heard)
        await one.call_tool("old___touch", {"uri": "memo://old"})
        await call_text(one, "old___echo", {"text": "after"})
    assert set(heard) == {"notifications/resources/updated"}
    assert len(heard) == count
    assert overheard == []


@BOTH
async def test_completions_come_from_the_server_they_are_about(front: McpRouter, era: str) -> None:
    async with connect_client(front, era) as connected:
        await connected.list_resources()
        prompt = types.PromptReference(name="new___greet")
        got = await connected.complete(prompt, {"name": "who", "value": "Al"})
        template = types.ResourceTemplateReference(uri="memo://new")
        other = await connected.complete(template, {"name": "who", "value": "Bo"})
    assert json.loads(got.completion.values[0])["name"] == "greet"
    assert got.completion.values[1] == "Al"
    assert other.completion.values[1] == "Bo"


async def test_an_answer_that_is_too_large_is_not_passed_on() -> None:
    small = plain_server("old", ["big"], given={"max_result_bytes": 2000})
    async with gateway(build_config(small)) as made, connect_client(made) as connected:
        assert await call_text(connected, "old___big", {"count": 1500}) == "x" * 1500
        result = await connected.call_tool("old___big", {"count": 3000})
    assert result.is_error
    assert "more than 2,000 bytes" in part_text(result.content[0])


async def test_a_list_in_pages_is_read_to_its_end() -> None:
    paged = plain_server("paged", [f"tool{number}" for number in range(7)], page=2)
    async with gateway(build_config(paged)) as made, connect_client(made) as connected:
        assert await list_tool_names(connected) == [f"paged___tool{number}" for number in range(7)]
