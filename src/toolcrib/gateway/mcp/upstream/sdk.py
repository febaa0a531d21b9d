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
OnAnswered = Callable[[], None]
Context = ServerRequestContext[Any, Any]

# Requests that a server has not answered, and may never. What is known of older ones is given up.
MAX_EXPECTED: Final = 10_000

# What marks a notice as part of a stream of changes.
SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"

# What is said about a connection in `_meta`, and is therefore never handed on to another one.
CONNECTION_KEYS: Final = frozenset(
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
HTTP_FAILED: Final = "Server returned an error response"
# What it answers in place of a server whose connection has ended. Servers use the same code.
CLOSED: Final = "Connection closed"


class RawSession(ClientSession):
    """A client's session whose requests, results and notifications are plain dicts."""

    def __init__(
        self,
        dispatcher: JSONRPCDispatcher[TransportContext],
        info: types.Implementation,
        **given: Any,
    ) -> None:
        super().__init__(dispatcher=dispatcher, client_info=info)
        self._asked: OnRequest = given["on_request"]
        self._told: OnNotify = given["on_notify"]

    @property
    def is_modern(self) -> bool:
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
        on_answered: OnAnswered | None = None,
    ) -> dict[str, Any]:
        """Ask the server. `capabilities` are those of the client on whose behalf this is.

        `on_answered` is called when an answer comes, also when nobody waits for it any more, and
        after everything that came before it.
        """
        data: dict[str, Any] = {"method": method, "params": _copied(params)}
        opts: CallOptions = {}
        self._stamp(data, opts)
        if self.is_modern:
            data["params"]["_meta"][types.CLIENT_CAPABILITIES_META_KEY] = dict(capabilities or {})
        elif meta := data["params"].get("_meta"):
            meta.pop(types.LOG_LEVEL_META_KEY, None)
        if timeout is not None:
            opts["timeout"] = timeout
        if on_progress is not None:
            opts["on_progress"] = on_progress
        if on_answered is not None and isinstance(self._dispatcher, _Watched):
            opts["request_id"] = self._dispatcher.expect(on_answered)
        return await self._dispatcher.send_raw_request(method, data["params"], opts)

    async def raw_notify(self, method: str, params: Params) -> None:
        """Tell the server something."""
        data: dict[str, Any] = {"method": method, "params": _copied(params)}
        opts: CallOptions = {}
        self._stamp(data, opts)
        await self._dispatcher.notify(method, data["params"] or None, opts)

    def mirror_headers(self, tools: Iterable[object]) -> None:
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
        return {} if method == "ping" else await self._asked(method, params)

    async def _on_notify(
        self, dctx: DispatchContext[TransportContext], method: str, params: Params
    ) -> None:
        meta = (params or {}).get("_meta")
        if isinstance(meta, Mapping) and SUBSCRIPTION_KEY in meta:
            # It belongs to a stream of changes, whose reader is given it by the SDK.
            return
        await self._told(method, params)


class _Watched(JSONRPCDispatcher[TransportContext]):
    """A dispatcher that says when its connection has ended."""

    closed: anyio.Event

    def __init__(self, *streams: Any) -> None:
        super().__init__(*streams)
        self._expected: dict[types.RequestId, OnAnswered] = {}

    def expect(self, on_answered: OnAnswered) -> types.RequestId:
        """The id for a request whose answer is to be told of, whenever it comes."""
        id = self._allocate_id()
        self._expected[id] = on_answered
        while len(self._expected) > MAX_EXPECTED:
            del self._expected[next(iter(self._expected))]
        return id

    async def run(self, *args: Any, **given: Any) -> None:
        try:
            await super().run(*args, **given)
        finally:
            self.closed.set()
            self._expected.clear()

    def _resolve_pending(self, request_id: Any, outcome: Any) -> None:
        on_answered = self._expected.pop(coerce_request_id(request_id), None)
        if on_answered is not None:
            # What came before is dealt with in tasks of its own, which have not begun yet.
            asyncio.get_running_loop().call_soon(on_answered)
        super()._resolve_pending(request_id, outcome)


@asynccontextmanager
async def raw_session(
    streams: tuple[Any, Any],
    info: types.Implementation,
    *,
    legacy: bool,
    on_request: OnRequest,
    on_notify: OnNotify,
    closed: anyio.Event,
) -> AsyncIterator[RawSession]:
    """A session over a transport's streams, in the era the server speaks; `closed` is set at its end."""
    dispatcher = _Watched(*streams)
    dispatcher.closed = closed
    session = RawSession(dispatcher, info, on_request=on_request, on_notify=on_notify)
    async with session:
        if legacy:
            await session.initialize()
        else:
            await negotiate_auto(session)
        yield session


def connection_of(ctx: Context) -> Connection:
    """The connection a request came on; on a handshake it is the same for all of a client's."""
    return ctx.session._connection


def channel_of(ctx: Context) -> DispatchContext[Any]:
    """The way back to the client while its request is being answered."""
    return ctx.session._request_outbound


def stream_of(ctx: Context) -> object | None:
    """What all requests of one client by standard input have in common, also without a handshake.

    By HTTP, requests without a handshake have nothing in common that could be relied on.
    """
    channel = channel_of(ctx)
    return getattr(getattr(channel, "_inner", channel), "_dispatcher", None)


def without_connection_keys(meta: object) -> dict[str, Any]:
    """What of a request's `_meta` goes on to the server."""
    if not isinstance(meta, Mapping):
        return {}
    return {key: value for key, value in meta.items() if key not in CONNECTION_KEYS}


def _copied(params: Params) -> dict[str, Any]:
    copied = dict(params or {})
    if isinstance(copied.get("_meta"), Mapping):
        copied["_meta"] = dict(copied["_meta"])
    return copied
