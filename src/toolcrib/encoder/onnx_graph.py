"""An ONNX model, written node by node. Field numbers are those of onnx.proto."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from toolcrib.encoder import protobuf

# The oldest that has all we use: what an old runtime reads, a new one does too.
_IR_VERSION: Final = 8
_OPSETS: Final = (("", 17), (CONTRIB := "com.microsoft", 1))

_FLOAT: Final = 1
_TYPES: Final = {"float32": _FLOAT, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}


class OnnxGraph:
    """Nodes in the order they are added, each taking what others gave, by name."""

    def __init__(self, input: str) -> None:
        self._input = input
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []

    def add_constant(self, array: NDArray[Any]) -> str:
        """The name of an array that is part of the model."""
        name = f"c{len(self._constants)}"
        tensor = b"".join(protobuf.int_field(1, size) for size in array.shape)
        tensor += protobuf.int_field(2, _TYPES[array.dtype.name]) + protobuf.string_field(8, name)
        self._constants.append(
            tensor + protobuf.bytes_field(9, np.ascontiguousarray(array).tobytes())
        )
        return name

    def add_node(
        self, operator: str, *inputs: str, domain: str = "", **attributes: int | float | list[int]
    ) -> str:
        """The name of what an operator gives; only its first output is used."""
        name = f"n{len(self._nodes)}"
        parts = [protobuf.string_field(1, input) for input in inputs]
        parts += [protobuf.string_field(2, name), protobuf.string_field(4, operator)]
        parts += [protobuf.bytes_field(5, _encode_attribute(*item)) for item in attributes.items()]
        self._nodes.append(b"".join([*parts, protobuf.string_field(7, domain)]))
        return name

    def serialize(self, outputs: Sequence[str], shape: Sequence[int | str]) -> bytes:
        """The whole, as a file would hold it; input and outputs have one shape."""
        parts = [protobuf.bytes_field(1, node) for node in self._nodes]
        parts.append(protobuf.string_field(2, "encoder"))
        parts += [protobuf.bytes_field(5, constant) for constant in self._constants]
        parts.append(protobuf.bytes_field(11, _encode_value_info(self._input, shape)))
        parts += [protobuf.bytes_field(12, _encode_value_info(output, shape)) for output in outputs]
        opsets = (
            protobuf.bytes_field(
                8, protobuf.string_field(1, domain) + protobuf.int_field(2, version)
            )
            for domain, version in _OPSETS
        )
        head = protobuf.int_field(1, _IR_VERSION)
        return b"".join([head, protobuf.bytes_field(7, b"".join(parts)), *opsets])


def _encode_attribute(name: str, value: int | float | list[int]) -> bytes:
    head = protobuf.string_field(1, name)
    if isinstance(value, list):
        return (
            head
            + b"".join(protobuf.int_field(8, each) for each in value)
            + protobuf.int_field(20, 7)
        )
    if isinstance(value, int):
        return head + protobuf.int_field(3, value) + protobuf.int_field(20, 2)
    return head + protobuf.float_field(2, value) + protobuf.int_field(20, 1)


def _encode_value_info(name: str, shape: Sequence[int | str]) -> bytes:
    """A name and its type: floats, with sizes that are fixed or have a name of their own."""
    sizes = b"".join(
        protobuf.bytes_field(
            1,
            protobuf.string_field(2, size)
            if isinstance(size, str)
            else protobuf.int_field(1, size),
        )
        for size in shape
    )
    tensor = protobuf.int_field(1, _FLOAT) + protobuf.bytes_field(2, sizes)
    return protobuf.string_field(1, name) + protobuf.bytes_field(2, protobuf.bytes_field(1, tensor))
