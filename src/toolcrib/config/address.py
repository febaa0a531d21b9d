"""How the names a gateway is called by are written, and the origins of the pages that call it."""

from __future__ import annotations

import re
from typing import Final

# A name or an address, and perhaps a port, as in a Host header.
HOST_PATTERN: Final = re.compile(
    r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,255})(?::([0-9]{1,5}))?"
)
# Not only of the web: editors and apps have schemes of their own.
_ORIGIN_PATTERN: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,60}://[^/\s]{1,300}/?")


def is_host(text: str) -> bool:
    """Whether a text can be the name of a host, or a pattern such as `*.example.com`."""
    return text == "*" or HOST_PATTERN.fullmatch(text.removeprefix("*.")) is not None


def is_origin(text: str) -> bool:
    """Whether a text can be the origin of a page, or the pattern for all."""
    return text in ("*", "null") or _ORIGIN_PATTERN.fullmatch(text) is not None
