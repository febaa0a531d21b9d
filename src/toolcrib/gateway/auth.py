"""API keys and the principals they identify."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolcrib.config.settings import ApiKey, HttpConfig
from toolcrib.errors import InvalidConfig
from toolcrib.gateway.hosts import is_loopback, is_wildcard_address

MAX_KEY_CHARS: Final = 4096
# Monitoring needs no key.
PUBLIC_PATHS: Final = frozenset({"/health"})

_EMPTY_HASH: Final = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class Principal:
    """The sender of a request."""

    name: str
    profile: str | None = None
    key_hash: str = field(default="", repr=False)


ANONYMOUS: Final = Principal("anyone")


class Authenticator:
    """Finds the principal of a request. The keys are read for every request and may change."""

    def __init__(self, get_keys: Callable[[], Collection[ApiKey]]) -> None:
        self._get_keys = get_keys

    def authenticate(self, scope: MutableMapping[str, Any]) -> Principal | None:
        """Return the principal, or None without a valid key. Remove the key from the headers."""
        keys = self._get_keys()
        if not keys:
            return ANONYMOUS
        principal: Principal | None = None
        other_headers: list[tuple[bytes, bytes]] = []
        for name, value in scope["headers"]:
            key = _find_key(keys, _secret_from_header(name, value))
            if key is None:
                other_headers.append((name, value))
            elif principal is None:
                principal = Principal(key.name or f"key {key.hash[:8]}", key.profile, key.hash)
        scope["headers"] = other_headers
        if principal is None and scope["path"] in PUBLIC_PATHS:
            return ANONYMOUS
        return principal

    def is_still_valid(self, principal: Principal, path: str) -> bool:
        """Return whether the principal would be accepted again."""
        keys = self._get_keys()
        if principal is ANONYMOUS:
            return not keys or path in PUBLIC_PATHS
        return any(key.hash == principal.key_hash and key.profile == principal.profile for key in keys)


def check_keys(keys: Collection[ApiKey]) -> None:
    """Raise an error if a key is empty."""
    if any(key.hash.lower() == _EMPTY_HASH for key in keys):
        raise InvalidConfig("one of the keys is empty and would give everyone access; set its variable")


def check_bind_address(http: HttpConfig, keys: Collection[ApiKey]) -> None:
    """Raise an error if others can reach the gateway and it has no keys."""
    if keys or is_loopback(http.host.strip("[]").lower()):
        return
    is_wildcard = is_wildcard_address(http.host)
    address = "every address of this machine" if is_wildcard else repr(http.host)
    raise InvalidConfig(
        f"listening on {address} without keys would let everyone on the network use your tools; "
        'set "auth": {"keys": ["${TOOLCRIB_KEY}"]}, or listen on 127.0.0.1'
    )


def _find_key(keys: Collection[ApiKey], secret: bytes | None) -> ApiKey | None:
    """Return the key of a secret. The time does not depend on the secret."""
    if secret is None:
        return None
    digest = hashlib.sha256(secret).hexdigest()
    match: ApiKey | None = None
    for key in keys:
        if hmac.compare_digest(digest, key.hash.lower()):
            match = key
    return match


def _secret_from_header(name: bytes, value: bytes) -> bytes | None:
    if len(value) > MAX_KEY_CHARS:
        return None
    if name.lower() == b"x-api-key":
        return value.strip()
    scheme, _, secret = value.partition(b" ")
    is_bearer = name.lower() == b"authorization" and scheme.lower() == b"bearer"
    return secret.strip() if is_bearer else None
