"""The gateway behaves as the MCProxy profile where both do the same."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
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


def group_by_server(catalog: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the tools of a recorded catalog by server, without their prefixes."""
    servers: dict[str, list[dict[str, Any]]] = {}
    for tool in catalog:
        server, _, name = tool["name"].partition("___")
        servers.setdefault(server, []).append({**tool, "name": name, "inputSchema": {}})
    return servers


@pytest.fixture(scope="module")
async def router() -> AsyncIterator[McpRouter]:
    catalog = load_golden("mcproxy")["catalogs"]["gateway22"]
    servers = [plain_server(name, tools) for name, tools in group_by_server(catalog).items()]
    async with gateway(build_config(*servers, mode="dynamic")) as router:
        yield router


def reconfigure(router: McpRouter, config: dict[str, Any], order: list[str]) -> mcproxy.McproxyToolSearch:
    """Apply a configuration to the gateway and return the profile with the same configuration."""
    parsed = parse_config({"toolSearch": config} if config else {}, {}).tool_search
    before = router.hub.config
    servers = {name: before.servers[name] for name in order or before.servers}
    changed = with_search_settings(before, **{key: getattr(parsed, key) for key in parsed.__slots__})
    changed = with_search_settings(changed, mode="dynamic")
    changed = replace(changed, servers={**servers, **before.servers})
    router.hub.reconfigure(changed)
    tools = [Tool(entry.name, entry.tool.description, id=entry.name) for entry in router.hub.directory]
    return mcproxy.McproxyToolSearch(tools, mcproxy.McproxyConfig.from_json(config), servers=list(changed.servers))


@pytest.mark.parametrize("vector", golden_vectors("mcproxy", "seed_document", "selection"))
async def test_list_is_limited_as_documented(router: McpRouter, vector: dict[str, Any]) -> None:
    profile = reconfigure(router, vector["config"], vector.get("server_order", []))
    expected = profile.list_tools().tools
    async with connect_client(router, "legacy") as connected:
        listed = (await connected.list_tools()).tools
    assert [tool.name for tool in listed] == [tool.name for tool in expected]
    if expected[-1].name == SEARCH:
        assert (listed[-1].description or "").startswith(expected[-1].description)
        assert listed[-1].input_schema == expected[-1].input_schema


@pytest.mark.parametrize("vector", golden_vectors("mcproxy", "search_vectors"))
async def test_search_result_equals_the_profile(router: McpRouter, vector: dict[str, Any]) -> None:
    if vector["catalog"] != "gateway22":
        pytest.skip("recorded for another catalog")
    if vector["config"].get("maxToolsLimit") == 0:
        pytest.skip("the gateway searches even if no tool is hidden")
    config = {"maxToolsLimit": 10, **vector["config"]}
    profile = reconfigure(router, config, [])
    expected = profile.search(vector["arguments"])
    async with connect_client(router, "legacy") as connected:
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
    assert lines[1].split("\n")[0] == f"1. {after[0]} - {get_description(router, after[0])}"


def get_description(router: McpRouter, name: str) -> str:
    return str(router.hub.directory.entries[name].tool.description)


async def test_names_are_resolved_by_the_directory(router: McpRouter) -> None:
    reconfigure(router, {}, [])
    async with connect_client(router, "legacy") as connected:
        for name in ("files___read_file___x", "___", "nothing", "files___", "unknown___read_file"):
            result = await connected.call_tool(name, {})
            assert result.is_error
        arguments = json.loads(await call_text(connected, "files___read_file"))
    assert arguments["name"] == "read_file"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("github AND issue", {"github___create_issue", "github___list_issues"}),
        ('"create issue"', {"github___create_issue"}),
        ('"issue create"', set()),
        ("github*", {"github___create_issue", "github___list_issues", "github___merge"}),
        ("name:github", {"github___create_issue", "github___list_issues", "github___merge"}),
        ('name:"github create"', {"github___create_issue"}),
        ('description:"pull request"', {"github___merge"}),
        ("create AND (issue OR file OR document)", {"github___create_issue", "files___create_file"}),
        ("server:github", {"github___create_issue", "github___list_issues", "github___merge"}),
    ],
)
async def test_documented_query_finds_exactly_its_tools(
    semantic_router: McpRouter, query: str, expected: set[str]
) -> None:
    async with connect_client(semantic_router, "legacy") as connected:
        result = await connected.call_tool(SEARCH, {"query": query})
        own = await connected.call_tool("search_tools", {"query": query})
    assert result.structured_content is not None and own.structured_content is not None
    assert {tool["name"] for tool in result.structured_content["tools"]} == expected
    if ":" in query:
        assert {tool["name"] for tool in own.structured_content["tools"]} == expected


@pytest.fixture(scope="module")
async def semantic_router() -> AsyncIterator[McpRouter]:
    """Return a gateway with the default ranker, which also finds similar tools."""
    texts = {
        "github": {
            "create_issue": "Create a new issue.",
            "list_issues": "List repository issues.",
            "merge": "Merge a pull request.",
        },
        "files": {"create_file": "Create a file.", "report": "Report that something about a document is an issue."},
    }
    servers = [
        plain_server(server, [{"name": n, "description": d, "inputSchema": {}} for n, d in tools.items()])
        for server, tools in texts.items()
    ]
    async with gateway(build_config(*servers, mode="dynamic", max_tools_limit=4), semantic=True) as router:
        yield router
