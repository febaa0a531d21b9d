"""What it takes to ask an upstream over HTTP, whichever version of it is spoken."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote, unquote, urlsplit

from toolcrib.config.settings import LlmUpstreamConfig
from toolcrib.errors import RequestFailed

# An upstream may be asked by so many at once; who comes later waits for a connection.
MAX_CONNECTIONS: Final = 2048
# How long a connection that nobody uses is kept.
KEEPALIVE_SECONDS: Final = 30.0

# What may stand in the target of a request as it is.
_AS_IT_IS: Final = "".join(map(chr, range(0x21, 0x7F)))

HeaderList = list[tuple[str, str]]
# Takes bytes, and says whether it would take more at once.
Sink = Callable[[bytes], bool]


class UpstreamConnectionError(RequestFailed):
    """Nothing came back, so the request may be sent again.

    `at_once`: its connection was an old one, which the upstream may just have given up.
    """

    def __init__(self, message: str, *, at_once: bool = False) -> None:
        super().__init__(message, 502)
        self.is_stale_connection = at_once


class UpstreamOrigin(NamedTuple):
    """Where an upstream is."""

    is_tls: bool
    host: str
    port: int
    # As the header `host` has it.
    name: str
    # What stands before every path.
    path: str
    credentials: str


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """What an upstream is asked."""

    upstream: LlmUpstreamConfig
    method: str
    path: str
    headers: HeaderList
    body: bytes = b""

    @property
    def origin(self) -> UpstreamOrigin:
        """Where it goes."""
        return parse_origin(self.upstream)

    @property
    def target(self) -> str:
        """The path with what the upstream's address has before it, in signs that a request may have."""
        whole = self.origin.path + self.path
        if whole.isascii() and whole.isprintable() and " " not in whole:
            return whole
        return quote(whole.encode("latin-1", "replace"), safe=_AS_IT_IS)

    @property
    def url(self) -> str:
        """The whole address."""
        origin = self.origin
        return f"{'https' if origin.is_tls else 'http'}://{origin.name}{self.target}"

    def sent_headers(self) -> HeaderList:
        """The headers, with the name and password that stand in the upstream's address."""
        if not self.origin.credentials:
            return self.headers
        kept = [one for one in self.headers if one[0] != "authorization"]
        return [*kept, ("authorization", self.origin.credentials)]

    def unreachable(self) -> UpstreamConnectionError:
        """What to say if there is no connection; never an address, which may hold a secret."""
        return UpstreamConnectionError(
            f"upstream {self.upstream.name!r} cannot be reached; is it running?"
        )

    def unreachable_in_time(self) -> RequestFailed:
        """What to say if there was no connection for too long."""
        seconds = self.upstream.connect_seconds
        name = self.upstream.name
        return RequestFailed(f"upstream {name!r} could not be reached within {seconds:g} s", 504)

    def untrusted(self, why: str) -> RequestFailed:
        """What to say of a certificate that is not to be trusted."""
        return RequestFailed(
            f"the certificate of upstream {self.upstream.name!r} cannot be trusted ({why}); correct "
            "its address, or name the authority that signed it in SSL_CERT_FILE",
            502,
        )

    def silent(self) -> RequestFailed:
        """What to say of an upstream that says nothing any more."""
        seconds = self.upstream.read_seconds
        return RequestFailed(f"upstream {self.upstream.name!r} was silent for {seconds:g} s", 504)

    def broken_off(self) -> RequestFailed:
        """What to say of an answer that did not come to its end."""
        return RequestFailed(self._broken_off(), 502)

    def unanswered(self, *, at_once: bool) -> UpstreamConnectionError:
        """What to say of a connection that ended before an answer began."""
        return UpstreamConnectionError(self._broken_off(), at_once=at_once)

    def nonsense(self, why: str) -> RequestFailed:
        """What to say of an answer that is not HTTP."""
        return RequestFailed(
            f"upstream {self.upstream.name!r} does not speak HTTP as it should ({why}); is its "
            "address right?",
            502,
        )

    def too_large(self) -> RequestFailed:
        """What to say of an answer that does not end."""
        most = self.upstream.max_response_bytes
        return RequestFailed(
            f"the answer of upstream {self.upstream.name!r} is larger than {most:,} bytes; "
            "raise maxResponseBytes",
            502,
        )

    def _broken_off(self) -> str:
        return f"the connection to upstream {self.upstream.name!r} broke off; try again"


class WireResponse(Protocol):
    """An upstream's answer as it comes; its head is there, its body is to be read."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> HeaderList:
        """The headers, with their names in small letters."""

    async def piece(self) -> bytes:
        """Some bytes of the body, as they were sent; none at its end."""

    async def pour(self, sink: Sink) -> bool:
        """Hand all bytes to a sink as they come; False as soon as it takes no more for now."""

    async def finish(self) -> None:
        """Nothing more of it is wanted, and its end is near."""

    async def close(self) -> None:
        """Break it off, unless it is at its end."""


def parse_origin(upstream: LlmUpstreamConfig) -> UpstreamOrigin:
    """Where an upstream is."""
    try:
        return _origin(upstream.url)
    except ValueError:
        raise RequestFailed(
            f"the address of upstream {upstream.name!r} cannot be read; correct its `url`", 502
        ) from None


@lru_cache(maxsize=256)
def _origin(url: str) -> UpstreamOrigin:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(parts.scheme)
    is_tls = parts.scheme == "https"
    usual = 443 if is_tls else 80
    host = (
        parts.hostname.encode("idna").decode() if not parts.hostname.isascii() else parts.hostname
    )
    port = parts.port or usual
    name = f"[{host}]" if ":" in host else host
    credentials = ""
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = f"Basic {b64encode(secret.encode()).decode()}"
    return UpstreamOrigin(
        is_tls,
        host,
        port,
        name if port == usual else f"{name}:{port}",
        parts.path.rstrip("/"),
        credentials,
    )
