"""Text in another spelling, which a model can read and a reviewer may pass over."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final

# Shorter ones hold no order worth hiding.
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
    """The readable texts that are hidden in a text by encoding."""
    # Whatever is encoded has no spaces in it, and is longer than most words.
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
            found = decode(match[0])
            if found and _is_readable(found):
                yield found


def _decode_base64(text: str) -> str:
    bare = text.rstrip("=").translate(str.maketrans("-_", "+/"))
    bare = bare[: len(bare) - (len(bare) % 4 == 1)]
    return _decode_utf8(base64.b64decode(bare + "=" * (-len(bare) % 4)))


def _decode_hex(text: str) -> str:
    return _decode_utf8(binascii.unhexlify(text.removeprefix("0x")))


def _decode_escapes(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        digits = match[1] or match[2] or match[3] or match[4]
        code = int(digits, 16) if digits else int(match[5])
        return chr(code) if code <= 0x10FFFF else ""

    return _ESCAPE.sub(one, text)


def _decode_utf8(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return ""


def _is_readable(text: str) -> bool:
    """Whether a text is words, as chance does not make them."""
    printable = sum(one.isprintable() or one in "\n\r\t" for one in text)
    letters = sum(map(len, _WORD.findall(text)))
    return printable == len(text) and letters >= 0.6 * len(text) and len(_WORD.findall(text)) >= 3
