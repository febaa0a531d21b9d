"""MCProxy's contract, held against its profile wherever the gateway speaks of the same things."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.gateway.mcp.harness import (
    build_config,
    call_text,
    connect_client,
    gateway,
    list_tool_names,
    plain_server,
    with_search_settings,
)
from tests.golden import golden_vectors, load_golden
from toolcrib.config.parser import parse_config
from toolcrib.core.tool import Tool
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.profiles import mcproxy

pytestmark = pytest.mark.anyio

SEARCH = "search_available_tools"


def servers_of(catalog: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The tools of a recorded catalog by server, under their own names."""
    found: dict[str, list[dict[str, Any]]] = {}
    for tool in catalog:
        server, _, name = tool["name"].partition("___")
        found.setdefault(server, []).append({**tool, "name": name, "inputSchema": {}})
    return found


@pytest.fixture(scope="module")
async def front() -> AsyncIterator[McpRouter]:
    catalog = load_golden("mcproxy")["catalogs"]["gateway22"]
    servers = [plain_server(name, tools) for name, tools in servers_of(catalog).items()]
    async with gateway(build_config(*servers, mode="dynamic")) as made:
        yield made


def configured(
    front: McpRouter, config: dict[str, Any], order: list[str]
) -> mcproxy.McproxyToolSearch:
    """Both under the same configuration, read by each in its own way; gives the profile."""
    ours = parse_config({"toolSearch": config} if config else {}, {}).tool_search
    before = front.hub.config
    servers = {name: before.servers[name] for name in order or before.servers}
    changed = with_search_settings(before, **{key: getattr(ours, key) for key in ours.__slots__})
    changed = with_search_settings(changed, mode="dynamic")
    object.__setattr__(changed, "servers", {**servers, **before.servers})
    front.hub.config = changed
    front.hub._rebuild()
    tools = [
        Tool(entry.name, entry.tool.description, id=entry.name) for entry in front.hub.directory
    ]
    return mcproxy.McproxyToolSearch(
        tools, mcproxy.McproxyConfig.from_json(config), servers=list(changed.servers)
    )


@pytest.mark.parametrize("vector", golden_vectors("mcproxy", "seed_document", "selection"))
async def test_the_list_is_cut_as_the_page_says(front: McpRouter, vector: dict[str, Any]) -> None:
    profile = configured(front, vector["config"], vector.get("server_order", []))
    expected = profile.list_tools().tools
    async with connect_client(front, "legacy") as connected:
        listed = (await connected.list_tools()).tools
    assert [tool.name for tool in listed] == [tool.name for tool in expected]
    if expected[-1].name == SEARCH:
        assert (listed[-1].description or "").startswith(expected[-1].description)
        assert listed[-1].input_schema == expected[-1].input_schema


@pytest.mark.parametrize("vector", golden_vectors("mcproxy", "search_vectors"))
async def test_a_search_answers_as_the_profile_does(
    front: McpRouter, vector: dict[str, Any]
) -> None:
    if vector["catalog"] != "gateway22":
        pytest.skip("recorded for another catalog")
    if vector["config"].get("maxToolsLimit") == 0:
        pytest.skip("where nothing is hidden the gateway finds things all the same")
    config = {"maxToolsLimit": 10, **vector["config"]}
    profile = configured(front, config, [])
    expected = profile.search(vector["arguments"])
    async with connect_client(front, "legacy") as connected:
        before = await list_tool_names(connected)
        if isinstance(expected, mcproxy.RpcError):
            with pytest.raises(Exception, match=expected.message) as caught:
                await connected.call_tool(SEARCH, vector["arguments"])
            assert caught.value.error.code == expected.code  # type: ignore[attr-defined]
            return
        text = await call_text(connected, SEARCH, vector["arguments"])
        after = await list_tool_names(connected)
    found = [tool.name for tool in expected.session.exposed]
    if not found:
        assert text.startswith(expected.text)
        assert after == before
        return
    lines = text.split("\n\n")
    assert lines[0] == f"Found {len(after) - 1} matching tools:"
    assert sorted(after[:-1]) == sorted(found)
    assert lines[1].split("\n")[0] == f"1. {after[0]} - {description(front, after[0])}"


def description(front: McpRouter, name: str) -> str:
    return str(front.hub.directory.entries[name].tool.description)


async def test_names_lead_to_tools_by_a_table(front: McpRouter) -> None:
    configured(front, {}, [])
    async with connect_client(front, "legacy") as connected:
        for name in ("files___read_file___x", "___", "nothing", "files___", "unknown___read_file"):
            result = await connected.call_tool(name, {})
            assert result.is_error
        seen = json.loads(await call_text(connected, "files___read_file"))
    assert seen["name"] == "read_file"
