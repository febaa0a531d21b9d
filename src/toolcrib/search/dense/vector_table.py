"""A table of vectors by slot: compared approximately with every slot, exactly with the best.

The cost of a comparison is reading the table. So a large table is rotated to its principal axes,
where the first dimensions of each vector carry most of its information. These dimensions, the
head, are compared with every slot; the rest, the tail, only with the best candidates. A rotation
does not change similarities, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.dense.embedder import Vectors
from toolcrib.search.ranker import Slots

# Slots in a block. A new table copies the blocks that change and shares the others.
BLOCK_SLOTS: Final = 4_096
# The dimensions that are compared with every slot, and the number of slots from which on it pays.
HEAD_DIMENSIONS: Final = 96
MIN_ROTATED_SLOTS: Final = 2_048
# The axes are computed again when the table has grown by this factor, up to the second number.
_REFIT_GROWTH: Final = 4
_MAX_REFIT_SLOTS: Final = 32_768
# Computing the axes of wider vectors takes seconds.
_MAX_ROTATED_WIDTH: Final = 1_024
AXES_SAMPLE_SIZE: Final = 8_192
# How many candidates are compared exactly: this many, and one more for every 200 slots.
_MIN_RESCORED: Final = 64
_SLOTS_PER_RESCORED: Final = 200
# A matrix product treats the vectors that do not fill a batch in another way, with another rounding.
# Batches are padded, so that equal tools have equal similarities.
_BATCH: Final = 16

_TINY: Final = np.float32(1e-12)
# Beyond these lengths the square of a vector may over- or underflow in float32.
_MIN_LENGTH: Final = float(_TINY)
_MAX_LENGTH: Final = 1e18


class VectorBlock(NamedTuple):
    """The vectors of up to `BLOCK_SLOTS` slots, in two parts.

    A vector is a column of the head, which is the fastest layout to compare all of them, and a row
    of the tail. The head is padded with columns of zeros.
    """

    head: Vectors
    tail: Vectors

    @classmethod
    def empty(cls, length: int, head: int, tail: int) -> VectorBlock:
        """Return a block of zeros for this number of slots and dimensions."""
        return cls(np.zeros((head, _pad(length)), np.float32), np.zeros((length, tail), np.float32))

    @classmethod
    def from_rows(cls, rows: Vectors, head: int) -> VectorBlock:
        """Return a block with these vectors."""
        length, width = rows.shape
        block = cls.empty(length, head, width - head)
        block.head[:, :length], block.tail[:] = rows[:, :head].T, rows[:, head:]
        return block

    def rows(self) -> Vectors:
        """Return the vectors as rows."""
        return np.concatenate((self.head[:, : len(self.tail)].T, self.tail), axis=1)

    def resize(self, length: int) -> VectorBlock:
        """Return a copy with this number of slots. New slots hold zeros."""
        kept = min(length, len(self.tail))
        block = VectorBlock.empty(length, len(self.head), self.tail.shape[1])
        block.head[:, :kept], block.tail[:kept] = self.head[:, :kept], self.tail[:kept]
        return block


class VectorTable:
    """Vectors of unit length by slot. A slot without a tool holds zeros and is similar to nothing.

    Without axes the head is the whole vector, and every comparison is exact. `fitted_span` is the
    number of slots when the axes were computed, or 0.
    """

    __slots__ = ("_axes", "blocks", "fitted_span", "span", "width")

    def __init__(
        self, blocks: tuple[VectorBlock, ...], span: int, width: int, axes: Vectors | None = None, fitted_span: int = 0
    ) -> None:
        self.blocks = blocks
        self.span = span
        self.width = width
        self._axes = axes
        self.fitted_span = fitted_span

    @classmethod
    def empty(cls, width: int) -> VectorTable:
        """Return a table without slots."""
        return cls((), 0, width)

    @property
    def rescore_count(self) -> int:
        """About how many candidates should be compared exactly; 0 if every comparison is exact."""
        return 0 if self._axes is None else _MIN_RESCORED + self.span // _SLOTS_PER_RESCORED

    def with_vectors(self, vectors: Mapping[int, Vectors | None], span: int) -> VectorTable:
        """Return a table of `span` slots with these vectors; None empties a slot."""
        # An earlier catalog may have fewer slots.
        vectors = {slot: vector for slot, vector in vectors.items() if slot < span}
        blocks = self._copy_blocks({slot // BLOCK_SLOTS for slot in vectors}, span)
        for slot, vector in vectors.items():
            if vector is None:
                block, place = blocks[slot // BLOCK_SLOTS], slot % BLOCK_SLOTS
                block.head[:, place], block.tail[place] = 0, 0
        new = {slot: vector for slot, vector in vectors.items() if vector is not None}
        if new:
            rows = self._rotate(normalize_vectors(np.stack(list(new.values()))))
            slots = np.fromiter(new, np.int64, len(new))
            for number in np.unique(slots // BLOCK_SLOTS).tolist():
                chosen = slots // BLOCK_SLOTS == number
                places = slots[chosen] - number * BLOCK_SLOTS
                blocks[number].head[:, places] = rows[chosen, : self._head].T
                blocks[number].tail[places] = rows[chosen, self._head :]
        table = VectorTable(tuple(blocks), span, self.width, self._axes, self.fitted_span)
        has_grown = span >= max(MIN_ROTATED_SLOTS, _REFIT_GROWTH * self.fitted_span)
        pays = 2 * HEAD_DIMENSIONS < self.width <= _MAX_ROTATED_WIDTH
        is_final = self.fitted_span >= _MAX_REFIT_SLOTS
        return table._refit() if has_grown and pays and not is_final else table

    def compare(self, vectors: Vectors) -> VectorComparison:
        """Return the similarity of some vectors of unit length to every slot."""
        vectors = self._rotate(vectors)
        rows = np.empty((len(vectors), _pad(self.span)), np.float32)
        # One vector at a time: for a few, the product of two matrices first copies the table.
        for vector, row in zip(vectors, rows, strict=True):
            head = vector[: self._head]
            for number, block in enumerate(self.blocks):
                begin = number * BLOCK_SLOTS
                np.dot(head, block.head, out=row[begin : begin + BLOCK_SLOTS])
        is_approximate = None if self._axes is None else np.ones(self.span, np.bool_)
        return VectorComparison(self.blocks, vectors, rows[:, : self.span], is_approximate)

    def rows(self, slots: list[int]) -> Vectors:
        """Return the vectors in these slots, rotated like the table."""
        rows = np.empty((len(slots), self.width), np.float32)
        for row, slot in zip(rows, slots, strict=True):
            block, place = self.blocks[slot // BLOCK_SLOTS], slot % BLOCK_SLOTS
            np.concatenate((block.head[:, place], block.tail[place]), out=row)
        return rows

    def _copy_blocks(self, changing: set[int], span: int) -> list[VectorBlock]:
        """Return the blocks for `span` slots, with copies of those that will change."""
        lengths = [min(span - begin, BLOCK_SLOTS) for begin in range(0, span, BLOCK_SLOTS)]
        blocks = [*self.blocks[: len(lengths)]]
        empty = VectorBlock.empty(0, self._head, self.width - self._head)
        blocks += [empty] * (len(lengths) - len(blocks))
        return [
            block.resize(length) if number in changing or len(block.tail) != length else block
            for number, (block, length) in enumerate(zip(blocks, lengths, strict=True))
        ]

    @property
    def _head(self) -> int:
        return self.width if self._axes is None else HEAD_DIMENSIONS

    def _rotate(self, vectors: Vectors) -> Vectors:
        return vectors if self._axes is None else vectors @ self._axes

    def _refit(self) -> VectorTable:
        """Return the same table, rotated to the principal axes of its vectors."""
        step = -(-self.span // AXES_SAMPLE_SIZE)
        rotation = principal_axes(np.concatenate([block.rows()[::step] for block in self.blocks]))
        blocks = tuple(VectorBlock.from_rows(block.rows() @ rotation, HEAD_DIMENSIONS) for block in self.blocks)
        axes = rotation if self._axes is None else self._axes @ rotation
        return VectorTable(blocks, self.span, self.width, axes, self.span)


class VectorComparison:
    """The similarity of some vectors to every slot: one row a vector, approximate until rescored."""

    __slots__ = ("_approximate", "_blocks", "_vectors", "rows")

    def __init__(
        self, blocks: tuple[VectorBlock, ...], vectors: Vectors, rows: Vectors, is_approximate: NDArray[np.bool_] | None
    ) -> None:
        self._blocks = blocks
        self._vectors = vectors
        self.rows = rows
        # Which slots are approximate; None if the table is not rotated.
        self._approximate = is_approximate

    @property
    def is_approximate(self) -> bool:
        """Whether the similarity of some slots is approximate."""
        return self._approximate is not None and bool(self._approximate.any())

    def rescore(self, slots: Slots) -> None:
        """Compute the exact similarity of these slots, which must ascend."""
        if self._approximate is None:
            return
        slots = slots[self._approximate[slots]]
        self._approximate[slots] = False
        edges = slots.searchsorted(np.arange(len(self._blocks) + 1) * BLOCK_SLOTS).tolist()
        for number, (begin, end) in enumerate(pairwise(edges)):
            if begin < end:
                # Padded with the last slot.
                batch = slots[begin:end].take(np.arange(_pad(end - begin)), mode="clip")
                tails = self._blocks[number].tail[batch - number * BLOCK_SLOTS]
                for vector, row in zip(self._vectors, self.rows, strict=True):
                    row[batch] += tails @ vector[-tails.shape[1] :]


def top_k(scores: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """Return the slots of about the `count` best scores, ascending, without those of score 0.

    The cut-off is estimated from every fourth score.
    """
    if not count:
        return np.empty(0, np.intp)
    sample = scores[::4].copy()
    place = max(len(sample) - max(count // 4, 1), 0)
    sample.partition(place)
    is_best: NDArray[np.bool_] = scores >= max(float(sample[place]), float(_TINY))
    return is_best.nonzero()[0]


def principal_axes(vectors: Vectors) -> Vectors:
    """Return the principal axes of vectors as columns, the most important first."""
    _, axes = np.linalg.eigh(vectors.T @ vectors)
    return np.ascontiguousarray(axes[:, ::-1])


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


def _lengths(vectors: Vectors) -> NDArray[np.float32]:
    """Return the length of each vector, in a column; infinite if its square overflows."""
    squares: NDArray[np.float32] = np.einsum("...i,...i->...", vectors, vectors)
    return np.sqrt(squares)[..., None]


def _has_extreme(lengths: NDArray[np.float32]) -> bool:
    """Return whether one of the lengths is too large or too small to be computed reliably."""
    # For the few vectors of a query, lists are ten times as fast as arrays.
    values = lengths.ravel().tolist()
    return min(values, default=1.0) < _MIN_LENGTH or max(values, default=1.0) > _MAX_LENGTH


def _pad(count: int) -> int:
    return -(-count // _BATCH) * _BATCH
