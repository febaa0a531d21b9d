"""The one place that touches what the MCP SDK keeps private; a contract test holds it to that.

The SDK's typed calls drop the fields they do not know and refuse what does not fit their models. A
gateway has to hand on what it was given, so it speaks to both sides in plain dicts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import mcp_types as types
from mcp import ClientSession
from mcp.client._probe import negotiate_auto
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.shared.dispatcher import CallOptions, DispatchContext, ProgressFnT, coerce_request_id
from mcp.shared.inbound import x_mcp_header_map
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Params = Mapping[str, Any] | None
OnRequest = Callable[[str, Params], Awaitable[dict[str, Any]]]
OnNotify = Callable[[str, Params], Awaitable[None]]
OnResponse = Callable[[], None]
RequestContext = ServerRequestContext[Any, Any]

# Requests that a server has not answered, and may never. What is known of older ones is given up.
MAX_RESPONSE_CALLBACKS: Final = 10_000

# What marks a notice as part of a stream of changes.
SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"

# What is said about a connection in `_meta`, and is therefore never handed on to another one.
CONNECTION_META_KEYS: Final = frozenset(
    {
        types.PROTOCOL_VERSION_META_KEY,
        types.CLIENT_INFO_META_KEY,
        types.CLIENT_CAPABILITIES_META_KEY,
        types.SERVER_INFO_META_KEY,
        "progressToken",
        SUBSCRIPTION_KEY,
    }
)


# What the SDK answers in place of a server that answered with an HTTP error.
HTTP_ERROR_MESSAGE: Final = "Server returned an error response"
# What it answers in place of a server whose connection has ended. Servers use the same code.
CONNECTION_CLOSED_MESSAGE: Final = "Connection closed"


class RawSession(ClientSession):
    """A client's session whose requests, results and notifications are plain dicts."""

    def __init__(
        self,
        dispatcher: JSONRPCDispatcher[TransportContext],
        info: types.Implementation,
        **given: Any,
    ) -> None:
        super().__init__(dispatcher=dispatcher, client_info=info)
        self._handle_server_request: OnRequest = given["on_request"]
        self._handle_notification: OnNotify = given["on_notify"]

    @property
    def is_stateless(self) -> bool:
        """Whether the server speaks the protocol without a handshake."""
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def raw_request(
        self,
        method: str,
        params: Params,
        *,
        timeout: float | None = None,
        capabilities: Mapping[str, Any] | None = None,
        on_progress: ProgressFnT | None = None,
        on_response: OnResponse | None = None,
    ) -> dict[str, Any]:
        """Ask the server. `capabilities` are those of the client on whose behalf this is.

        `on_answered` is called when an answer comes, also when nobody waits for it any more, and
        after everything that came before it.
        """
        data: dict[str, Any] = {"method": method, "params": _copy_params(params)}
        opts: CallOptions = {}
        self._stamp(data, opts)
        if self.is_stateless:
            data["params"]["_meta"][types.CLIENT_CAPABILITIES_META_KEY] = dict(capabilities or {})
        elif meta := data["params"].get("_meta"):
            meta.pop(types.LOG_LEVEL_META_KEY, None)
        if timeout is not None:
            opts["timeout"] = timeout
        if on_progress is not None:
            opts["on_progress"] = on_progress
        if on_response is not None and isinstance(self._dispatcher, _WatchedDispatcher):
            opts["request_id"] = self._dispatcher.register_callback(on_response)
        return await self._dispatcher.send_raw_request(method, data["params"], opts)

    async def raw_notify(self, method: str, params: Params) -> None:
        """Tell the server something."""
        data: dict[str, Any] = {"method": method, "params": _copy_params(params)}
        opts: CallOptions = {}
        self._stamp(data, opts)
        await self._dispatcher.notify(method, data["params"] or None, opts)

    def set_header_arguments(self, tools: Iterable[object]) -> None:
        """Send in headers too what of their arguments these tools ask to have there."""
        maps = {
            str(tool.get("name")): x_mcp_header_map(tool.get("inputSchema"))
            for tool in tools
            if isinstance(tool, Mapping)
        }
        self._x_mcp_header_maps = {name: of_tool for name, of_tool in maps.items() if of_tool}

    def _build_capabilities(self, version: str) -> types.ClientCapabilities:
        # On a handshake we answer for every client to come; what one of them cannot do is refused
        # when it is asked of it.
        if version in MODERN_PROTOCOL_VERSIONS:
            return types.ClientCapabilities()
        return types.ClientCapabilities(
            sampling=types.SamplingCapability(),
            elicitation=types.ElicitationCapability(
                form=types.FormElicitationCapability(), url=types.UrlElicitationCapability()
            ),
            roots=types.RootsCapability(list_changed=True),
        )

    async def _on_request(
        self, dctx: DispatchContext[TransportContext], method: str, params: Params
    ) -> dict[str, Any]:
        return {} if method == "ping" else await self._handle_server_request(method, params)

    async def _on_notify(
        self, dctx: DispatchContext[TransportContext], method: str, params: Params
    ) -> None:
        meta = (params or {}).get("_meta")
        if isinstance(meta, Mapping) and SUBSCRIPTION_KEY in meta:
            # It belongs to a stream of changes, whose reader is given it by the SDK.
            return
        await self._handle_notification(method, params)


class _WatchedDispatcher(JSONRPCDispatcher[TransportContext]):
    """A dispatcher that says when its connection has ended."""

    closed: anyio.Event

    def __init__(self, *streams: Any) -> None:
        super().__init__(*streams)
        self._response_callbacks: dict[types.RequestId, OnResponse] = {}

    def register_callback(self, on_answered: OnResponse) -> types.RequestId:
        """The id for a request whose answer is to be told of, whenever it comes."""
        id = self._allocate_id()
        self._response_callbacks[id] = on_answered
        while len(self._response_callbacks) > MAX_RESPONSE_CALLBACKS:
            del self._response_callbacks[next(iter(self._response_callbacks))]
        return id

    async def run(self, *args: Any, **given: Any) -> None:
        try:
            await super().run(*args, **given)
        finally:
            self.closed.set()
            self._response_callbacks.clear()

    def _resolve_pending(self, request_id: Any, outcome: Any) -> None:
        on_answered = self._response_callbacks.pop(coerce_request_id(request_id), None)
        if on_answered is not None:
            # What came before is dealt with in tasks of its own, which have not begun yet.
            asyncio.get_running_loop().call_soon(on_answered)
        super()._resolve_pending(request_id, outcome)


@asynccontextmanager
async def open_raw_session(
    streams: tuple[Any, Any],
    info: types.Implementation,
    *,
    use_handshake: bool,
    on_request: OnRequest,
    on_notify: OnNotify,
    closed: anyio.Event,
) -> AsyncIterator[RawSession]:
    """A session over a transport's streams, in the era the server speaks; `closed` is set at its end."""
    dispatcher = _WatchedDispatcher(*streams)
    dispatcher.closed = closed
    session = RawSession(dispatcher, info, on_request=on_request, on_notify=on_notify)
    async with session:
        if use_handshake:
            await session.initialize()
        else:
            await negotiate_auto(session)
        yield session


def get_connection(ctx: RequestContext) -> Connection:
    """The connection a request came on; on a handshake it is the same for all of a client's."""
    return ctx.session._connection


def get_client_channel(ctx: RequestContext) -> DispatchContext[Any]:
    """The way back to the client while its request is being answered."""
    return ctx.session._request_outbound


def get_stdio_stream(ctx: RequestContext) -> object | None:
    """What all requests of one client by standard input have in common, also without a handshake.

    By HTTP, requests without a handshake have nothing in common that could be relied on.
    """
    channel = get_client_channel(ctx)
    return getattr(getattr(channel, "_inner", channel), "_dispatcher", None)


def strip_connection_keys(meta: object) -> dict[str, Any]:
    """What of a request's `_meta` goes on to the server."""
    if not isinstance(meta, Mapping):
        return {}
    return {key: value for key, value in meta.items() if key not in CONNECTION_META_KEYS}


def _copy_params(params: Params) -> dict[str, Any]:
    copied = dict(params or {})
    if isinstance(copied.get("_meta"), Mapping):
        copied["_meta"] = dict(copied["_meta"])
    return copied
