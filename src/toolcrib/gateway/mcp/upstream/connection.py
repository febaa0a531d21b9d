"""One connection to one upstream server."""

from __future__ import annotations

import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Final

import anyio
import httpx2
import mcp_types as types
from mcp.client.sse import sse_client
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import listen
from mcp.shared.exceptions import MCPError

from toolcrib import __version__
from toolcrib.config.server_settings import ServerConfig, Transport
from toolcrib.errors import InvalidStore, ServerUnavailable
from toolcrib.gateway.mcp.upstream.in_flight import NO_CALL_IN_FLIGHT
from toolcrib.gateway.mcp.upstream.messages import TOO_LARGE, EndlessMessage, RepairedStream
from toolcrib.gateway.mcp.upstream.oauth_tokens import OpenToken, TokenAuth
from toolcrib.gateway.mcp.upstream.openapi.server import open_api_server
from toolcrib.gateway.mcp.upstream.sdk import (
    CONNECTION_CLOSED_MESSAGE,
    OnNotify,
    OnRequest,
    RawSession,
    open_raw_session,
)
from toolcrib.gateway.mcp.upstream.stdio import MAX_LINE_BYTES, StderrTail, run_child_process

_log = logging.getLogger(__name__)
CLIENT_INFO: Final = types.Implementation(name="toolcrib", version=__version__)
# A path of at least two folders on this machine, but not the path of a URL.
_ABSOLUTE_PATH: Final = re.compile(r"(?<![\w:/.~-])(?:[A-Za-z]:|~)?(?:[/\\][\w.@+ -]*[\w.@+-])+[/\\]([\w.@+-]+)")
# How servers that only have the SSE transport answer a POST request to its URL.
_SSE_STATUSES: Final = frozenset({400, 404, 405, 406, 415, 501})
MAX_PAGES: Final = 1_000
MAX_LIST_ENTRIES: Final = 20_000
OFFICIAL_EXTENSION_PREFIX: Final = "io.modelcontextprotocol/"


@dataclass(frozen=True, slots=True)
class UpstreamConnection:
    """An open connection to a server; `closed` is set when it ends."""

    session: RawSession
    closed: anyio.Event
    # Returns what to do if the server requires a login, otherwise an empty string.
    login_hint: Callable[[], str] = lambda: ""
    # Returns the last HTTP status that was an error, or 0.
    error_status: Callable[[], int] = lambda: 0

    @property
    def protocol(self) -> str:
        """The protocol revision in use."""
        return self.session.protocol_version or ""

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities that the server declares."""
        return _dump_model(self.session.server_capabilities)

    def supports(self, capability: str) -> bool:
        """Return whether the server declares a capability, or the official extension of this name."""
        capabilities = self.capabilities
        extensions = capabilities.get("extensions")
        is_extension = isinstance(extensions, dict) and f"{OFFICIAL_EXTENSION_PREFIX}{capability}" in extensions
        return capability in capabilities or is_extension

    @property
    def server_info(self) -> dict[str, Any]:
        """The name and version that the server declares. They are not verified."""
        return _dump_model(self.session.server_info)

    @property
    def instructions(self) -> str:
        """The instructions of the server for its users."""
        return self.session.instructions or ""

    async def request_list(self, method: str, key: str, timeout_seconds: float) -> list[Any]:
        """Return all entries of a paginated list."""
        entries: list[Any] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = {"cursor": cursor} if cursor is not None else None
            result = await self.session.raw_request(method, params, timeout=timeout_seconds)
            page = result.get(key)
            entries += page if isinstance(page, list) else []
            next_cursor = result.get("nextCursor")
            has_more = isinstance(next_cursor, str) and next_cursor != cursor
            if not has_more or len(entries) > MAX_LIST_ENTRIES:
                break
            cursor = next_cursor
        return entries[:MAX_LIST_ENTRIES]

    async def watch_list_changes(self, on_notify: OnNotify) -> bool:
        """Forward the list changes of a stateless server until it ends the subscription.

        Returns False if the server does not announce changes.
        """
        if not self.session.is_stateless:
            return False
        capabilities = self.capabilities
        tools, prompts, resources = (
            isinstance(capabilities.get(kind), dict) and bool(capabilities[kind].get("listChanged"))
            for kind in ("tools", "prompts", "resources")
        )
        if not (tools or prompts or resources):
            return False
        async with listen(
            self.session, tools_list_changed=tools, prompts_list_changed=prompts, resources_list_changed=resources
        ) as subscription:
            async for event in subscription:
                kind = type(event).__name__.removesuffix("ListChanged").lower()
                await on_notify(f"notifications/{kind}/list_changed", None)
        return True


@asynccontextmanager
async def open_connection(
    server: ServerConfig,
    *,
    use_handshake: bool,
    on_request: OnRequest,
    on_notify: OnNotify,
    stderr_tail: StderrTail,
    open_token: OpenToken | None = None,
) -> AsyncIterator[UpstreamConnection]:
    """Start or reach a server and negotiate the protocol revision.

    If a server rejects streamable HTTP, the older SSE transport is tried.
    """
    watch = _HttpStatusWatch(anyio.Event(), _build_token_auth(server, open_token))

    def open_session(transport: Transport) -> AbstractAsyncContextManager[RawSession]:
        return _open_session(
            _open_transport(replace(server, transport=transport), stderr_tail, watch),
            use_handshake=use_handshake,
            on_request=on_request,
            on_notify=on_notify,
            closed=watch.closed,
        )

    try:
        async with AsyncExitStack() as stack:
            try:
                session = await stack.enter_async_context(open_session(server.transport))
            except Exception as error:
                if not (use_handshake and watch.rejects_http):
                    raise
                watch = _HttpStatusWatch(anyio.Event(), _build_token_auth(server, open_token))
                try:
                    session = await stack.enter_async_context(open_session("sse"))
                except Exception:
                    raise error from None
                _log.info('%s answers over SSE only; set its "type" to "sse"', server.name)
            if watch.is_unauthorized:
                # A later request of this start succeeded after a login; start again with its token.
                raise ServerUnavailable(_explain_unauthorized(server))
            yield UpstreamConnection(
                session,
                watch.closed,
                lambda: _explain_unauthorized(server) if watch.is_unauthorized else "",
                lambda: watch.error_status,
            )
    except Exception as error:
        cause = _first_cause(error)
        is_401 = isinstance(cause, httpx2.HTTPStatusError) and cause.response.status_code == 401
        if watch.is_unauthorized or is_401:
            raise ServerUnavailable(_explain_unauthorized(server)) from None
        raise


@asynccontextmanager
async def _open_session(transport: AbstractAsyncContextManager[Any], **options: Any) -> AsyncIterator[RawSession]:
    async with transport as streams, open_raw_session(streams, CLIENT_INFO, **options) as session:
        yield session


@dataclass
class _HttpStatusWatch:
    """Closes an HTTP connection when a response shows that it is over."""

    closed: anyio.Event
    auth: TokenAuth | None
    is_unauthorized: bool = False
    # Whether the server rejected a POST request as servers with the SSE transport do.
    rejects_http: bool = False
    error_status: int = 0

    def __post_init__(self) -> None:
        if self.auth is not None:
            self.auth.on_response_status = self.record_status

    def record_status(self, status: int) -> None:
        """Close the connection on HTTP 401; the next attempt uses the token of a new login."""
        if status == 401:
            self.is_unauthorized = True
            self.closed.set()

    async def check_response(self, response: httpx2.Response) -> None:
        """Close the connection if the response means that it is over."""
        if self.auth is None:
            self.record_status(response.status_code)
        if response.request.method == "POST" and response.status_code >= 400:
            self.error_status = response.status_code
        if response.request.method == "POST" and response.status_code in _SSE_STATUSES:
            self.rejects_http = True
        # A restarted server does not know the session any more.
        if response.status_code == 404 and "mcp-session-id" in response.request.headers:
            self.closed.set()


def _has_authorization(server: ServerConfig) -> bool:
    return any(name.lower() == "authorization" for name in server.headers)


def _build_token_auth(server: ServerConfig, open_token: OpenToken | None) -> TokenAuth | None:
    if open_token is None or not server.url or _has_authorization(server):
        return None
    return TokenAuth(open_token(server))


def _explain_unauthorized(server: ServerConfig) -> str:
    if _has_authorization(server):
        return "it rejects the token in its `headers` (HTTP 401); renew the token"
    return f"it requires a login (HTTP 401): run `toolcrib login {server.name}`, or add a token to its `headers`"


def _open_transport(
    server: ServerConfig, stderr_tail: StderrTail, watch: _HttpStatusWatch
) -> AbstractAsyncContextManager[Any]:
    if server.transport == "stdio":
        return run_child_process(
            [server.command, *server.args],
            env=build_environment(server, os.environ),
            cwd=server.cwd,
            max_message_bytes=_max_message_bytes(server),
            stderr_tail=stderr_tail,
        )
    if server.transport == "openapi":
        return open_api_server(server)
    if server.transport == "sse":
        return _open_sse(server, watch)
    return _open_streamable_http(server, watch)


@asynccontextmanager
async def _open_sse(server: ServerConfig, watch: _HttpStatusWatch) -> AsyncIterator[Any]:
    async with sse_client(
        server.url, dict(server.headers), server.connect_seconds, _read_timeout_seconds(server), auth=watch.auth
    ) as (read, write):
        yield RepairedStream(read), write


def build_environment(server: ServerConfig, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program: what it inherits from the gateway, and its own `env`."""
    names = [name for name in inherited if is_inherited(server, name)]
    # Without a fixed seed, Python servers that join a set would change their descriptions.
    return {"PYTHONHASHSEED": "0", **get_default_environment(), **{n: inherited[n] for n in names}, **server.env}


def is_inherited(server: ServerConfig, name: str) -> bool:
    """Return whether a program inherits a variable, besides `PATH`, `HOME` and similar ones."""
    if server.inherit_env is None:
        # A server must not get the keys of the gateway.
        return not name.upper().startswith("TOOLCRIB_")
    return any(fnmatchcase(name, pattern) for pattern in server.inherit_env)


def _max_message_bytes(server: ServerConfig) -> int:
    # Larger than the limit for results, because JSON escapes take room and lists have no separate limit.
    return max(MAX_LINE_BYTES, 2 * server.max_result_bytes)


@asynccontextmanager
async def _open_streamable_http(server: ServerConfig, watch: _HttpStatusWatch) -> AsyncIterator[Any]:
    async with (
        httpx2.AsyncClient(
            headers={"accept-encoding": "identity", **server.headers},
            auth=watch.auth,
            timeout=httpx2.Timeout(server.connect_seconds, read=_read_timeout_seconds(server)),
            event_hooks={"response": [watch.check_response]},
            transport=_BoundedTransport(httpx2.AsyncHTTPTransport(), _max_message_bytes(server)),
        ) as client,
        streamable_http_client(
            server.url, http_client=client, max_sse_event_size=_max_message_bytes(server)
        ) as streams,
    ):
        yield streams


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """Limits the size of responses, except event streams, which have their own limit."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, max_bytes: int) -> None:
        self._inner = inner
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        # A small compressed response could expand to gigabytes, which the client would decode at once.
        response.headers.pop("content-encoding", None)
        is_event_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        if not is_event_stream and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _BoundedBody(response.stream, self._max_bytes)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream, max_bytes: int) -> None:
        self._body = body
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._body:
            size += len(chunk)
            if size > self._max_bytes:
                # The SDK turns a `StreamError` into the result of the request; others end the connection.
                raise httpx2.StreamError(TOO_LARGE)
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


def _read_timeout_seconds(server: ServerConfig) -> float:
    # During a call, the server may wait for the client's answer.
    return server.call_seconds + server.answer_seconds


def _first_cause(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def describe_error(error: BaseException) -> str:
    """Return why a connection failed, in one line without secrets."""
    error = _first_cause(error)
    if isinstance(error, FileNotFoundError):
        return "its program or folder was not found; install it, or correct `command` or `cwd`"
    if isinstance(error, PermissionError):
        return "its program cannot be executed; correct its permissions, or `command`"
    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        return "it did not answer in time; raise `connectSeconds` if it is slow"
    if isinstance(error, ServerUnavailable):
        return str(error)
    if isinstance(error, InvalidStore):
        _log.warning("%s", error)
        return "the store of the gateway cannot be used; the log says why"
    if isinstance(error, EndlessMessage):
        return "it sent a message without an end"
    if isinstance(error, httpx2.HTTPStatusError):
        return f"it answered with HTTP {error.response.status_code}"
    if isinstance(error, httpx2.TransportError):
        return f"it could not be reached ({type(error).__name__}); start it, or correct `url`"
    if isinstance(error, MCPError):
        if error.error.message == CONNECTION_CLOSED_MESSAGE:
            return "its connection ended"
        if error.error.message == NO_CALL_IN_FLIGHT:
            return "it sends back the messages of the gateway, so it is no MCP server; correct `command` or `args`"
        return f"it answered with an error: {error.error.message[:200]}"
    if isinstance(error, OSError):
        return f"it cannot be started or reached ({error.strerror or type(error).__name__})"
    what, _, version = str(error).partition(" from the server: ")
    if what == "Unsupported protocol version":
        return f"its protocol revision, {version[:40]}, is not supported; update it"
    return f"an unexpected error ({type(error).__name__}: {str(error)[:200]})"


def hide_folders(text: str) -> str:
    """Return a text in which absolute paths are reduced to the name of the file."""
    return _ABSOLUTE_PATH.sub(lambda match: f"…/{match[1]}", text)


def describe_exit(exit_code: int) -> str:
    """Return how a program ended."""
    if exit_code >= 0:
        return f"its program ended with exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"its program was killed by {name}"


def _dump_model(model: Any) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True) if model else {}
