"""A vector for every tool of a catalog, compared with a query's: roughly with all, exactly with the best.

What a comparison costs is reading the table. So a large table is turned such that the first few
numbers of each vector say most of what it says (its principal axes). They are compared with every
tool, the rest only with those that come near. Turning changes no likeness, and loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.dense.embedder import Vectors
from toolcrib.search.ranker import Slots

# Slots to a block. A successor copies the blocks it changes and shares the others.
BLOCK_SLOTS: Final = 4_096
# The numbers of a vector that are compared with every tool, and the slots from which on this pays.
HEAD_DIMENSIONS: Final = 96
MIN_ROTATED_SLOTS: Final = 2_048
# The axes are looked for anew when the table has grown so much since, until they are known well.
_GROWN: Final = 4
_KNOWN_WELL: Final = 32_768
# To find the axes of wider vectors takes seconds.
_WIDEST: Final = 1_024
# So many vectors tell where the axes lie.
AXES_SAMPLE_SIZE: Final = 8_192
# The tools that a rough comparison leaves for an exact one: about so many, and one more of so many.
_NEAREST: Final = 64
_NEAREST_OF: Final = 200
# Products take so many vectors at a time, and those left over in another way, which differs in the
# last digit. So that equal tools are equally alike, none are left over.
_AT_A_TIME: Final = 16

_TINY: Final = np.float32(1e-12)
# The squares of longer vectors, and of shorter ones, are not sure to be told rightly.
_LEAST: Final = float(_TINY)
_MOST: Final = 1e18


class VectorBlock(NamedTuple):
    """The vectors of up to as many slots, in two parts. In the head a vector is a column: so all of
    them are compared soonest. Behind the last one are columns of zeros, until it is even."""

    head: Vectors
    tail: Vectors

    @classmethod
    def empty(cls, length: int, head: int, tail: int) -> VectorBlock:
        return cls(
            np.zeros((head, _evened(length)), np.float32), np.zeros((length, tail), np.float32)
        )

    @classmethod
    def of(cls, rows: Vectors, head: int) -> VectorBlock:
        length, width = rows.shape
        block = cls.empty(length, head, width - head)
        block.head[:, :length], block.tail[:] = rows[:, :head].T, rows[:, head:]
        return block

    def rows(self) -> Vectors:
        return np.concatenate((self.head[:, : len(self.tail)].T, self.tail), axis=1)

    def copy(self, length: int) -> VectorBlock:
        """The same for so many slots; those that are new hold zeros."""
        kept = min(length, len(self.tail))
        block = VectorBlock.empty(length, len(self.head), self.tail.shape[1])
        block.head[:, :kept], block.tail[:kept] = self.head[:, :kept], self.tail[:kept]
        return block


class VectorTable:
    """Vectors of length one by slot; a slot without a tool holds zeros, and is like nothing.

    Without axes the head is the whole vector, and every comparison exact.
    """

    __slots__ = ("_axes", "_blocks", "_turned_at", "span", "width")

    def __init__(
        self,
        blocks: tuple[VectorBlock, ...],
        span: int,
        width: int,
        axes: Vectors | None = None,
        turned_at: int = 0,
    ) -> None:
        self._blocks = blocks
        self.span = span
        self.width = width
        self._axes = axes
        self._turned_at = turned_at

    @classmethod
    def empty(cls, width: int) -> VectorTable:
        """A table without slots."""
        return cls((), 0, width)

    @property
    def rescore_count(self) -> int:
        """About how many tools should be compared exactly; none if they are already."""
        return 0 if self._axes is None else _NEAREST + self.span // _NEAREST_OF

    def with_vectors(self, vectors: Mapping[int, Vectors | None], span: int) -> VectorTable:
        """A table of so many slots in which these hold these vectors, or none."""
        # A catalog that is gone back to may have fewer.
        vectors = {slot: vector for slot, vector in vectors.items() if slot < span}
        blocks = self._own_blocks({slot // BLOCK_SLOTS for slot in vectors}, span)
        gone = [slot for slot, vector in vectors.items() if vector is None]
        for slot in gone:
            block, place = blocks[slot // BLOCK_SLOTS], slot % BLOCK_SLOTS
            block.head[:, place], block.tail[place] = 0, 0
        held = {slot: vector for slot, vector in vectors.items() if vector is not None}
        if held:
            rows = self._turn(normalize_vectors(np.stack(list(held.values()))))
            slots = np.fromiter(held, np.int64, len(held))
            for at in np.unique(slots // BLOCK_SLOTS).tolist():
                chosen = slots // BLOCK_SLOTS == at
                places = slots[chosen] - at * BLOCK_SLOTS
                blocks[at].head[:, places] = rows[chosen, : self._head].T
                blocks[at].tail[places] = rows[chosen, self._head :]
        later = VectorTable(tuple(blocks), span, self.width, self._axes, self._turned_at)
        grown = span >= max(MIN_ROTATED_SLOTS, _GROWN * self._turned_at)
        pays = 2 * HEAD_DIMENSIONS < self.width <= _WIDEST and self._turned_at < _KNOWN_WELL
        return later._turned() if grown and pays else later

    def compare(self, vectors: Vectors) -> VectorComparison:
        """How alike some vectors of length one and every slot are."""
        vectors = self._turn(vectors)
        rows = np.empty((len(vectors), _evened(self.span)), np.float32)
        # One vector after the other: for a handful, a matrix times a matrix first copies the
        # table into an order of its own, which takes longer than it saves.
        for vector, row in zip(vectors, rows, strict=True):
            head = vector[: self._head]
            for at, block in enumerate(self._blocks):
                np.dot(head, block.head, out=row[at * BLOCK_SLOTS : (at + 1) * BLOCK_SLOTS])
        is_rough = np.ones(self.span, np.bool_) if self._axes is not None else None
        return VectorComparison(self._blocks, vectors, rows[:, : self.span], is_rough)

    def rows(self, slots: list[int]) -> Vectors:
        """The vectors in these slots, turned as the table is: good to compare with each other."""
        found = np.empty((len(slots), self.width), np.float32)
        for row, slot in zip(found, slots, strict=True):
            block = self._blocks[slot // BLOCK_SLOTS]
            np.concatenate(
                (block.head[:, slot % BLOCK_SLOTS], block.tail[slot % BLOCK_SLOTS]), out=row
            )
        return found

    def _own_blocks(self, changing: set[int], span: int) -> list[VectorBlock]:
        """The blocks for so many slots: shared with this table, but for those that will change."""
        lengths = [min(span - begin, BLOCK_SLOTS) for begin in range(0, span, BLOCK_SLOTS)]
        blocks = [*self._blocks[: len(lengths)]]
        none = VectorBlock.empty(0, self._head, self.width - self._head)
        blocks += [none] * (len(lengths) - len(blocks))
        return [
            block.copy(length) if at in changing or len(block.tail) != length else block
            for at, (block, length) in enumerate(zip(blocks, lengths, strict=True))
        ]

    @property
    def _head(self) -> int:
        return self.width if self._axes is None else HEAD_DIMENSIONS

    def _turn(self, vectors: Vectors) -> Vectors:
        return vectors if self._axes is None else vectors @ self._axes

    def _turned(self) -> VectorTable:
        """The same table along the axes that its vectors now have."""
        step = -(-self.span // AXES_SAMPLE_SIZE)
        turn = principal_axes(np.concatenate([block.rows()[::step] for block in self._blocks]))
        blocks = tuple(
            VectorBlock.of(block.rows() @ turn, HEAD_DIMENSIONS) for block in self._blocks
        )
        both = turn if self._axes is None else self._axes @ turn
        return VectorTable(blocks, self.span, self.width, both, self.span)


class VectorComparison:
    """How alike some vectors and every slot are: `rows` of cosines, rough until they are sharpened."""

    __slots__ = ("_blocks", "_rough", "_vectors", "rows")

    def __init__(
        self,
        blocks: tuple[VectorBlock, ...],
        vectors: Vectors,
        rows: Vectors,
        is_rough: NDArray[np.bool_] | None,
    ) -> None:
        self._blocks = blocks
        self._vectors = vectors
        self.rows = rows
        # Which slots are still rough; none of a table that was not turned.
        self._rough = is_rough

    @property
    def is_approximate(self) -> bool:
        """Whether some slots were compared roughly only."""
        return self._rough is not None and bool(self._rough.any())

    def rescore(self, slots: Slots) -> None:
        """Compare these slots, which ascend, exactly."""
        if self._rough is None:
            return
        slots = slots[self._rough[slots]]
        self._rough[slots] = False
        edges = slots.searchsorted(np.arange(len(self._blocks) + 1) * BLOCK_SLOTS).tolist()
        for at, (begin, end) in enumerate(pairwise(edges)):
            if begin < end:
                # The last one again, and again, until it is even.
                some = slots[begin:end].take(np.arange(_evened(end - begin)), mode="clip")
                tails = self._blocks[at].tail[some - at * BLOCK_SLOTS]
                for vector, row in zip(self._vectors, self.rows, strict=True):
                    row[some] += tails @ vector[-tails.shape[1] :]


def _evened(count: int) -> int:
    return -(-count // _AT_A_TIME) * _AT_A_TIME


def top_k(scores: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """The slots of about so many of the best scores, ascending.

    Every fourth tells which score to reach. What has no score at all is never among them.
    """
    if not count:
        return np.empty(0, np.intp)
    sample = scores[::4].copy()
    place = max(len(sample) - max(count // 4, 1), 0)
    sample.partition(place)
    reached: NDArray[np.bool_] = scores >= max(float(sample[place]), float(_TINY))
    return reached.nonzero()[0]


def principal_axes(vectors: Vectors) -> Vectors:
    """The axes along which vectors say most, one a column, the one that says most first."""
    _, axes = np.linalg.eigh(vectors.T @ vectors)
    return np.ascontiguousarray(axes[:, ::-1])


def _extreme(lengths: NDArray[np.float32]) -> bool:
    """Whether one of some lengths is too great or too small to have been told rightly."""
    # As a list: a query has a handful, and to ask an array would take ten times as long.
    told = lengths.ravel().tolist()
    return min(told, default=1.0) < _LEAST or max(told, default=1.0) > _MOST


def normalize_vectors(vectors: Vectors) -> Vectors:
    """Vectors brought to length one, of whatever length they were; a vector of zeros stays one."""
    long = _lengths(vectors)
    if _extreme(long):
        largest = np.abs(vectors).max(axis=-1, keepdims=True)
        is_ordinary = (long >= _LEAST) & (long <= _MOST) | (largest == 0)
        largest[is_ordinary] = 1
        vectors = vectors / largest
        long = np.maximum(_lengths(vectors), _TINY)
    whole: Vectors = (vectors / long).astype(np.float32, copy=False)
    return whole


def _lengths(vectors: Vectors) -> NDArray[np.float32]:
    """How long each vector is, in a column; infinite where its square is too large to be told."""
    squares: NDArray[np.float32] = np.einsum("...i,...i->...", vectors, vectors)
    return np.sqrt(squares)[..., None]
