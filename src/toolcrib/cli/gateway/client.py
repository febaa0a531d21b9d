"""A client for the HTTP API of a running gateway, and the options of the commands that use it."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import click

from toolcrib.cli.gateway.launch import build_base_url, config_option
from toolcrib.config.loader import find_config_path, load_config
from toolcrib.config.server_entry import check_url
from toolcrib.config.settings import HttpConfig
from toolcrib.errors import GatewayUnreachable, InvalidConfig, RequestFailed
from toolcrib.gateway.hosts import is_loopback

EXAMPLE_URL: Final = "http://127.0.0.1:8787"
TIMEOUT_SECONDS: Final = 10
_PROBE_SECONDS: Final = 2
_MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024
# The status codes with which a gateway refuses a valid request.
_API_STATUSES: Final = frozenset({400, 403, 404, 409, 502, 503})


def gateway_options(callback: Callable[..., None]) -> Callable[..., None]:
    """Add `--url` and `--key` to a command."""
    url = click.option("--url", metavar="URL", help="URL of the gateway.  [default: as configured]")
    key = click.option("--key", envvar="TOOLCRIB_KEY", metavar="KEY", help="API key; or set TOOLCRIB_KEY.")
    return url(key(callback))


def client_options(callback: Callable[..., None]) -> Callable[..., None]:
    """Add `--config`, `--url` and `--key` to a command, which gets a `client` of the gateway that they name."""

    @config_option
    @gateway_options
    @wraps(callback)
    def build_client(config_file: str | None, url: str | None, key: str | None, **others: Any) -> None:
        callback(client=GatewayClient.from_options(url or get_configured_url(config_file), key), **others)

    return build_client


def get_configured_url(config_file: str | None) -> str:
    """Return the URL of the gateway that the configuration file describes."""
    path = find_config_path(config_file)
    http = load_config(path).http if path is not None else HttpConfig()
    return build_base_url(http.host, http.port)


def find_running_gateway(url: str | None, key: str | None) -> GatewayClient | None:
    """Return a client for the gateway at a URL, or for the configured one if it is running."""
    if url:
        return GatewayClient.from_options(url, key)
    try:
        client = GatewayClient.from_options(get_configured_url(None), key)
        health = client.get_json("/health", timeout_seconds=_PROBE_SECONDS)
    except (GatewayUnreachable, InvalidConfig, RequestFailed):
        return None
    return client if isinstance(health.get("status"), str) and isinstance(health.get("reasons"), list) else None


@dataclass(frozen=True, slots=True)
class GatewayClient:
    """Sends requests to the HTTP API of a gateway."""

    base_url: str
    key: str = field(default="", repr=False)

    @classmethod
    def from_options(cls, url: str, key: str | None) -> GatewayClient:
        """Return a client for a URL, with or without its `http://`, and a key."""
        if not (key or "").isprintable():
            raise InvalidConfig("the key must be one line of text; check --key or TOOLCRIB_KEY")
        base_url = (url if "://" in url else f"http://{url}").rstrip("/")
        check_url(base_url, ("--url",), EXAMPLE_URL)
        return cls(base_url, key or "")

    def get_json(
        self, path: str, parameters: Mapping[str, Any] | None = None, timeout_seconds: float = 0
    ) -> dict[str, Any]:
        """Return the JSON object at a path."""
        query = f"?{urlencode(parameters, doseq=True)}" if parameters else ""
        return self._send(f"{self.base_url}{path}{query}", None, timeout_seconds)

    def post_json(self, path: str, body: Mapping[str, Any], timeout_seconds: float = 0) -> dict[str, Any]:
        """Send a JSON object to a path and return the JSON object of the answer."""
        return self._send(f"{self.base_url}{path}", json.dumps(body).encode(), timeout_seconds)

    def put_json(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Replace what is at a path by a JSON object and return the JSON object of the answer."""
        return self._send(f"{self.base_url}{path}", json.dumps(body).encode(), 0, "PUT")

    def delete(self, path: str) -> dict[str, Any]:
        """Delete what is at a path and return the JSON object of the answer."""
        return self._send(f"{self.base_url}{path}", None, 0, "DELETE")

    def _send(self, url: str, body: bytes | None, timeout_seconds: float, method: str = "") -> dict[str, Any]:
        timeout_seconds = timeout_seconds or TIMEOUT_SECONDS
        request = self._request(url, body)
        request.method = method or request.get_method()
        try:
            with self._opener().open(request, timeout=timeout_seconds) as response:
                document = json.loads(response.read(_MAX_RESPONSE_BYTES))
        except urllib.error.HTTPError as error:
            raise self._describe_refusal(url, error) from None
        except (ValueError, RecursionError, HTTPException):
            raise self.not_a_gateway_error() from None
        except OSError as error:
            raise self._connection_error(getattr(error, "reason", error), timeout_seconds) from None
        if not isinstance(document, dict):
            raise self.not_a_gateway_error()
        return document

    def not_a_gateway_error(self) -> GatewayUnreachable:
        """Return the error for an answer that does not come from a gateway of this version."""
        return GatewayUnreachable(f"{self.base_url} is not a Toolcrib gateway, or has another version; check --url")

    def _request(self, url: str, body: bytes | None) -> urllib.request.Request:
        # Gateways expect the key as UTF-8, but urllib encodes headers as Latin-1.
        bearer = f"Bearer {self.key}".encode().decode("latin-1")
        headers = {"Authorization": bearer} if self.key else {}
        return urllib.request.Request(url, body, headers | ({"Content-Type": "application/json"} if body else {}))

    def _opener(self) -> urllib.request.OpenerDirector:
        # A proxy cannot reach a loopback address.
        is_local = is_loopback(urlsplit(self.base_url).hostname or "")
        return urllib.request.build_opener(*[urllib.request.ProxyHandler({})] * is_local)

    def _describe_refusal(self, url: str, error: urllib.error.HTTPError) -> GatewayUnreachable | RequestFailed:
        with error:
            if error.code in _API_STATUSES:
                with suppress(ValueError, RecursionError, HTTPException, KeyError, TypeError, OSError):
                    reason = json.loads(error.read(_MAX_RESPONSE_BYTES))["error"]
                    return RequestFailed(str(reason["message"] if isinstance(reason, dict) else reason), error.code)
        remedy = "check that this is a Toolcrib gateway"
        if error.code in (401, 403):
            remedy = "pass its key with --key or in TOOLCRIB_KEY"
        return GatewayUnreachable(f"{url.partition('?')[0]} returned HTTP {error.code}; {remedy}")

    def _connection_error(self, reason: object, timeout_seconds: float) -> GatewayUnreachable:
        if isinstance(reason, TimeoutError):
            return GatewayUnreachable(
                f"{self.base_url} did not answer within {timeout_seconds:g} seconds; check that a "
                "gateway listens there, and try again"
            )
        if isinstance(reason, socket.gaierror):
            host = urlsplit(self.base_url).hostname
            return GatewayUnreachable(f"the host {host} cannot be found; check --url")
        return GatewayUnreachable(
            f"no gateway is running at {self.base_url}; start one with `toolcrib serve`, or pass its URL with --url"
        )


def quote_name(name: str) -> str:
    """Return the name of a server or tool as one step of a path."""
    return quote(name, safe="")
