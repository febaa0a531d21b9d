"""Test the vector table: approximate comparisons and exact ones."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.search.dense.embedder import Vectors
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.dense.vector_table import (
    BLOCK_SLOTS,
    HEAD_DIMENSIONS,
    MIN_ROTATED_SLOTS,
    VectorTable,
    normalize_vectors,
    top_k,
)
from toolcrib.search.engine import SearchEngine
from toolcrib.search.hybrid.ranker import HybridRanker
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.ranker import Ranker

WIDTH = 3 * HEAD_DIMENSIONS


def vectors(count: int, seed: int = 1) -> Vectors:
    """Return vectors like those of an encoder: a few directions carry most of the information."""
    rng = np.random.default_rng(seed)
    decay = np.float32(0.97) ** np.arange(WIDTH, dtype=np.float32)
    return normalize_vectors(rng.standard_normal((count, WIDTH), np.float32) * decay)


def table(rows: Vectors) -> VectorTable:
    return VectorTable.empty(WIDTH).with_vectors(dict(enumerate(rows)), len(rows))


def find_best(of: VectorTable, query: Vectors, count: int) -> list[int]:
    comparison = of.compare(query[None])
    if of.rescore_count:
        comparison.rescore(top_k(comparison.rows[0], of.rescore_count))
    best: list[int] = np.argsort(-comparison.rows[0], kind="stable")[:count].tolist()
    return best


def test_small_table_is_compared_exactly() -> None:
    rows = vectors(MIN_ROTATED_SLOTS - 1)
    small = table(rows)
    assert small.rescore_count == 0
    assert np.allclose(small.compare(rows[:3]).rows, rows[:3] @ rows.T, atol=1e-5)


def test_large_table_finds_the_same_tools_as_an_exact_comparison() -> None:
    rows, queries = vectors(2 * BLOCK_SLOTS + 5), vectors(50, seed=2)
    large = table(rows)
    assert 0 < large.rescore_count < len(rows) / 10
    exact = np.argsort(-(queries @ rows.T), axis=1)[:, :10]
    same = [len({*best} & {*find_best(large, query, 10)}) for query, best in zip(queries, exact.tolist(), strict=True)]
    assert sum(same) == 10 * len(queries)


def test_rescored_slots_are_exact_in_every_block() -> None:
    rows, queries = vectors(2 * BLOCK_SLOTS + 5), vectors(3, seed=2)
    large = table(rows)
    comparison = large.compare(queries)
    approximate = comparison.rows.copy()
    slots = np.array([0, 7, BLOCK_SLOTS - 1, BLOCK_SLOTS, 2 * BLOCK_SLOTS + 4])
    comparison.rescore(slots)
    assert np.allclose(comparison.rows[:, slots], queries @ rows[slots].T, atol=1e-5)
    others = np.delete(np.arange(len(rows)), slots)
    assert (comparison.rows[:, others] == approximate[:, others]).all()
    assert np.abs(approximate - queries @ rows.T).max() < 0.2


def test_growing_table_is_rotated_again() -> None:
    rows = vectors(5 * MIN_ROTATED_SLOTS)
    grown = table(rows[:MIN_ROTATED_SLOTS])
    for begin in range(MIN_ROTATED_SLOTS, len(rows), 1_000):
        some = rows[begin : begin + 1_000]
        grown = grown.with_vectors(dict(enumerate(some, begin)), begin + len(some))
    assert grown.fitted_span >= 4 * MIN_ROTATED_SLOTS
    query = vectors(1, seed=3)[0]
    assert find_best(grown, query, 10) == find_best(table(rows), query, 10)
    picked = [0, MIN_ROTATED_SLOTS, len(rows) - 1]
    alike = grown.rows(picked) @ grown.rows(picked).T
    assert np.allclose(alike, rows[picked] @ rows[picked].T, atol=1e-5)


def test_removed_tool_is_similar_to_nothing() -> None:
    rows = vectors(MIN_ROTATED_SLOTS + 10)
    before = table(rows)
    after = before.with_vectors({5: None, 6: rows[7]}, len(rows))
    assert after.compare(rows[5:6]).rows[0, 5] == 0
    comparison = after.compare(rows[7:8])
    comparison.rescore(np.array([6, 7]))
    assert comparison.rows[0, 6] == pytest.approx(1, abs=1e-5) == comparison.rows[0, 7]
    assert find_best(before, rows[5], 1) == [5]


def test_table_can_shrink() -> None:
    rows = vectors(BLOCK_SLOTS + 3)
    short = table(rows).with_vectors(dict.fromkeys(range(5, len(rows))), 5)
    comparison = short.compare(rows[:2])
    comparison.rescore(np.arange(5))
    assert np.allclose(comparison.rows, rows[:2] @ rows[:5].T, atol=1e-5)


@pytest.mark.parametrize("count", [*range(2, 20), 101, MIN_ROTATED_SLOTS + 1, BLOCK_SLOTS + 5])
def test_equal_vectors_have_equal_similarity_in_every_slot(count: int) -> None:
    rows = vectors(count)
    equal = np.arange(0, count, 1 + count // 50)
    rows[equal] = rows[0]
    filled = table(rows)
    query = normalize_vectors(rows[:1] + 0.3 * vectors(1, seed=3))
    for many in range(1, 20):
        comparison = filled.compare(query)
        # Independent of the number of slots that are rescored together.
        for begin in range(0, len(equal), many):
            comparison.rescore(equal[begin : begin + many])
        assert len(set(comparison.rows[0, equal].tolist())) == 1


@pytest.mark.parametrize("width", [HEAD_DIMENSIONS, 1_025])
def test_narrow_and_very_wide_tables_are_not_rotated(width: int) -> None:
    rows = np.ones((MIN_ROTATED_SLOTS, width), np.float32)
    table = VectorTable.empty(width).with_vectors(dict(enumerate(rows)), len(rows))
    assert table.rescore_count == 0


@given(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=400), st.integers(1, 40))
def test_top_k_scores_are_positive_and_above_the_others(values: list[float], count: int) -> None:
    scores = np.array(values, np.float32)
    slots = top_k(scores, count)
    assert sorted(slots.tolist()) == slots.tolist()
    assert (scores[slots] > 0).all()
    others = np.delete(scores, slots)
    if len(slots) and len(others):
        assert scores[slots].min() >= others.max()


class FixedEmbedder:
    """Returns the vector of a tool by its number, and that of tool 9 for every query."""

    def __init__(self, rows: Vectors) -> None:
        self._rows = rows

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self._rows[9] for _ in texts])

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self._rows[int(text.split(":")[0].split()[-1])] for text in texts])


@pytest.mark.parametrize("mode", ["hybrid", "dense"])
def test_allowed_tools_are_rescored_before_the_page_is_cut(mode: str) -> None:
    rows = vectors(MIN_ROTATED_SLOTS + 500)
    embedder = FixedEmbedder(rows)
    tools = [Tool(f"tool_{number}") for number in range(len(rows))]
    rankers: dict[str, Ranker] = {
        "hybrid": HybridRanker(LexicalRanker(syntax="words"), DenseRanker(embedder)),
        "dense": DenseRanker(embedder),
    }
    engine = SearchEngine(Catalog(tools), rankers)
    similarities = rows @ rows[9]
    # All tools that an approximate comparison would choose for rescoring are
    # disallowed; the best of the others must still be found.
    denied = {f"tool_{slot}" for slot in np.argsort(-similarities)[:120].tolist()}
    allowed = [tool.name for tool in tools if tool.name not in denied]
    result = engine.search("whatever serves", mode=mode, allowed=frozenset(allowed), limit=5)
    order = [f"tool_{slot}" for slot in np.argsort(-similarities, kind="stable").tolist()]
    best = [name for name in order if name not in denied]
    assert [hit.tool.name for hit in result] == best[:5]
    # The form of the rights and the limit make no difference.
    asked = engine.search("whatever serves", mode=mode, allowed=lambda tool: tool.name not in denied, limit=5)
    assert asked.hits == result.hits
    deep = engine.search("whatever serves", mode=mode, limit=300)
    assert [hit.tool.name for hit in deep] == order[:300]
    seen = engine.explain("whatever serves", best[0], mode=mode, allowed=frozenset(allowed))
    assert seen.rank == 1
    assert seen.score == pytest.approx(result.hits[0].score)


class SegmentEmbedder(FixedEmbedder):
    """Returns for a query the vector of the tool whose number it ends with."""

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self._rows[int(text.split("#")[-1])] for text in texts])


def test_each_segment_finds_its_tool_in_a_large_table() -> None:
    rows = vectors(MIN_ROTATED_SLOTS + 500)
    tools = [Tool(f"tool_{number}") for number in range(len(rows))]
    hybrid = HybridRanker(LexicalRanker(syntax="words"), DenseRanker(SegmentEmbedder(rows)))
    engine = SearchEngine(Catalog(tools), {"hybrid": hybrid})
    result = engine.search("show me the one #7, then send me the other #2000", limit=3)
    assert {"tool_7", "tool_2000"} <= {hit.tool.name for hit in result}
    assert engine.with_reasons(result).hits[0].reasons[0].field in ("meaning", "name")


@pytest.mark.parametrize("scale", [1e30, 1e20, 1e-13, 1e-20, 1e-30])
def test_vectors_of_any_length_are_normalized(scale: float) -> None:
    rows = np.vstack((3 * vectors(3), np.zeros((1, WIDTH), np.float32)))
    np.testing.assert_allclose(normalize_vectors(rows * np.float32(scale)), normalize_vectors(rows), atol=1e-6)
    np.testing.assert_allclose(normalize_vectors(rows[0] * np.float32(scale)), normalize_vectors(rows[0]), atol=1e-6)
    # An extreme vector does not affect the others.
    mixed = normalize_vectors(np.vstack((rows, rows[:1] * np.float32(scale))))
    assert (mixed[:4] == normalize_vectors(rows)).all()
    np.testing.assert_allclose(mixed[4], mixed[0], atol=1e-6)
