"""Any endpoint that speaks OpenAI's embeddings API: OpenAI itself, Ollama, vLLM, and many others."""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from types import UnionType
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np

from toolcrib.embedders.http_deadline import PlainHandler, SecureHandler
from toolcrib.errors import EmbeddingFailed, InvalidConfig
from toolcrib.search.dense.embedder import Vectors
from toolcrib.search.dense.vector_checks import validate_vectors

TIMEOUT_SECONDS: Final = 10.0
MAX_TIMEOUT_SECONDS: Final = 86_400
MAX_ATTEMPTS: Final = 3
MAX_BATCH_TEXTS: Final = 128
# About 2,000 tokens of English: under the window of every embedding model in use.
MAX_TEXT_CHARS: Final = 8_000
MAX_REPLY_BYTES: Final = 64 * 1024 * 1024
MAX_PAUSE_SECONDS: Final = 2.0

_FIRST_PAUSE_SECONDS: Final = 0.1
_CHUNK_BYTES: Final = 1 << 16
# What may be otherwise a moment later.
_TRANSIENT_STATUSES: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_REMEDIES: Final = {
    400: "see whether it takes this model, these dimensions and texts this long",
    401: "the key is missing or wrong: check it",
    403: "the key may not use this model: check its rights",
    404: "no such address or model there: check both",
    413: "the request is too large for it: shorten the tools' descriptions",
    422: "see whether it takes this model, these dimensions and texts this long",
    429: "too many requests or no credit left: wait, or raise the quota",
}


class _TransientEmbeddingError(EmbeddingFailed):
    """A fault that may be gone the next time, and how long to wait for that at least."""

    def __init__(self, message: str, pause_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.pause_seconds = pause_seconds


class OpenAIEmbedder:
    """Vectors from an embeddings endpoint, such as `https://api.openai.com/v1`.

    `prefixes` are put before queries and tools, for models that were trained with such marks.
    `dimensions` asks for shorter vectors, where a model can give them.
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
        self._opener = urllib.request.build_opener(_NoRedirect, PlainHandler, SecureHandler)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """What people and models ask for."""
        return self._vectors(self._prefixes[0], texts)

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        """What tools say of themselves."""
        return self._vectors(self._prefixes[1], texts)

    def _vectors(self, prefix: str, texts: Sequence[str]) -> Vectors:
        cut = [(prefix + text)[:MAX_TEXT_CHARS] for text in texts]
        parts = [
            self._embed_batch(cut[start : start + MAX_BATCH_TEXTS])
            for start in range(0, len(cut), MAX_BATCH_TEXTS)
        ]
        widths = {part.shape[1] for part in parts}
        if len(widths) > 1:
            raise self._error(f"gave vectors of several widths: {sorted(widths)}; use one model")
        return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)

    def _embed_batch(self, texts: list[str]) -> Vectors:
        asked: dict[str, object] = {
            "model": self._model,
            "input": texts,
            "encoding_format": "float",
        }
        if self._dimensions is not None:
            asked["dimensions"] = self._dimensions
        rows = validate_vectors(
            self._parse_rows(self._post_with_retries(asked), len(texts)), len(texts), self._url
        )
        if self._dimensions not in (None, rows.shape[1]):
            raise self._error(
                f"gave vectors of {rows.shape[1]} numbers, not {self._dimensions}; "
                "leave `dimensions` out, or use a model that can give them"
            )
        return rows

    def _post_with_retries(self, body: dict[str, object]) -> bytes:
        """The reply to a request, which is sent again a few times if the fault may pass."""
        content = json.dumps(body).encode()
        pause = _FIRST_PAUSE_SECONDS
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return self._post(content)
            except _TransientEmbeddingError as fault:
                time.sleep(min(fault.pause_seconds or pause, MAX_PAUSE_SECONDS))
                pause *= 2
        try:
            return self._post(content)
        except _TransientEmbeddingError as fault:
            # Whether it might pass was of use to us alone.
            raise EmbeddingFailed(str(fault)) from fault.__cause__

    def _post(self, content: bytes) -> bytes:
        request = urllib.request.Request(self._url, content, self._headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._timeout_seconds) as reply:
                return self._read_reply(reply)
        except urllib.error.HTTPError as fault:
            with fault:
                raise self._status_error(fault) from fault
        except TimeoutError as fault:
            raise self._timeout_error() from fault
        except (OSError, http.client.HTTPException) as fault:
            reason = getattr(fault, "reason", None) or fault
            if isinstance(reason, TimeoutError):
                raise self._timeout_error() from fault
            raise _TransientEmbeddingError(
                f"{self._url} cannot be reached ({self._quote(reason)}); "
                "see that it runs and that the address is right"
            ) from fault

    def _read_reply(self, reply: http.client.HTTPResponse) -> bytes:
        """The whole reply, unless it is too large."""
        content = bytearray()
        while chunk := reply.read1(_CHUNK_BYTES):
            content += chunk
            if len(content) > MAX_REPLY_BYTES:
                raise self._error(
                    f"gave more than {MAX_REPLY_BYTES // 1024**2} MiB; see that it is an "
                    "embeddings endpoint"
                )
        return bytes(content)

    def _status_error(self, fault: urllib.error.HTTPError) -> EmbeddingFailed:
        moved = fault.headers.get("Location") if 300 <= fault.code < 400 else None
        said = (
            f"it has moved to {self._quote(moved)}"
            if moved
            else self._quote(_read_error_message(fault))
        )
        cure = _REMEDIES.get(fault.code, "see its own log")
        if moved:
            cure = "give that address, if you trust it"
        message = f"{self._url} refused with status {fault.code} ({said}); {cure}"
        if fault.code in _TRANSIENT_STATUSES:
            return _TransientEmbeddingError(
                message, _pause_seconds(fault.headers.get("Retry-After"))
            )
        return EmbeddingFailed(message)

    def _parse_rows(self, content: bytes, count: int) -> list[Any]:
        """The rows of a reply, in the order of the texts."""
        rows: list[Any] = [None] * count
        try:
            data = json.loads(content)["data"]
            for place, each in enumerate(data):
                rows[each.get("index", place)] = _decode_embedding(each["embedding"])
        except (
            ValueError,
            KeyError,
            IndexError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as fault:
            raise self._error(
                f"gave no embeddings but {self._quote(content, 80)}; "
                "see that it speaks OpenAI's embeddings API"
            ) from fault
        if len(data) != count:
            raise self._error(f"gave {len(data)} vectors for {count} texts; use another server")
        missing = sum(row is None for row in rows)
        if missing:
            raise self._error(f"gave no vector for {missing} of {count} texts; use another server")
        return rows

    def _quote(self, said: object, most: int = 200) -> str:
        """A stranger's words, short and on one line, and without the key that it was given."""
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        text = text.replace(self._key, "***") if self._key else text
        line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
        return line if len(line) <= most else f"{line[:most]}…"

    def _timeout_error(self) -> _TransientEmbeddingError:
        return _TransientEmbeddingError(
            f"{self._url} did not answer within {self._timeout_seconds:g} seconds; "
            "give it longer (`timeout_seconds`), or see whether it is overloaded"
        )

    def _error(self, message: str) -> EmbeddingFailed:
        return EmbeddingFailed(f"{self._url} {message}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer, not an order: following it would carry the key to another host."""

    def redirect_request(self, *_: object) -> None:
        return None


def _endpoint_url(url: str) -> str:
    """The address to send to, from that of the API or of the endpoint itself."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url:
        raise InvalidConfig(
            f"{url!r} is no address of an embeddings endpoint; "
            "it should look like https://api.openai.com/v1"
        )
    if parts.username or parts.password:
        raise InvalidConfig("an address must not hold a password; give it as `key`")
    bare = url.rstrip("/")
    return bare if bare.endswith("/embeddings") else f"{bare}/embeddings"


def _check_options(model: Any, dimensions: Any, prefixes: Any, timeout_seconds: Any) -> None:
    """Refuse what could not be sent, or would only fail when somebody searches."""
    if not isinstance(model, str) or not model.strip():
        raise InvalidConfig(f"`model` must be the name of a model, not {model!r}")
    if dimensions is not None and not (_is_number(dimensions, int) and dimensions > 0):
        raise InvalidConfig(
            f"`dimensions` must be a whole number from 1, or left out, not {dimensions!r}"
        )
    is_pair = isinstance(prefixes, tuple | list) and len(prefixes) == 2
    if not is_pair or not all(isinstance(one, str) for one in prefixes):
        raise InvalidConfig(
            f"`prefixes` must be two texts, for queries and for tools, not {prefixes!r}"
        )
    if not (
        _is_number(timeout_seconds, int | float) and 0 < timeout_seconds <= MAX_TIMEOUT_SECONDS
    ):
        raise InvalidConfig(
            f"`timeout_seconds` must be a number of seconds above 0, up to {MAX_TIMEOUT_SECONDS:,}, "
            f"not {timeout_seconds!r:.40}"
        )


def _is_number(value: object, kind: type | UnionType) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _check_key(key: str) -> str:
    if not (isinstance(key, str) and key.isascii() and key.isprintable()):
        raise InvalidConfig(
            "the key holds a line break or another sign no key has; copy it anew, without spaces"
        )
    return key


def _decode_embedding(embedding: Any) -> Any:
    """One vector: numbers, or the same in base64, which some servers give unasked."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
    return embedding


def _read_error_message(fault: urllib.error.HTTPError) -> str:
    """What a server says is wrong: the API's own field if there is one."""
    try:
        content = fault.read(_CHUNK_BYTES)
    except (OSError, http.client.HTTPException):
        return str(fault.reason)
    try:
        error = json.loads(content)["error"]
        return str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError, RecursionError):
        return content.decode("utf-8", "replace") or str(fault.reason)


def _pause_seconds(header: str | None) -> float:
    """What `Retry-After` asks for, where it is a number of seconds."""
    return float(header) if header and header.isascii() and header.isdecimal() else 0.0
