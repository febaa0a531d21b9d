"""Hidden text: characters that people cannot see, or that change the display order.

Find them in definitions, strip them for analysis, and escape them for display.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

FindingCategory = Literal["hidden", "bidi", "encoded", "order", "secret", "reference", "lookalike", "size"]
# High: rare in legitimate definitions. Low: worth a look, and often harmless.
Severity = Literal["high", "low"]


@dataclass(frozen=True, slots=True)
class SafetyFinding:
    """Suspicious text in a tool definition."""

    category: FindingCategory
    location: str
    message: str
    severity: Severity


# All characters that can cause a finding; most texts contain none.
_SUSPECT: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    "\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_TAG_FLAG: Final = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{2,7}\U000e007f")
_OVERRIDES: Final = frozenset("\u202d\u202e")
_ISOLATES: Final = frozenset("\u202a\u202b\u202c\u2066\u2067\u2068\u2069")
_MARKS: Final = frozenset("\u200e\u200f\u061c")
_JOINERS: Final = frozenset("\u200c\u200d")
# Scripts whose spelling uses joiners, or that separate words without spaces.
_JOINING: Final = re.compile("[\u0600-\u06ff\u0750-\u077f\u0900-\u0dff\u1000-\u109f\u1780-\u17ff\u1800-\u18af]")
_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u4e00-\u9fff]")
_RIGHT_TO_LEFT: Final = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
# Characters without a glyph that `str.isprintable` accepts.
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_SHORT_ESCAPES: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def find_hidden_text(text: str) -> Iterator[SafetyFinding]:
    """Yield at most one finding per category and severity, with the number of characters."""
    if text.isascii() and (text.isprintable() or not _SUSPECT.search(text)):
        return
    text = _TAG_FLAG.sub("", text)
    characters: dict[tuple[FindingCategory, Severity], list[str]] = {}
    for match in _SUSPECT.finditer(text):
        classification = _classify_character(text, match.start())
        if classification:
            characters.setdefault(classification, []).append(match[0])
    for (category, severity), found in characters.items():
        yield SafetyFinding(category, "", _describe_characters(category, found), severity)


def strip_hidden_text(text: str) -> str:
    """Return a text without hidden characters, as a model may read it."""
    return text if text.isascii() else _SUSPECT.sub("", text)


def escape_invisible(text: str, max_chars: int = 400) -> str:
    """Return a text that is safe to print: one line, truncated, with escapes such as `\\u200b`."""
    escaped = text[:max_chars]
    if not escaped.isprintable() or _INVISIBLE.search(escaped):
        escaped = "".join(map(_escape_character, escaped))
    if len(text) <= max_chars:
        return escaped
    return f"{escaped}… ({len(text) - max_chars:,} characters more)"


def _escape_character(character: str) -> str:
    if character.isprintable() and not _INVISIBLE.match(character):
        return character
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _classify_character(text: str, index: int) -> tuple[FindingCategory, Severity] | None:
    character = text[index]
    before = text[index - 1] if index else ""
    after = text[index + 1] if index + 1 < len(text) else ""
    if character in _OVERRIDES:
        return "bidi", "high"
    if character in _ISOLATES:
        return "bidi", "low" if _RIGHT_TO_LEFT.search(text) else "high"
    if character in _MARKS:
        return None if _RIGHT_TO_LEFT.search(text) else ("bidi", "low")
    if "\ufe00" <= character <= "\ufe0f":
        return None if before and _takes_variation(before) else ("hidden", "high")
    if "\U000e0100" <= character <= "\U000e01ef":
        # Variants of Chinese characters; elsewhere they can encode invisible bytes.
        return None if before and unicodedata.name(before, "").startswith("CJK") else ("hidden", "high")
    if character in _JOINERS:
        is_spelling = bool(_JOINING.match(before) or _JOINING.match(after))
        return None if is_spelling or (_is_symbol(before) and _is_symbol(after)) else ("hidden", "high")
    if character == "\ufeff" and not index:
        return "hidden", "low"
    if character == "\u200b":
        return "hidden", "low" if _is_stray(text, index) else "high"
    if unicodedata.category(character) == "Cc" and character != "\x1b":
        return "hidden", "low"
    if character in "\u00ad\u2060" or unicodedata.category(character) == "Cs":
        return "hidden", "low"
    if "\u180b" <= character <= "\u180f" and _JOINING.match(before):
        return None
    return "hidden", "high"


def _is_stray(text: str, index: int) -> bool:
    """Return whether a zero-width space looks accidental.

    It is accidental at the edge of a word, as in text copied from a web page, or in a script that
    breaks words there. Between letters, or in a sequence, it hides something.
    """
    context = text[max(index - 3, 0) : index + 4]
    if context.count("\u200b") > 3:
        return False
    before, after = text[:index].rstrip("\u200b")[-1:], text[index + 1 :].lstrip("\u200b")[:1]
    if _UNSPACED.match(before) or _UNSPACED.match(after):
        return True
    return not (before.isalnum() and after.isalnum())


def _takes_variation(character: str) -> bool:
    """Return whether a character has an emoji variant, as symbols and keycap digits do."""
    is_keycap = character in "0123456789#*"
    return is_keycap or _is_symbol(character) or unicodedata.category(character) == "Lo"


def _is_symbol(character: str) -> bool:
    return bool(character) and (
        unicodedata.category(character) in ("So", "Sm", "Sk", "Po", "Pd", "Cn", "Mn") or character == "\ufe0f"
    )


def _describe_characters(category: FindingCategory, characters: list[str]) -> str:
    names = list(dict.fromkeys(map(_get_character_name, characters)))
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    count = "1 character" if len(characters) == 1 else f"{len(characters):,} characters"
    if message := _decode_tags(characters):
        return f"{count} that people cannot see spell {message!r}"
    if category == "bidi":
        return f"{count} that change the order in which the line is displayed: {shown}"
    return f"{count} that a model reads and people cannot see: {shown}"


def _get_character_name(character: str) -> str:
    return unicodedata.name(character, "").lower() or f"U+{ord(character):04X}"


def _decode_tags(characters: list[str]) -> str:
    """Return the ASCII text that Unicode tag characters encode."""
    tags = (character for character in characters if "\U000e0020" <= character <= "\U000e007e")
    return "".join(chr(ord(tag) - 0xE0000) for tag in tags)[:80]
