"""A table of vectors by slot, and their similarity to the vectors of a query.

Every similarity is the dot product of two rows, computed on its own. So it does not depend on the
slot of a tool, on the other tools, or on the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.dense.embedder import Vectors

# Slots in a block. A new table copies the blocks that change and shares the others.
BLOCK_SLOTS: Final = 4_096

_TINY: Final = np.float32(1e-12)
# Beyond these lengths the square of a vector may over- or underflow in float32.
_MIN_LENGTH: Final = float(_TINY)
_MAX_LENGTH: Final = 1e18


class VectorTable:
    """Vectors of unit length by slot. A slot without a tool holds zeros and is similar to nothing."""

    __slots__ = ("_blocks", "span", "width")

    def __init__(self, blocks: tuple[Vectors, ...], span: int, width: int) -> None:
        self._blocks = blocks
        self.span = span
        self.width = width

    @classmethod
    def empty(cls, width: int) -> VectorTable:
        """Return a table without slots."""
        return cls((), 0, width)

    @classmethod
    def from_rows(cls, rows: Vectors) -> VectorTable:
        """Return a table of a row of unit length or of zeros for every slot. The rows are shared, not copied."""
        blocks = tuple(rows[begin : begin + BLOCK_SLOTS] for begin in range(0, len(rows), BLOCK_SLOTS))
        return cls(blocks, *rows.shape)

    def with_vectors(self, vectors: Mapping[int, Vectors | None], span: int) -> VectorTable:
        """Return a table of `span` slots with these vectors of unit length; None empties a slot."""
        # An earlier catalog may have fewer slots.
        vectors = {slot: vector for slot, vector in vectors.items() if slot < span}
        blocks = self._copy_blocks({slot // BLOCK_SLOTS for slot in vectors}, span)
        for slot, vector in vectors.items():
            blocks[slot // BLOCK_SLOTS][slot % BLOCK_SLOTS] = 0 if vector is None else vector
        return VectorTable(tuple(blocks), span, self.width)

    def compare(self, vectors: Vectors) -> Vectors:
        """Return the similarity of some vectors of unit length to every slot, one row a vector."""
        rows = np.empty((len(vectors), self.span), np.float32)
        for number, block in enumerate(self._blocks):
            begin = number * BLOCK_SLOTS
            rows[:, begin : begin + len(block)] = compare_vectors(vectors, block)
        return rows

    def rows(self, slots: list[int]) -> Vectors:
        """Return the vectors in these slots."""
        rows = np.empty((len(slots), self.width), np.float32)
        for row, slot in zip(rows, slots, strict=True):
            row[:] = self._blocks[slot // BLOCK_SLOTS][slot % BLOCK_SLOTS]
        return rows

    def _copy_blocks(self, changing: set[int], span: int) -> list[Vectors]:
        """Return the blocks for `span` slots, with copies of those that will change."""
        lengths = [min(span - begin, BLOCK_SLOTS) for begin in range(0, span, BLOCK_SLOTS)]
        blocks = [*self._blocks[: len(lengths)]]
        blocks += [np.empty((0, self.width), np.float32)] * (len(lengths) - len(blocks))
        return [
            _resize(block, length) if number in changing or len(block) != length else block
            for number, (block, length) in enumerate(zip(blocks, lengths, strict=True))
        ]


def compare_vectors(vectors: Vectors, rows: Vectors) -> Vectors:
    """Return the dot product of each vector with each row.

    A matrix product would round differently from place to place.
    """
    products = np.empty((len(vectors), len(rows)), np.float32)
    for vector, out in zip(vectors, products, strict=True):
        np.vecdot(rows, vector, out=out)
    return products


def round_vectors(vectors: Vectors) -> Vectors:
    """Return vectors in the precision in which they are stored: 16 bits, scaled by the largest number.

    A vector from a file then equals a new one. Rounding again changes nothing.
    """
    scales = np.abs(vectors).max(axis=-1, keepdims=True)
    scales[scales == 0] = 1
    rounded: Vectors = (vectors / scales).astype(np.float16).astype(np.float32) * scales
    return rounded


def normalize_vectors(vectors: Vectors) -> Vectors:
    """Return vectors scaled to unit length. A vector of zeros stays as it is."""
    lengths = _lengths(vectors)
    if _has_extreme(lengths):
        largest = np.abs(vectors).max(axis=-1, keepdims=True)
        is_ordinary = (lengths >= _MIN_LENGTH) & (lengths <= _MAX_LENGTH) | (largest == 0)
        largest[is_ordinary] = 1
        vectors = vectors / largest
        lengths = np.maximum(_lengths(vectors), _TINY)
    normalized: Vectors = (vectors / lengths).astype(np.float32, copy=False)
    return normalized


def _resize(block: Vectors, length: int) -> Vectors:
    """Return a copy of a block with this number of slots. New slots hold zeros."""
    resized = np.zeros((length, block.shape[1]), np.float32)
    kept = min(length, len(block))
    resized[:kept] = block[:kept]
    return resized


def _lengths(vectors: Vectors) -> NDArray[np.float32]:
    """Return the length of each vector, in a column; infinite if its square overflows."""
    squares: NDArray[np.float32] = np.einsum("...i,...i->...", vectors, vectors)
    return np.sqrt(squares)[..., None]


def _has_extreme(lengths: NDArray[np.float32]) -> bool:
    """Return whether one of the lengths is too large or too small to be computed reliably."""
    # For the few vectors of a query, lists are ten times as fast as arrays.
    values = lengths.ravel().tolist()
    return min(values, default=1.0) < _MIN_LENGTH or max(values, default=1.0) > _MAX_LENGTH
