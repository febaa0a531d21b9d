"""FastMCP's server, with its own client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("fastmcp", reason="FastMCP is not installed")

from fastmcp import Client, FastMCP
from fastmcp.server.middleware import Middleware
from fastmcp.server.transforms.search.base import serialize_tools_for_output_markdown

from examples import with_fastmcp
from tests.frameworks.script import build_lexical_engine
from toolcrib.demo import office
from toolcrib.frameworks.fastmcp import ToolcribSearchTransform


def _server(tools: Any = None, **options: Any) -> FastMCP:
    server: FastMCP = FastMCP("office")
    for function in tools or office.tools():
        server.tool(function)
    server.add_transform(ToolcribSearchTransform(engine=build_lexical_engine, **options))
    return server


def _list_names(server: FastMCP) -> list[str]:
    async def within() -> list[str]:
        async with Client(server) as client:
            return [tool.name for tool in await client.list_tools()]

    return asyncio.run(within())


def _call_tool(server: FastMCP, tool: str, /, **arguments: Any) -> tuple[str, bool]:
    async def within() -> tuple[str, bool]:
        async with Client(server) as client:
            result = await client.call_tool(tool, arguments, raise_on_error=False)
            return result.content[0].text, result.is_error

    return asyncio.run(within())


def test_example_lists_pinned_tools_and_finds_others() -> None:
    server = with_fastmcp.server()
    assert _list_names(server) == ["send_email", "search_tools", "call_tool"]
    text, failed = _call_tool(server, "search_tools", query="weather forecast", limit=1)
    assert not failed
    [search_result] = json.loads(text)
    assert search_result["name"] == "get_weather"
    assert search_result["inputSchema"]["required"] == ["city"]
    arguments = {"city": "Rome"}
    assert _call_tool(server, "call_tool", name="get_weather", arguments=arguments) == ("sunny in Rome", False)
    assert _call_tool(server, "get_weather", city="Rome") == ("sunny in Rome", False)


def test_several_queries_in_one_search() -> None:
    text, _ = _call_tool(_server(), "search_tools", queries=["weather", "refund"], limit=1)
    assert [tool["name"] for tool in json.loads(text)] == ["get_weather", "refund_charge"]


def test_invalid_call_is_explained() -> None:
    server = _server()
    text, failed = _call_tool(server, "call_tool", name="get_wether")
    assert failed
    assert 'There is no tool "get_wether". The nearest are get_weather' in text
    text, failed = _call_tool(server, "call_tool", name="get_weather")
    assert failed
    assert "`city` is missing" in text
    text, failed = _call_tool(server, "call_tool", name="get_weather", arguments="Rome")
    assert failed
    assert _call_tool(server, "search_tools")[1]
    # Calling the search tool through the call tool works too.
    text, failed = _call_tool(server, "call_tool", name="search_tools", arguments={"query": "weather"})
    assert not failed
    assert "get_weather" in text


def test_no_match_answers_with_text() -> None:
    text, failed = _call_tool(_server(), "search_tools", query="quantum knitting")
    assert not failed
    assert "No tool was found" in text


def test_tool_names_and_result_format_can_be_chosen() -> None:
    server = _server(
        search_tool_name="find",
        call_tool_name="run",
        max_results=1,
        search_result_serializer=serialize_tools_for_output_markdown,
    )
    assert _list_names(server) == ["find", "run"]
    text, _ = _call_tool(server, "find", query="sales figures of a year")
    assert text.startswith("### sales_in_")
    assert text.count("###") == 1
    assert "Use find to find tools" in _call_tool(server, "run", name="nothing_like_it")[0]


def test_few_tools_are_all_listed() -> None:
    assert _list_names(_server(office.tools()[:3])) == ["get_weather", "send_email", "refund_charge"]


def test_hidden_tool_is_neither_found_nor_called() -> None:
    class Clerks(Middleware):
        async def on_list_tools(self, context: Any, call_next: Any) -> Any:
            return [tool for tool in await call_next(context) if tool.name != "refund_charge"]

    server = _server()
    server.add_middleware(Clerks())
    text, _ = _call_tool(server, "search_tools", query="refund a charge")
    assert "refund_charge" not in text
    arguments = {"charge": "c1", "cents": 5}
    text, failed = _call_tool(server, "call_tool", name="refund_charge", arguments=arguments)
    assert failed
    assert 'There is no tool "refund_charge"' in text


def test_client_with_few_tools_can_search() -> None:
    class Guests(Middleware):
        async def on_list_tools(self, context: Any, call_next: Any) -> Any:
            return [tool for tool in await call_next(context) if tool.name == "get_weather"]

    server = _server()
    server.add_middleware(Guests())
    text, failed = _call_tool(server, "search_tools", query="weather")
    assert not failed
    assert [tool["name"] for tool in json.loads(text)] == ["get_weather"]


def test_versions_of_a_tool_are_one_tool() -> None:
    server: FastMCP = FastMCP("office")
    for version in ("1.0", "2.0"):
        server.tool(office.get_weather, version=version)
    for function in office.tools()[1:]:
        server.tool(function)
    server.add_transform(ToolcribSearchTransform(engine=build_lexical_engine))
    assert _list_names(server) == ["search_tools", "call_tool"]
    text, _ = _call_tool(server, "search_tools", query="weather")
    assert [tool["name"] for tool in json.loads(text)] == ["get_weather"]


def test_fastmcp_search_method_works() -> None:
    transform = ToolcribSearchTransform(engine=build_lexical_engine, max_results=1)
    server: FastMCP = FastMCP("office")

    async def within() -> list[str]:
        for function in office.tools():
            server.tool(function)
        tools = await server.list_tools()
        return [tool.name for tool in await transform._search(tools, "weather")]

    assert asyncio.run(within()) == ["get_weather"]
