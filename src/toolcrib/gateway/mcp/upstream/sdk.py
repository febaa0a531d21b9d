"""The private parts of the MCP SDK that the connections to servers and clients use; a contract test checks them.

The typed calls of the SDK drop unknown fields and reject what does not fit their models. A gateway
must forward messages unchanged, so it exchanges plain dicts with both sides.
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
from mcp.shared.inbound import MCP_NAME_HEADER, encode_header_value, x_mcp_header_map
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Params = Mapping[str, Any] | None
OnRequest = Callable[[str, Params], Awaitable[dict[str, Any]]]
OnNotify = Callable[[str, Params], Awaitable[None]]
OnResponse = Callable[[], None]
RequestContext = ServerRequestContext[Any, Any]

# A server may never answer some requests, so the oldest callbacks are dropped.
MAX_RESPONSE_CALLBACKS: Final = 10_000

# Marks a notification of a subscription stream.
SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"

# Keys of `_meta` that describe one connection and must not be forwarded to another.
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

# The SDK's errors for a server that answered with an HTTP error.
HTTP_ERRORS: Final = (
    (types.INTERNAL_ERROR, "Server returned an error response"),
    (types.METHOD_NOT_FOUND, "Not Found"),
)
# The SDK's error message for a closed connection. Servers use its error code for other errors.
CONNECTION_CLOSED_MESSAGE: Final = "Connection closed"


class RawSession(ClientSession):
    """A client session whose requests, results and notifications are plain dicts."""

    def __init__(
        self,
        dispatcher: JSONRPCDispatcher[TransportContext],
        info: types.Implementation,
        *,
        on_request: OnRequest,
        on_notify: OnNotify,
    ) -> None:
        super().__init__(dispatcher=dispatcher, client_info=info)
        self._handle_server_request = on_request
        self._handle_notification = on_notify

    @property
    def is_stateless(self) -> bool:
        """Whether the server uses the stateless protocol, without a handshake."""
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
        """Send a request and return the result; `capabilities` are those of the gateway's client.

        `on_response` is called when the response arrives, even if the caller has given up, and after
        all messages before it were handled.
        """
        data: dict[str, Any] = {"method": method, "params": _copy_params(params)}
        opts: CallOptions = {}
        self._stamp(data, opts)
        if self.is_stateless:
            data["params"]["_meta"][types.CLIENT_CAPABILITIES_META_KEY] = dict(capabilities or {})
        elif meta := data["params"].get("_meta"):
            meta.pop(types.LOG_LEVEL_META_KEY, None)
        if self.is_stateless and method.startswith("tasks/") and isinstance(id := data["params"].get("taskId"), str):
            opts.setdefault("headers", {})[MCP_NAME_HEADER] = encode_header_value(id)
        if timeout is not None:
            opts["timeout"] = timeout
        if on_progress is not None:
            opts["on_progress"] = on_progress
        if on_response is not None and isinstance(self._dispatcher, _WatchedDispatcher):
            opts["request_id"] = self._dispatcher.register_callback(on_response)
        return await self._dispatcher.send_raw_request(method, data["params"], opts)

    def set_header_arguments(self, tools: Iterable[object]) -> None:
        """Send the arguments that these tools mark with `x-mcp-header` in HTTP headers too."""
        maps = {
            str(tool.get("name")): x_mcp_header_map(tool.get("inputSchema"))
            for tool in tools
            if isinstance(tool, Mapping)
        }
        self._x_mcp_header_maps = {name: headers for name, headers in maps.items() if headers}

    def _build_capabilities(self, version: str) -> types.ClientCapabilities:
        # One handshake serves all clients. A request that a client does not support is rejected
        # later.
        if version in MODERN_PROTOCOL_VERSIONS:
            return types.ClientCapabilities()
        return types.ClientCapabilities(
            sampling=types.SamplingCapability(),
            elicitation=types.ElicitationCapability(
                form=types.FormElicitationCapability(), url=types.UrlElicitationCapability()
            ),
            roots=types.RootsCapability(list_changed=True),
        )

    async def _on_request(self, dctx: DispatchContext[TransportContext], method: str, params: Params) -> dict[str, Any]:
        return {} if method == "ping" else await self._handle_server_request(method, params)

    async def _on_notify(self, dctx: DispatchContext[TransportContext], method: str, params: Params) -> None:
        meta = (params or {}).get("_meta")
        if isinstance(meta, Mapping) and SUBSCRIPTION_KEY in meta:
            # The SDK delivers it to the reader of the subscription.
            return
        await self._handle_notification(method, params)


class _WatchedDispatcher(JSONRPCDispatcher[TransportContext]):
    """A dispatcher that reports responses and the end of its connection."""

    def __init__(self, streams: tuple[Any, Any], closed: anyio.Event) -> None:
        super().__init__(*streams)
        self._closed_event = closed
        self.response_callbacks: dict[types.RequestId, OnResponse] = {}

    def register_callback(self, on_response: OnResponse) -> types.RequestId:
        """Return a new request id; `on_response` is called when its response arrives."""
        id = self._allocate_id()
        self.response_callbacks[id] = on_response
        while len(self.response_callbacks) > MAX_RESPONSE_CALLBACKS:
            del self.response_callbacks[next(iter(self.response_callbacks))]
        return id

    async def run(self, *args: Any, **kwargs: Any) -> None:
        try:
            await super().run(*args, **kwargs)
        finally:
            self._closed_event.set()
            self.response_callbacks.clear()

    def _resolve_pending(self, request_id: Any, outcome: Any) -> None:
        on_response = self.response_callbacks.pop(coerce_request_id(request_id), None)
        if on_response is not None:
            # Earlier messages are handled in tasks that have not started yet.
            asyncio.get_running_loop().call_soon(on_response)
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
    """Open a session over a transport's streams; `closed` is set when it ends."""
    dispatcher = _WatchedDispatcher(streams, closed)
    session = RawSession(dispatcher, info, on_request=on_request, on_notify=on_notify)
    async with session:
        if use_handshake:
            await session.initialize()
        else:
            await negotiate_auto(session)
        yield session


def get_connection(ctx: RequestContext) -> Connection:
    """Return the connection of a request. After a handshake, a client has one for all requests."""
    return ctx.session._connection


def get_client_channel(ctx: RequestContext) -> DispatchContext[Any]:
    """Return the channel to the client for the duration of its request."""
    return ctx.session._request_outbound


def get_stdio_stream(ctx: RequestContext) -> object | None:
    """Return an object that all requests of a client on standard input share.

    Stateless requests over HTTP share nothing reliable, so the result is None for them.
    """
    channel = get_client_channel(ctx)
    return getattr(getattr(channel, "_inner", channel), "_dispatcher", None)


def strip_connection_keys(meta: object) -> dict[str, Any]:
    """Return the part of a request's `_meta` that is forwarded to the server."""
    if not isinstance(meta, Mapping):
        return {}
    return {key: value for key, value in meta.items() if key not in CONNECTION_META_KEYS}


def _copy_params(params: Params) -> dict[str, Any]:
    copy = dict(params or {})
    if isinstance(copy.get("_meta"), Mapping):
        copy["_meta"] = dict(copy["_meta"])
    return copy
