"""The contextual encoder: a text into a vector that says what it means. BERT's layers in numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolcrib.encoder.tokenizer import WordPieceTokenizer

Array = NDArray[np.float32]
# From embedded tokens to what they mean in their text, after half of the layers and after all of
# them: [texts, tokens, width] in and out, for some such piles of texts, each pile of one length.
Batches = Sequence[Array]
Layers = Callable[[Batches], list[tuple[Array, Array]]]

HEADS: Final = 12
LINEAR_PARTS: Final = ("qkv", "mix", "widen", "narrow")
MAX_TOKENS: Final = 64
# Texts encoded together: more would leave the processor's cache.
BATCH_TEXTS: Final = 8
EPSILON: Final = np.float32(1e-12)
# Matrix products take this many rows at a time. Those that are left over are taken by twos and ones,
# with all weights read again for each: eleven rows cost more than twelve.
ROW_MULTIPLE: Final = 4

_MAX_ATTENTION_LOGIT: Final = np.float32(80)
_ONE: Final = np.float32(1)
_GELU_SLOPE: Final = np.float32(-2 * np.sqrt(2 / np.pi))
_GELU_CUBE: Final = np.float32(-2 * np.sqrt(2 / np.pi) * 0.044715)


class LayerNorm(NamedTuple):
    """Values brought to mean 0 and variance 1, then scaled and shifted."""

    scale: Array
    shift: Array

    def __call__(self, x: Array) -> Array:
        part = np.float32(1 / x.shape[-1])
        x -= np.add.reduce(x, axis=-1, keepdims=True) * part
        spread = np.vecdot(x, x)[..., None] * part
        x *= self.scale / np.sqrt(spread + EPSILON)
        x += self.shift
        return x


class LinearLayer(NamedTuple):
    """A matrix and what is added after it."""

    weight: Array
    bias: Array

    def __call__(self, x: Array) -> Array:
        y: Array = x @ self.weight
        y += self.bias
        return y


class TransformerLayer(NamedTuple):
    """Attention, then two dense layers; each adds to what it was given and is normalised."""

    qkv: LinearLayer
    mix: LinearLayer
    mix_norm: LayerNorm
    widen: LinearLayer
    narrow: LinearLayer
    norm: LayerNorm

    def __call__(self, x: Array, piles: Batches) -> Array:
        """`x` holds the tokens of the texts of all piles, one below the other, and idle rows."""
        y = self.mix(_attention(self.qkv(x), piles))
        y += x
        x = self.mix_norm(y)
        y = self.narrow(_gelu(self.widen(x)))
        y += x
        return self.norm(y)


class NumpyLayers:
    """The layers in numpy, with weights as floats: nothing is faster there in eight bits."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        layers = range(int(weights["layers"]))
        room = _WeightBuffer(
            sum(weights[f"{at}.{part}"].size for at in layers for part in LINEAR_PARTS)
        )
        self._layers = [_build_layer(weights, at, room) for at in layers]

    def __call__(self, piles: Batches) -> list[tuple[Array, Array]]:
        # All texts' tokens in one matrix: one large product instead of many small ones.
        tokens = [pile.reshape(-1, pile.shape[-1]) for pile in piles]
        idle = -sum(map(len, tokens)) % ROW_MULTIPLE
        y = halfway = np.concatenate((*tokens, np.zeros((idle, tokens[0].shape[1]), np.float32)))
        for at, layer in enumerate(self._layers, 1):
            y = layer(y, piles)
            if at == halfway_layer(len(self._layers)):
                halfway = y
        return [
            (halfway[rows].reshape(pile.shape), y[rows].reshape(pile.shape))
            for pile, rows in _batch_rows(piles)
        ]


class ServiceNameProbe(NamedTuple):
    """A question to every token, answered from what it means after half of the layers.

    What kind of thing a word names is clearest there; further on it dissolves into the whole text.
    """

    weight: Array
    bias: Array

    def __call__(self, halfway: Array) -> Array:
        told: Array = halfway @ self.weight + self.bias
        return told


class TransformerEncoder:
    """Texts into vectors of length one. `layers` may be run by something else than numpy."""

    def __init__(
        self,
        tokenizer: WordPieceTokenizer,
        weights: Mapping[str, Any],
        layers: Layers | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._words, self._word_scales = weights["words"], weights["words.scale"]
        self._positions: Array = weights["places"]
        self._norm = LayerNorm(weights["norm.scale"], weights["norm.shift"])
        self._layers = layers or NumpyLayers(weights)
        self._project: Array | None = weights.get("project")
        self._width = (self._positions if self._project is None else self._project).shape[1]

    def encode(self, texts: Sequence[str]) -> Array:
        """One row a text."""
        vectors = np.empty((len(texts), self._width), np.float32)
        for rows, _, tokens in self._run_layers(texts):
            vectors[rows] = self._pool_tokens(tokens)
        return vectors

    def encode_and_probe(
        self, texts: Sequence[str], probe: ServiceNameProbe
    ) -> tuple[Array, list[Array]]:
        """One row a text, and for each text what the probe says of its tokens."""
        vectors = np.empty((len(texts), self._width), np.float32)
        told: dict[int, Array] = {}
        for rows, halfway, tokens in self._run_layers(texts):
            vectors[rows] = self._pool_tokens(tokens)
            told |= zip(rows, probe(halfway), strict=True)
        return vectors, [told[at] for at in range(len(texts))]

    def _run_layers(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Array, Array]]:
        """Texts of one length at a time: which, and their tokens after half of the layers and after all."""
        ids = [self._tokenizer.encode(text, MAX_TOKENS) for text in texts]
        order = sorted(range(len(ids)), key=lambda at: len(ids[at]))
        for start in range(0, len(order), BATCH_TEXTS):
            # Texts of one length make a pile: nothing is padded, so nothing need be masked.
            alike = groupby(order[start : start + BATCH_TEXTS], key=lambda at: len(ids[at]))
            rows = [list(some) for _, some in alike]
            piles = [self._embed_tokens(np.array([ids[at] for at in some])) for some in rows]
            for some, (halfway, tokens) in zip(rows, self._layers(piles), strict=True):
                yield some, halfway, tokens

    def _embed_tokens(self, ids: NDArray[np.int64]) -> Array:
        words = self._words[ids] * self._word_scales[ids][..., None]
        return self._norm(words + self._positions[: ids.shape[1]])

    def _pool_tokens(self, tokens: Array) -> Array:
        """A text's vector: the mean of its tokens', with length one."""
        mean: Array = tokens.mean(axis=1)
        if self._project is not None:
            mean = mean @ self._project
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        return mean


def halfway_layer(layers: int) -> int:
    """How many layers are half of them, or a little more: after these a probe looks."""
    return (layers + 1) // 2


class _WeightBuffer:
    """Memory in one piece, for which the system has larger pages: a processor gets through it sooner."""

    def __init__(self, numbers: int) -> None:
        self._left = np.empty(numbers, np.float32)

    def take(self, rows: int, columns: int) -> Array:
        """A matrix of what is left."""
        taken, self._left = np.split(self._left, [rows * columns])
        return taken.reshape(rows, columns)


def _build_layer(weights: Mapping[str, Any], at: int, room: _WeightBuffer) -> TransformerLayer:
    def dense(part: str) -> LinearLayer:
        whole = weights[f"{at}.{part}"]
        matrix = room.take(*whole.shape)
        np.multiply(whole, weights[f"{at}.{part}.scale"], out=matrix)
        return LinearLayer(matrix, weights[f"{at}.{part}.bias"])

    def norm(part: str) -> LayerNorm:
        return LayerNorm(weights[f"{at}.{part}.scale"], weights[f"{at}.{part}.shift"])

    return TransformerLayer(
        dense("qkv"), dense("mix"), norm("mix_norm"), dense("widen"), dense("narrow"), norm("norm")
    )


def _batch_rows(piles: Batches) -> Iterator[tuple[Array, slice]]:
    """Each pile, and which rows its tokens are where all stand one below the other."""
    end = 0
    for pile in piles:
        start, end = end, end + pile.shape[0] * pile.shape[1]
        yield pile, slice(start, end)


def _attention(qkv: Array, piles: Batches) -> Array:
    """Every token's mean of what the others of its text say, weighted by how much they concern it."""
    rows, width = qkv.shape
    said = np.zeros((rows, width // 3), np.float32)
    for pile, own in _batch_rows(piles):
        count, length, _ = pile.shape
        q, k, v = qkv[own].reshape(count, length, 3, HEADS, -1).transpose(2, 0, 3, 1, 4)
        concern = q @ k.swapaxes(2, 3)
        # Beyond that, one token's part of a mean is nothing, or all of it; and exp would leave its range.
        np.clip(concern, -_MAX_ATTENTION_LOGIT, _MAX_ATTENTION_LOGIT, out=concern)
        np.exp(concern, out=concern)
        seen: Array = concern @ v
        seen /= np.add.reduce(concern, axis=-1, keepdims=True)
        said[own].reshape(count, length, HEADS, -1)[:] = seen.transpose(0, 2, 1, 3)
    return said


def _gelu(x: Array) -> Array:
    """The smooth ramp between the dense layers: x / (1 + exp(-2u)), where u is x and its cube.

    That is the usual approximation, x * (1 + tanh(u)) / 2, with the cheaper of the two functions.
    """
    y = x * x
    y *= _GELU_CUBE
    y += _GELU_SLOPE
    y *= x
    # Far below zero this is infinite, and what is divided by it zero, as it should be.
    with np.errstate(over="ignore"):
        np.exp(y, out=y)
    y += _ONE
    np.divide(x, y, out=y)
    return y
