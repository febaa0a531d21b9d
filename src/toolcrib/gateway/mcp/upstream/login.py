"""Log in to a server with OAuth in the user's browser, with a callback page on this machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import parse_qs, urljoin, urlsplit

import anyio
import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError, OAuthRegistrationError
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from toolcrib.config.server_settings import ServerConfig
from toolcrib.errors import LoginFailed
from toolcrib.gateway.mcp.upstream.oauth_tokens import OAuthGrant
from toolcrib.safety.hidden_text import escape_invisible

LOGIN_TIMEOUT_SECONDS: Final = 300.0
_REQUEST_TIMEOUT_SECONDS: Final = 30.0
_MAX_HEAD_BYTES: Final = 16 * 1024
_MAX_QUOTED_CHARS: Final = 200
_CALLBACK_PATH: Final = "/callback"
_PING_REQUEST: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_ACCEPT_HEADERS: Final = {"Accept": "application/json, text/event-stream"}
_SUCCESS_TEXT: Final = "You are logged in. You can close this page."
_REFUSED_TEXT: Final = "The login was refused. You can close this page."


async def login(server: ServerConfig, show_url: Callable[[str], None], port: int = 0) -> OAuthGrant | None:
    """Return the grant of a user's login, or None if the server requires no login.

    `show_url` receives the URL that the user has to open.
    """
    try:
        with anyio.fail_after(LOGIN_TIMEOUT_SECONDS):
            async with _serve_callback_page(port) as page:
                return await _run_oauth_flow(server, show_url, page)
    except TimeoutError:
        raise LoginFailed(f"no login to {server.name} within {LOGIN_TIMEOUT_SECONDS:g} seconds; try again") from None
    except OAuthRegistrationError as error:
        raise LoginFailed(
            f"{server.name} does not allow client registration ({_format_error(error)}); register "
            "a client with its provider and set its `oauthClientId`, or add a token to its `headers`"
        ) from None
    except (OAuthFlowError, ValidationError) as error:
        raise LoginFailed(
            f"the login to {server.name} failed: {_format_error(error)}; try again, or add a token to its `headers`"
        ) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise LoginFailed(f"{server.name} could not be reached ({type(error).__name__}); check its `url`") from None


async def _run_oauth_flow(
    server: ServerConfig, show_url: Callable[[str], None], page: _CallbackPage
) -> OAuthGrant | None:
    async def redirect(url: str) -> None:
        page.expect_state_of(url)
        show_url(url)

    provider = OAuthClientProvider(
        server.url,
        OAuthClientMetadata(client_name="Toolcrib", redirect_uris=[AnyUrl(page.url)]),
        _LoginStorage(server, page.url),
        redirect,
        page.wait_for_result,
    )
    async with httpx2.AsyncClient(
        auth=provider, headers=dict(server.headers), timeout=_REQUEST_TIMEOUT_SECONDS
    ) as client:
        status = await fetch_ping_status(client, server)
    if status in (401, 403):
        raise OAuthFlowError(f"it answered with HTTP {status} after the login")
    return _build_grant(provider)


async def fetch_ping_status(client: httpx2.AsyncClient, server: ServerConfig) -> int:
    """Return the HTTP status of the server's response to a ping."""
    if server.transport == "sse":
        request = client.build_request("GET", server.url, headers=_ACCEPT_HEADERS)
    else:
        request = client.build_request("POST", server.url, json=_PING_REQUEST, headers=_ACCEPT_HEADERS)
    response = await client.send(request, stream=True)
    await response.aclose()
    return response.status_code


def _build_grant(provider: OAuthClientProvider) -> OAuthGrant | None:
    context = provider.context
    tokens, client, metadata = context.current_tokens, context.client_info, context.oauth_metadata
    if tokens is None or client is None:
        return None
    default_endpoint = urljoin(context.get_authorization_base_url(context.server_url), "/token")
    has_resource = context.should_include_resource_param(context.protocol_version)
    return OAuthGrant(
        tokens.access_token,
        str(metadata.token_endpoint) if metadata else default_endpoint,
        client.client_id,
        client.client_secret or "",
        client.token_endpoint_auth_method or "",
        tokens.refresh_token or "",
        None if tokens.expires_in is None else time.time() + tokens.expires_in,
        tokens.scope or "",
        context.get_resource_url() if has_resource else "",
    )


class _LoginStorage:
    """The SDK's storage for one login. The result is read from the provider's context instead."""

    def __init__(self, server: ServerConfig, callback_url: str) -> None:
        self._client: OAuthClientInformationFull | None = None
        if server.oauth_client_id:
            secret = server.oauth_client_secret or None
            self._client = OAuthClientInformationFull(
                client_id=server.oauth_client_id,
                client_secret=secret,
                token_endpoint_auth_method="client_secret_post" if secret else "none",
                redirect_uris=[AnyUrl(callback_url)],
            )

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        pass

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        pass


class _CallbackPage:
    """The page on this machine to which the browser returns with the result."""

    def __init__(self) -> None:
        self.url = ""
        self._state = ""
        self._result: dict[str, str] = {}
        self._received = anyio.Event()

    def expect_state_of(self, url: str) -> None:
        """Accept only the response to this authorization URL; other pages may send requests too."""
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]

    async def wait_for_result(self) -> AuthorizationCodeResult:
        """Return the authorization code, or raise `OAuthFlowError` if the login was refused."""
        await self._received.wait()
        if "code" not in self._result:
            reason = self._result.get("error_description") or self._result.get("error") or "no code"
            raise OAuthFlowError(escape_invisible(reason, _MAX_QUOTED_CHARS))
        return AuthorizationCodeResult(
            code=self._result["code"], state=self._result.get("state"), iss=self._result.get("iss")
        )

    async def handle_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of a browser."""
        try:
            with suppress(TimeoutError, OSError, ValueError, asyncio.IncompleteReadError):
                async with asyncio.timeout(_REQUEST_TIMEOUT_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    status, text = self._handle_request_line(head.split(b"\r\n")[0].decode("latin-1"))
                    page = f"<!doctype html><title>Toolcrib</title><p>{text}</p>".encode()
                    headers = f"Content-Length: {len(page)}\r\nConnection: close\r\n"
                    writer.write(f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\n{headers}\r\n".encode() + page)
                    await writer.drain()
        finally:
            writer.close()

    def _handle_request_line(self, line: str) -> tuple[str, str]:
        """Return the status and the text of the response."""
        method, _, rest = line.partition(" ")
        target = urlsplit(rest.partition(" ")[0])
        query = {name: values[0] for name, values in parse_qs(target.query).items()}
        is_callback = method == "GET" and target.path == _CALLBACK_PATH
        if not is_callback or not self._state or query.get("state") != self._state:
            return "404 Not Found", "There is nothing here."
        if not self._received.is_set():
            self._result = query
            self._received.set()
        return "200 OK", _SUCCESS_TEXT if "code" in self._result else _REFUSED_TEXT


@asynccontextmanager
async def _serve_callback_page(port: int) -> AsyncIterator[_CallbackPage]:
    page = _CallbackPage()
    listener = await asyncio.start_server(page.handle_connection, "127.0.0.1", port, limit=_MAX_HEAD_BYTES)
    page.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}{_CALLBACK_PATH}"
    try:
        yield page
        # Let the response to the browser be sent.
        await asyncio.sleep(0)
    finally:
        listener.close()


def _format_error(error: Exception) -> str:
    return escape_invisible(str(error), _MAX_QUOTED_CHARS)
