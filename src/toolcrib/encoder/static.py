"""The sketcher: a text into a rough vector in microseconds, in the space of the encoder.

It looks up a small vector for every word piece, takes their mean, and bends that towards what the
encoder would say. It knows nothing of the order of words, which is what makes it cheap.
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
# So many texts at a time: their pieces' vectors stay in the processor's cache.
BATCH_TEXTS: Final = 512
# The first is said of the tool by name, the rest about it.
SEPARATOR: Final = ": "
_BEND_PARTS: Final = ("straight", "shift", "widen", "widen_shift", "narrow")
# A text without a known piece is this one.
_EMPTY: Final = [0]


class ResidualProjection:
    """A straight map and a bent one beside it, added up."""

    def __init__(
        self, straight: Array, shift: Array, widen: Array, widen_shift: Array, narrow: Array
    ) -> None:
        # Both begin with a product of the same numbers: one product does.
        self._first: Array = np.concatenate((straight, widen), axis=1)
        self._shift: Array = np.concatenate((shift, widen_shift))
        self._narrow = narrow
        self._width = len(shift)

    @classmethod
    def load(cls, weights: Mapping[str, Any], name: str) -> ResidualProjection:
        """One of several that share a file."""
        return cls(*(weights[f"{name}.{part}"] for part in _BEND_PARTS))

    def project_onto(self, axes: Array) -> ResidualProjection:
        """What gives the same along some axes, and is the cheaper the fewer they are."""
        straight, widen = np.split(self._first, [self._width], axis=1)
        shift, widen_shift = np.split(self._shift, [self._width])
        return ResidualProjection(
            straight @ axes, shift @ axes, widen, widen_shift, self._narrow @ axes
        )

    def __call__(self, x: Array) -> Array:
        """Of one vector, or of several, one a row."""
        both = np.dot(x, self._first)
        both += self._shift
        bent = both[..., self._width :]
        y: Array = np.dot(np.maximum(bent, 0, out=bent), self._narrow)
        y += both[..., : self._width]
        return y


class StaticEncoder:
    """Rough vectors of tools and queries."""

    def __init__(self, tokenizer: WordPieceTokenizer, weights: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._words = weights["words"]
        # What a piece counts, and what the numbers of its vector do.
        self._weights: Array = weights["weights"]
        self._scales: Array = weights["words.scale"] * self._weights
        self._tool, self._query = (
            ResidualProjection.load(weights, "tool"),
            ResidualProjection.load(weights, "query"),
        )

    def embed_tools(self, texts: Sequence[str]) -> Array:
        """One row a tool."""
        if len(texts) > BATCH_TEXTS:
            starts = range(0, len(texts), BATCH_TEXTS)
            return np.concatenate([self.embed_tools(texts[at : at + BATCH_TEXTS]) for at in starts])
        parts = [text.partition(SEPARATOR) for text in texts]
        heads = self._means([self._token_ids(head, MAX_HEAD_TOKENS) for head, _, _ in parts])
        rests = self._means([self._token_ids(rest, MAX_TOKENS) for _, _, rest in parts])
        return _normalize_rows(self._tool(np.concatenate((heads, rests), axis=1)))

    def embed_queries(self, texts: Sequence[str]) -> Array:
        """One row a query."""
        return _normalize_rows(self._encode(self._query, texts))

    def build_projected_encoder(self, axes: Array) -> Callable[[Sequence[str]], Array]:
        """What reads queries by their numbers along some axes alone, of whatever length."""
        return partial(self._encode, self._query.project_onto(axes))

    def _encode(self, bend: ResidualProjection, texts: Sequence[str]) -> Array:
        if len(texts) == 1:
            return bend(self._mean(self._token_ids(texts[0], MAX_TOKENS)))[None]
        return bend(self._means([self._token_ids(text, MAX_TOKENS) for text in texts]))

    def _token_ids(self, text: str, limit: int) -> list[int]:
        return self._tokenizer.encode_without_special_tokens(text, limit) or _EMPTY

    def _mean(self, text: list[int]) -> Array:
        """The weighted mean of the pieces of one text: most queries come alone."""
        ids = np.array(text)
        parts = self._scales.take(ids)
        parts /= np.add.reduce(self._weights.take(ids))
        mean: Array = np.dot(parts, self._words.take(ids, axis=0))
        return mean

    def _means(self, texts: list[list[int]]) -> Array:
        """The weighted mean of the pieces of each text."""
        flat = np.array([id for text in texts for id in text])
        begins = np.cumsum([0, *(len(text) for text in texts[:-1])])
        rows = self._words[flat] * self._scales[flat][:, None]
        sums: Array = np.add.reduceat(rows, begins, axis=0)
        sums /= np.add.reduceat(self._weights[flat], begins)[:, None]
        return sums


def _normalize_rows(rows: Array) -> Array:
    rows /= np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), np.float32(1e-12))[:, None]
    return rows
