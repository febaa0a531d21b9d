"""Test the projection of static vectors in large catalogs."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import EmbeddingFailed
from toolcrib.search.dense.embedder import EmbedQueries, ProjectableEmbedder, Vectors
from toolcrib.search.dense.index import DenseIndex, DenseRanker
from toolcrib.search.dense.projection import PROJECTED_DIMENSIONS
from toolcrib.search.dense.vector_table import MIN_ROTATED_SLOTS, normalize_vectors
from toolcrib.search.query.parser import ParsedQuery

WIDTH = 4 * PROJECTED_DIMENSIONS
ROOM = 200


class StaticEmbedder:
    """Returns the same vector for a tool and for a query with its number; counts projected queries."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        decay = np.float32(0.9) ** np.arange(WIDTH, dtype=np.float32)
        rows = rng.standard_normal((MIN_ROTATED_SLOTS + ROOM, WIDTH), np.float32) * decay
        # Rotated at random, so that the first dimensions are not the most important.
        self.rows = normalize_vectors(rows @ np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0])
        self.embedded_tools = 0
        self.projected_queries = 0

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self.rows[[int(text.split(":")[0].split()[-1]) for text in texts]]

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        self.embedded_tools += len(texts)
        return self.embed_queries(texts)

    def build_projected_embedder(self, axes: Vectors) -> EmbedQueries:
        def read(texts: Sequence[str]) -> Vectors:
            self.projected_queries += len(texts)
            return 2 * self.embed_queries(texts) @ axes

        return read


class ProvisionalStaticEmbedder(StaticEmbedder):
    """Returns uninformative provisional vectors."""

    def embed_provisional(self, texts: Sequence[str]) -> tuple[Vectors, NDArray[np.bool_]]:
        return self.rows[[0] * len(texts)], np.zeros(len(texts), np.bool_)


def catalog(count: int) -> Catalog:
    return Catalog([Tool(f"tool_{number}") for number in range(count)])


def find_best(index: DenseIndex, number: int) -> int:
    ranking = index.rank(ParsedQuery(f"tool {number}"))
    return int(ranking.slots[ranking.scores.argmax()])


def test_only_large_catalogs_are_projected() -> None:
    embedder = StaticEmbedder()
    assert isinstance(embedder, ProjectableEmbedder)
    small = DenseRanker(embedder).fit(catalog(50))
    assert (find_best(small, 7), embedder.projected_queries) == (7, 0)
    large = DenseRanker(embedder).fit(catalog(MIN_ROTATED_SLOTS))
    assert [find_best(large, number) for number in (0, 7, 2_000)] == [0, 7, 2_000]
    assert embedder.projected_queries == 3
    # Repeated queries are cached.
    assert (find_best(large, 7), embedder.projected_queries) == (7, 3)
    assert large.rescore_count == 0
    assert large.rank(ParsedQuery("tool 7")).approximate is None


def test_projected_similarity_is_close_to_the_full_one() -> None:
    embedder = StaticEmbedder()
    large = DenseRanker(embedder).fit(catalog(MIN_ROTATED_SLOTS))
    similarity = large.compare(large.embed_queries(["tool 7"])).rows[0]
    exact = embedder.rows[:MIN_ROTATED_SLOTS] @ embedder.rows[7]
    assert np.abs(similarity - exact).max() < 0.15
    assert large.pairwise_similarity([7, 7, 8])[0, 1] == pytest.approx(1, abs=1e-5)


def test_catalog_that_becomes_large_is_embedded_again_once() -> None:
    embedder = StaticEmbedder()
    tools = catalog(MIN_ROTATED_SLOTS - 1)
    index = DenseRanker(embedder).fit(tools)
    before = embedder.embedded_tools
    for count in range(MIN_ROTATED_SLOTS, MIN_ROTATED_SLOTS + 3):
        tools = tools.with_tools([Tool(f"tool_{count - 1}")])
        index = index.with_catalog(tools)
    assert embedder.embedded_tools == before + MIN_ROTATED_SLOTS + 2
    assert find_best(index, MIN_ROTATED_SLOTS + 1) == MIN_ROTATED_SLOTS + 1
    assert embedder.projected_queries == 1
    # An unrelated catalog does not use these axes.
    assert find_best(index.with_catalog(catalog(50)), 7) == 7
    assert embedder.projected_queries == 1


def test_encoded_candidates_are_projected() -> None:
    index = DenseRanker(ProvisionalStaticEmbedder()).fit(catalog(MIN_ROTATED_SLOTS))
    assert index.warm_up(MIN_ROTATED_SLOTS) == 0
    assert find_best(index, 7) == 7


@pytest.mark.parametrize("scale", [1e20, 1e-20])
def test_projected_vectors_may_have_any_length(scale: float) -> None:
    embedder = StaticEmbedder()
    plain = DenseRanker(embedder).fit(catalog(MIN_ROTATED_SLOTS)).rank(ParsedQuery("tool 7"))
    embedder.rows = embedder.rows * np.float32(scale)
    scaled = DenseRanker(embedder).fit(catalog(MIN_ROTATED_SLOTS)).rank(ParsedQuery("tool 7"))
    assert (scaled.slots[scaled.scores.argmax()], len(scaled.slots)) == (7, len(plain.slots))
    np.testing.assert_allclose(scaled.scores, plain.scores, atol=1e-4)


def test_queries_embedded_together_equal_queries_embedded_alone() -> None:
    embedder = StaticEmbedder()
    large = DenseRanker(embedder).fit(catalog(MIN_ROTATED_SLOTS))
    texts = ["tool 7", "tool 8", "tool 2000"]
    alone = np.concatenate([large.embed_queries([text]) for text in texts])
    np.testing.assert_allclose(large.embed_queries(texts), alone, atol=1e-6)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_non_finite_projected_query_is_rejected(value: float) -> None:
    embedder = StaticEmbedder()
    large = DenseRanker(embedder).fit(catalog(MIN_ROTATED_SLOTS))
    embedder.rows = embedder.rows.copy()
    embedder.rows[7, 0] = value
    with pytest.raises(EmbeddingFailed, match="infinite number or NaN"):
        large.rank(ParsedQuery("tool 7"))
    assert find_best(large, 8) == 8
