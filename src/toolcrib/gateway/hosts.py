"""Checks of `Host` and `Origin` headers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Final

from toolcrib.config.settings import HOST_PATTERN

_ORIGIN: Final = re.compile(r"(https?)://([^/\s]{1,300})", re.IGNORECASE)
_WILDCARD_ADDRESSES: Final = frozenset({"", "0.0.0.0", "::"})


def split_host(value: str) -> tuple[str, str] | None:
    """Return name and port of a Host header, in lower case and without brackets, or None."""
    match = HOST_PATTERN.fullmatch(value)
    if not match:
        return None
    return match[1].strip("[]").rstrip(".").lower(), match[2] or ""


def is_loopback(name: str) -> bool:
    """Return whether a name or address can be reached only from this machine."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_host_allowed(value: str, bind_host: str, allowed: Collection[str]) -> bool:
    """Return whether a gateway that listens on `bind_host` accepts this Host header.

    A web page whose own host name resolves to this machine (DNS rebinding) is rejected by that
    name. IP addresses are accepted, because they do not depend on DNS.
    """
    split = split_host(value)
    if split is None:
        return False
    name, port = split
    if any(_matches_allowed_host(name, port, pattern) for pattern in allowed):
        return True
    bind_host = bind_host.strip("[]").lower()
    if is_loopback(name) or name == bind_host:
        return True
    return not is_loopback(bind_host) and _is_address(name)


def is_origin_allowed(value: str, host: str, allowed: Collection[str]) -> bool:
    """Return whether a page of this origin may call the gateway under this Host header."""
    if any(each == "*" or each.rstrip("/").lower() == value.lower() for each in allowed):
        return True
    match = _ORIGIN.fullmatch(value)
    split = split_host(match[2]) if match else None
    own = split_host(host)
    if match is None or split is None or own is None:
        return False
    # Local pages may call a local host; pages of the gateway itself may call it anywhere.
    return (is_loopback(split[0]) and is_loopback(own[0])) or match[2].lower() == host.lower()


def is_wildcard_address(bind_host: str) -> bool:
    """Return whether an address to listen on means all addresses of the machine."""
    return bind_host.strip("[]") in _WILDCARD_ADDRESSES


def _matches_allowed_host(name: str, port: str, allowed: str) -> bool:
    if allowed == "*":
        return True
    split = split_host(allowed.removeprefix("*."))
    if split is None or (split[1] and split[1] != port):
        return False
    return name.endswith(f".{split[0]}") if allowed.startswith("*.") else name == split[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
