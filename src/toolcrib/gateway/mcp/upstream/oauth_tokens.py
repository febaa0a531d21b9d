"""Store the OAuth tokens of servers, send them with requests, and refresh them."""

from __future__ import annotations

import hashlib
import json
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import anyio
import httpx2

from toolcrib.config.server_settings import ServerConfig
from toolcrib.errors import InvalidStore
from toolcrib.files.atomic_write import write_file_atomically

MAX_TOKEN_FILE_BYTES: Final = 256 * 1024
MAX_TOKEN_RESPONSE_BYTES: Final = 256 * 1024
EXPIRY_MARGIN_SECONDS: Final = 30.0
REFRESH_TIMEOUT_SECONDS: Final = 30.0
_CLIENT_SECRET_BASIC: Final = "client_secret_basic"
# Keys in the token file that differ from the field names.
_FILE_KEYS: Final = {"client_auth_method": "client_method", "expires_at": "expires"}


@dataclass(frozen=True, slots=True)
class OAuthGrant:
    """The result of a login: an access token and what is needed to refresh it."""

    access_token: str = field(repr=False)
    token_endpoint: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    client_auth_method: str = ""
    refresh_token: str = field(default="", repr=False)
    # Unix time; None if the server did not say.
    expires_at: float | None = None
    scope: str = ""
    resource: str = ""

    @property
    def is_expired(self) -> bool:
        """Whether the access token has expired or is about to."""
        return self.expires_at is not None and time.time() > self.expires_at - EXPIRY_MARGIN_SECONDS

    def with_refreshed_token(self, response: dict[str, Any]) -> OAuthGrant:
        """Return the grant with the tokens of a refresh response."""
        seconds = response.get("expires_in")
        return replace(
            self,
            access_token=str(response["access_token"]),
            refresh_token=str(response.get("refresh_token") or self.refresh_token),
            expires_at=time.time() + float(seconds) if isinstance(seconds, int | float) else None,
        )


class TokenFile:
    """The grant of one server in a file that only its owner may read."""

    def __init__(self, folder: Path, server: ServerConfig) -> None:
        # Named by the URL, so that a token is never sent to another server.
        self._url = server.url
        name = hashlib.sha256(server.url.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self.path = folder / f"{name}.json"

    def load(self) -> OAuthGrant | None:
        """Return the grant, or None if it is missing or unreadable."""
        try:
            with self.path.open("rb") as file:
                stored = json.loads(file.read(MAX_TOKEN_FILE_BYTES))
            members = dict(stored["grant"])
            for name, key in _FILE_KEYS.items():
                if key in members:
                    members[name] = members.pop(key)
            grant = OAuthGrant(**members)
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return grant if stored.get("url") == self._url else None

    def save(self, grant: OAuthGrant) -> None:
        """Write the grant atomically."""
        members = {_FILE_KEYS.get(name, name): value for name, value in asdict(grant).items()}
        text = json.dumps({"url": self._url, "grant": members}, indent=2)
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file_atomically(self.path, text.encode(), mode=0o600)
        except OSError as error:
            raise InvalidStore(
                f"the token cannot be saved in {self.path.parent} ({error.strerror}); free disk "
                "space, or correct the permissions"
            ) from None

    def delete(self) -> bool:
        """Delete the grant; return False if there was none."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True


class TokenAuth(httpx2.Auth):
    """Sends the token of a file with each request, and refreshes an expired token."""

    def __init__(self, file: TokenFile) -> None:
        self._file = file
        self._refresh_lock = anyio.Lock()
        # Called with the final status of each request.
        self.on_response_status: Callable[[int], None] = lambda status: None

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send the request with the token, and once more with a new token after HTTP 401."""
        grant = self._file.load()
        if grant is not None and grant.is_expired:
            grant = await self._refresh(grant) or grant
        if grant is not None:
            request.headers["Authorization"] = f"Bearer {grant.access_token}"
        response = yield request
        if response.status_code == 401 and grant is not None:
            refreshed = await self._refresh(grant)
            if refreshed is not None:
                request.headers["Authorization"] = f"Bearer {refreshed.access_token}"
                response = yield request
        self.on_response_status(response.status_code)

    async def _refresh(self, used: OAuthGrant) -> OAuthGrant | None:
        """Return the grant that replaces an unusable one, or None if it cannot be refreshed."""
        async with self._refresh_lock:
            stored = self._file.load()
            if stored is not None and stored.access_token != used.access_token:
                # Another request, or another gateway, has refreshed it already.
                return stored
            if not used.refresh_token:
                return None
            with suppress(ValueError, KeyError, TypeError, httpx2.HTTPError, httpx2.InvalidURL):
                response = await _fetch_token(_build_refresh_request(used))
                refreshed = used.with_refreshed_token(response)
                await anyio.to_thread.run_sync(self._file.save, refreshed)
                return refreshed
        return None


async def _fetch_token(request: httpx2.Request) -> dict[str, Any]:
    async with httpx2.AsyncClient(timeout=REFRESH_TIMEOUT_SECONDS) as client:
        response = await client.send(request, stream=True)
        try:
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_TOKEN_RESPONSE_BYTES:
                    raise ValueError("the token response is too large")
        finally:
            await response.aclose()
    if response.status_code != 200:
        raise ValueError("the token was not refreshed")
    return dict(json.loads(body))


def _build_refresh_request(grant: OAuthGrant) -> httpx2.Request:
    form = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token, "client_id": grant.client_id}
    headers = {"Accept": "application/json"}
    if grant.resource:
        form["resource"] = grant.resource
    if grant.client_secret and grant.client_auth_method == _CLIENT_SECRET_BASIC:
        pair = f"{quote(grant.client_id, safe='')}:{quote(grant.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    elif grant.client_secret:
        form["client_secret"] = grant.client_secret
    return httpx2.Request("POST", grant.token_endpoint, data=form, headers=headers)
