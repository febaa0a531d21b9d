"""POST requests to an HTTP endpoint that speaks JSON, such as OpenAI's API, with retries and limits."""

from __future__ import annotations

import http.client
import io
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from toolcrib.errors import InvalidConfig, ToolcribError

MAX_TIMEOUT_SECONDS: Final = 86_400
MAX_ATTEMPTS: Final = 3
MAX_REPLY_BYTES: Final = 64 * 1024 * 1024
FIRST_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 2.0

_CHUNK_BYTES: Final = 1 << 16
_TRANSIENT_STATUSES: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_REMEDIES: Final = {
    401: "the key is missing or wrong; check it",
    403: "the key does not give access to this model; check its permissions",
    404: "there is no such URL or model; check both",
    413: "the request is too large; shorten the tool descriptions",
    429: "too many requests or no credit left; wait, or raise the quota",
}


class _TransientFailure(Exception):
    """An error that may not occur again after a pause."""

    def __init__(self, error: ToolcribError, pause_seconds: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.pause_seconds = pause_seconds


class JsonEndpoint:
    """An endpoint of an HTTP API. Every failure raises `error_type`, with a message that names the remedy.

    `kind` names the endpoint in messages, and `remedies` has remedies for more status codes.
    `timeout_seconds` limits each whole attempt, including a slow reply.
    """

    def __init__(
        self,
        url: str,
        *,
        kind: str,
        key: str,
        timeout_seconds: float,
        error_type: type[ToolcribError],
        remedies: Mapping[int, str],
    ) -> None:
        self.url = url
        self._kind = kind
        self._headers = {"Content-Type": "application/json", "User-Agent": "toolcrib"}
        self._key = _check_key(key)
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._timeout_seconds = timeout_seconds
        self._error_type = error_type
        self._remedies = {**_REMEDIES, **remedies}
        self._opener = urllib.request.build_opener(_NoRedirect, _DeadlineHandler(context=ssl.create_default_context()))

    def post(self, body: Mapping[str, object], max_pause_seconds: float = MAX_PAUSE_SECONDS) -> bytes:
        """Return the reply to a JSON body. A request that may succeed later is repeated after a pause."""
        content = json.dumps(body).encode()
        pause = FIRST_PAUSE_SECONDS
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return self._post(content)
            except _TransientFailure as failure:
                time.sleep(min(failure.pause_seconds or pause, max_pause_seconds))
                pause *= 2
        try:
            return self._post(content)
        except _TransientFailure as failure:
            raise failure.error from failure.__cause__

    def quote(self, value: object, max_chars: int = 200) -> str:
        """Return text of the server on one line, truncated and without the API key."""
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        text = text.replace(self._key, "***") if self._key else text
        line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
        return line if len(line) <= max_chars else f"{line[:max_chars]}…"

    def build_error(self, message: str) -> ToolcribError:
        """Return an error about a reply."""
        return self._error_type(f"{self.url} {message}")

    def _post(self, content: bytes) -> bytes:
        request = urllib.request.Request(self.url, content, self._headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as reply:
                return self._read_reply(reply)
        except urllib.error.HTTPError as error:
            with error:
                raise self._status_error(error) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                message = (
                    f"did not answer within {self._timeout_seconds:g} seconds; "
                    "increase `timeout_seconds`, or check whether the server is overloaded"
                )
            else:
                message = (
                    f"cannot be reached ({self.quote(reason)}); "
                    "check that the server is running and that the URL is right"
                )
            raise _TransientFailure(self.build_error(message)) from error

    def _read_reply(self, reply: http.client.HTTPResponse) -> bytes:
        content = bytearray()
        while chunk := reply.read1(_CHUNK_BYTES):
            content += chunk
            if len(content) > MAX_REPLY_BYTES:
                size = MAX_REPLY_BYTES // 1024**2
                raise self.build_error(f"returned more than {size} MiB; check that it is {self._kind}")
        return bytes(content)

    def _status_error(self, error: urllib.error.HTTPError) -> Exception:
        location = error.headers.get("Location") if 300 <= error.code < 400 else None
        if location:
            reason = f"moved to {self.quote(location)}"
            remedy = "use that URL, if you trust it"
        else:
            reason = self.quote(_read_error_message(error))
            remedy = self._remedies.get(error.code, "see the log of the server")
        failure = self.build_error(f"returned status {error.code} ({reason}); {remedy}")
        if error.code in _TRANSIENT_STATUSES:
            return _TransientFailure(failure, _parse_retry_after(error.headers.get("Retry-After")))
        return failure


def build_endpoint_url(url: str, path: str, kind: str) -> str:
    """Return the URL of an endpoint, given that URL or the base URL of the API. `path` has no leading slash."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or not url.isprintable() or " " in url:
        raise InvalidConfig(f"{url!r} is not the URL of {kind}; it should look like https://api.openai.com/v1")
    if parts.username or parts.password:
        raise InvalidConfig("a URL must not contain a password; pass it as `key`")
    base = url.rstrip("/")
    return base if base.endswith(f"/{path}") else f"{base}/{path}"


def check_timeout(timeout_seconds: object) -> None:
    """Raise `InvalidConfig` unless this is a number of seconds in the allowed range."""
    is_number = isinstance(timeout_seconds, int | float) and not isinstance(timeout_seconds, bool)
    if not is_number or not 0 < float(str(timeout_seconds)) <= MAX_TIMEOUT_SECONDS:
        raise InvalidConfig(
            f"`timeout_seconds` must be a number above 0 and up to {MAX_TIMEOUT_SECONDS:,}, not {timeout_seconds!r:.40}"
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Does not follow redirects, which would send the key to another host."""

    def redirect_request(self, *_: object) -> None:
        return None


class _DeadlineHandler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Applies the timeout to a whole reply.

    The timeout of a socket applies to each read, so a server that sends single bytes could keep a
    request open forever.
    """

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_limit_reply_time(http.client.HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        connect = _limit_reply_time(http.client.HTTPSConnection)
        return self.do_open(connect, req, context=self._context)  # type: ignore[attr-defined]


def _limit_reply_time(connection_class: type[http.client.HTTPConnection]) -> Callable[..., Any]:
    """Return a factory of connections whose replies must arrive before the timeout."""

    def connect(host: str, timeout: float, **options: Any) -> http.client.HTTPConnection:
        deadline = time.monotonic() + timeout

        def build_response(sock: Any, *args: Any, **kwargs: Any) -> http.client.HTTPResponse:
            reader: Any = _DeadlineReader(sock, deadline)
            return http.client.HTTPResponse(reader, *args, **kwargs)

        connection = connection_class(host, timeout=timeout, **options)
        connection.response_class = build_response  # type: ignore[assignment]
        return connection

    return connect


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket until a deadline. Takes the place of the socket of a reply."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline
        self._file = sock.makefile("rb", buffering=0)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        seconds_left = self._deadline - time.monotonic()
        if seconds_left <= 0:
            raise TimeoutError("deadline exceeded")
        self._sock.settimeout(seconds_left)
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def _check_key(key: str) -> str:
    if not (isinstance(key, str) and key.isascii() and key.isprintable()):
        raise InvalidConfig("the key contains a line break or another invalid character; copy it again")
    return key


def _read_error_message(error: urllib.error.HTTPError) -> str:
    """Return the `error` field of the reply, or else its text or its status phrase."""
    try:
        content = error.read(_CHUNK_BYTES)
    except (OSError, http.client.HTTPException):
        return str(error.reason)
    try:
        field = json.loads(content)["error"]
        return str(field["message"] if isinstance(field, dict) else field)
    except (ValueError, KeyError, TypeError, RecursionError):
        return content.decode("utf-8", "replace") or str(error.reason)


def _parse_retry_after(header: str | None) -> float:
    """Return the seconds of a `Retry-After` header; 0 for a date or an invalid value."""
    return float(header) if header and header.isascii() and header.isdecimal() else 0.0
