"""Asking a gateway that is running how it is doing."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from toolcrib.config.server_entry import check_url
from toolcrib.errors import GatewayUnreachable, InvalidConfig
from toolcrib.gateway.hosts import is_loopback

EXAMPLE_URL: Final = "http://127.0.0.1:8787"
_TIMEOUT_SECONDS: Final = 10
_MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class GatewayClient:
    """Where a gateway is, and the key that opens it."""

    base: str
    key: str = field(default="", repr=False)

    @classmethod
    def from_options(cls, url: str, key: str | None) -> GatewayClient:
        """An address as people write it, with or without its `http://`, and their key, checked."""
        if not (key or "").isprintable():
            raise InvalidConfig("the key should be one line of text; correct --key or TOOLCRIB_KEY")
        base = (url if "://" in url else f"http://{url}").rstrip("/")
        check_url(base, ("--url",), EXAMPLE_URL)
        return cls(base, key or "")

    def get_json(self, path: str) -> dict[str, Any]:
        """The JSON object that is answered at a path."""
        url = f"{self.base}{path}"
        try:
            with self._opener().open(self._request(url), timeout=_TIMEOUT_SECONDS) as response:
                said = json.loads(response.read(_MAX_RESPONSE_BYTES))
        except urllib.error.HTTPError as fault:
            fault.close()
            cure = "give its key with --key or in TOOLCRIB_KEY" if fault.code in (401, 403) else ""
            cure = cure or "is that a Toolcrib gateway?"
            raise GatewayUnreachable(f"{url} answered with HTTP {fault.code}; {cure}") from None
        except (ValueError, RecursionError, HTTPException):
            raise self.not_a_gateway_error() from None
        except OSError as fault:
            raise self._connection_error(getattr(fault, "reason", fault)) from None
        if not isinstance(said, dict):
            raise self.not_a_gateway_error()
        return said

    def not_a_gateway_error(self) -> GatewayUnreachable:
        """The error for an answer that no gateway gives."""
        return GatewayUnreachable(
            f"what answers at {self.base} is no Toolcrib gateway, or one of another version; "
            "correct --url"
        )

    def _request(self, url: str) -> urllib.request.Request:
        # A gateway knows a key by its UTF-8; a header's text is sent as Latin-1.
        bearer = f"Bearer {self.key}".encode().decode("latin-1")
        return urllib.request.Request(url, headers={"Authorization": bearer} if self.key else {})

    def _opener(self) -> urllib.request.OpenerDirector:
        # No proxy reaches what listens for this machine alone.
        is_here = is_loopback(urlsplit(self.base).hostname or "")
        return urllib.request.build_opener(*[urllib.request.ProxyHandler({})] * is_here)

    def _connection_error(self, why: object) -> GatewayUnreachable:
        if isinstance(why, TimeoutError):
            return GatewayUnreachable(
                f"{self.base} did not answer within {_TIMEOUT_SECONDS} seconds; see that a gateway listens "
                "there and not something else, and try again"
            )
        if isinstance(why, socket.gaierror):
            host = urlsplit(self.base).hostname
            return GatewayUnreachable(f"there is no machine called {host}; correct --url")
        return GatewayUnreachable(
            f"no gateway is running at {self.base}; start one with `toolcrib serve`, or say where "
            "it is with --url"
        )
