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


class Graph:
    """Nodes in the order they are added, each taking what others gave, by name."""

    def __init__(self, input: str) -> None:
        self._input = input
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []

    def constant(self, array: NDArray[Any]) -> str:
        """The name of an array that is part of the model."""
        name = f"c{len(self._constants)}"
        tensor = b"".join(protobuf.number(1, size) for size in array.shape)
        tensor += protobuf.number(2, _TYPES[array.dtype.name]) + protobuf.text(8, name)
        self._constants.append(tensor + protobuf.block(9, np.ascontiguousarray(array).tobytes()))
        return name

    def node(
        self, operator: str, *inputs: str, domain: str = "", **attributes: int | float | list[int]
    ) -> str:
        """The name of what an operator gives; only its first output is used."""
        name = f"n{len(self._nodes)}"
        parts = [protobuf.text(1, input) for input in inputs]
        parts += [protobuf.text(2, name), protobuf.text(4, operator)]
        parts += [protobuf.block(5, _attribute(*item)) for item in attributes.items()]
        self._nodes.append(b"".join([*parts, protobuf.text(7, domain)]))
        return name

    def model(self, outputs: Sequence[str], shape: Sequence[int | str]) -> bytes:
        """The whole, as a file would hold it; input and outputs have one shape."""
        parts = [protobuf.block(1, node) for node in self._nodes]
        parts.append(protobuf.text(2, "encoder"))
        parts += [protobuf.block(5, constant) for constant in self._constants]
        parts.append(protobuf.block(11, _value(self._input, shape)))
        parts += [protobuf.block(12, _value(output, shape)) for output in outputs]
        opsets = (
            protobuf.block(8, protobuf.text(1, domain) + protobuf.number(2, version))
            for domain, version in _OPSETS
        )
        head = protobuf.number(1, _IR_VERSION)
        return b"".join([head, protobuf.block(7, b"".join(parts)), *opsets])


def _attribute(name: str, value: int | float | list[int]) -> bytes:
    head = protobuf.text(1, name)
    if isinstance(value, list):
        return head + b"".join(protobuf.number(8, each) for each in value) + protobuf.number(20, 7)
    if isinstance(value, int):
        return head + protobuf.number(3, value) + protobuf.number(20, 2)
    return head + protobuf.real(2, value) + protobuf.number(20, 1)


def _value(name: str, shape: Sequence[int | str]) -> bytes:
    """A name and its type: floats, with sizes that are fixed or have a name of their own."""
    sizes = b"".join(
        protobuf.block(
            1, protobuf.text(2, size) if isinstance(size, str) else protobuf.number(1, size)
        )
        for size in shape
    )
    tensor = protobuf.number(1, _FLOAT) + protobuf.block(2, sizes)
    return protobuf.text(1, name) + protobuf.block(2, protobuf.block(1, tensor))
