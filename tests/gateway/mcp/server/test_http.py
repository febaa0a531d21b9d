"""The gateway over real HTTP, on a loopback port."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.gateway.mcp.harness import STATELESS, build_config, call_text, list_tool_names, plain_server, serve_app
from toolcrib.config.settings import AccessProfile, ApiKey, AuthConfig, HttpConfig
from toolcrib.gateway.app import build_unprotected_app
from toolcrib.gateway.auth import Authenticator
from toolcrib.gateway.metrics import MetricsRegistry
from toolcrib.gateway.middleware import SecurityMiddleware
from toolcrib.hub.hub import Hub
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.storage import open_store

pytestmark = pytest.mark.anyio

ZOO = plain_server("zoo", ["lion", "bear", "wolf", "echo", "pid"])
SEA = plain_server("sea", ["whale", "shark", "squid"], STATELESS)
CONFIG = replace(
    build_config(ZOO, SEA, profiles=[AccessProfile("wet", servers=("sea",))], mode="dynamic", max_tools_limit=3),
    http=HttpConfig(max_body_bytes=100_000),
    auth=AuthConfig((ApiKey.from_secret("key of all"), ApiKey.from_secret("key of the sea", "wet", "diver"))),
)
BOTH_REVISIONS = pytest.mark.parametrize("revision", ["legacy", STATELESS])
# Two hundred sessions take half a minute of one core.
HEAVY = bool(os.environ.get("TOOLCRIB_HEAVY_TESTS"))
SEARCH = "search_available_tools"
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
JSON = {"accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
async def url() -> AsyncIterator[str]:
    hub = Hub(CONFIG, open_store("sqlite://"), {"lexical": LexicalRanker()})
    app = build_unprotected_app(hub, MetricsRegistry())
    guarded = SecurityMiddleware(app, CONFIG.http, Authenticator(lambda: CONFIG.auth.keys))

    async def authenticate_if_key(scope: Any, receive: Any, send: Any) -> None:
        """Authenticate requests that have a key; let the others through."""
        has_key = any(name == b"authorization" for name, _ in scope.get("headers", ()))
        await (guarded if has_key else app)(scope, receive, send)

    try:
        async with serve_app(authenticate_if_key) as address, httpx2.AsyncClient() as http:
            with anyio.fail_after(60):
                while (await post(http, address, "tools/list"))["result"]["tools"].__len__() < 4:
                    await anyio.sleep(0.05)
            yield address
    finally:
        hub.close()


async def post(http: httpx2.AsyncClient, url: str, method: str, **params: Any) -> Any:
    """Send a request as `curl` does: without a handshake and without a session."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    response = await http.post(f"{url}/mcp", json=body)
    assert response.status_code == 200
    return response.json()


@BOTH_REVISIONS
async def test_sdk_client_lists_searches_and_calls(url: str, revision: str) -> None:
    async with Client(f"{url}/mcp", mode=revision) as connected:
        listed = await list_tool_names(connected)
        assert await call_text(connected, "zoo___echo", {"text": "hello"}) == "hello"
        assert "sea___whale" in await call_text(connected, SEARCH, {"query": "whale"})
        after = await list_tool_names(connected)
    if revision == STATELESS:
        assert listed == after == ["search_tools", "describe_tool", "call_tool"]
    else:
        assert listed[-1] == SEARCH
        assert after == ["sea___whale", SEARCH]


async def test_list_change_reaches_only_the_searching_session_before_the_result(url: str) -> None:
    received: list[str] = []
    received_by_other: list[str] = []

    async def on_message(message: Any) -> None:
        received.append(getattr(message, "method", ""))

    async def on_other_message(message: Any) -> None:
        received_by_other.append(getattr(message, "method", ""))

    async with (
        Client(f"{url}/mcp", mode="legacy", message_handler=on_message) as searching,
        Client(f"{url}/mcp", mode="legacy", message_handler=on_other_message) as other,
    ):
        await call_text(searching, SEARCH, {"query": "squid"})
        received.append("result")
        assert received == ["notifications/tools/list_changed", "result"]
        assert len(await list_tool_names(other)) == 4
    assert received_by_other == []


@BOTH_REVISIONS
async def test_path_selects_a_profile(url: str, revision: str) -> None:
    async with Client(f"{url}/mcp/p/wet", mode=revision) as connected:
        assert await list_tool_names(connected) == ["sea___whale", "sea___shark", "sea___squid"]
        assert (await connected.call_tool("zoo___echo", {"text": "x"})).is_error
    with pytest.raises((MCPError, ExceptionGroup)):
        async with Client(f"{url}/mcp/p/nowhere", mode=revision) as connected:
            await connected.list_tools()


@asynccontextmanager
async def connect_with_key(url: str, key: str) -> AsyncIterator[Any]:
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        streamable_http_client(url, http_client=http) as streams,
    ):
        yield streams


@BOTH_REVISIONS
async def test_key_selects_its_profile_and_no_other(url: str, revision: str) -> None:
    async with Client(connect_with_key(f"{url}/mcp", "key of the sea"), mode=revision) as connected:
        assert await list_tool_names(connected) == ["sea___whale", "sea___shark", "sea___squid"]
    async with Client(connect_with_key(f"{url}/mcp/p/wet", "key of all"), mode=revision) as connected:
        assert len(await list_tool_names(connected)) == 3
    headers = {"Authorization": "Bearer key of the sea"}
    async with httpx2.AsyncClient(headers=headers) as http:
        refused = await http.post(f"{url}/mcp/p/dry", json={})
        assert refused.status_code == 403
        assert "does not give access to this profile" in refused.text
    async with httpx2.AsyncClient(headers={"Authorization": "Bearer wrong"}) as http:
        assert (await http.post(f"{url}/mcp", json={})).status_code == 401


async def test_session_cannot_be_used_with_another_profile(url: str) -> None:
    initialize = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
    }
    async with httpx2.AsyncClient(headers=JSON) as http:
        opened = await http.post(f"{url}/mcp", json=initialize)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await http.post(f"{url}/mcp", json=ready, headers=session)
        request = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        own = await http.post(f"{url}/mcp", json=request, headers=session)
        other = await http.post(f"{url}/mcp/p/wet", json=request, headers=session)
    assert "zoo___bear" in own.text
    assert "another profile" in other.text
    assert "sea___" not in other.text


async def test_curl_needs_no_handshake(url: str) -> None:
    async with httpx2.AsyncClient() as http:
        listed = await post(http, url, "tools/list")
        found = await post(http, url, "tools/call", name=SEARCH, arguments={"query": "whale"})
        called = await post(http, url, "tools/call", name="zoo___echo", arguments={"text": "hi"})
        wrong = await post(http, url, "tools/call", name=SEARCH, arguments={})
        unknown = await post(http, url, "no/such/method")
        ping = await post(http, url, "ping")
    assert listed["result"]["tools"][-1]["name"] == SEARCH
    assert found["result"]["content"][0]["text"].startswith("Found 1 matching tools:\n\n1. sea___")
    assert called["result"]["content"][0]["text"] == "hi"
    assert wrong["error"]["code"] == -32602
    assert wrong["error"]["message"] == "Missing required 'query' parameter"
    assert unknown["error"]["code"] == -32601
    assert ping["result"] == {}


async def test_curl_receives_the_list_change_as_an_event(url: str) -> None:
    body = {
        "jsonrpc": "2.0",
        "id": 5,
        "method": "tools/call",
        "params": {"name": SEARCH, "arguments": {"query": "whale"}},
    }
    async with httpx2.AsyncClient(headers=JSON) as http:
        response = await http.post(f"{url}/mcp", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in response.text.split("\n") if line[:6] == "data: "]
    assert events[0] == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    assert events[1]["id"] == 5
    assert len(events) == 2


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"not json", 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'{"jsonrpc":"2.0","method":7,"id":1}', 400),
        (b'{"jsonrpc":"2.0","method":"tools/list","id":null}', 400),
        (b'{"jsonrpc":"2.0","method":"tools/list","id":{}}', 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800"}}', 400),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":NaN}}', 400),
        (b"[" * 50_000, 400),
        (b'{"x":"' + b"x" * 150_000 + b'"}', 413),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"x":"' + b"x" * 70_000 + b'"}}', 413),
        (b'{"x":"' + b"x" * 70_000, 400),
    ],
)
async def test_invalid_request_is_refused(url: str, body: bytes, status: int) -> None:
    async with httpx2.AsyncClient(headers=JSON) as http:
        headers = {"content-type": "application/json"}
        response = await http.post(f"{url}/mcp", content=body, headers=headers)
    assert response.status_code == status
    assert response.text


async def test_invalid_parameters_are_an_error(url: str) -> None:
    async with httpx2.AsyncClient() as http:
        for params in ({}, {"name": 7}, {"name": "zoo___echo", "arguments": [1]}):
            response = await post(http, url, "tools/call", **params)
            assert response["error"]["code"] == -32602
        nothing = await post(http, url, "tools/call", name="zoo___nothing\nx", arguments=None)
    assert nothing["result"]["isError"] is True


async def test_health(url: str) -> None:
    async with httpx2.AsyncClient() as http:
        health = await http.get(f"{url}/health")
    assert health.json()["status"] == "ok"


async def test_sessions_have_independent_tool_lists(url: str) -> None:
    """Each session searches for another tool and then lists only that one."""
    count = 200 if HEAVY else 12
    animals = ["lion", "bear", "wolf", "whale", "shark", "squid"]
    wrong: list[Any] = []
    ready = 0
    all_ready = anyio.Event()

    async def run_session(number: int) -> None:
        nonlocal ready
        animal = animals[number % len(animals)]
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode="legacy") as connected:
            await call_text(connected, SEARCH, {"query": animal})
            text = f"session {number}"
            echo = await call_text(connected, "zoo___echo", {"text": text})
            ready += 1
            if ready == count:
                all_ready.set()
            await all_ready.wait()
            listed = await list_tool_names(connected)
            if echo != text or [name.partition("___")[2] for name in listed[:-1]] != [animal]:
                wrong.append((number, echo, listed))

    unlimited = httpx2.Limits(max_connections=None)
    with anyio.fail_after(120):
        async with httpx2.AsyncClient(limits=unlimited, timeout=60) as http, anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(run_session, number)
    assert wrong == []


async def test_a_closed_session_is_unknown_when_its_end_is_confirmed() -> None:
    hub = Hub(build_config(ZOO), open_store("sqlite://"), {"lexical": LexicalRanker()})
    app = build_unprotected_app(hub, MetricsRegistry())
    statuses: list[int] = []

    async def use_again_before_response(scope: Any, receive: Any, send: Any) -> None:
        """Use a session while the response to its end is on the way to the client."""

        async def watch(message: Any) -> None:
            if scope["method"] == "DELETE" and message["type"] == "http.response.start":
                statuses.append((await http.post(f"{address}/mcp", json=LIST, headers=session)).status_code)
            await send(message)

        await app(scope, receive, watch if scope["type"] == "http" else send)

    try:
        async with (
            serve_app(use_again_before_response) as address,
            httpx2.AsyncClient(headers=JSON, timeout=60) as http,
        ):
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            opened = await http.post(f"{address}/mcp", json=hello)
            session = {"mcp-session-id": opened.headers["mcp-session-id"]}
            assert (await http.post(f"{address}/mcp", json=LIST, headers=session)).status_code == 200
            assert (await http.delete(f"{address}/mcp", headers=session)).status_code == 200
            assert statuses == [404]
    finally:
        hub.close()


async def test_id_of_a_running_request_is_refused_and_the_request_is_answered() -> None:
    hub = Hub(build_config(plain_server("slow", ["hang"])), open_store("sqlite://"), {"lexical": LexicalRanker()})
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "slow___hang", "arguments": {}}}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    answered: list[str] = []
    try:
        app = build_unprotected_app(hub, MetricsRegistry())
        async with serve_app(app) as address, httpx2.AsyncClient(headers=JSON, timeout=60) as http:
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
            hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
            opened = await http.post(f"{address}/mcp", json=hello)
            session = {"mcp-session-id": opened.headers["mcp-session-id"]}

            async def run_call() -> None:
                while not (response := await http.post(f"{address}/mcp", json=call, headers=session)).is_success:
                    pass
                answered.append(response.text)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run_call)
                with anyio.fail_after(60):
                    while (
                        again := await http.post(f"{address}/mcp", json={**LIST, "id": 7}, headers=session)
                    ).is_success:
                        pass
                    assert again.status_code == 400 and "still running" in again.json()["error"]["message"]
                    while not answered:
                        await http.post(f"{address}/mcp", json=cancel, headers=session)
                        await anyio.sleep(0.05)
            assert "cancelled" in answered[0]
            assert (await http.post(f"{address}/mcp", json={**LIST, "id": 7}, headers=session)).is_success
            broken = await http.post(
                f"{address}/mcp", content=b"{", headers={**session, "content-type": "application/json"}
            )
            assert broken.status_code == 400
    finally:
        hub.close()
