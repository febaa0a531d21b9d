"""Requests to LLM upstreams and their responses, independent of the HTTP library."""

from __future__ import annotations

import asyncio
import re
import zlib
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from toolcrib.config.settings import LlmUpstreamConfig
from toolcrib.errors import RequestFailed

# Time to read the unneeded rest of a response, after which its connection can be reused.
DISCARD_SECONDS: Final = 1.0
# A few compressed bytes can expand to a lot, so they are decompressed in parts.
DECOMPRESSED_PART_BYTES: Final = 1 << 20
# Headers about one connection, which are set separately for the next one.
HOP_BY_HOP_HEADERS: Final = frozenset(
    {
        "connection", "content-length", "expect", "host", "keep-alive", "proxy-authenticate",
        "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip

_REMOVED_HEADERS: Final = HOP_BY_HOP_HEADERS | {"date", "server", "set-cookie"}
_REMOVED_WITH_ENCODING: Final = _REMOVED_HEADERS | {"content-encoding"}
_INVALID_IN_HEADERS: Final = re.compile("[\r\n\0\u0100-\U0010ffff]")
_TARGET_CHARACTERS: Final = "".join(map(chr, range(0x21, 0x7F)))
_WINDOW_BITS: Final[Mapping[str, int]] = {
    "gzip": zlib.MAX_WBITS | 16,
    "x-gzip": zlib.MAX_WBITS | 16,
    "deflate": zlib.MAX_WBITS,
}


HeaderList = list[tuple[str, str]]


class UpstreamOrigin(NamedTuple):
    """The parsed base URL of an upstream."""

    is_tls: bool
    host: str
    # Host and port, as in the `host` header.
    authority: str
    # The prefix of all request paths.
    path: str
    # The `authorization` header for the user name and password of the URL.
    credentials: str


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A request to an upstream."""

    upstream: LlmUpstreamConfig
    method: str
    path: str
    headers: HeaderList
    body: bytes = b""

    @property
    def origin(self) -> UpstreamOrigin:
        """The parsed base URL of the upstream."""
        try:
            return _parse_origin(self.upstream.url)
        except ValueError:
            raise RequestFailed(
                f"the address of upstream {self.upstream.name!r} cannot be read; correct its `url`", 502
            ) from None

    @property
    def target(self) -> str:
        """The path and query, percent-encoded where necessary."""
        target = self.origin.path + self.path
        if target.isascii() and target.isprintable() and " " not in target:
            return target
        return quote(target.encode("latin-1", "replace"), safe=_TARGET_CHARACTERS)

    def build_headers(self) -> HeaderList:
        """Return the headers to send, with the credentials of the upstream's URL."""
        if found := _INVALID_IN_HEADERS.search("".join([part for header in self.headers for part in header])):
            what = "an invalid character" if found[0] > "\xff" else "a line break or a null"
            raise RequestFailed(f"a header of the request contains {what}", 400)
        if not self.origin.credentials:
            return self.headers
        headers = [header for header in self.headers if header[0] != "authorization"]
        return [*headers, ("authorization", self.origin.credentials)]


class UpstreamResponse(ABC):
    """A response whose headers have arrived. The caller reads the body and closes it."""

    def __init__(self, request: UpstreamRequest, status: int, headers: HeaderList) -> None:
        self.status = status
        # Names are in lower case.
        self.headers = headers
        self._request = request
        self._raw_bytes_left = self._decoded_bytes_left = request.upstream.max_response_bytes
        self._encoding = self.get_header("content-encoding").strip().lower()
        self._decoder = _Decompressor(self._encoding) if self._encoding in _WINDOW_BITS else None
        # Whether the body has no encoding or one that `read_chunk` decodes.
        self.is_decodable = self._decoder is not None or self._encoding in ("", "identity")

    @property
    def request(self) -> UpstreamRequest:
        """The request that this is the response to."""
        return self._request

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300

    @property
    def is_event_stream(self) -> bool:
        """Whether the body is a stream of server-sent events."""
        return self.get_header("content-type").startswith("text/event-stream")

    def get_header(self, name: str) -> str:
        """Return the first value of a header, or an empty string."""
        return next((value for header, value in self.headers if header == name), "")

    def forwarded_headers(self, *, keep_encoding: bool = False) -> HeaderList:
        """Return the headers for the client; `keep_encoding` includes the content encoding."""
        removed = _REMOVED_HEADERS if keep_encoding else _REMOVED_WITH_ENCODING
        return [(name, value) for name, value in self.headers if name not in removed]

    def headers_for_type(self, content_type: str) -> HeaderList:
        """Return the headers for a body of another type that replaces this one."""
        kept = [
            header for header in self.headers if header[0] not in ("content-type", "content-length", "content-encoding")
        ]
        return [*kept, ("content-type", content_type)]

    @abstractmethod
    async def read_raw_chunk(self) -> bytes:
        """Return the next bytes of the body as they were sent, or none at its end."""

    def read_chunk(self) -> Coroutine[Any, Any, bytes]:
        """Return the next bytes of the body, decoded, or none at its end."""
        # A coroutine for each chunk would cost more than this function.
        if self._decoder is not None:
            return self._read_decoded(self._decoder)
        if not self.is_decodable:
            name, encoding = self._request.upstream.name, self._encoding[:40]
            raise RequestFailed(f"upstream {name!r} sent an encoding that was not requested ({encoding!r})", 502)
        return self.read_raw_chunk()

    async def _read_decoded(self, decoder: _Decompressor) -> bytes:
        while True:
            has_more = decoder.has_more
            raw = b"" if has_more else await self.read_raw_chunk()
            if not raw and not has_more:
                return b""
            chunk = decoder.decompress(raw)
            self._decoded_bytes_left -= len(chunk)
            if self._decoded_bytes_left < 0:
                raise self._size_error()
            if chunk:
                return chunk

    async def read(self) -> bytes:
        """Return the whole body, decoded, and close the response."""
        try:
            chunks = []
            while chunk := await self.read_chunk():
                chunks.append(chunk)
            return b"".join(chunks)
        finally:
            await self.close()

    @abstractmethod
    async def discard_rest(self) -> None:
        """Skip a body that is about to end, so that the connection can be reused."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection, unless the body was read to its end."""

    def _count_raw(self, chunk: bytes) -> bytes:
        """Return the chunk, or raise an error if the body is too large with it."""
        self._raw_bytes_left -= len(chunk)
        if self._raw_bytes_left < 0:
            raise self._size_error()
        return chunk

    def _size_error(self) -> RequestFailed:
        upstream = self._request.upstream
        return RequestFailed(
            f"the response of upstream {upstream.name!r} is larger than "
            f"{upstream.max_response_bytes:,} bytes; raise maxResponseBytes",
            502,
        )

    async def _skip_body(self) -> None:
        with suppress(RequestFailed, TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                while await self.read_raw_chunk():
                    pass


class _Decompressor:
    """Decompresses a `gzip` or `deflate` body in parts."""

    def __init__(self, encoding: str) -> None:
        self._may_be_headerless = encoding == "deflate"
        self._zlib = zlib.decompressobj(_WINDOW_BITS[encoding])

    @property
    def has_more(self) -> bool:
        """Whether bytes of an earlier call are not decompressed yet."""
        return bool(self._zlib.unconsumed_tail) and not self._zlib.eof

    def decompress(self, data: bytes) -> bytes:
        """Return the next decompressed bytes, limited in size."""
        data = self._zlib.unconsumed_tail + data
        try:
            try:
                return self._zlib.decompress(data, DECOMPRESSED_PART_BYTES)
            except zlib.error:
                if not self._may_be_headerless:
                    raise
                # Many servers send `deflate` without the zlib header.
                self._zlib = zlib.decompressobj(-zlib.MAX_WBITS)
                return self._zlib.decompress(data, DECOMPRESSED_PART_BYTES)
        except zlib.error as error:
            message = f"the upstream's response cannot be decompressed: {error}"
            raise RequestFailed(message, 502) from error
        finally:
            self._may_be_headerless = False


@lru_cache(maxsize=256)
def _parse_origin(url: str) -> UpstreamOrigin:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(parts.scheme)
    is_tls = parts.scheme == "https"
    host = parts.hostname
    if not host.isascii():
        host = host.encode("idna").decode()
    authority = f"[{host}]" if ":" in host else host
    default_port = 443 if is_tls else 80
    if parts.port not in (None, default_port):
        authority = f"{authority}:{parts.port}"
    credentials = ""
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = f"Basic {b64encode(secret.encode()).decode()}"
    return UpstreamOrigin(is_tls, host, authority, parts.path.rstrip("/"), credentials)
