"""The transformer encoder: BERT's layers in numpy, with mean pooling."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolcrib.encoder.tokenizer import WordPieceTokenizer

Array = NDArray[np.float32]
# Arrays of the shape [texts, tokens, width]. The texts of one array have the same length, so they
# need neither padding nor a mask.
Batches = Sequence[Array]
# Maps embedded tokens to their vectors after half of the layers and after all layers.
Layers = Callable[[Batches], list[tuple[Array, Array]]]

HEADS: Final = 12
LINEAR_PARTS: Final = ("qkv", "mix", "widen", "narrow")
MAX_TOKENS: Final = 64
# The activations of this many texts fit in the processor's cache.
BATCH_TEXTS: Final = 8
EPSILON: Final = np.float32(1e-12)
# OpenBLAS multiplies four rows at a time and reads all weights again for a remainder, so eleven rows
# take longer than twelve.
ROW_MULTIPLE: Final = 4

_MAX_ATTENTION_LOGIT: Final = np.float32(80)
_ONE: Final = np.float32(1)
_GELU_SLOPE: Final = np.float32(-2 * np.sqrt(2 / np.pi))
_GELU_CUBE: Final = np.float32(-2 * np.sqrt(2 / np.pi) * 0.044715)


class LayerNorm(NamedTuple):
    """Layer normalization with scale and shift. Works in place."""

    scale: Array
    shift: Array

    def __call__(self, x: Array) -> Array:
        inverse_width = np.float32(1 / x.shape[-1])
        x -= np.add.reduce(x, axis=-1, keepdims=True) * inverse_width
        variance = np.vecdot(x, x)[..., None] * inverse_width
        x *= self.scale / np.sqrt(variance + EPSILON)
        x += self.shift
        return x


class LinearLayer(NamedTuple):
    """A matrix product with a bias.

    The texts of `x` are multiplied one by one, because BLAS rounds a row differently from place to place. So the
    vector of a text does not depend on the texts that are encoded with it.
    """

    weight: Array
    bias: Array

    def __call__(self, x: Array) -> Array:
        y: Array = x @ self.weight
        y += self.bias
        return y


class TransformerLayer(NamedTuple):
    """Self-attention and a feed-forward block, each with a residual connection and a norm."""

    qkv: LinearLayer
    mix: LinearLayer
    mix_norm: LayerNorm
    widen: LinearLayer
    narrow: LinearLayer
    norm: LayerNorm

    def __call__(self, x: Array, length: int) -> Array:
        """Return the new token vectors of texts of this length. Further rows of a text are ignored."""
        y = self.mix(_attention(self.qkv(x), length))
        y += x
        x = self.mix_norm(y)
        y = self.narrow(_gelu(self.widen(x)))
        y += x
        return self.norm(y)


class NumpyLayers:
    """The layers in numpy. The int8 weights become floats, which numpy multiplies faster."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        layers = range(int(weights["layers"]))
        buffer = _WeightBuffer(sum(weights[f"{number}.{part}"].size for number in layers for part in LINEAR_PARTS))
        self._layers = [_build_layer(weights, number, buffer) for number in layers]

    def __call__(self, batches: Batches) -> list[tuple[Array, Array]]:
        return [self._run(batch) for batch in batches]

    def _run(self, batch: Array) -> tuple[Array, Array]:
        length = batch.shape[1]
        y = halfway = np.pad(batch, ((0, 0), (0, -length % ROW_MULTIPLE), (0, 0)))
        for number, layer in enumerate(self._layers, 1):
            y = layer(y, length)
            if number == halfway_layer(len(self._layers)):
                halfway = y
        return halfway[:, :length], y[:, :length]


class ServiceNameProbe(NamedTuple):
    """A linear classifier of tokens: does the token belong to the name of a service?

    It reads the token vectors after half of the layers. Later layers mix in too much of the
    surrounding text.
    """

    weight: Array
    bias: Array

    def __call__(self, halfway: Array) -> Array:
        logits: Array = halfway @ self.weight + self.bias
        return logits


class TransformerEncoder:
    """Encodes texts as unit vectors. `layers` replaces the numpy layers."""

    def __init__(self, tokenizer: WordPieceTokenizer, weights: Mapping[str, Any], layers: Layers | None = None) -> None:
        self._tokenizer = tokenizer
        self._words, self._word_scales = weights["words"], weights["words.scale"]
        self._positions: Array = weights["places"]
        self._norm = LayerNorm(weights["norm.scale"], weights["norm.shift"])
        self._layers = layers or NumpyLayers(weights)
        self._project: Array | None = weights.get("project")
        self._width = (self._positions if self._project is None else self._project).shape[1]

    def encode(self, texts: Sequence[str]) -> Array:
        """Return one row per text."""
        vectors = np.empty((len(texts), self._width), np.float32)
        for rows, _, tokens in self._run_layers(texts):
            vectors[rows] = self._pool_tokens(tokens)
        return vectors

    def encode_and_probe(self, texts: Sequence[str], probe: ServiceNameProbe) -> tuple[Array, list[Array]]:
        """Return one row per text, and the probe's output for the tokens of each text."""
        vectors = np.empty((len(texts), self._width), np.float32)
        logits: dict[int, Array] = {}
        for rows, halfway, tokens in self._run_layers(texts):
            vectors[rows] = self._pool_tokens(tokens)
            logits |= zip(rows, probe(halfway), strict=True)
        return vectors, [logits[row] for row in range(len(texts))]

    def encode_tokens(self, ids: Sequence[Sequence[int]]) -> list[Array]:
        """Return the vectors of each text's tokens, given their ids."""
        vectors = {
            row: text
            for rows, _, tokens in self._run_layers_on_ids(ids)
            for row, text in zip(rows, tokens, strict=True)
        }
        return [vectors[row] for row in range(len(ids))]

    def _run_layers(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Array, Array]]:
        """Yield the rows of equally long texts with their halfway and final token vectors."""
        return self._run_layers_on_ids([self._tokenizer.encode(text, MAX_TOKENS) for text in texts])

    def _run_layers_on_ids(self, ids: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], Array, Array]]:
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        for start in range(0, len(order), BATCH_TEXTS):
            by_length = groupby(order[start : start + BATCH_TEXTS], key=lambda row: len(ids[row]))
            groups = [list(rows) for _, rows in by_length]
            batches = [self._embed_tokens(np.array([ids[row] for row in rows])) for rows in groups]
            for rows, (halfway, tokens) in zip(groups, self._layers(batches), strict=True):
                yield rows, halfway, tokens

    def _embed_tokens(self, ids: NDArray[np.int64]) -> Array:
        words = self._words[ids] * self._word_scales[ids][..., None]
        return self._norm(words + self._positions[: ids.shape[1]])

    def _pool_tokens(self, tokens: Array) -> Array:
        """Return the normalized mean of each text's token vectors."""
        mean: Array = tokens.mean(axis=1)
        if self._project is not None:
            mean = mean @ self._project
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        return mean


def halfway_layer(layers: int) -> int:
    """Return the number of the layer whose output the probe reads: half of them, rounded up."""
    return (layers + 1) // 2


class _WeightBuffer:
    """One allocation for all weights, so that the system can use huge pages."""

    def __init__(self, size: int) -> None:
        self._free = np.empty(size, np.float32)

    def take(self, rows: int, columns: int) -> Array:
        """Return a matrix in the next free part of the buffer."""
        matrix, self._free = np.split(self._free, [rows * columns])
        return matrix.reshape(rows, columns)


def _build_layer(weights: Mapping[str, Any], number: int, buffer: _WeightBuffer) -> TransformerLayer:
    def linear(part: str) -> LinearLayer:
        quantized = weights[f"{number}.{part}"]
        matrix = buffer.take(*quantized.shape)
        np.multiply(quantized, weights[f"{number}.{part}.scale"], out=matrix)
        return LinearLayer(matrix, weights[f"{number}.{part}.bias"])

    def norm(part: str) -> LayerNorm:
        return LayerNorm(weights[f"{number}.{part}.scale"], weights[f"{number}.{part}.shift"])

    return TransformerLayer(
        linear("qkv"), linear("mix"), norm("mix_norm"), linear("widen"), linear("narrow"), norm("norm")
    )


def _attention(qkv: Array, length: int) -> Array:
    """Return the multi-head attention of each token to the tokens of its own text.

    The weights already include the division by the square root of the head's width.
    """
    count, rows, width = qkv.shape
    q, k, v = qkv[:, :length].reshape(count, length, 3, HEADS, -1).transpose(2, 0, 3, 1, 4)
    weights = q @ k.swapaxes(2, 3)
    # Clipping does not change the softmax noticeably and keeps exp from overflowing.
    np.clip(weights, -_MAX_ATTENTION_LOGIT, _MAX_ATTENTION_LOGIT, out=weights)
    np.exp(weights, out=weights)
    mixed: Array = weights @ v
    mixed /= np.add.reduce(weights, axis=-1, keepdims=True)
    output = np.zeros((count, rows, width // 3), np.float32)
    output[:, :length].reshape(count, length, HEADS, -1)[:] = mixed.transpose(0, 2, 1, 3)
    return output


def _gelu(x: Array) -> Array:
    """Return x / (1 + exp(-2u)) with u = sqrt(2 / pi) * (x + 0.044715 * x**3).

    It equals the usual approximation x * (1 + tanh(u)) / 2; exp is faster than tanh.
    """
    y = x * x
    y *= _GELU_CUBE
    y += _GELU_SLOPE
    y *= x
    # For large negative x, exp overflows to infinity and the quotient is 0, which is correct.
    with np.errstate(over="ignore"):
        np.exp(y, out=y)
    y += _ONE
    np.divide(x, y, out=y)
    return y
