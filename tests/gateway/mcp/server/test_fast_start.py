"""The first answers, which are made without the SDK, are those that it would have given."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.server.stdio import stdio_server
from mcp_types import version as versions

from tests.gateway.mcp.harness import STATELESS, build_config, plain_server, with_search_settings
from toolcrib.config.settings import GatewayConfig
from toolcrib.gateway.mcp.server import protocol, session
from toolcrib.gateway.mcp.server.fast_start import FastStart
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.mcp.server.token_savings import TokenSavings
from toolcrib.hub.hub import Hub, build_manifest
from toolcrib.search.engine import SearchEngine
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.storage import open_store

pytestmark = pytest.mark.anyio

TOOLS = [
    {
        "name": f"tool_{number}",
        "description": f"Do what tool {number} does.",
        "inputSchema": {"type": "object", "properties": {}},
    }
    for number in range(30)
]
INFO = {"name": "tester", "version": "1"}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(method: str, params: Any = None, id: Any = 1, **more: Any) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": id, "method": method, **more}
    return message if params is None else {**message, "params": params}


def modern(method: str, id: Any = 1, meta: Any = None, **params: Any) -> dict[str, Any]:
    return request(method, {**params, "_meta": {**ENVELOPE, **(meta or {})}}, id)


def hello(id: Any = 0, **changes: Any) -> dict[str, Any]:
    return request("initialize", {**HELLO, **changes}, id)


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def opened(config: GatewayConfig) -> Hub:
    """A service that knows its servers' tools from the last time."""
    store = open_store(config.store)
    about = {"instructions": "", "protocol": STATELESS, "info": {}}
    for server in config.servers.values():
        store.put_manifest(server.name, build_manifest(server, TOOLS, about))
    service = Hub(config, store)
    service._engine = SearchEngine(service.engine.catalog, {"lexical": LexicalRanker()})
    return service


@pytest.fixture
def config() -> GatewayConfig:
    return build_config(plain_server("many", TOOLS, given={"start": "lazy"}), max_tools_limit=5)


class Lines:
    """What a client says, one line after the other, each when the last is answered."""

    def __init__(self) -> None:
        self.put, self.lines = anyio.create_memory_object_stream[bytes](100)
        self.told, self.heard = anyio.create_memory_object_stream[str](100)

    def __aiter__(self) -> Any:
        return self.lines

    async def write(self, text: str) -> None:
        await self.told.send(text)

    async def flush(self) -> None:
        pass

    def close(self) -> None:
        for stream in (self.put, self.lines, self.told, self.heard):
            stream.close()


@asynccontextmanager
async def sdk(service: Hub) -> AsyncIterator[Lines]:
    """The SDK's way of answering lines."""
    front = McpRouter(service, TokenSavings(service))
    pipes: Any = Lines()
    async with anyio.create_task_group() as tasks, stdio_server(pipes, pipes) as (read, write):
        options = front.server.create_initialization_options()
        tasks.start_soon(front.server.run, read, write, options)
        yield pipes
        pipes.close()
        tasks.cancel_scope.cancel()


def lined(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"


PLAIN: dict[str, list[Any]] = {
    "a handshake": [hello()],
    "an older version": [hello(protocolVersion="2024-11-05")],
    "a version nobody knows": [hello(protocolVersion="1999-01-01")],
    "a handshake with everything": [
        hello(
            id="first",
            capabilities={
                "roots": {"listChanged": True},
                "sampling": {"tools": {}},
                "elicitation": {"form": {}, "url": {}},
                "experimental": {"x": {"deep": [1]}},
                "extensions": {"a/b": {}},
            },
            clientInfo={
                **INFO,
                "title": "Tester",
                "description": "Tests.",
                "websiteUrl": "https://example.com/",
            },
        )
    ],
    "a ping": [hello(), request("ping"), request("ping", {"_meta": {"progressToken": 7}}, "x")],
    "a list": [hello(), request("tools/list"), request("tools/list", {"cursor": "far"}, 2)],
    "a list for a client that reads once": [
        hello(clientInfo={"name": "Claude-Code", "version": "2"}),
        request("tools/list", {}),
    ],
    "a search": [hello(), request("tools/call", call("search_tools", query="tool_7"))],
    "a search that changes the list": [
        hello(),
        request("tools/call", call("search_available_tools", query="tool_7")),
        request("tools/list", id=2),
    ],
    "a search for nothing": [hello(), request("tools/call", call("search_tools", query=""))],
    "a search without a query": [hello(), request("tools/call", call("search_tools"))],
    "a description": [
        hello(),
        request("tools/call", call("describe_tool", names=["many___tool_3"])),
    ],
    "a tool that is not there": [hello(), request("tools/call", call("many___nothing"))],
    "a discovery": [modern("server/discover")],
    "a list without a handshake": [modern("tools/list"), modern("tools/list", 2)],
    "a search without a handshake": [
        modern("tools/call", **call("search_tools", query="does tool_9", detail="schema")),
        modern("tools/call", **call("describe_tool", names=["many___tool_1", "none"])),
    ],
    "an envelope with everything": [
        modern(
            "tools/list",
            "a",
            {
                "io.modelcontextprotocol/clientInfo": INFO,
                "io.modelcontextprotocol/logLevel": "info",
                "progressToken": "p",
                "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                "vendor/key": [1],
            },
        )
    ],
}
LEFT: dict[str, list[Any]] = {
    "no JSON": [b"hello\n"],
    "an empty line": [b"\n"],
    "not Unicode": [b'{"jsonrpc":"2.0","id":1,"method":"\xff"}\n'],
    "something deep": [b"[" * 100_000 + b"\n"],
    "a list of requests": [[request("ping")]],
    "another protocol": [{**modern("tools/list"), "jsonrpc": "1.0"}],
    "a fraction for an id": [modern("tools/list", 1.5)],
    "no id": [{"jsonrpc": "2.0", "method": "notifications/initialized"}],
    "parameters that are a list": [request("tools/list", [1])],
    "something beside a request": [{**modern("tools/list"), "extra": 1}],
    "a list before a handshake": [request("tools/list")],
    "a handshake that lacks something": [request("initialize", {"protocolVersion": "2025-11-25"})],
    "a handshake with a strange version": [hello(protocolVersion=7)],
    "a handshake with strange capabilities": [hello(capabilities={"roots": 5})],
    "a handshake with capabilities of tasks": [hello(capabilities={"tasks": {}})],
    "a handshake with a list of capabilities": [hello(capabilities=[])],
    "a handshake of a nameless client": [hello(clientInfo={"version": "1"})],
    "a handshake with icons": [hello(clientInfo={**INFO, "icons": []})],
    "a second handshake": [hello(), hello(2)],
    "a handshake after a modern request": [modern("tools/list"), hello(2)],
    "a modern request after a handshake": [hello(), modern("tools/list", 2)],
    "an older request after a modern one": [modern("tools/list"), request("tools/list", {}, 2)],
    "a ping without a handshake": [modern("ping")],
    "a discovery after a handshake": [hello(), request("server/discover")],
    "a version that is not spoken": [
        modern("tools/list", meta={"io.modelcontextprotocol/protocolVersion": "2030-01-01"})
    ],
    "an envelope that lacks something": [
        request("tools/list", {"_meta": {"io.modelcontextprotocol/protocolVersion": STATELESS}})
    ],
    "an envelope with a strange level": [
        modern("tools/list", meta={"io.modelcontextprotocol/logLevel": "loud"})
    ],
    "an envelope with a strange client": [
        modern("tools/list", meta={"io.modelcontextprotocol/clientInfo": {}})
    ],
    "meta that is no object": [hello(), request("tools/list", {"_meta": 1})],
    "a strange token": [hello(), request("tools/list", {"_meta": {"progressToken": {}}})],
    "a strange cursor": [hello(), request("tools/list", {"cursor": 5})],
    "a call without a name": [hello(), request("tools/call", {"arguments": {}})],
    "a call with a list of arguments": [
        hello(),
        request("tools/call", {"name": "search_tools", "arguments": []}),
    ],
    "a task": [hello(), request("tools/call", {**call("search_tools", query="x"), "task": {}})],
    "a query that is no text": [hello(), request("tools/call", call("search_available_tools"))],
    "a server's tool": [hello(), request("tools/call", call("many___tool_1"))],
    "a server's tool by our own": [
        hello(),
        request("tools/call", call("call_tool", name="many___tool_1", arguments={})),
    ],
    "prompts": [hello(), request("prompts/list")],
}


async def said(service: Hub, messages: list[Any]) -> list[list[str] | None]:
    doorstep = FastStart(service, None, TokenSavings(service))
    return [await doorstep.respond(lined(message)) for message in messages]


@pytest.mark.parametrize("case", PLAIN)
async def test_an_answer_is_that_of_the_sdk(case: str, config: GatewayConfig) -> None:
    ours = await said(opened(config), PLAIN[case])
    async with sdk(opened(config)) as pipes:
        for message, answers in zip(PLAIN[case], ours, strict=True):
            assert answers is not None
            await pipes.put.send(lined(message))
            for answer in answers:
                with anyio.fail_after(20):
                    theirs = await pipes.heard.receive()
                assert json.loads(answer) == json.loads(theirs)


@pytest.mark.parametrize("case", LEFT)
async def test_what_is_unusual_is_left_to_the_sdk(case: str, config: GatewayConfig) -> None:
    *before, last = await said(opened(config), LEFT[case])
    assert last is None
    assert None not in before


@pytest.mark.parametrize("case", LEFT)
async def test_what_was_left_decides_nothing(case: str, config: GatewayConfig) -> None:
    """How the conversation was opened is told to the SDK only where it was opened here."""
    service = opened(config)
    doorstep = FastStart(service, None, TokenSavings(service))
    *before, last = map(lined, LEFT[case])
    for line in before:
        await doorstep.respond(line)
    opening = doorstep.opening_message
    assert bool(opening) is bool(before)
    await doorstep.respond(last)
    assert doorstep.opening_message == opening


async def test_what_json_cannot_say_is_left_to_the_sdk(config: GatewayConfig) -> None:
    service = opened(config)
    tool = {"name": "odd", "description": "half \ud800", "inputSchema": {"type": "object"}}
    (server,) = config.servers.values()
    about = {"instructions": "", "protocol": STATELESS, "info": {}}
    service.update_server(server, build_manifest(server, [tool], about))
    assert await said(service, [modern("tools/list")]) == [None]


async def test_servers_that_nobody_has_seen_are_named(config: GatewayConfig) -> None:
    unseen = plain_server("new", given={"start": "lazy"})
    service = opened(config)
    service.reconfigure(
        with_search_settings(build_config(*config.servers.values(), unseen), max_tools_limit=5)
    )
    query = modern("tools/call", **call("search_tools", query="zebra quartz"))
    (answers,) = await said(service, [query])
    assert answers is not None
    assert "1 server is still starting: new. Search again in a moment" in answers[0]


@pytest.mark.parametrize("first", [hello(), modern("server/discover")])
async def test_a_list_that_would_lack_a_server_waits_for_it(first: Any) -> None:
    service = Hub(build_config(plain_server("new")), open_store("sqlite://"))
    listing = request("tools/list") if first["method"] == "initialize" else modern("tools/list")
    opening, listed = await said(service, [first, listing])
    assert opening is not None
    assert listed is None


async def test_a_search_tool_waits_for_no_server() -> None:
    service = Hub(build_config(plain_server("new"), mode="search"), open_store("sqlite://"))
    (answers,) = await said(service, [modern("tools/list")])
    assert answers is not None
    about = json.loads(answers[0])["result"]["tools"][0]["description"]
    assert about.startswith("Find tools. More come from servers that were not up yet: new. Say")


async def test_savings_are_noted_here_too(config: GatewayConfig) -> None:
    service = opened(config)
    savings = TokenSavings(service)
    doorstep = FastStart(service, None, savings)
    await doorstep.respond(lined(modern("tools/list")))
    savings.flush()
    assert service.get_stats()["listings"] == 1


def test_what_is_said_of_the_protocol_is_what_the_sdk_says() -> None:
    assert protocol.HANDSHAKE_VERSIONS == versions.HANDSHAKE_PROTOCOL_VERSIONS
    assert (protocol.STATELESS_VERSION,) == versions.MODERN_PROTOCOL_VERSIONS
    assert protocol.VERSION_KEY == types.PROTOCOL_VERSION_META_KEY
    assert protocol.CAPABILITIES_KEY == types.CLIENT_CAPABILITIES_META_KEY
    assert protocol.CLIENT_KEY == types.CLIENT_INFO_META_KEY
    assert protocol.LEVEL_KEY == types.LOG_LEVEL_META_KEY
    assert protocol.SERVER_KEY == types.SERVER_INFO_META_KEY
    assert types.LoggingLevel.__args__ == session.LOG_LEVELS  # type: ignore[attr-defined]
