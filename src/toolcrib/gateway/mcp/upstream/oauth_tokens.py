"""Tokens of servers that a person has logged in to: kept for their owner alone, renewed in time."""

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

from toolcrib.config.settings import ServerConfig
from toolcrib.errors import InvalidStore
from toolcrib.files.atomic_write import write_file_atomically

MAX_TOKEN_FILE_BYTES: Final = 256 * 1024
MAX_TOKEN_RESPONSE_BYTES: Final = 256 * 1024
# Renewed a little early: a token is on its way for a while.
EXPIRY_MARGIN_SECONDS: Final = 30.0
REFRESH_TIMEOUT_SECONDS: Final = 30.0
_CLIENT_SECRET_BASIC: Final = "client_secret_basic"


@dataclass(frozen=True, slots=True)
class OAuthGrant:
    """What a login gave: a token, and what is needed to renew it."""

    access_token: str = field(repr=False)
    token_endpoint: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    client_auth_method: str = ""
    refresh_token: str = field(default="", repr=False)
    # In seconds since 1970; None where nobody has said.
    expires_at: float | None = None
    scope: str = ""
    resource: str = ""

    @property
    def is_expired(self) -> bool:
        """Whether its time is up."""
        return self.expires_at is not None and time.time() > self.expires_at - EXPIRY_MARGIN_SECONDS

    def with_refreshed_token(self, answer: dict[str, Any]) -> OAuthGrant:
        """With the token that a renewal gave. What it does not say stays as it was."""
        seconds = answer.get("expires_in")
        return replace(
            self,
            access_token=str(answer["access_token"]),
            refresh_token=str(answer.get("refresh_token") or self.refresh_token),
            expires_at=time.time() + float(seconds) if isinstance(seconds, int | float) else None,
        )


class TokenFile:
    """The grant for one server, in a file that nobody else may read."""

    def __init__(self, folder: Path, server: ServerConfig) -> None:
        # By its address: under another one it is another server, and is not to be shown this token.
        self._url = server.url
        name = hashlib.sha256(server.url.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self.path = folder / f"{name}.json"

    def load(self) -> OAuthGrant | None:
        """The grant; None where there is none that can be read."""
        try:
            with self.path.open("rb") as file:
                kept = json.loads(file.read(MAX_TOKEN_FILE_BYTES))
            grant = OAuthGrant(**kept["grant"])
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return grant if kept.get("url") == self._url else None

    def save(self, grant: OAuthGrant) -> None:
        """Keep it, there at once as a whole."""
        text = json.dumps({"url": self._url, "grant": asdict(grant)}, indent=2)
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file_atomically(self.path, text.encode(), mode=0o600)
        except OSError as fault:
            raise InvalidStore(
                f"the token cannot be kept in {self.path.parent} ({fault.strerror}); make room "
                "there, or let it be written to"
            ) from None

    def delete(self) -> bool:
        """Drop it; False if there was none."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True


class TokenAuth(httpx2.Auth):
    """Sends the token of a file with each request, and renews it when its time is up."""

    def __init__(self, file: TokenFile) -> None:
        self._file = file
        self._refresh_lock = anyio.Lock()
        # Told of what a request was answered with in the end.
        self.on_response_status: Callable[[int], None] = lambda status: None

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The request with the token; once more with a new one where it was refused."""
        grant = self._file.load()
        if grant is not None and grant.is_expired:
            grant = await self._refresh(grant) or grant
        if grant is not None:
            request.headers["Authorization"] = f"Bearer {grant.access_token}"
        response = yield request
        if response.status_code == 401 and grant is not None:
            new = await self._refresh(grant)
            if new is not None:
                request.headers["Authorization"] = f"Bearer {new.access_token}"
                response = yield request
        self.on_response_status(response.status_code)

    async def _refresh(self, used: OAuthGrant) -> OAuthGrant | None:
        """The grant in place of one that is of no use any more; None where it cannot be had."""
        async with self._refresh_lock:
            now = self._file.load()
            if now is not None and now.access_token != used.access_token:
                # Another request, or another gateway, has been here already.
                return now
            if not used.refresh_token:
                return None
            with suppress(ValueError, KeyError, TypeError, httpx2.HTTPError, httpx2.InvalidURL):
                new = used.with_refreshed_token(await _fetch_token(_build_refresh_request(used)))
                await anyio.to_thread.run_sync(self._file.save, new)
                return new
        return None


async def _fetch_token(request: httpx2.Request) -> dict[str, Any]:
    async with httpx2.AsyncClient(timeout=REFRESH_TIMEOUT_SECONDS) as client:
        response = await client.send(request, stream=True)
        try:
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_TOKEN_RESPONSE_BYTES:
                    raise ValueError("a token is not that long")
        finally:
            await response.aclose()
    if response.status_code != 200:
        raise ValueError("there is no new token")
    return dict(json.loads(body))


def _build_refresh_request(grant: OAuthGrant) -> httpx2.Request:
    sent = {
        "grant_type": "refresh_token",
        "refresh_token": grant.refresh_token,
        "client_id": grant.client_id,
    }
    headers = {"Accept": "application/json"}
    if grant.resource:
        sent["resource"] = grant.resource
    if grant.client_secret and grant.client_auth_method == _CLIENT_SECRET_BASIC:
        pair = f"{quote(grant.client_id, safe='')}:{quote(grant.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    elif grant.client_secret:
        sent["client_secret"] = grant.client_secret
    return httpx2.Request("POST", grant.token_endpoint, data=sent, headers=headers)
