"""ASGI endpoint of the LLM gateway: read requests, send responses, render errors."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, cast
from urllib.parse import quote, unquote

from starlette.types import Receive, Scope, Send

from toolcrib.config.settings import LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.auth import get_principal
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.sse import JsonArrayEncoder, format_event
from toolcrib.gateway.llm.tools.exposure import ExposurePlan
from toolcrib.gateway.llm.usage import BudgetExceeded
from toolcrib.gateway.logs import request_id
from toolcrib.gateway.quotas import REFUSAL_SECONDS

TOOL_SEARCH_HEADER: Final = "x-toolcrib-tool-search"
# Sent with every response; in a request without a model it selects the upstream.
UPSTREAM_HEADER: Final = "x-toolcrib-upstream"
# Clients abort a stream that is silent for some minutes.
PING_SECONDS: Final = 15.0
# A request is cancelled if its client reads nothing for this long.
STALL_SECONDS: Final = 120.0
CHECK_INTERVAL_SECONDS: Final = 5.0
# Their memory is given back to the system when this many requests, open at the same time, have ended.
MANY_REQUESTS: Final = 100
RELEASE_DELAY_SECONDS: Final = 1.0

Treatment = Literal["native", "off", "search", "transparent"]
ErrorRenderer = Callable[[RequestFailed], dict[str, Any]]

_MESSAGES_ERROR_TYPES: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI_ERROR_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
_GEMINI_STATUS_NAMES: Final[Mapping[int, str]] = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}

# Paths whose requests neither read nor change what an account has stored.
_STATELESS_PATHS: Final = re.compile(
    r"/v1/(?:embeddings|completions|images/\w+|audio/\w+|moderations|rerank|score|tokenize|detokenize)/?"
    r"|/v1(?:beta|alpha)?/models(?:/[^/:]+)?(?::(?:countTokens|embedContent|batchEmbedContents))?"
)
_JSON_TYPE: Final = ("content-type", "application/json")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ResponseHeaders:
    """How a request was treated, how many of its tools the model saw, what that saved, and why."""

    upstream: str
    treatment: Treatment
    tool_count: int = 0
    revealed_count: int = 0
    saved_tokens: int = 0
    plan: ExposurePlan | None = None

    def render(self, **counts: int) -> list[tuple[str, str]]:
        """Return the `x-toolcrib-` headers, with further counts by name."""
        headers = [(UPSTREAM_HEADER, sanitize_header_value(self.upstream)), ("x-toolcrib-treatment", self.treatment)]
        if self.treatment in ("search", "transparent"):
            headers += [
                ("x-toolcrib-tools", str(self.tool_count)),
                ("x-toolcrib-tools-shown", str(self.revealed_count)),
                ("x-toolcrib-tokens-saved", str(self.saved_tokens)),
            ]
        if self.plan is not None:
            headers += [("x-toolcrib-style", self.plan.style), ("x-toolcrib-style-reason", self.plan.reason)]
        return headers + [(f"x-toolcrib-{name}", str(count)) for name, count in counts.items()]


def sanitize_header_value(text: str) -> str:
    """Return a text with `?` for each character that a header cannot contain."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if " " <= char <= "~" else "?" for char in text)


def render_messages_error(error: RequestFailed) -> dict[str, Any]:
    """Return the error body of Anthropic's Messages API."""
    error_type = error.error_type or _MESSAGES_ERROR_TYPES.get(error.status, "api_error")
    body: dict[str, Any] = {"type": error_type, "message": str(error)}
    if error.code:
        body["details"] = {"error_code": error.code}
    return {"type": "error", "error": body, "request_id": request_id.get() or None}


def render_openai_error(error: RequestFailed) -> dict[str, Any]:
    """Return the error body of OpenAI's APIs."""
    default = "server_error" if error.status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": str(error),
            "type": error.error_type or _OPENAI_ERROR_TYPES.get(error.status, default),
            "param": error.param or None,
            "code": error.code or None,
        }
    }


def render_responses_event(error: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event that ends a stream of the Responses API, in its form and in the form that its SDK reads."""
    return {"type": "error", **{name: error.get(name) for name in ("code", "message", "param")}, "error": error}


def render_gemini_error(error: RequestFailed) -> dict[str, Any]:
    """Return the error body of the Gemini API."""
    status = _GEMINI_STATUS_NAMES.get(error.status, "INTERNAL" if error.status >= 500 else "INVALID_ARGUMENT")
    return {"error": {"code": error.status, "message": str(error), "status": status}}


def render_combined_error(error: RequestFailed) -> dict[str, Any]:
    """Return an error body that clients of either API understand."""
    messages = render_messages_error(error)
    return {**messages, "error": {**render_openai_error(error)["error"], **messages["error"]}}


def check_profile_rights(exchange: HttpExchange, upstream: LlmUpstreamConfig) -> None:
    """Refuse clients with limited rights what the account of an upstream has stored."""
    profile = exchange.principal.profile
    if profile and upstream.api_keys and not _STATELESS_PATHS.fullmatch(exchange.path):
        raise RequestFailed(
            f"the key of the gateway for upstream {upstream.name!r} gives access to files and batches of all "
            "clients, and your key has an access profile; use a key without a profile",
            403,
        )


class TryNextModel(RequestFailed):
    """An upstream has failed before its response began, and the alias names another model."""


class HttpExchange:
    """A client's request with its body, and the response to it."""

    def __init__(self, scope: Scope, body: bytes, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        # The encoded path is forwarded, because a decoded one could mean another path.
        raw_path: bytes = scope.get("raw_path") or quote(self.path).encode("ascii")
        self._raw_path = raw_path.decode("latin-1")
        self.query: str = scope["query_string"].decode("latin-1")
        self.headers: list[tuple[str, str]] = [
            (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]
        ]
        self.principal = get_principal(scope)
        self.body = body
        # The model that the client asks for: the alias, or the deployment in a path of Azure.
        self.model: str = scope.get("state", {}).get("model", "")
        # The target for an upstream whose API has the model in the path, if the model is replaced.
        self.replaced_target = ""
        # The number of models of an alias that have failed.
        self.failed_models = 0
        self.has_started = False
        # The `tools` of the request that was sent upstream last.
        self.sent_tools: Any = None
        # The status of the response; 0 before it has started.
        self.status = 0
        # Sent whenever the stream was silent for `PING_SECONDS`, unless empty.
        self.ping = b""
        # For a client that reads a stream as a JSON array in place of events.
        self.array_encoder: JsonArrayEncoder | None = None
        # Records the request. Called before the end of the response is sent, so that no finished request is lost.
        self.on_end: Callable[[], None] | None = None
        self._send = send
        self._write_count = 0
        self._pending_writes = 0
        # Whether the client has disconnected or stopped reading, so that the task is cancelled.
        self.is_abandoned = False
        self._task: asyncio.Task[None] | None = None
        self._check_timer: asyncio.TimerHandle | None = None
        self._ping_task: asyncio.Task[None] | None = None

    @property
    def target(self) -> str:
        """The path and query as the client sent them, or with another model."""
        if self.replaced_target:
            return self.replaced_target
        decoded = unquote(self._raw_path)
        segments = decoded.replace("\\", "/").split("/")
        if {".", ".."} & set(segments) or not decoded.isprintable():
            raise RequestFailed("the path must not contain `.` or `..` segments or control characters", 400)
        return f"{self._raw_path}?{self.query}" if self.query else self._raw_path

    def get_header(self, name: str) -> str:
        """Return the first value of a header, or an empty string."""
        return next((value for header, value in self.headers if header == name), "")

    async def send_response(self, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> None:
        """Send a complete response."""
        await self._send_head(status, [*headers, ("content-length", str(len(body)))])
        self.record_end()
        await self._send({"type": "http.response.body", "body": body})

    async def start_response(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Start a streamed response; the task of the request is cancelled if the client stalls."""
        if self.array_encoder is not None:
            headers = [*(header for header in headers if header[0] != "content-type"), _JSON_TYPE]
        await self._send_head(status, headers)
        self._schedule_check(0, asyncio.get_running_loop().time())

    async def write(self, chunk: bytes) -> None:
        """Send a chunk of a streamed response. Wait while the client does not read."""
        if self.array_encoder is not None:
            chunk = self.array_encoder.encode(chunk)
        self._write_count += 1
        self._pending_writes += 1
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._pending_writes -= 1

    async def end_response(self) -> None:
        """End a streamed response."""
        self.record_end()
        self.ping = b""
        self._write_count += 1
        self._pending_writes += 1
        end = b"" if self.array_encoder is None else self.array_encoder.finish()
        await self._send({"type": "http.response.body", "body": end})

    def record_end(self) -> None:
        """Call `on_end`, once."""
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work of the request in its own task, until it ends or the client is gone.

        A task that is resumed for each event should not resume the servers and middleware around it.
        """
        self._task = asyncio.create_task(work)
        try:
            await self._task
        except asyncio.CancelledError:
            if not self.is_abandoned or cast(asyncio.Task[Any], asyncio.current_task()).cancelling():
                raise

    def abandon(self, _: object = None) -> None:
        """Cancel the task of the request."""
        if not self.is_abandoned:
            self.is_abandoned = True
            if self._task is not None:
                self._task.cancel()

    def cancel_timers(self) -> None:
        """Stop the checks for silence and stalls."""
        if self._check_timer is not None:
            self._check_timer.cancel()
        if self._ping_task is not None:
            self._ping_task.cancel()

    def _schedule_check(self, write_count: int, since: float) -> None:
        # A periodic check costs less than a timer for every chunk.
        self._check_timer = asyncio.get_running_loop().call_later(
            CHECK_INTERVAL_SECONDS, self._check_progress, write_count, since
        )

    def _check_progress(self, write_count: int, since: float) -> None:
        """Send a ping to a silent stream, or cancel the task of a stalled one."""
        now = asyncio.get_running_loop().time()
        if self._write_count != write_count:
            write_count, since = self._write_count, now
        elif self._pending_writes and now - since >= STALL_SECONDS:
            _log.warning("a client of %s stopped reading; its request is cancelled", self.path)
            self.abandon()
            return
        elif self.ping and not self._pending_writes and now - since >= PING_SECONDS:
            self._ping_task = asyncio.ensure_future(self._send_ping())
        self._schedule_check(write_count, since)

    async def _send_ping(self) -> None:
        # The response may have ended since the task was created.
        if self.ping:
            await self.write(self.ping)

    async def _send_head(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        self.has_started = True
        self.status = status
        encoded = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})


class _OpenRequests:
    """Counts open requests, and gives memory back to the system after many of them have ended.

    The C library would keep what most requests at one time have needed.
    """

    def __init__(self) -> None:
        self._count = self._most = 0

    @contextmanager
    def add(self) -> Iterator[None]:
        self._count += 1
        self._most = max(self._most, self._count)
        try:
            yield
        finally:
            self._count -= 1
            if self._most >= MANY_REQUESTS and self._count * 4 <= self._most:
                self._most = self._count
                loop = asyncio.get_running_loop()
                loop.call_later(RELEASE_DELAY_SECONDS, loop.run_in_executor, None, _release_memory)


def _release_memory() -> None:
    # Only glibc has this function.
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


_open_requests = _OpenRequests()
Handler = Callable[[HttpExchange], Awaitable[None]]


class LlmEndpoint:
    """An ASGI application that calls a handler and renders its errors in the API's format."""

    def __init__(self, handler: Handler, render_error: ErrorRenderer) -> None:
        self._handler = handler
        self._render_error = render_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request. Cancel the handler if the client disconnects."""
        if not request_id.get():
            request_id.set(secrets.token_hex(8))
        body = await _read_body(receive)
        if body is None:
            return
        exchange = HttpExchange(scope, body, send)
        disconnect = asyncio.ensure_future(_wait_for_disconnect(receive))
        disconnect.add_done_callback(exchange.abandon)
        try:
            with _open_requests.add():
                await exchange.run(self._handle(exchange))
        finally:
            exchange.cancel_timers()
            disconnect.remove_done_callback(exchange.abandon)
            disconnect.cancel()

    async def _handle(self, exchange: HttpExchange) -> None:
        while True:
            try:
                if exchange.path.startswith(("/v1/v1", "/v1beta/v1")):
                    message = "the path has the version twice; leave it out of the base URL of your client"
                    raise RequestFailed(message, 404)
                return await self._handler(exchange)
            except TryNextModel as error:
                _log.warning("%s; the next model of the alias is tried", error)
                exchange.failed_models += 1
            except RequestFailed as error:
                return await self._send_error(exchange, error)
            except Exception:
                # Request bodies are private and therefore not logged.
                _log.exception("a request to %s failed", exchange.path)
                message = "the gateway failed on this request; see its log"
                return await self._send_error(exchange, RequestFailed(message, 500))

    async def _send_error(self, exchange: HttpExchange, error: RequestFailed) -> None:
        rendered = self._render_error(error)
        if not exchange.has_started:
            # `request-id` is Anthropic's name; the middleware adds OpenAI's, `x-request-id`.
            headers = [_JSON_TYPE, ("request-id", request_id.get())]
            if isinstance(error, BudgetExceeded):
                await asyncio.sleep(REFUSAL_SECONDS)
                # Official clients would otherwise retry immediately.
                should_retry = "true" if error.should_retry else "false"
                headers += [("retry-after", str(error.retry_after_seconds)), ("x-should-retry", should_retry)]
            await exchange.send_response(error.status, headers, serialize_json(rendered))
            return
        if exchange.path.startswith("/v1/responses"):
            rendered = render_responses_event(rendered["error"])
        # Errors of the other APIs have no type, and Google's client cannot read the names of events.
        await exchange.write(format_event(rendered.get("type", ""), serialize_json(rendered)))
        await exchange.end_response()


async def _read_body(receive: Receive) -> bytes | None:
    """Return the body, whose size the middleware limits, or None if the client disconnected before its end."""
    chunks: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        chunks.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(chunks)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
