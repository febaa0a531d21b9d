"""Serialize an ONNX model without the `onnx` package. Field numbers are those of onnx.proto."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# The oldest versions that have every operator used here, so that old runtimes can load the model.
_IR_VERSION: Final = 8
_OPSETS: Final = (("", 17), (CONTRIB := "com.microsoft", 1))

_FLOAT: Final = 1
_TYPES: Final = {"float32": _FLOAT, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}

# Wire types of protocol buffers.
_WIRE_VARINT: Final = 0
_WIRE_BYTES: Final = 2
_WIRE_FLOAT: Final = 5


class OnnxGraph:
    """A graph of nodes that refer to each other's outputs by name."""

    def __init__(self, input: str) -> None:
        self._input = input
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []

    def add_constant(self, array: NDArray[Any]) -> str:
        """Add an array to the model and return its name."""
        name = f"c{len(self._constants)}"
        tensor = b"".join(_int_field(1, size) for size in array.shape)
        tensor += _int_field(2, _TYPES[array.dtype.name]) + _string_field(8, name)
        self._constants.append(tensor + _bytes_field(9, np.ascontiguousarray(array).tobytes()))
        return name

    def add_node(
        self, operator: str, *inputs: str, domain: str = "", **attributes: int | float | list[int]
    ) -> str:
        """Add an operator and return the name of its first output."""
        name = f"n{len(self._nodes)}"
        parts = [_string_field(1, input) for input in inputs]
        parts += [_string_field(2, name), _string_field(4, operator)]
        parts += [_bytes_field(5, _encode_attribute(*item)) for item in attributes.items()]
        self._nodes.append(b"".join([*parts, _string_field(7, domain)]))
        return name

    def serialize(self, outputs: Sequence[str], shape: Sequence[int | str]) -> bytes:
        """Return the model file. The input and all outputs have the same shape."""
        parts = [_bytes_field(1, node) for node in self._nodes]
        parts.append(_string_field(2, "encoder"))
        parts += [_bytes_field(5, constant) for constant in self._constants]
        parts.append(_bytes_field(11, _encode_value_info(self._input, shape)))
        parts += [_bytes_field(12, _encode_value_info(output, shape)) for output in outputs]
        opsets = (
            _bytes_field(8, _string_field(1, domain) + _int_field(2, version))
            for domain, version in _OPSETS
        )
        ir_version = _int_field(1, _IR_VERSION)
        return b"".join([ir_version, _bytes_field(7, b"".join(parts)), *opsets])


def _encode_attribute(name: str, value: int | float | list[int]) -> bytes:
    head = _string_field(1, name)
    if isinstance(value, list):
        return head + b"".join(_int_field(8, item) for item in value) + _int_field(20, 7)
    if isinstance(value, int):
        return head + _int_field(3, value) + _int_field(20, 2)
    return head + _float_field(2, value) + _int_field(20, 1)


def _encode_value_info(name: str, shape: Sequence[int | str]) -> bytes:
    """Return a named float tensor type. A string in the shape is a symbolic dimension."""
    sizes = b"".join(
        _bytes_field(1, _string_field(2, size) if isinstance(size, str) else _int_field(1, size))
        for size in shape
    )
    tensor = _int_field(1, _FLOAT) + _bytes_field(2, sizes)
    return _string_field(1, name) + _bytes_field(2, _bytes_field(1, tensor))


def _int_field(field: int, value: int) -> bytes:
    return _encode_varint(field << 3 | _WIRE_VARINT) + _encode_varint(value)


def _float_field(field: int, value: float) -> bytes:
    return _encode_varint(field << 3 | _WIRE_FLOAT) + struct.pack("<f", value)


def _bytes_field(field: int, value: bytes) -> bytes:
    return _encode_varint(field << 3 | _WIRE_BYTES) + _encode_varint(len(value)) + value


def _string_field(field: int, value: str) -> bytes:
    return _bytes_field(field, value.encode())


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
