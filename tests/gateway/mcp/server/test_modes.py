from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
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
    with_search_settings,
)
from toolcrib.config.settings import GatewayConfig
from toolcrib.gateway.mcp.server.router import McpRouter

pytestmark = pytest.mark.anyio

FILES = plain_server(
    "files",
    [
        {"name": "read", "description": "Read a file from disk.", "inputSchema": {}},
        {"name": "write", "description": "Write a file to disk.", "inputSchema": {}},
        {"name": "delete", "description": "Delete a file for good.", "inputSchema": {}},
    ],
)
MAIL = plain_server(
    "mail", ["echo", "send", "fetch"], STATELESS, instructions="Electronic letters."
)
POST = plain_server("post", ["letter"], given={"alias": "p"})


def config(**search: Any) -> GatewayConfig:
    return build_config(FILES, MAIL, **search)


@pytest.fixture(scope="module")
async def front() -> AsyncIterator[McpRouter]:
    async with gateway(config()) as made:
        yield made


@pytest.fixture
def shown(front: McpRouter, request: pytest.FixtureRequest) -> McpRouter:
    """The same gateway with other settings: its servers stay up."""
    front.hub.config = with_search_settings(config(), **getattr(request, "param", {}))
    front.hub._views.clear()
    return front


@pytest.mark.parametrize("era", ["legacy", STATELESS])
async def test_few_tools_are_all_listed_with_whose_they_are(shown: McpRouter, era: str) -> None:
    async with connect_client(shown, era) as connected:
        listed = await list_tool_names(connected)
        assert await call_text(connected, "mail___echo", {"text": "hello"}) == "hello"
    assert listed == [
        "files___read",
        "files___write",
        "files___delete",
        "mail___echo",
        "mail___send",
        "mail___fetch",
    ]


@pytest.mark.parametrize("shown", [{"mode": "search"}], indirect=True)
@pytest.mark.parametrize("era", ["legacy", STATELESS])
async def test_search_mode_shows_a_constant_few(shown: McpRouter, era: str) -> None:
    async with connect_client(shown, era) as connected:
        before = await connected.list_tools()
        found = await connected.call_tool("search_tools", {"query": "delete a file"})
        after = await connected.list_tools()
    assert before == after
    assert [tool.name for tool in before.tools] == ["search_tools", "describe_tool", "call_tool"]
    assert "files (3), mail (3)" in (before.tools[0].description or "")
    assert found.structured_content is not None
    assert found.structured_content["tools"][0]["name"] == "files___delete"
    assert found.structured_content["confident"] is True


@pytest.mark.parametrize("shown", [{"mode": "search", "always_expose": ("*___r*",)}], indirect=True)
async def test_pins_are_always_shown(shown: McpRouter) -> None:
    async with connect_client(shown) as connected:
        assert (await list_tool_names(connected))[3:] == ["files___read"]


@pytest.mark.parametrize("shown", [{"mode": "search"}], indirect=True)
@pytest.mark.parametrize("era", ["legacy", STATELESS])
async def test_a_tool_that_is_not_listed_can_be_called_all_the_same(
    shown: McpRouter, era: str
) -> None:
    async with connect_client(shown, era) as connected:
        assert await call_text(connected, "mail___echo", {"text": "direct"}) == "direct"
        inner = {"name": "mail___echo", "arguments": {"text": "through"}}
        assert await call_text(connected, "call_tool", inner) == "through"


@pytest.mark.parametrize("shown", [{"mode": "search"}], indirect=True)
async def test_call_tool_does_not_call_what_is_ours(shown: McpRouter) -> None:
    async with connect_client(shown) as connected:
        for name in ("search_tools", "call_tool", "describe_tool", "search_available_tools"):
            result = await connected.call_tool("call_tool", {"name": name, "arguments": {}})
            assert result.is_error
            assert "by itself" in part_text(result.content[0])


@pytest.mark.parametrize("shown", [{"mode": "search"}], indirect=True)
async def test_an_unknown_name_is_answered_with_the_nearest(shown: McpRouter) -> None:
    async with connect_client(shown) as connected:
        result = await connected.call_tool("files___reed", {})
    assert result.is_error
    text = part_text(result.content[0])
    assert 'There is no tool "files___reed"' in text
    assert "files___read" in text
    assert "search_tools" in text


@pytest.mark.parametrize("shown", [{"mode": "search"}], indirect=True)
async def test_describe_tool_gives_the_whole_definition(shown: McpRouter) -> None:
    async with connect_client(shown) as connected:
        found = await connected.call_tool(
            "describe_tool", {"names": ["mail___echo", "nothing", "mail___echo"]}
        )
    assert found.structured_content is not None
    (definition,) = found.structured_content["tools"]
    assert definition["name"] == "mail___echo"
    assert definition["vendorField"] == {"kept": True}
    assert definition["_meta"] == {"vendor/key": [1, {"deep": None}]}
    assert "There is no tool" in part_text(found.content[0])


@pytest.mark.parametrize(
    "shown", [{"mode": "search", "max_result_chars": 500}], indirect=True, ids=["small"]
)
async def test_what_has_no_room_is_said_to_be_left_out(shown: McpRouter) -> None:
    every = ["files___read", "mail___echo", "mail___send", "mail___fetch"]
    async with connect_client(shown) as connected:
        described = await connected.call_tool("describe_tool", {"names": every})
        found = await connected.call_tool("search_tools", {"query": "mail", "detail": "schema"})
    assert described.structured_content is not None
    assert 1 <= len(described.structured_content["tools"]) < len(every)
    assert "no room left for mail___" in part_text(described.content[0])
    assert found.structured_content is not None
    assert any("signature" in tool for tool in found.structured_content["tools"])
    assert "shortened" in part_text(found.content[0])


@pytest.mark.parametrize("shown", [{"mode": "search"}], indirect=True)
@pytest.mark.parametrize(
    ("detail", "keys"),
    [
        ("names", {"name"}),
        ("summary", {"name", "signature", "description"}),
        ("schema", {"name", "description", "inputSchema", "_meta", "vendorField", "annotations"}),
    ],
)
async def test_a_search_tells_as_much_as_was_asked_for(
    shown: McpRouter, detail: str, keys: set[str]
) -> None:
    async with connect_client(shown) as connected:
        found = await connected.call_tool("search_tools", {"query": "echo text", "detail": detail})
    assert found.structured_content is not None
    assert set(found.structured_content["tools"][0]) == keys


@pytest.mark.parametrize("shown", [{"mode": "search"}], indirect=True)
async def test_a_search_can_be_narrowed(shown: McpRouter) -> None:
    async with connect_client(shown) as connected:
        of_mail = await connected.call_tool("search_tools", {"query": "file", "server": "mail"})
        one = await connected.call_tool("search_tools", {"query": "file", "limit": 1})
        safe = await connected.call_tool("search_tools", {"query": "file", "read_only": True})
    for found, most in ((of_mail, 3), (one, 1), (safe, 0)):
        assert found.structured_content is not None
        assert len(found.structured_content["tools"]) <= most
    assert "Left out" in part_text(safe.content[0])
    assert "3 tools" in part_text(safe.content[0])
    assert of_mail.structured_content is not None
    names_of = [tool["name"] for tool in of_mail.structured_content["tools"]]
    assert all(name.startswith("mail___") for name in names_of)


async def test_a_search_can_be_narrowed_to_a_server_that_has_an_alias() -> None:
    async with (
        gateway(build_config(POST, FILES, mode="search")) as made,
        connect_client(made) as connected,
    ):
        for server in ("post", "p"):
            given = {"query": "letter", "server": server}
            text = await call_text(connected, "search_tools", given)
            assert "post:\n- p___letter" in text


@pytest.mark.parametrize("shown", [{"mode": "search"}], indirect=True)
async def test_what_a_server_says_of_itself_can_be_searched(shown: McpRouter) -> None:
    async with connect_client(shown) as connected:
        assert "mail___" in await call_text(
            connected, "search_tools", {"query": "electronic letters"}
        )


async def test_a_need_that_nothing_serves_is_told_beside_what_was_found() -> None:
    query = {"query": "delete a file and play the trombone"}
    async with (
        gateway(build_config(FILES, mode="search"), semantic=True) as front,
        connect_client(front) as connected,
    ):
        text = await call_text(connected, "search_tools", query)
    assert "files___delete" in text
    assert "None of these is for: play the trombone." in text


@pytest.mark.parametrize("shown", [{"mode": "search"}], indirect=True)
@pytest.mark.parametrize(
    "query", ["zqxj wvvk", "(", "a AND", '"', "x" * 5000, "*", "", "\u202e\x00", "-file"]
)
async def test_no_query_is_too_odd(shown: McpRouter, query: str) -> None:
    async with connect_client(shown) as connected:
        for tool in ("search_tools", "search_available_tools"):
            result = await connected.call_tool(tool, {"query": query})
            assert part_text(result.content[0])


@pytest.mark.parametrize("shown", [{"mode": "search"}], indirect=True)
async def test_a_query_is_needed(shown: McpRouter) -> None:
    async with connect_client(shown) as connected:
        for given in ({}, {"query": 7}):
            result = await connected.call_tool("search_tools", given)
            assert result.is_error
            assert "query" in part_text(result.content[0])
            with pytest.raises(MCPError, match="query") as caught:
                await connected.call_tool("search_available_tools", given)
            assert caught.value.error.code == -32602


@pytest.mark.parametrize("shown", [{}, {"mode": "search"}], indirect=True)
async def test_arguments_are_checked_against_the_schema(shown: McpRouter) -> None:
    async with connect_client(shown) as connected:
        result = await connected.call_tool("mail___echo", {"text": 7})
    assert result.is_error
    assert "arguments of mail___echo do not fit" in part_text(result.content[0])


@pytest.mark.parametrize("shown", [{"validate_arguments": False}], indirect=True)
async def test_arguments_are_not_checked_where_that_is_switched_off(shown: McpRouter) -> None:
    async with connect_client(shown) as connected:
        result = await connected.call_tool("mail___echo", {"text": 7})
    assert not result.is_error
    assert result.structured_content == {"text": 7}
