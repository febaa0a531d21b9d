"""Test the vector table: similarities do not depend on the slot or on other tools."""

from collections.abc import Sequence

import numpy as np
import pytest

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.search.dense.embedder import Vectors
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.dense.vector_table import BLOCK_SLOTS, VectorTable, normalize_vectors, round_vectors
from toolcrib.search.engine import SearchEngine
from toolcrib.search.hybrid.ranker import HybridRanker
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.ranker import Ranker

WIDTH = 96
TOOL_COUNT = 2_500


def vectors(count: int, seed: int = 1) -> Vectors:
    rng = np.random.default_rng(seed)
    return normalize_vectors(rng.standard_normal((count, WIDTH), np.float32))


def table(rows: Vectors) -> VectorTable:
    return VectorTable.empty(WIDTH).with_vectors(dict(enumerate(rows)), len(rows))


def test_similarity_is_the_dot_product_in_every_block() -> None:
    rows, queries = vectors(2 * BLOCK_SLOTS + 5), vectors(3, seed=2)
    assert np.allclose(table(rows).compare(queries), queries @ rows.T, atol=1e-5)


def test_removed_tool_is_similar_to_nothing() -> None:
    rows = vectors(50)
    before = table(rows)
    after = before.with_vectors({5: None, 6: rows[7]}, len(rows))
    assert after.compare(rows[5:6])[0, 5] == 0
    similarity = after.compare(rows[7:8])[0]
    assert similarity[6] == pytest.approx(1, abs=1e-5) == similarity[7]
    assert before.compare(rows[5:6])[0].argmax() == 5


def test_table_can_shrink_and_grow() -> None:
    rows = vectors(BLOCK_SLOTS + 3)
    short = table(rows).with_vectors(dict.fromkeys(range(5, len(rows))), 5)
    assert np.allclose(short.compare(rows[:2]), rows[:2] @ rows[:5].T, atol=1e-5)
    grown = short.with_vectors({BLOCK_SLOTS + 1: rows[8]}, BLOCK_SLOTS + 3)
    found = grown.rows([4, BLOCK_SLOTS + 1, 7])
    assert np.allclose(found, np.stack((rows[4], rows[8], 0 * rows[7])), atol=1e-6)


@pytest.mark.parametrize("count", [*range(2, 20), 101, 2_049, BLOCK_SLOTS + 5])
def test_equal_vectors_have_equal_similarity_in_every_slot(count: int) -> None:
    rows = vectors(count)
    equal = np.arange(0, count, 1 + count // 50)
    rows[equal] = rows[0]
    query = normalize_vectors(rows[:1] + 0.3 * vectors(1, seed=3))
    assert set(table(rows).compare(query)[0, equal].tolist()) == set(table(rows[:1]).compare(query)[0].tolist())


def test_rounding_twice_changes_nothing() -> None:
    rows = np.vstack((vectors(50), np.zeros((1, WIDTH), np.float32), 1e-30 * vectors(1), 1e30 * vectors(1)))
    once = round_vectors(rows)
    assert np.array_equal(round_vectors(once), once)
    np.testing.assert_allclose(once, rows, rtol=1e-2, atol=1e-4 * np.abs(rows).max())


class FixedEmbedder:
    """Returns the vector of a tool by its number, and that of tool 9 for every query."""

    def __init__(self, rows: Vectors) -> None:
        self._rows = rows

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self._rows[9] for _ in texts])

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self._rows[int(text.split(":")[0].split()[-1])] for text in texts])


@pytest.mark.parametrize("mode", ["hybrid", "dense"])
def test_rights_apply_before_the_page_is_cut(mode: str) -> None:
    rows = vectors(TOOL_COUNT)
    embedder = FixedEmbedder(rows)
    tools = [Tool(f"tool_{number}") for number in range(len(rows))]
    rankers: dict[str, Ranker] = {
        "hybrid": HybridRanker(LexicalRanker(syntax="words"), DenseRanker(embedder)),
        "dense": DenseRanker(embedder),
    }
    engine = SearchEngine(Catalog(tools), rankers)
    similarities = rows @ rows[9]
    denied = {f"tool_{slot}" for slot in np.argsort(-similarities)[:20].tolist()}
    allowed = [tool.name for tool in tools if tool.name not in denied]
    result = engine.search("whatever serves", mode=mode, allowed=frozenset(allowed), limit=5)
    order = [f"tool_{slot}" for slot in np.argsort(-similarities, kind="stable").tolist()]
    best = [name for name in order if name not in denied]
    assert [hit.tool.name for hit in result] == best[:5]
    # The form of the rights and the limit make no difference.
    asked = engine.search("whatever serves", mode=mode, allowed=lambda tool: tool.name not in denied, limit=5)
    assert asked.hits == result.hits
    deep = engine.search("whatever serves", mode=mode, limit=50)
    assert [hit.tool.name for hit in deep] == order[:50]
    seen = engine.explain("whatever serves", best[0], mode=mode, allowed=frozenset(allowed))
    assert seen.rank == 1
    assert seen.score == pytest.approx(result.hits[0].score)


class SegmentEmbedder(FixedEmbedder):
    """Returns for a query the vector of the tool whose number it ends with."""

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self._rows[int(text.split("#")[-1])] for text in texts])


def test_each_segment_finds_its_tool_in_a_large_table() -> None:
    rows = vectors(TOOL_COUNT)
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
