"""The few lines of protocol buffers that it takes to write a message: numbers, texts, messages."""

from __future__ import annotations

import struct
from typing import Final

_VARINT: Final = 0
_BYTES: Final = 2
_FLOAT: Final = 5


def int_field(field: int, value: int) -> bytes:
    """A field that holds a number, zero or above."""
    return _encode_varint(field << 3 | _VARINT) + _encode_varint(value)


def float_field(field: int, value: float) -> bytes:
    """A field that holds a float of 32 bits."""
    return _encode_varint(field << 3 | _FLOAT) + struct.pack("<f", value)


def bytes_field(field: int, value: bytes) -> bytes:
    """A field that holds bytes, or a message that is written already."""
    return _encode_varint(field << 3 | _BYTES) + _encode_varint(len(value)) + value


def string_field(field: int, value: str) -> bytes:
    """A field that holds a text."""
    return bytes_field(field, value.encode())


def _encode_varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
