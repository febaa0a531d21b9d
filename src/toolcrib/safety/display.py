"""Strangers' text made safe to look at: what is hidden is shown, what commands a terminal is not
obeyed."""

from __future__ import annotations

import re
from typing import Final

# Characters without a look of their own, beside those that Unicode calls controls and formats.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
_SHORT_ESCAPES: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def escape_invisible(text: str, max_chars: int = 400) -> str:
    """A text in one line, with escapes such as `\\u200b` for what cannot be seen; cut if too long."""
    shown = text[:max_chars]
    if not shown.isprintable() or _INVISIBLE.search(shown):
        shown = "".join(map(_escape_character, shown))
    return (
        shown if len(text) <= max_chars else f"{shown}… ({len(text) - max_chars:,} characters more)"
    )


def _escape_character(one: str) -> str:
    if one.isprintable() and not _INVISIBLE.match(one):
        return one
    if one in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[one]
    code = ord(one)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
