"""Characters that a person does not see and a model reads, or that change the order of a line."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from toolcrib.safety.finding import FindingCategory, SafetyFinding, Severity

# Everything below that could make a finding; most texts have none of it.
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
# Scripts in which joiners, or breaks without a space, are part of spelling.
_JOINING: Final = re.compile(
    "[\u0600-\u06ff\u0750-\u077f\u0900-\u0dff\u1000-\u109f\u1780-\u17ff\u1800-\u18af]"
)
_UNSPACED: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u4e00-\u9fff]")
_RIGHT_TO_LEFT: Final = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")


def find_hidden_text(where: str, text: str) -> Iterator[SafetyFinding]:
    """At most one finding for each kind and severity: the worst is told with how many there are."""
    if text.isascii() and (text.isprintable() or not _SUSPECT.search(text)):
        return
    text = _TAG_FLAG.sub("", text)
    found: dict[tuple[FindingCategory, Severity], list[str]] = {}
    for match in _SUSPECT.finditer(text):
        judged = _classify_character(text, match.start())
        if judged:
            found.setdefault(judged, []).append(match[0])
    for (kind, severity), characters in found.items():
        yield SafetyFinding(kind, where, _describe_characters(kind, characters), severity)


def strip_hidden_text(text: str) -> str:
    """The text as a model may read it: nothing hidden between the letters."""
    return text if text.isascii() else _SUSPECT.sub("", text)


def _classify_character(text: str, place: int) -> tuple[FindingCategory, Severity] | None:
    one = text[place]
    before = text[place - 1] if place else ""
    after = text[place + 1] if place + 1 < len(text) else ""
    if one in _OVERRIDES:
        return "bidi", "high"
    if one in _ISOLATES:
        return "bidi", "low" if _RIGHT_TO_LEFT.search(text) else "high"
    if one in _MARKS:
        return None if _RIGHT_TO_LEFT.search(text) else ("bidi", "low")
    if "\ufe00" <= one <= "\ufe0f":
        return None if before and _takes_variation(before) else ("hidden", "high")
    if "\U000e0100" <= one <= "\U000e01ef":
        # Forms of Chinese characters; anything else is a way to write bytes that nobody sees.
        return (
            None
            if before and unicodedata.name(before, "").startswith("CJK")
            else ("hidden", "high")
        )
    if one in _JOINERS:
        is_spelling = bool(_JOINING.match(before) or _JOINING.match(after))
        return (
            None
            if is_spelling or (_is_symbol(before) and _is_symbol(after))
            else ("hidden", "high")
        )
    if one == "\ufeff" and not place:
        return "hidden", "low"
    if one == "\u200b":
        return "hidden", "low" if _is_stray(text, place) else "high"
    if unicodedata.category(one) == "Cc" and one != "\x1b":
        return "hidden", "low"
    if one in "\u00ad\u2060" or unicodedata.category(one) == "Cs":
        return "hidden", "low"
    if "\u180b" <= one <= "\u180f" and _JOINING.match(before):
        return None
    return "hidden", "high"


def _is_stray(text: str, place: int) -> bool:
    """Whether a space without width is at the edge of a word, as in text copied from a page, or in
    a script that breaks words there. Between letters, or in a row, it hides something."""
    around = text[max(place - 3, 0) : place + 4]
    if around.count("\u200b") > 3:
        return False
    before, after = text[:place].rstrip("\u200b")[-1:], text[place + 1 :].lstrip("\u200b")[:1]
    if _UNSPACED.match(before) or _UNSPACED.match(after):
        return True
    return not (before.isalnum() and after.isalnum())


def _takes_variation(one: str) -> bool:
    """Whether a character has two looks, as emoji, digits of keycaps and symbols do."""
    return _is_symbol(one) or one in "0123456789#*" or unicodedata.category(one) == "Lo"


def _is_symbol(one: str) -> bool:
    return bool(one) and (
        unicodedata.category(one) in ("So", "Sm", "Sk", "Po", "Pd", "Cn", "Mn") or one == "\ufe0f"
    )


def _describe_characters(kind: FindingCategory, characters: list[str]) -> str:
    names = dict.fromkeys(_get_character_name(one) for one in characters)
    listed = ", ".join(list(names)[:3]) + (", …" if len(names) > 3 else "")
    count = len(characters)
    many = "a character" if count == 1 else f"{count:,} characters"
    message = _decode_tags(characters)
    if message:
        return f"{many} that nobody sees spell out {message!r}"
    if kind == "bidi":
        return f"{many} that change the order in which the line is shown: {listed}"
    return f"{many} that a model reads and nobody sees: {listed}"


def _get_character_name(one: str) -> str:
    return unicodedata.name(one, "").lower() or f"U+{ord(one):04X}"


def _decode_tags(characters: list[str]) -> str:
    """What tag characters, which are a hidden copy of ASCII, say."""
    text = "".join(
        chr(ord(one) - 0xE0000) for one in characters if "\U000e0020" <= one <= "\U000e007e"
    )
    return text[:80]
