"""Logging in to a server in a person's browser: OAuth, as the protocol has it, and a page to come
back to on this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from urllib.parse import parse_qs, urljoin, urlsplit

import anyio
import httpx2
from mcp.client.auth import (
    AuthorizationCodeResult,
    OAuthClientProvider,
    OAuthFlowError,
    OAuthRegistrationError,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from toolcrib.config.settings import ServerConfig
from toolcrib.errors import LoginFailed
from toolcrib.gateway.mcp.upstream.oauth_tokens import OAuthGrant
from toolcrib.safety.hidden_text import escape_invisible

LOGIN_TIMEOUT_SECONDS: Final = 300.0
_REQUEST_TIMEOUT_SECONDS: Final = 30.0
_MAX_HEAD_BYTES: Final = 16 * 1024
_CALLBACK_PATH: Final = "/callback"
_PING_REQUEST: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_ACCEPT_HEADERS: Final = {"Accept": "application/json, text/event-stream"}
_SUCCESS_TEXT: Final = "You are logged in. You can close this page."
_REFUSED_TEXT: Final = "The login was refused. You can close this page."


async def login(
    server: ServerConfig, show_url: Callable[[str], None], port: int = 0
) -> OAuthGrant | None:
    """What a person's login to a server gives; None where the server asks for none.

    `show` is given the address that the person has to go to.
    """
    try:
        with anyio.fail_after(LOGIN_TIMEOUT_SECONDS):
            async with _serve_callback_page(port) as way:
                return await _run_oauth_flow(server, show_url, way)
    except TimeoutError:
        raise LoginFailed(
            f"nobody logged in to {server.name} within {LOGIN_TIMEOUT_SECONDS:g} seconds; try again"
        ) from None
    except OAuthRegistrationError as fault:
        raise LoginFailed(
            f"{server.name} does not let us register ourselves ({_format_error(fault)}); register a client "
            "with its makers and set its `oauthClientId`, or give it a token in its `headers`"
        ) from None
    except (OAuthFlowError, ValidationError) as fault:
        raise LoginFailed(
            f"the login to {server.name} failed: {_format_error(fault)}; try again, or give it a token in "
            "its `headers`"
        ) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as fault:
        raise LoginFailed(
            f"{server.name} could not be reached ({type(fault).__name__}); check its `url`"
        ) from None


async def _run_oauth_flow(
    server: ServerConfig, show: Callable[[str], None], way: _CallbackPage
) -> OAuthGrant | None:
    async def redirect(address: str) -> None:
        way.expect_state_of(address)
        show(address)

    provider = OAuthClientProvider(
        server.url,
        OAuthClientMetadata(client_name="Toolcrib", redirect_uris=[AnyUrl(way.url)]),
        _LoginStorage(server, way.url),
        redirect,
        way.wait_for_result,
    )
    async with httpx2.AsyncClient(
        auth=provider, headers=dict(server.headers), timeout=_REQUEST_TIMEOUT_SECONDS
    ) as client:
        if server.transport == "sse":
            request = client.build_request("GET", server.url, headers=_ACCEPT_HEADERS)
        else:
            request = client.build_request(
                "POST", server.url, json=_PING_REQUEST, headers=_ACCEPT_HEADERS
            )
        response = await client.send(request, stream=True)
        await response.aclose()
    if response.status_code in (401, 403):
        raise OAuthFlowError(f"it answered with HTTP {response.status_code} after the login")
    return _build_grant(provider)


def _build_grant(provider: OAuthClientProvider) -> OAuthGrant | None:
    context = provider.context
    tokens, client, metadata = context.current_tokens, context.client_info, context.oauth_metadata
    if tokens is None or client is None:
        return None
    beside = urljoin(context.get_authorization_base_url(context.server_url), "/token")
    has_resource = context.should_include_resource_param(context.protocol_version)
    return OAuthGrant(
        tokens.access_token,
        str(metadata.token_endpoint) if metadata else beside,
        client.client_id,
        client.client_secret or "",
        client.token_endpoint_auth_method or "",
        tokens.refresh_token or "",
        None if tokens.expires_in is None else time.time() + tokens.expires_in,
        tokens.scope or "",
        context.get_resource_url() if has_resource else "",
    )


class _LoginStorage:
    """What the SDK keeps in the course of one login."""

    def __init__(self, server: ServerConfig, address: str) -> None:
        self._client: OAuthClientInformationFull | None = None
        if server.oauth_client_id:
            secret = server.oauth_client_secret or None
            self._client = OAuthClientInformationFull(
                client_id=server.oauth_client_id,
                client_secret=secret,
                token_endpoint_auth_method="client_secret_post" if secret else "none",
                redirect_uris=[AnyUrl(address)],
            )

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """It is taken from the SDK at the end."""

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """It is taken from the SDK at the end."""


class _CallbackPage:
    """A page on this machine that a browser is sent back to, with the outcome."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}{_CALLBACK_PATH}"
        self._state = ""
        self._outcome: dict[str, str] = {}
        self._received = anyio.Event()

    def expect_state_of(self, address: str) -> None:
        """Only the answer to this is taken: other pages may call us too."""
        self._state = parse_qs(urlsplit(address).query).get("state", [""])[0]

    async def wait_for_result(self) -> AuthorizationCodeResult:
        await self._received.wait()
        if "code" not in self._outcome:
            why = self._outcome.get("error_description") or self._outcome.get("error") or "no code"
            raise OAuthFlowError(escape_invisible(why, 200))
        return AuthorizationCodeResult(
            code=self._outcome["code"],
            state=self._outcome.get("state"),
            iss=self._outcome.get("iss"),
        )

    async def handle_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one request of a browser's."""
        try:
            with suppress(TimeoutError, OSError, ValueError, asyncio.IncompleteReadError):
                async with asyncio.timeout(_REQUEST_TIMEOUT_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    status, text = self._handle_request_line(
                        head.split(b"\r\n")[0].decode("latin-1")
                    )
                    page = f"<!doctype html><title>Toolcrib</title><p>{text}</p>".encode()
                    headers = f"Content-Length: {len(page)}\r\nConnection: close\r\n"
                    writer.write(
                        f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\n{headers}\r\n".encode()
                        + page
                    )
                    await writer.drain()
        finally:
            writer.close()

    def _handle_request_line(self, line: str) -> tuple[str, str]:
        method, _, rest = line.partition(" ")
        asked = urlsplit(rest.partition(" ")[0])
        given = {name: values[0] for name, values in parse_qs(asked.query).items()}
        is_ours = method == "GET" and asked.path == _CALLBACK_PATH
        if not is_ours or not self._state or given.get("state") != self._state:
            return "404 Not Found", "There is nothing here."
        if not self._received.is_set():
            self._outcome = given
            self._received.set()
        return "200 OK", _SUCCESS_TEXT if "code" in self._outcome else _REFUSED_TEXT


@asynccontextmanager
async def _serve_callback_page(port: int) -> AsyncIterator[_CallbackPage]:
    ways: list[_CallbackPage] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ways[0].handle_connection(reader, writer)

    listener = await asyncio.start_server(serve, "127.0.0.1", port, limit=_MAX_HEAD_BYTES)
    ways.append(_CallbackPage(listener.sockets[0].getsockname()[1]))
    try:
        yield ways[0]
        # The browser is still being told that all is well.
        await asyncio.sleep(0)
    finally:
        listener.close()


def _format_error(fault: Any) -> str:
    return escape_invisible(str(fault), 200)
