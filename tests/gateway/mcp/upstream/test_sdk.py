"""The contract with the private parts of the MCP SDK."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client, ClientSession
from mcp.client import streamable_http
from mcp.client._probe import negotiate_auto
from mcp.server import Server
from mcp.server.connection import Connection
from mcp.server.runner import modern_error_data, serve_one
from mcp.shared import jsonrpc_dispatcher
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import x_mcp_header_map
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.memory import create_client_server_memory_streams

from toolcrib.gateway.mcp.upstream.messages import SDK_STAND_INS
from toolcrib.gateway.mcp.upstream.sdk import (
    CONNECTION_CLOSED_MESSAGE,
    CONNECTION_META_KEYS,
    HTTP_ERRORS,
    RawSession,
    get_client_channel,
    get_connection,
    get_stdio_stream,
    open_raw_session,
    strip_connection_keys,
)

pytestmark = pytest.mark.anyio

INFO = types.Implementation(name="tester", version="1")


@asynccontextmanager
async def open_session(server: Server[Any], *, legacy: bool) -> AsyncIterator[tuple[RawSession, Any]]:
    """Open a raw session with a server of the SDK, with scripted responses to its requests."""

    async def on_request(method: str, params: Any) -> dict[str, Any]:
        return {"asked": method}

    async def on_notify(method: str, params: Any) -> None:
        notifications.append((method, params))

    notifications: list[Any] = []
    async with create_client_server_memory_streams() as (client, (read, write)), anyio.create_task_group() as tasks:
        options = server.create_initialization_options()
        tasks.start_soon(server.run, read, write, options)
        closed = anyio.Event()
        async with open_raw_session(
            client, INFO, use_handshake=legacy, on_request=on_request, on_notify=on_notify, closed=closed
        ) as session:
            yield session, notifications
        assert closed.is_set()
        tasks.cancel_scope.cancel()


def recording_server(seen: list[Any]) -> Server[Any]:
    """Return a server whose middleware adds fields that the SDK's models would drop."""
    server: Server[Any] = Server("contract", version="1")

    async def never(ctx: Any, params: Any) -> Any:
        raise AssertionError

    async def answer(ctx: Any, call_next: Any) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        seen.append((get_connection(ctx), get_stdio_stream(ctx), dict(ctx.params or {})))
        await get_client_channel(ctx).notify("notifications/message", {"level": "info", "data": 1})
        await get_client_channel(ctx).progress(1, 2, "half")
        return {"content": [], "vendorField": {"deep": [None]}, "resultType": "complete"}

    server.add_request_handler("tools/call", types.RequestParams, never)
    server.middleware.append(answer)
    return server


@pytest.mark.parametrize("legacy", [True, False])
async def test_requests_and_results_are_plain_dicts(legacy: bool) -> None:
    seen: list[Any] = []
    heard_of: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard_of.append((progress, total, message))

    async with open_session(recording_server(seen), legacy=legacy) as (session, notifications):
        assert session.is_stateless is not legacy
        params = {"name": "x", "arguments": {"a": 1}, "vendorField": 7, "_meta": {"k": "v"}}
        result = await session.raw_request(
            "tools/call", params, timeout=20, capabilities={"roots": {}}, on_progress=on_progress
        )
        await session.raw_request("tools/call", params, timeout=20)
    assert result["vendorField"] == {"deep": [None]}
    assert ("notifications/message", {"level": "info", "data": 1}) in [
        (method, {key: value for key, value in (params or {}).items() if key != "_meta"})
        for method, params in notifications
    ]
    assert heard_of == [(1.0, 2.0, "half")]
    connection, _, got = seen[0]
    assert isinstance(connection, Connection)
    assert isinstance(connection.state, dict)
    assert hasattr(connection.exit_stack, "callback")
    assert got["vendorField"] == 7
    assert got["_meta"]["k"] == "v"
    # The params of the caller are not modified.
    assert params["_meta"] == {"k": "v"}
    same = seen[0][0] is seen[1][0]
    assert same is legacy
    # The identity of a client on standard input in both revisions.
    assert seen[0][1] is seen[1][1] is not None
    if not legacy:
        assert got["_meta"][types.CLIENT_CAPABILITIES_META_KEY] == {"roots": {}}
        assert connection.client_capabilities is not None
        assert connection.client_capabilities.roots is not None


@pytest.mark.parametrize("legacy", [True, False])
async def test_response_callback_runs_after_the_caller_gave_up(legacy: bool) -> None:
    server: Server[Any] = Server("slow", version="1")
    answers, told_of = anyio.Event(), anyio.Event()

    async def answer(ctx: Any, call_next: Any) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        with anyio.CancelScope(shield=True):
            await answers.wait()
            await get_client_channel(ctx).notify("notifications/message", {"level": "info", "data": 1})
        # Like some servers after a cancellation.
        raise MCPError(-32050, "stopped")

    async def never(ctx: Any, params: Any) -> Any:
        raise AssertionError

    server.add_request_handler("tools/call", types.RequestParams, never)
    server.middleware.append(answer)
    async with open_session(server, legacy=legacy) as (session, _):
        with anyio.move_on_after(0.2):
            await session.raw_request("tools/call", {"name": "x"}, on_response=told_of.set)
        assert not told_of.is_set()
        # The SDK's server sends no response after a cancellation, so the response is simulated.
        answers.set()
        dispatcher: Any = session._dispatcher
        (id,) = dispatcher.response_callbacks
        dispatcher._resolve_pending(id, {})
        with anyio.fail_after(20):
            await told_of.wait()
        assert dispatcher.response_callbacks == {}


async def test_server_request_gets_a_raw_response() -> None:
    server: Server[Any] = Server("asker", version="1")
    answers: list[Any] = []

    async def ask(ctx: Any, call_next: Any) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        answers.append(await get_client_channel(ctx).send_raw_request("roots/list", {}))
        answers.append(await get_client_channel(ctx).send_raw_request("ping", None))
        capabilities = get_connection(ctx).client_capabilities
        answers.append(capabilities and capabilities.sampling is not None)
        return {"content": []}

    async def never(ctx: Any, params: Any) -> Any:
        raise AssertionError

    server.add_request_handler("tools/call", types.RequestParams, never)
    server.middleware.append(ask)
    async with open_session(server, legacy=True) as (session, _):
        await session.raw_request("tools/call", {"name": "x"}, timeout=20)
    assert answers == [{"asked": "roots/list"}, {}, True]


def test_private_parts_of_the_sdk_exist() -> None:
    assert {"_on_request", "_on_notify", "_build_capabilities"} <= set(dir(ClientSession))
    session = inspect.getsource(ClientSession.__init__)
    assert "_stamp" in session
    assert "_x_mcp_header_maps" in session
    assert "_dispatcher" in session
    dispatcher = {"send_raw_request", "notify", "run", "_allocate_id", "_resolve_pending"}
    assert dispatcher <= set(dir(JSONRPCDispatcher))
    for act in (negotiate_auto, serve_one):
        assert inspect.iscoroutinefunction(act)
    assert list(inspect.signature(serve_one).parameters)[:4] == ["server", "dctx", "method", "params"]
    for _, message in HTTP_ERRORS:
        assert f'message="{message}"' in inspect.getsource(streamable_http)
    for prefix in SDK_STAND_INS:
        assert f'"{prefix}' in inspect.getsource(streamable_http)
    assert f'message="{CONNECTION_CLOSED_MESSAGE}"' in inspect.getsource(jsonrpc_dispatcher)
    error = modern_error_data(MCPError(-32050, "no", {"why": 1}))
    assert (error.code, error.message, error.data) == (-32050, "no", {"why": 1})
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    assert x_mcp_header_map(schema) == {("a",): "A"}


def test_connection_keys_are_stripped() -> None:
    meta = {**dict.fromkeys(CONNECTION_META_KEYS, 1), "vendor/key": 2}
    assert strip_connection_keys(meta) == {"vendor/key": 2}
    assert strip_connection_keys(None) == {}
    assert strip_connection_keys([1]) == {}


async def test_official_client_accepts_our_server() -> None:
    """`Client` accepts a low-level server, which is how all in-process tests connect."""
    async with Client(recording_server([]), mode="legacy") as connected:
        assert connected.protocol_version == "2025-11-25"
