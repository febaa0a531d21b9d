"""Get access tokens for an API with the client credentials grant of OAuth 2.0."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import anyio
import httpx2

from toolcrib.config.server_settings import ServerConfig
from toolcrib.errors import RequestFailed

MAX_TOKEN_RESPONSE_BYTES: Final = 64 * 1024
# A token without an expiry time is used for this long.
DEFAULT_TOKEN_SECONDS: Final = 3_600.0
# A token is renewed before it expires, because a request takes time.
_EARLY_SECONDS: Final = 30.0


class ClientCredentials:
    """Gets access tokens, and keeps each until it expires or the API rejects it."""

    def __init__(self, server: ServerConfig) -> None:
        self._server = server
        self._lock = anyio.Lock()
        self._token = ""
        self._expires = 0.0
        # Most servers read the credentials from a header, some only from the body.
        self._sends_header = True

    async def get_token(self) -> str:
        """Return a valid token; raise `RequestFailed` if the server issues none."""
        async with self._lock:
            while not self._is_valid():
                timeout = httpx2.Timeout(self._server.connect_seconds)
                # A client without the headers of the API, which belong to another host.
                async with httpx2.AsyncClient(timeout=timeout, follow_redirects=False) as client:
                    response = await client.send(self._build_token_request(), stream=True)
                    self._store_token(response, await _read_body(response))
            return self._token

    def reject_token(self, token: str) -> None:
        """Forget a token that the API does not accept."""
        if token == self._token:
            self._token = ""

    def _is_valid(self) -> bool:
        return bool(self._token) and time.monotonic() < self._expires

    def _build_token_request(self) -> httpx2.Request:
        server = self._server
        form = {"grant_type": "client_credentials"}
        if server.oauth_scope:
            form["scope"] = server.oauth_scope
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        if self._sends_header:
            pair = f"{quote(server.oauth_client_id, safe='')}:{quote(server.oauth_client_secret, safe='')}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": server.oauth_client_id, "client_secret": server.oauth_client_secret}
        return httpx2.Request("POST", server.oauth_token_url, headers=headers, content=urlencode(form).encode())

    def _store_token(self, response: httpx2.Response, fields: Mapping[str, Any]) -> None:
        """Keep the token of a response; raise `RequestFailed` if there is none."""
        token, seconds = fields.get("access_token"), fields.get("expires_in")
        if response.is_success and isinstance(token, str) and token.isascii() and token.isprintable():
            is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            lifetime = float(seconds) if is_number and seconds else DEFAULT_TOKEN_SECONDS
            self._token = token
            self._expires = time.monotonic() + max(lifetime - _EARLY_SECONDS, 1.0)
            return
        if response.status_code in (400, 401) and self._sends_header:
            self._sends_header = False
            return
        self._sends_header = True
        host = urlsplit(self._server.oauth_token_url).hostname
        reason = str(fields.get("error", "")) if fields.get("error") else "no token"
        raise RequestFailed(
            f"{host} did not issue an access token (HTTP {response.status_code}: {reason:.100}); the user checks "
            "`oauthClientId`, `oauthClientSecret` and `oauthScope` in toolcrib.json"
        )


async def _read_body(response: httpx2.Response) -> dict[str, Any]:
    """Return the members of a JSON response, or nothing if it is too large or no JSON object."""
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > MAX_TOKEN_RESPONSE_BYTES:
            return {}
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
