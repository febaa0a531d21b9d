"""Decode texts that are hidden by encoding: a model can read them, a reviewer may miss them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final

# Shorter texts are too short for an instruction.
MIN_BASE64_CHARS: Final = 24
MIN_HEX_CHARS: Final = 32
MAX_PAYLOADS: Final = 50
MAX_PAYLOAD_CHARS: Final = 20_000

_BASE64: Final = re.compile(rf"[A-Za-z0-9+/_-]{{{MIN_BASE64_CHARS},{MAX_PAYLOAD_CHARS}}}={{0,2}}")
_HEX: Final = re.compile(
    rf"(?:0x)?((?:[0-9a-fA-F]{{2}}){{{MIN_HEX_CHARS // 2},{MAX_PAYLOAD_CHARS}}})"
)
_ESCAPES: Final = re.compile(
    r"(?:\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|%[0-9a-fA-F]{2}|&#x?[0-9a-fA-F]{2,6};){8,5000}"
)
_ESCAPE: Final = re.compile(
    r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|%([0-9a-fA-F]{2})|&#x([0-9a-fA-F]{2,6});|&#([0-9]{2,6});"
)
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_IMAGE: Final = re.compile(
    r"data:(?:image|font|audio|video)/[\w.+-]+(?:;[\w=-]+)*,[A-Za-z0-9+/=%_-]*"
)


def decode_hidden_texts(text: str) -> Iterator[str]:
    """Yield the readable texts that are encoded in a text."""
    # An encoded text has no spaces and is longer than most words.
    if len(text) < MIN_BASE64_CHARS or max(map(len, text.split()), default=0) < MIN_BASE64_CHARS:
        return
    if "data:" in text:
        text = _IMAGE.sub(" ", text)
    count = 0
    for pattern, decode in (
        (_ESCAPES, _decode_escapes),
        (_HEX, _decode_hex),
        (_BASE64, _decode_base64),
    ):
        for match in pattern.finditer(text):
            count += 1
            if count > MAX_PAYLOADS:
                return
            decoded = decode(match[0])
            if decoded and _is_readable(decoded):
                yield decoded


def _decode_base64(text: str) -> str:
    unpadded = text.rstrip("=").translate(str.maketrans("-_", "+/"))
    unpadded = unpadded[: len(unpadded) - (len(unpadded) % 4 == 1)]
    return _decode_utf8(base64.b64decode(unpadded + "=" * (-len(unpadded) % 4)))


def _decode_hex(text: str) -> str:
    return _decode_utf8(binascii.unhexlify(text.removeprefix("0x")))


def _decode_escapes(text: str) -> str:
    def decode_match(match: re.Match[str]) -> str:
        digits = match[1] or match[2] or match[3] or match[4]
        code = int(digits, 16) if digits else int(match[5])
        return chr(code) if code <= 0x10FFFF else ""

    return _ESCAPE.sub(decode_match, text)


def _decode_utf8(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return ""


def _is_readable(text: str) -> bool:
    """Return whether a text consists mostly of words, which random bytes do not."""
    if not all(character.isprintable() or character in "\n\r\t" for character in text):
        return False
    words = _WORD.findall(text)
    return len(words) >= 3 and sum(map(len, words)) >= 0.6 * len(text)
