"""One connection to one server, from its start to its end."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import mcp_types as types
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import listen
from mcp.shared.exceptions import MCPError

from toolcrib import __version__
from toolcrib.config.settings import ServerConfig
from toolcrib.errors import ServerUnavailable
from toolcrib.gateway.mcp.upstream.child_processes import MAX_LINE_BYTES
from toolcrib.gateway.mcp.upstream.oauth_tokens import TokenAuth, TokenFile
from toolcrib.gateway.mcp.upstream.sdk import (
    CONNECTION_CLOSED_MESSAGE,
    OnNotify,
    OnRequest,
    RawSession,
    open_raw_session,
)
from toolcrib.gateway.mcp.upstream.stdio import StderrTail, run_child_process

CLIENT_INFO: Final = types.Implementation(name="toolcrib", version=__version__)
MAX_PAGES: Final = 1_000
MAX_LIST_ENTRIES: Final = 100_000


@dataclass(frozen=True, slots=True)
class UpstreamConnection:
    """A connection that stands: ask, tell, and know when it has ended."""

    session: RawSession
    closed: anyio.Event
    # Why the server does not let us in, if it does not.
    login_hint: Callable[[], str] = lambda: ""

    @property
    def protocol(self) -> str:
        """The version of the protocol that is spoken."""
        return self.session.protocol_version or ""

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the server says it can do."""
        return _dump_model(self.session.server_capabilities)

    @property
    def server_info(self) -> dict[str, Any]:
        """Who the server says it is. Nobody vouches for that."""
        return _dump_model(self.session.server_info)

    @property
    def instructions(self) -> str:
        """What the server says about itself to whoever uses it."""
        return self.session.instructions or ""

    async def request_list(self, method: str, key: str, timeout: float) -> list[Any]:
        """All entries of a list that comes in pages, as they came."""
        entries: list[Any] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = {"cursor": cursor} if cursor is not None else None
            answer = await self.session.raw_request(method, params, timeout=timeout)
            page = answer.get(key)
            entries += page if isinstance(page, list) else []
            following = answer.get("nextCursor")
            if (
                not isinstance(following, str)
                or following == cursor
                or len(entries) > MAX_LIST_ENTRIES
            ):
                break
            cursor = following
        return entries[:MAX_LIST_ENTRIES]

    async def watch_list_changes(self, on_notify: OnNotify) -> bool:
        """On the protocol without a handshake, ask to be told of changes, and pass them on.

        Ends when the server ends it, and says whether there was anything to be told of.
        """
        if not self.session.is_stateless:
            return False
        changes = self.capabilities
        tools, prompts, resources = (
            bool(_get_capability(changes, kind, "listChanged"))
            for kind in ("tools", "prompts", "resources")
        )
        if not (tools or prompts or resources):
            return False
        async with listen(
            self.session,
            tools_list_changed=tools,
            prompts_list_changed=prompts,
            resources_list_changed=resources,
        ) as subscription:
            async for event in subscription:
                await on_notify(_notification_method(event), None)
        return True


@asynccontextmanager
async def open_connection(
    server: ServerConfig,
    *,
    use_handshake: bool,
    on_request: OnRequest,
    on_notify: OnNotify,
    stderr_tail: StderrTail,
    token_folder: Path | None = None,
) -> AsyncIterator[UpstreamConnection]:
    """Start or reach a server and agree on a protocol with it.

    `tokens` is the folder with the tokens of servers that a person has logged in to.
    """
    door = _HttpStatusWatch(anyio.Event(), _build_token_auth(server, token_folder))
    try:
        async with _open_transport(server, stderr_tail, door) as streams:
            session = open_raw_session(
                streams,
                CLIENT_INFO,
                use_handshake=use_handshake,
                on_request=on_request,
                on_notify=on_notify,
                closed=door.closed,
            )
            async with session as raw:
                if door.is_unauthorized:
                    # Somebody logged in between two requests of this start; it counts as over.
                    raise ServerUnavailable(_explain_unauthorized(server))
                yield UpstreamConnection(
                    raw,
                    door.closed,
                    lambda: _explain_unauthorized(server) if door.is_unauthorized else "",
                )
    except Exception as fault:
        if door.is_unauthorized or _find_http_status(fault) == 401:
            raise ServerUnavailable(_explain_unauthorized(server)) from None
        raise


@dataclass
class _HttpStatusWatch:
    """What is known of a connection by HTTP, beside what it carries."""

    closed: anyio.Event
    auth: TokenAuth | None
    is_unauthorized: bool = False

    def __post_init__(self) -> None:
        if self.auth is not None:
            self.auth.on_response_status = self.record_status

    def record_status(self, status: int) -> None:
        """A server that wants to know who we are is begun with anew: somebody may have logged in."""
        if status == 401:
            self.is_unauthorized = True
            self.closed.set()

    async def check_response(self, response: httpx2.Response) -> None:
        """See whether the answer means that the connection is over."""
        if self.auth is None:
            self.record_status(response.status_code)
        # A server that was started anew does not know its sessions any more; ours is over.
        if response.status_code == 404 and "mcp-session-id" in response.request.headers:
            self.closed.set()


def _build_token_auth(server: ServerConfig, tokens: Path | None) -> TokenAuth | None:
    is_given = any(name.lower() == "authorization" for name in server.headers)
    if tokens is None or not server.url or is_given:
        return None
    return TokenAuth(TokenFile(tokens, server))


def _explain_unauthorized(server: ServerConfig) -> str:
    if any(name.lower() == "authorization" for name in server.headers):
        return "it does not accept the token in its `headers` (HTTP 401); renew it"
    return (
        f"it wants to know who you are (HTTP 401): run `toolcrib login {server.name}`, or give it a "
        "token in its `headers`"
    )


def _open_transport(
    server: ServerConfig, complaints: StderrTail, door: _HttpStatusWatch
) -> AbstractAsyncContextManager[Any]:
    if server.transport == "stdio":
        return run_child_process(
            server.command, server.args, env=server.env, cwd=server.cwd, stderr_tail=complaints
        )
    if server.transport == "sse":
        return sse_client(
            server.url,
            dict(server.headers),
            server.connect_seconds,
            _read_timeout_seconds(server),
            auth=door.auth,
        )
    return _open_streamable_http(server, door)


@asynccontextmanager
async def _open_streamable_http(server: ServerConfig, door: _HttpStatusWatch) -> AsyncIterator[Any]:
    timeout = httpx2.Timeout(server.connect_seconds, read=_read_timeout_seconds(server))
    hooks = {"response": [door.check_response]}
    async with (
        httpx2.AsyncClient(
            headers=dict(server.headers),
            auth=door.auth,
            timeout=timeout,
            event_hooks=hooks,
            transport=_BoundedTransport(httpx2.AsyncHTTPTransport()),
        ) as client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=server.max_result_bytes
        ) as streams,
    ):
        yield streams


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """HTTP whose answers end somewhere. Those that are streams of events have limits of their own."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The answer, whose body fails where it goes on for too long."""
        response = await self._inner.handle_async_request(request)
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        if not is_stream and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _BoundedBody(response.stream)
        return response

    async def aclose(self) -> None:
        """Let go of the connections."""
        await self._inner.aclose()


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        async for chunk in self._body:
            count += len(chunk)
            if count > MAX_LINE_BYTES:
                raise httpx2.ReadError(f"the answer has more than {MAX_LINE_BYTES:,} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


def _read_timeout_seconds(server: ServerConfig) -> float:
    """How long nothing may come: a call takes its time, and so may a person who is asked."""
    return server.call_seconds + server.answer_seconds


def _find_http_status(fault: BaseException) -> int | None:
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return fault.response.status_code if isinstance(fault, httpx2.HTTPStatusError) else None


def describe_error(fault: BaseException) -> str:
    """Why a connection failed, in one line, without what may be secret."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    if isinstance(fault, FileNotFoundError):
        return "its program or its folder was not found; install it, or mend `command` or `cwd`"
    if isinstance(fault, PermissionError):
        return "its program may not be run; mend its rights, or `command`"
    if isinstance(fault, TimeoutError | httpx2.TimeoutException):
        return "it did not answer in time; raise `connectSeconds` if it is only slow"
    if isinstance(fault, ServerUnavailable):
        return str(fault)
    if isinstance(fault, httpx2.HTTPStatusError):
        return f"it answered with HTTP {fault.response.status_code}"
    if isinstance(fault, httpx2.TransportError):
        return "it could not be reached"
    if isinstance(fault, MCPError):
        if fault.error.message == CONNECTION_CLOSED_MESSAGE:
            return "its connection ended"
        return f"it answered with an error: {fault.error.message[:200]}"
    # Nobody foresaw it, so that its kind may be all there is to know.
    return f"an unforeseen fault ({type(fault).__name__}: {str(fault)[:200]})"


def describe_exit(exit_code: int) -> str:
    """How a program ended, in words."""
    if exit_code >= 0:
        return f"its program ended with exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"its program was ended by {name}"


def _dump_model(model: Any) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True) if model else {}


def _get_capability(capabilities: Mapping[str, Any], kind: str, what: str) -> object:
    of_kind = capabilities.get(kind)
    return of_kind.get(what) if isinstance(of_kind, Mapping) else None


def _notification_method(event: object) -> str:
    kind = type(event).__name__.removesuffix("ListChanged").lower()
    return f"notifications/{kind}/list_changed"
