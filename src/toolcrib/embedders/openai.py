"""An embedder for OpenAI's embeddings API, which Ollama, vLLM and many other servers speak too."""

from __future__ import annotations

import base64
import http.client
import io
import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from types import UnionType
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np

from toolcrib.errors import EmbeddingFailed, InvalidConfig
from toolcrib.search.dense.embedder import Vectors, validate_vectors

TIMEOUT_SECONDS: Final = 10.0
MAX_TIMEOUT_SECONDS: Final = 86_400
MAX_ATTEMPTS: Final = 3
MAX_BATCH_TEXTS: Final = 128
# About 2,000 tokens of English, which every embedding model in use accepts.
MAX_TEXT_CHARS: Final = 8_000
MAX_REPLY_BYTES: Final = 64 * 1024 * 1024
FIRST_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 2.0

_CHUNK_BYTES: Final = 1 << 16
_TRANSIENT_STATUSES: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_BAD_REQUEST_REMEDY: Final = "check that it supports this model, these dimensions and long texts"
_REMEDIES: Final = {
    400: _BAD_REQUEST_REMEDY,
    401: "the key is missing or wrong; check it",
    403: "the key does not give access to this model; check its permissions",
    404: "there is no such URL or model; check both",
    413: "the request is too large; shorten the tool descriptions",
    422: _BAD_REQUEST_REMEDY,
    429: "too many requests or no credit left; wait, or raise the quota",
}


class _TransientEmbeddingError(EmbeddingFailed):
    """An error that may not occur again after a pause."""

    def __init__(self, message: str, pause_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.pause_seconds = pause_seconds


class OpenAIEmbedder:
    """Gets vectors from an embeddings endpoint, such as `https://api.openai.com/v1`.

    `prefixes` are put before queries and tools, for models that were trained with such prefixes.
    `dimensions` requests shorter vectors from models that support it. `timeout_seconds` limits each
    attempt as a whole, including a slow reply.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str = "",
        dimensions: int | None = None,
        prefixes: tuple[str, str] = ("", ""),
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        _check_options(model, dimensions, prefixes, timeout_seconds)
        self._url = _endpoint_url(url)
        self._model = model
        self._headers = {"Content-Type": "application/json", "User-Agent": "toolcrib"}
        self._key = _check_key(key)
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
        self._dimensions = dimensions
        self._prefixes = prefixes
        self._timeout_seconds = timeout_seconds
        self._opener = urllib.request.build_opener(_NoRedirect, _DeadlineHandler(context=ssl.create_default_context()))

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Return one vector per query."""
        return self._embed_texts(self._prefixes[0], texts)

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        """Return one vector per tool text."""
        return self._embed_texts(self._prefixes[1], texts)

    def _embed_texts(self, prefix: str, texts: Sequence[str]) -> Vectors:
        inputs = [(prefix + text)[:MAX_TEXT_CHARS] for text in texts]
        parts = [
            self._embed_batch(inputs[start : start + MAX_BATCH_TEXTS])
            for start in range(0, len(inputs), MAX_BATCH_TEXTS)
        ]
        widths = {part.shape[1] for part in parts}
        if len(widths) > 1:
            raise self._error(f"returned vectors of several widths: {sorted(widths)}; use one model")
        return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)

    def _embed_batch(self, texts: list[str]) -> Vectors:
        body: dict[str, object] = {"model": self._model, "input": texts, "encoding_format": "float"}
        if self._dimensions is not None:
            body["dimensions"] = self._dimensions
        reply = self._post_with_retries(json.dumps(body).encode())
        rows = validate_vectors(self._parse_rows(reply, len(texts)), len(texts), self._url)
        if self._dimensions not in (None, rows.shape[1]):
            raise self._error(
                f"returned vectors with {rows.shape[1]} dimensions, not {self._dimensions}; "
                "remove `dimensions`, or use a model that supports it"
            )
        return rows

    def _post_with_retries(self, content: bytes) -> bytes:
        pause = FIRST_PAUSE_SECONDS
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return self._post(content)
            except _TransientEmbeddingError as error:
                time.sleep(min(error.pause_seconds or pause, MAX_PAUSE_SECONDS))
                pause *= 2
        try:
            return self._post(content)
        except _TransientEmbeddingError as error:
            raise EmbeddingFailed(str(error)) from error.__cause__

    def _post(self, content: bytes) -> bytes:
        request = urllib.request.Request(self._url, content, self._headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as reply:
                return self._read_reply(reply)
        except urllib.error.HTTPError as error:
            with error:
                raise self._status_error(error) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, TimeoutError):
                raise _TransientEmbeddingError(
                    f"{self._url} did not answer within {self._timeout_seconds:g} seconds; "
                    "increase `timeout_seconds`, or check whether the server is overloaded"
                ) from error
            raise _TransientEmbeddingError(
                f"{self._url} cannot be reached ({self._quote(reason)}); "
                "check that the server is running and that the URL is right"
            ) from error

    def _read_reply(self, reply: http.client.HTTPResponse) -> bytes:
        content = bytearray()
        while chunk := reply.read1(_CHUNK_BYTES):
            content += chunk
            if len(content) > MAX_REPLY_BYTES:
                raise self._error(
                    f"returned more than {MAX_REPLY_BYTES // 1024**2} MiB; check that it is an embeddings endpoint"
                )
        return bytes(content)

    def _status_error(self, error: urllib.error.HTTPError) -> EmbeddingFailed:
        location = error.headers.get("Location") if 300 <= error.code < 400 else None
        if location:
            reason = f"moved to {self._quote(location)}"
            remedy = "use that URL, if you trust it"
        else:
            reason = self._quote(_read_error_message(error))
            remedy = _REMEDIES.get(error.code, "see the log of the server")
        message = f"{self._url} returned status {error.code} ({reason}); {remedy}"
        if error.code in _TRANSIENT_STATUSES:
            return _TransientEmbeddingError(message, _parse_retry_after(error.headers.get("Retry-After")))
        return EmbeddingFailed(message)

    def _parse_rows(self, content: bytes, count: int) -> list[Any]:
        """Return the rows of a reply in the order of the texts."""
        rows: list[Any] = [None] * count
        try:
            data = json.loads(content)["data"]
            for position, item in enumerate(data):
                rows[item.get("index", position)] = _decode_embedding(item["embedding"])
        except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise self._error(
                f"returned {self._quote(content, 80)} instead of embeddings; "
                "check that it supports OpenAI's embeddings API"
            ) from error
        if len(data) != count:
            raise self._error(f"returned {len(data)} vectors for {count} texts; use another server")
        missing = sum(row is None for row in rows)
        if missing:
            raise self._error(f"returned no vector for {missing} of {count} texts; use another server")
        return rows

    def _quote(self, value: object, max_chars: int = 200) -> str:
        """Return text of the server on one line, truncated and without the API key."""
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
        text = text.replace(self._key, "***") if self._key else text
        line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
        return line if len(line) <= max_chars else f"{line[:max_chars]}…"

    def _error(self, message: str) -> EmbeddingFailed:
        return EmbeddingFailed(f"{self._url} {message}")


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


def _endpoint_url(url: str) -> str:
    """Return the URL of the endpoint, given that URL or the base URL of the API."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or not url.isprintable() or " " in url:
        raise InvalidConfig(
            f"{url!r} is not the URL of an embeddings endpoint; it should look like https://api.openai.com/v1"
        )
    if parts.username or parts.password:
        raise InvalidConfig("a URL must not contain a password; pass it as `key`")
    base = url.rstrip("/")
    return base if base.endswith("/embeddings") else f"{base}/embeddings"


def _check_options(model: Any, dimensions: Any, prefixes: Any, timeout_seconds: Any) -> None:
    """Raise for options that would make every request fail."""
    if not isinstance(model, str) or not model.strip():
        raise InvalidConfig(f"`model` must be the name of a model, not {model!r}")
    if dimensions is not None and not (_is_number(dimensions, int) and dimensions > 0):
        raise InvalidConfig(f"`dimensions` must be a positive integer or None, not {dimensions!r}")
    is_pair = isinstance(prefixes, tuple | list) and len(prefixes) == 2
    if not is_pair or not all(isinstance(prefix, str) for prefix in prefixes):
        raise InvalidConfig(f"`prefixes` must be two strings, for queries and for tools, not {prefixes!r}")
    is_number = _is_number(timeout_seconds, int | float)
    if not is_number or not 0 < timeout_seconds <= MAX_TIMEOUT_SECONDS:
        raise InvalidConfig(
            f"`timeout_seconds` must be a number above 0 and up to {MAX_TIMEOUT_SECONDS:,}, not {timeout_seconds!r:.40}"
        )


def _is_number(value: object, number_type: type | UnionType) -> bool:
    return isinstance(value, number_type) and not isinstance(value, bool)


def _check_key(key: str) -> str:
    if not (isinstance(key, str) and key.isascii() and key.isprintable()):
        raise InvalidConfig("the key contains a line break or another invalid character; copy it again")
    return key


def _decode_embedding(embedding: Any) -> Any:
    """Return one vector. Some servers use base64 even if it was not requested."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
    return embedding


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
