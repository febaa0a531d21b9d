"""The same encoder on onnxruntime, for those who have it installed: `pip install toolcrib[onnx]`.

The model is written from the weights that the numpy encoder reads, when it is loaded; nothing more
is shipped. It multiplies in whole numbers: weights of seven bits, and what they meet in eight, with a
scale of its own for every token; one scale for all would be that of the loudest, and drown the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from toolcrib.encoder.onnx_graph import CONTRIB, OnnxGraph
from toolcrib.encoder.tokenizer import WordPieceTokenizer
from toolcrib.encoder.transformer import (
    EPSILON,
    HEADS,
    Array,
    Batches,
    TransformerEncoder,
    halfway_layer,
)

_INPUT: Final = "x"
_LAST_AXIS: Final = 2


class OnnxEncoder(TransformerEncoder):
    """Texts into vectors of length one, two to three times as fast."""

    def __init__(self, pieces: WordPieceTokenizer, weights: Mapping[str, Any]) -> None:
        super().__init__(pieces, weights, _OnnxLayers(weights))


class _OnnxLayers:
    """The layers as one session in one thread: a query is too small to be shared out."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        # The arena keeps whatever the largest batch took, which is twice what all the rest takes.
        options.enable_cpu_mem_arena = False
        # Warnings about a model of ours are of no use to a user.
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            build_onnx_model(weights), options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, piles: Batches) -> list[tuple[Array, Array]]:
        return [tuple(self._session.run(None, {_INPUT: pile})) for pile in piles]


def build_onnx_model(weights: Mapping[str, Any]) -> bytes:
    """The encoder's layers as an ONNX file: from embedded tokens to what they mean in their text."""
    writer = _OnnxModelBuilder(weights)
    x = halfway = _INPUT
    layers = int(weights["layers"])
    for at in range(layers):
        x = writer.add_layer(x, at)
        if at + 1 == halfway_layer(layers):
            halfway = x
    return writer.graph.serialize(
        [halfway, x], ["count", "length", int(weights["places"].shape[1])]
    )


class _OnnxModelBuilder:
    """A graph in the making, and the numbers that all its layers share."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self.graph = OnnxGraph(_INPUT)
        self._weights = weights
        self._width = int(weights["places"].shape[1])
        self._one = self._float_constant(1)
        self._top = self._float_constant(255)
        self._tiny = self._float_constant(1e-12)
        self._axis = self.graph.add_constant(np.array([_LAST_AXIS], np.int64))
        self._edges = [
            self.graph.add_constant(np.array([part * self._width], np.int64)) for part in range(4)
        ]

    def add_layer(self, x: str, at: int) -> str:
        """Attention, then two dense layers, as in `encoder.Layer`."""
        whole = self._add_and_normalize(
            self._quantized_matmul(self._attention(x, at), at, "mix"), x, at, "mix"
        )
        wide = self._contrib_node(
            "FastGelu",
            self._quantized_matmul(whole, at, "widen"),
            self._layer_constant(at, "widen.bias"),
        )
        return self._add_and_normalize(
            self._quantized_matmul(wide, at, "narrow"), whole, at, "narrow"
        )

    def _attention(self, x: str, at: int) -> str:
        qkv = self.graph.add_node(
            "Add", self._quantized_matmul(x, at, "qkv"), self._layer_constant(at, "qkv.bias")
        )
        parts = [
            self.graph.add_node("Slice", qkv, start, end, self._axis)
            for start, end in zip(self._edges, self._edges[1:], strict=False)
        ]
        # What attention divides by is part of the weights already.
        return self._contrib_node("MultiHeadAttention", *parts, num_heads=HEADS, scale=1.0)

    def _add_and_normalize(self, y: str, x: str, at: int, part: str) -> str:
        """What a part gave, its bias and what it was given, together and normalised."""
        norm = "mix_norm" if part == "mix" else "norm"
        own = [
            self._layer_constant(at, name)
            for name in (f"{norm}.scale", f"{norm}.shift", f"{part}.bias")
        ]
        return self._contrib_node("SkipLayerNormalization", y, x, *own, epsilon=float(EPSILON))

    def _quantized_matmul(self, x: str, at: int, part: str) -> str:
        """Times a matrix, in whole numbers: each token is brought to 0…255, and its product back."""
        node = self.graph.add_node
        lowest = node("ReduceMin", x, axes=[_LAST_AXIS])
        span = node("Sub", node("ReduceMax", x, axes=[_LAST_AXIS]), lowest)
        # Where all numbers of a token are equal, the span is nothing to divide by.
        step = node("Max", node("Div", span, self._top), self._tiny)
        small = node("QuantizeLinear", node("Div", node("Sub", x, lowest), step), self._one)
        matrix, scale = _quantize_to_7_bits(self._weights, f"{at}.{part}")
        inputs = small, self.graph.add_constant(matrix), self._one, self.graph.add_constant(scale)
        product = node("Mul", self._contrib_node("MatMulIntegerToFloat", *inputs), step)
        # What was taken from every number of a token is given back, times all of the matrix.
        total = self.graph.add_constant(matrix.sum(axis=0, dtype=np.float32) * scale)
        return node("Add", product, node("Mul", lowest, total))

    def _contrib_node(self, operator: str, *inputs: str, **attributes: float) -> str:
        return self.graph.add_node(operator, *inputs, domain=CONTRIB, **attributes)

    def _layer_constant(self, at: int, name: str) -> str:
        return self.graph.add_constant(self._weights[f"{at}.{name}"])

    def _float_constant(self, value: float) -> str:
        return self.graph.add_constant(np.array(value, np.float32))


def _quantize_to_7_bits(weights: Mapping[str, Any], name: str) -> tuple[NDArray[np.int8], Array]:
    """A matrix and its scales with one bit less.

    Processors before VNNI add two products in 16 bits and cut off what does not fit. Twice 255 times
    64 fits, so the answer is the same on all of them.
    """
    whole: NDArray[np.int8] = weights[name]
    half = whole >> 1
    # Halves are rounded to the even neighbour, as in `rint`, without going through floats.
    matrix = half + (whole & half & np.int8(1))
    return matrix, weights[f"{name}.scale"] * np.float32(2)
