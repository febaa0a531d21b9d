"""Store the OAuth tokens of servers, encrypted, send them with requests, and refresh them."""

from __future__ import annotations

import hashlib
import json
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

import anyio
import httpx2

from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig
from toolcrib.config.store_paths import resolve_token_folder
from toolcrib.errors import InvalidConfig, InvalidStore, StoreUnavailable
from toolcrib.files.atomic_write import write_file_atomically
from toolcrib.storage.store import Store

MAX_TOKEN_FILE_BYTES: Final = 256 * 1024
MAX_TOKEN_RESPONSE_BYTES: Final = 256 * 1024
EXPIRY_MARGIN_SECONDS: Final = 30.0
REFRESH_TIMEOUT_SECONDS: Final = 30.0
# How long a token of the store is used before it is read again.
SHARED_CACHE_SECONDS: Final = 30.0
# While another replica refreshes a token, it is read again after this time.
CLAIM_RETRY_SECONDS: Final = 0.2
_CLIENT_SECRET_BASIC: Final = "client_secret_basic"
# Keys in the token file that differ from the field names.
_FILE_KEYS: Final = {"client_auth_method": "client_method", "expires_at": "expires"}


class TokenCipher:
    """Encrypts with the first of some keys and decrypts with any of them."""

    def __init__(self, keys: Sequence[str]) -> None:
        try:
            # An extra.
            from cryptography.fernet import Fernet, InvalidToken, MultiFernet
        except ImportError:
            raise InvalidConfig(
                "tokenKeys: encryption needs the package cryptography; run: pip install 'toolcrib[postgres]'"
            ) from None
        self._first = Fernet(keys[0])
        self._all = MultiFernet([Fernet(key) for key in keys])
        self._invalid_token = InvalidToken

    def encrypt(self, text: bytes) -> bytes:
        """Return a text, encrypted with the first key."""
        return self._first.encrypt(text)

    def decrypt(self, body: bytes) -> bytes:
        """Return the text of an encrypted body."""
        try:
            return self._all.decrypt(body)
        except self._invalid_token:
            raise InvalidStore(
                "a token in the store was encrypted with a key that is not in `tokenKeys`; add the key, or run "
                "`toolcrib login` again"
            ) from None

    def rotate(self, body: bytes) -> bytes:
        """Return a body that the first key can decrypt; the same body if it can already."""
        try:
            self._first.decrypt(body)
        except self._invalid_token:
            return self._first.encrypt(self.decrypt(body))
        return body


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


class TokenPlace(Protocol):
    """Where the grant of one server is kept."""

    @property
    def cache_seconds(self) -> float:
        """How long a grant may be used before it is loaded again; 0 if it loads fast."""

    def load(self) -> OAuthGrant | None:
        """Return the grant, or None if it is missing or unreadable."""

    def save(self, grant: OAuthGrant) -> None:
        """Store the grant."""

    def delete(self) -> bool:
        """Delete the grant; return False if there was none."""

    def claim_refresh(self) -> bool:
        """Return whether this process may refresh the token. Only one of several replicas may."""


OpenToken = Callable[[ServerConfig], TokenPlace]


def find_token_place(config: GatewayConfig, store: Store) -> OpenToken | None:
    """Return how to open the token of a server: in the store with `tokenKeys`, else in a file.

    None if there is no place: PostgreSQL without keys, or a store in memory without a configuration file.
    """
    if config.token_keys:
        cipher = TokenCipher(config.token_keys)
        return lambda server: StoredToken(store, cipher, server)
    folder = resolve_token_folder(config)
    return None if folder is None else lambda server: TokenFile(folder, server)


def require_token_place(config: GatewayConfig, store: Store) -> OpenToken:
    """Return how to open the token of a server; raise `InvalidStore` if there is no place."""
    if (place := find_token_place(config, store)) is None:
        raise InvalidStore(
            'tokens need a "store" that is a file, or "tokenKeys" to encrypt them in the store; configure one'
        )
    return place


def rotate_tokens(config: GatewayConfig, store: Store) -> int:
    """Encrypt all tokens of the store with the first key; return how many were encrypted with another one."""
    if not config.token_keys:
        return 0
    cipher = TokenCipher(config.token_keys)
    stored = store.list_tokens()
    rotated = {name: cipher.rotate(body) for name, body in stored.items()}
    changed = {name: body for name, body in rotated.items() if body != stored[name]}
    for name, body in changed.items():
        store.put_token(name, body)
    return len(changed)


def _name_token(server: ServerConfig) -> str:
    # Named by the URL, so that a token is never sent to another server.
    return hashlib.sha256(server.url.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _encode_grant(grant: OAuthGrant, url: str) -> str:
    members = {_FILE_KEYS.get(name, name): value for name, value in asdict(grant).items()}
    return json.dumps({"url": url, "grant": members}, indent=2)


def _decode_grant(text: bytes, url: str) -> OAuthGrant | None:
    """Return the grant in a text, or None if it is unreadable or of another server."""
    try:
        stored = json.loads(text)
        members = dict(stored["grant"])
        for name, key in _FILE_KEYS.items():
            if key in members:
                members[name] = members.pop(key)
        return OAuthGrant(**members) if stored.get("url") == url else None
    except (ValueError, TypeError, KeyError):
        return None


class StoredToken:
    """The grant of one server in the store, encrypted. All replicas use it."""

    cache_seconds: Final = SHARED_CACHE_SECONDS

    def __init__(self, store: Store, cipher: TokenCipher, server: ServerConfig) -> None:
        self._store = store
        self._cipher = cipher
        self._url = server.url
        self._name = _name_token(server)

    def load(self) -> OAuthGrant | None:
        body = self._store.get_token(self._name)
        return None if body is None else _decode_grant(self._cipher.decrypt(body), self._url)

    def save(self, grant: OAuthGrant) -> None:
        self._store.put_token(self._name, self._cipher.encrypt(_encode_grant(grant, self._url).encode()))

    def delete(self) -> bool:
        return self._store.delete_token(self._name)

    def claim_refresh(self) -> bool:
        """Return whether this replica may refresh the token; a claim expires after some time."""
        now = time.time()
        return self._store.claim_token(self._name, now, now + REFRESH_TIMEOUT_SECONDS)


class TokenFile:
    """The grant of one server in a file that only its owner may read."""

    cache_seconds: Final = 0.0

    def __init__(self, folder: Path, server: ServerConfig) -> None:
        self._url = server.url
        self.path = folder / f"{_name_token(server)}.json"

    def load(self) -> OAuthGrant | None:
        try:
            with self.path.open("rb") as file:
                return _decode_grant(file.read(MAX_TOKEN_FILE_BYTES), self._url)
        except OSError:
            return None

    def save(self, grant: OAuthGrant) -> None:
        """Write the grant atomically."""
        text = _encode_grant(grant, self._url)
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file_atomically(self.path, text.encode(), mode=0o600)
        except OSError as error:
            raise InvalidStore(
                f"the token cannot be saved in {self.path.parent} ({error.strerror}); free disk "
                "space, or correct the permissions"
            ) from None

    def delete(self) -> bool:
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        return True

    def claim_refresh(self) -> bool:
        """Return True: gateways that share a file rarely refresh at the same moment."""
        return True


class TokenAuth(httpx2.Auth):
    """Sends the token of a server with each request, and refreshes an expired token."""

    def __init__(self, place: TokenPlace) -> None:
        self._place = place
        self._cached: OAuthGrant | None = None
        self._cached_until = 0.0
        self._refresh_lock = anyio.Lock()
        # Called with the final status of each request.
        self.on_response_status: Callable[[int], None] = lambda status: None

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send the request with the token, and once more with a new token after HTTP 401."""
        grant = self._cached if time.monotonic() < self._cached_until else await self._load()
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

    async def _load(self) -> OAuthGrant | None:
        if not self._place.cache_seconds:
            return self._place.load()
        # While the store is unavailable, the last token is used.
        with suppress(StoreUnavailable):
            self._cached = await anyio.to_thread.run_sync(self._place.load)
        # Without a token, a login is noticed with the next request.
        self._cached_until = time.monotonic() + self._place.cache_seconds if self._cached else 0.0
        return self._cached

    async def _refresh(self, used: OAuthGrant) -> OAuthGrant | None:
        """Return the grant that replaces an unusable one, or None if it cannot be refreshed."""
        async with self._refresh_lock:
            # Without the store, a refreshed token could not be saved, and the old one would be void.
            with anyio.move_on_after(REFRESH_TIMEOUT_SECONDS), suppress(StoreUnavailable):
                while True:
                    stored = await self._load()
                    if stored is not None and stored.access_token != used.access_token:
                        # Another request, or another gateway, has refreshed it already.
                        return stored
                    if not used.refresh_token:
                        return None
                    if await anyio.to_thread.run_sync(self._place.claim_refresh):
                        return await self._fetch_and_save(used)
                    await anyio.sleep(CLAIM_RETRY_SECONDS)
        return None

    async def _fetch_and_save(self, used: OAuthGrant) -> OAuthGrant | None:
        with suppress(ValueError, KeyError, TypeError, httpx2.HTTPError, httpx2.InvalidURL):
            response = await _fetch_token(_build_refresh_request(used))
            refreshed = used.with_refreshed_token(response)
            await anyio.to_thread.run_sync(self._place.save, refreshed)
            self._cached = refreshed
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
