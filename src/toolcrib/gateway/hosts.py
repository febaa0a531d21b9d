"""Who may be asked for by which name, and by which web page: hosts and origins."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Final

from toolcrib.config.settings import HOST_PATTERN

_ORIGIN: Final = re.compile(r"(https?)://([^/\s]{1,300})", re.IGNORECASE)
_EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})


def split_host(value: str) -> tuple[str, str] | None:
    """Name and port of a Host header, small letters, no brackets; None if it is none."""
    match = HOST_PATTERN.fullmatch(value)
    if not match:
        return None
    return match[1].strip("[]").rstrip(".").lower(), match[2] or ""


def is_loopback(name: str) -> bool:
    """Whether a name or address is this machine's own, out of reach for others."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_host_allowed(value: str, bind_host: str, allowed: Collection[str]) -> bool:
    """Whether a gateway that listens at `bound` may be called by this Host header.

    A page that had its own name pointed at this machine is refused by that name. Addresses are
    no names, so nobody can point them elsewhere.
    """
    split = split_host(value)
    if split is None:
        return False
    name, port = split
    if any(_matches_allowed_host(name, port, one) for one in allowed):
        return True
    bind_host = bind_host.strip("[]").lower()
    if is_loopback(name) or name == bind_host:
        return True
    return not is_loopback(bind_host) and _is_address(name)


def is_origin_allowed(value: str, host: str, allowed: Collection[str]) -> bool:
    """Whether a web page of this origin may call a gateway that is called by this Host header."""
    if any(one == "*" or one.rstrip("/").lower() == value.lower() for one in allowed):
        return True
    match = _ORIGIN.fullmatch(value)
    split = split_host(match[2]) if match else None
    own = split_host(host)
    if match is None or split is None or own is None:
        return False
    # Pages of this machine, if that is where we are asked for; and our own pages.
    return (is_loopback(split[0]) and is_loopback(own[0])) or match[2].lower() == host.lower()


def is_wildcard_address(bind_host: str) -> bool:
    """Whether an address to listen on stands for all addresses of the machine."""
    return bind_host.strip("[]") in _EVERYWHERE


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
