"""Large results reach the model as a preview, and `read_result` returns the rest to their caller only."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp_types import Implementation

from tests.gateway.mcp.harness import (
    PROFILE,
    build_config,
    call_text,
    connect_client,
    gateway,
    list_tool_names,
    part_text,
    plain_server,
)
from toolcrib.config.settings import AccessProfile, ResultsConfig
from toolcrib.core.token_count import estimate_tokens
from toolcrib.gateway.mcp.server.large_results import replace_text_parts
from toolcrib.gateway.mcp.server.router import McpRouter

pytestmark = pytest.mark.anyio
ROWS = [{"id": number, "name": f"row {number}"} for number in range(3000)]
TABLE: dict[str, Any] = {"type": "object", "properties": {"rows": {"type": "array"}, "text": {"type": "string"}}}
CLOSED: dict[str, Any] = {**TABLE, "additionalProperties": False}
STRICT: dict[str, Any] = {**TABLE, "maxProperties": 1}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


@pytest.fixture(scope="module")
async def router() -> AsyncIterator[McpRouter]:
    config = build_config(
        plain_server("data", [tool("echo"), tool("big")]),
        plain_server("typed", [tool("echo", outputSchema=TABLE)]),
        plain_server("closed", [tool("echo", outputSchema=CLOSED)]),
        plain_server("strict", [tool("echo", outputSchema=STRICT)]),
        plain_server("odd", [tool("echo", outputSchema={**CLOSED, "properties": ["rows"]})]),
        plain_server("app", [tool("echo", _meta={"ui": {"resourceUri": "ui://table"}})]),
        plain_server("raw", [tool("echo")], given={"result_budget_tokens": 0}),
        profiles=[AccessProfile("few", servers=("data",)), AccessProfile("other", servers=("raw",))],
        results=ResultsConfig(),
    )
    async with gateway(config) as running:
        yield running


def get_handle(result: Any) -> str:
    return str(result.meta["toolcrib/result"]["handle"])


@pytest.mark.parametrize("revision", ["legacy", "2026-07-28"])
async def test_large_result_is_previewed_and_read_back(router: McpRouter, revision: str) -> None:
    async with connect_client(router, revision) as client:
        assert "read_result" in await list_tool_names(client)
        small = await client.call_tool("data___echo", {"text": "a few words"})
        assert part_text(small.content[0]) == "a few words"
        result = await client.call_tool("data___echo", {"text": json.dumps(ROWS)})
        preview, handle = part_text(result.content[0]), get_handle(result)
        assert result.structured_content is None
        assert "data___echo returned JSON" in preview
        assert handle in preview
        # The example of a path fits a list without a name.
        assert "by path ($[20:40])" in preview
        assert "id: 0 to 2999" in preview
        assert estimate_tokens(preview) < 1800
        read = await call_text(client, "read_result", {"handle": handle, "search": "row 2345"})
        assert '$[2345]: {"id":2345,"name":"row 2345"}' in read
        page = await call_text(client, "read_result", {"handle": handle, "path": "$[10:12].name"})
        assert page.splitlines()[1:] == ["$[10].name: row 10", "$[11].name: row 11"]


async def test_numbers_may_be_text(router: McpRouter) -> None:
    async with connect_client(router) as client:
        result = await client.call_tool("data___echo", {"text": "\n".join(str(row) for row in ROWS)})
        page = await call_text(client, "read_result", {"handle": get_handle(result), "offset": "2998", "limit": "1"})
    assert page == f"Lines 2,999 to 2,999 of 3,000. Continue with offset=2999.\n2999: {ROWS[2998]}"


async def test_half_of_an_emoji_in_json_text_is_replaced(router: McpRouter) -> None:
    text = json.dumps([{"id": number, "name": "\ud83d"} for number in range(3000)])
    async with connect_client(router) as client:
        result = await client.call_tool("data___echo", {"text": text})
        part = await call_text(client, "read_result", {"handle": get_handle(result), "path": "$[7].name"})
    # Half of a surrogate pair has no encoding, so the response could not be sent.
    assert part_text(result.content[0]).encode()
    assert part == "$[7].name: �"


def test_parts_that_are_not_text_are_untouched_and_keep_their_place() -> None:
    image = {"type": "image", "data": "a" * 100_000, "mimeType": "image/png"}
    link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
    text = {"type": "text", "text": "long " * 20}
    assert replace_text_parts([image, text, link, text], "short") == [image, {"type": "text", "text": "short"}, link]


# Servers of the TypeScript SDK forbid further members in every output schema.
@pytest.mark.parametrize("server", ["typed", "closed"])
async def test_structured_content_has_the_preview_and_matches_the_listed_schema(router: McpRouter, server: str) -> None:
    async with connect_client(router) as client:
        # The SDK's client knows the schema from the list and validates the result against it.
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert f"{server}___echo" in names
        result = await client.call_tool(f"{server}___echo", {"rows": ROWS})
        structured = result.structured_content
        assert structured["rows"][0] == ROWS[0]
        assert len(structured["rows"]) < 30
        assert structured["_toolcrib"]["handle"] == get_handle(result)
        # Some hosts show the model only the structured content.
        assert structured["_toolcrib"]["preview"] == part_text(result.content[0])
        assert estimate_tokens(json.dumps(structured)) < 3500


async def test_structured_content_is_whole_if_its_schema_allows_no_preview(router: McpRouter) -> None:
    async with connect_client(router) as client:
        strict = await client.call_tool("strict___echo", {"rows": ROWS})
        assert strict.structured_content == {"rows": ROWS}
        assert get_handle(strict) in part_text(strict.content[0])
        called = await client.call_tool("call_tool", {"name": "strict___echo", "arguments": {"rows": ROWS}})
        assert called.structured_content is None


async def test_structured_content_is_shortened_further_until_it_fits(router: McpRouter) -> None:
    async with connect_client(router) as client:
        await client.list_tools()
        notes = [{"note": "word " * 150} for _ in range(300)]
        result = await client.call_tool("closed___echo", {"rows": notes})
        assert len(result.structured_content["rows"]) < 20
        assert estimate_tokens(json.dumps(result.structured_content)) < 3500
        # Members are never removed, because they may be required.
        members = {f"member {number}": number for number in range(5_000)}
        result = await client.call_tool("typed___echo", members)
        assert members.items() < result.structured_content.items()
        assert result.structured_content["_toolcrib"]["handle"] == get_handle(result)


async def test_tool_with_a_broken_output_schema_can_be_called(router: McpRouter) -> None:
    async with connect_client(router) as client:
        result = await client.call_tool("odd___echo", {"rows": ROWS})
        assert get_handle(result) in part_text(result.content[0])


async def test_user_interface_of_a_tool_gets_the_whole_structured_content(router: McpRouter) -> None:
    async with connect_client(router) as client:
        result = await client.call_tool("app___echo", {"rows": ROWS})
        assert result.structured_content == {"rows": ROWS}
        assert get_handle(result) in part_text(result.content[0])
        called = await client.call_tool("call_tool", {"name": "app___echo", "arguments": {"rows": ROWS}})
        assert called.structured_content is None


async def test_server_can_have_its_own_budget(router: McpRouter) -> None:
    async with connect_client(router) as client:
        result = await client.call_tool("raw___echo", {"text": json.dumps(ROWS)})
        assert part_text(result.content[0]) == json.dumps(ROWS)


async def test_result_is_readable_only_with_the_profile_that_got_it(router: McpRouter) -> None:
    async def call_as(profile: str | None, name: str, arguments: dict[str, Any]) -> Any:
        PROFILE.set(profile)
        try:
            async with connect_client(router) as client:
                return await client.call_tool(name, arguments)
        finally:
            PROFILE.set(None)

    handle = get_handle(await call_as("few", "data___echo", {"text": json.dumps(ROWS)}))
    own = await call_as("few", "read_result", {"handle": handle, "path": "$[1].name"})
    assert part_text(own.content[0]) == "$[1].name: row 1"
    for profile in ("other", None):
        foreign = await call_as(profile, "read_result", {"handle": handle})
        assert foreign.is_error
        assert "There is no result" in part_text(foreign.content[0])


async def test_invalid_reads_are_answered_with_advice(router: McpRouter) -> None:
    async with connect_client(router) as client:
        for arguments, advice in (({}, "`handle` is missing"), ({"handle": "res_x"}, "Call the tool again")):
            result = await client.call_tool("read_result", arguments)
            assert result.is_error
            assert advice in part_text(result.content[0])
        handle = get_handle(await client.call_tool("data___echo", {"text": json.dumps(ROWS)}))
        result = await client.call_tool("read_result", {"handle": handle, "path": "$["})
        assert result.is_error
        refused = await client.call_tool("call_tool", {"name": "read_result", "arguments": {"handle": handle}})
        assert "Call it directly" in part_text(refused.content[0])


async def test_stored_result_survives_a_restart_and_expires(tmp_path: Path) -> None:
    def config(keep_seconds: float) -> Any:
        built = build_config(plain_server("data", [tool("big")]), results=ResultsConfig(keep_seconds=keep_seconds))
        return replace(built, store=f"sqlite:///{tmp_path}/toolcrib.db")

    async def call(keep_seconds: float, name: str, arguments: dict[str, Any]) -> Any:
        async with gateway(config(keep_seconds)) as running, connect_client(running) as client:
            return await client.call_tool(name, arguments)

    handle = get_handle(await call(3600, "data___big", {"count": 900_000}))
    result = await call(3600, "read_result", {"handle": handle, "offset": 899_990})
    assert part_text(result.content[0]).endswith("x" * 10)
    expired = get_handle(await call(-1, "data___big", {"count": 900_000}))
    assert (await call(3600, "read_result", {"handle": expired})).is_error


async def test_claude_code_is_told_the_size_and_keeps_what_a_tool_declares() -> None:
    declared = tool("echo", _meta={"anthropic/maxResultSizeChars": 500_000})
    config = build_config(plain_server("data", [declared]), results=ResultsConfig(), mode="search")
    rows = json.dumps(ROWS[:2000])
    async with gateway(config) as running:
        claude = Implementation(name="claude-code", version="2")
        async with connect_client(running, "legacy", client_info=claude) as client:
            tools = {listed.name: listed for listed in (await client.list_tools()).tools}
            assert tools["call_tool"].meta == {"anthropic/maxResultSizeChars": 80_000}
            assert tools["read_result"].meta == {"anthropic/maxResultSizeChars": 16_000}
            assert await call_text(client, "call_tool", {"name": "data___echo", "arguments": {"text": rows}}) == rows
        async with connect_client(running, "legacy") as client:
            shown = await call_text(client, "call_tool", {"name": "data___echo", "arguments": {"text": rows}})
            assert "This is a preview" in shown
