"""The static encoder: approximate vectors in the transformer's space, within microseconds.

It averages one small vector per word piece and projects the mean to an estimate of the transformer's
output. It ignores word order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from toolcrib.encoder.tokenizer import WordPieceTokenizer

Array = NDArray[np.float32]

MAX_HEAD_TOKENS: Final = 22
MAX_TOKENS: Final = 62
# The word vectors of this many texts fit in the processor's cache.
BATCH_TEXTS: Final = 512
# Separates the names of a tool (the head) from its description.
SEPARATOR: Final = ": "
_PROJECTION_PARTS: Final = ("straight", "shift", "widen", "widen_shift", "narrow")
# The token ids of a text without any token.
_EMPTY: Final = [0]


class ResidualProjection:
    """A linear map plus a ReLU layer, added up."""

    def __init__(
        self, straight: Array, shift: Array, widen: Array, widen_shift: Array, narrow: Array
    ) -> None:
        # Both paths start with a product of the same input: concatenated, it is one product.
        self._first: Array = np.concatenate((straight, widen), axis=1)
        self._shift: Array = np.concatenate((shift, widen_shift))
        self._narrow = narrow
        self._width = len(shift)

    @classmethod
    def load(cls, weights: Mapping[str, Any], name: str) -> ResidualProjection:
        """Return the projection with this name prefix in a weight file."""
        return cls(*(weights[f"{name}.{part}"] for part in _PROJECTION_PARTS))

    def project_onto(self, axes: Array) -> ResidualProjection:
        """Return this projection followed by one onto the given axes, as a single projection."""
        straight, widen = np.split(self._first, [self._width], axis=1)
        shift, widen_shift = np.split(self._shift, [self._width])
        return ResidualProjection(
            straight @ axes, shift @ axes, widen, widen_shift, self._narrow @ axes
        )

    def __call__(self, x: Array) -> Array:
        """Project one vector, or several rows."""
        both = np.dot(x, self._first)
        both += self._shift
        hidden = both[..., self._width :]
        y: Array = np.dot(np.maximum(hidden, 0, out=hidden), self._narrow)
        y += both[..., : self._width]
        return y


class StaticEncoder:
    """Static embeddings of tools and queries."""

    def __init__(self, tokenizer: WordPieceTokenizer, weights: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._words = weights["words"]
        # The weight of each word piece in the mean, alone and with the scale of its int8 vector.
        self._weights: Array = weights["weights"]
        self._scales: Array = weights["words.scale"] * self._weights
        self._tool = ResidualProjection.load(weights, "tool")
        self._query = ResidualProjection.load(weights, "query")

    def embed_tools(self, texts: Sequence[str]) -> Array:
        """Return one unit vector per tool text."""
        if len(texts) > BATCH_TEXTS:
            starts = range(0, len(texts), BATCH_TEXTS)
            return np.concatenate([self.embed_tools(texts[at : at + BATCH_TEXTS]) for at in starts])
        parts = [text.partition(SEPARATOR) for text in texts]
        heads = self._means([self._token_ids(head, MAX_HEAD_TOKENS) for head, _, _ in parts])
        rests = self._means([self._token_ids(rest, MAX_TOKENS) for _, _, rest in parts])
        return _normalize_rows(self._tool(np.concatenate((heads, rests), axis=1)))

    def embed_queries(self, texts: Sequence[str]) -> Array:
        """Return one unit vector per query."""
        return _normalize_rows(self._encode(self._query, texts))

    def build_projected_encoder(self, axes: Array) -> Callable[[Sequence[str]], Array]:
        """Return a function that encodes queries, projected onto the axes and not normalized."""
        return partial(self._encode, self._query.project_onto(axes))

    def _encode(self, projection: ResidualProjection, texts: Sequence[str]) -> Array:
        if len(texts) == 1:
            return projection(self._mean(self._token_ids(texts[0], MAX_TOKENS)))[None]
        return projection(self._means([self._token_ids(text, MAX_TOKENS) for text in texts]))

    def _token_ids(self, text: str, limit: int) -> list[int]:
        return self._tokenizer.encode_without_special_tokens(text, limit) or _EMPTY

    def _mean(self, text: list[int]) -> Array:
        """Return the weighted mean of one text's word vectors: the fast path for one query."""
        ids = np.array(text)
        parts = self._scales.take(ids)
        parts /= np.add.reduce(self._weights.take(ids))
        mean: Array = np.dot(parts, self._words.take(ids, axis=0))
        return mean

    def _means(self, texts: list[list[int]]) -> Array:
        """Return the weighted mean of each text's word vectors."""
        flat = np.array([id for text in texts for id in text])
        starts = np.cumsum([0, *(len(text) for text in texts[:-1])])
        rows = self._words[flat] * self._scales[flat][:, None]
        sums: Array = np.add.reduceat(rows, starts, axis=0)
        sums /= np.add.reduceat(self._weights[flat], starts)[:, None]
        return sums


def _normalize_rows(rows: Array) -> Array:
    rows /= np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), np.float32(1e-12))[:, None]
    return rows
