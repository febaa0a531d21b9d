"""Strangers' text made safe to look at: what is hidden is shown, what commands a terminal is not
obeyed."""

from __future__ import annotations

import re
from typing import Final

# Characters without a look of their own, beside those that Unicode calls controls and formats.
_UNSEEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
_SHORT: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def visible(text: str, most: int = 400) -> str:
    """A text in one line, with escapes such as `\\u200b` for what cannot be seen; cut if too long."""
    shown = text[:most]
    if not shown.isprintable() or _UNSEEN.search(shown):
        shown = "".join(map(_seen, shown))
    return shown if len(text) <= most else f"{shown}… ({len(text) - most:,} characters more)"


def _seen(one: str) -> str:
    if one.isprintable() and not _UNSEEN.match(one):
        return one
    if one in _SHORT:
        return _SHORT[one]
    code = ord(one)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
