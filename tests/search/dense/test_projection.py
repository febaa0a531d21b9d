"""Rough vectors of a large catalog: a few numbers of each, and as good as all of them."""

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

WIDTH = 4 * PROJECTED_DIMENSIONS
ROOM = 200


class Rough:
    """The vector of a tool, or of a query for it, by its number; what was asked along axes is counted."""

    def __init__(self) -> None:
        chance = np.random.default_rng(3)
        falling = np.float32(0.9) ** np.arange(WIDTH, dtype=np.float32)
        rows = chance.standard_normal((MIN_ROTATED_SLOTS + ROOM, WIDTH), np.float32) * falling
        # Turned at random: that its first numbers say most is not to be seen.
        self.rows = normalize_vectors(
            rows @ np.linalg.qr(chance.standard_normal((WIDTH, WIDTH)))[0]
        )
        self.sketched = 0
        self.narrow = 0

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self.rows[[int(text.split(":")[0].split()[-1]) for text in texts]]

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        self.sketched += len(texts)
        return self.embed_queries(texts)

    def build_projected_embedder(self, axes: Vectors) -> EmbedQueries:
        def read(texts: Sequence[str]) -> Vectors:
            self.narrow += len(texts)
            return 2 * self.embed_queries(texts) @ axes

        return read


class RoughAtFirst(Rough):
    """Knows nothing of a tool until it reads it."""

    def embed_provisional(self, texts: Sequence[str]) -> tuple[Vectors, NDArray[np.bool_]]:
        return self.rows[[0] * len(texts)], np.zeros(len(texts), np.bool_)


def catalog(count: int) -> Catalog:
    return Catalog([Tool(f"tool_{number}") for number in range(count)])


def best(index: DenseIndex, number: int) -> int:
    ranking = index.rank(f"tool {number}")
    return int(ranking.slots[ranking.scores.argmax()])


def test_a_large_catalog_is_compared_by_few_numbers_and_a_small_one_by_all() -> None:
    rough = Rough()
    assert isinstance(rough, ProjectableEmbedder)
    small = DenseRanker(rough).fit(catalog(50))
    assert (best(small, 7), rough.narrow) == (7, 0)
    large = DenseRanker(rough).fit(catalog(MIN_ROTATED_SLOTS))
    assert [best(large, number) for number in (0, 7, 2_000)] == [0, 7, 2_000]
    assert rough.narrow == 3
    # What was asked before is not read again.
    assert (best(large, 7), rough.narrow) == (7, 3)
    assert large.rescore_count == 0
    assert large.rank("tool 7").closer is None


def test_likeness_is_about_what_it_is_by_all_numbers() -> None:
    rough = Rough()
    large = DenseRanker(rough).fit(catalog(MIN_ROTATED_SLOTS))
    likeness = large.compare(large.embed_queries(["tool 7"])).rows[0]
    exact = rough.rows[:MIN_ROTATED_SLOTS] @ rough.rows[7]
    assert np.abs(likeness - exact).max() < 0.15
    assert large.pairwise_similarity([7, 7, 8])[0, 1] == pytest.approx(1, abs=1e-5)


def test_a_catalog_that_becomes_large_is_read_again_but_once() -> None:
    rough = Rough()
    index = DenseRanker(rough).fit(catalog(MIN_ROTATED_SLOTS - 1))
    before = rough.sketched
    for count in range(MIN_ROTATED_SLOTS, MIN_ROTATED_SLOTS + 3):
        index = index.with_catalog(index._catalog.with_tools([Tool(f"tool_{count - 1}")]))
    assert rough.sketched == before + MIN_ROTATED_SLOTS + 2
    assert best(index, MIN_ROTATED_SLOTS + 1) == MIN_ROTATED_SLOTS + 1
    assert rough.narrow == 1
    # Another catalog has nothing to do with these axes.
    assert best(index.with_catalog(catalog(50)), 7) == 7
    assert rough.narrow == 1


def test_what_is_read_closely_is_narrowed_too() -> None:
    index = DenseRanker(RoughAtFirst()).fit(catalog(MIN_ROTATED_SLOTS))
    assert index.warm_up(MIN_ROTATED_SLOTS) == 0
    assert best(index, 7) == 7


@pytest.mark.parametrize("scale", [1e20, 1e-20])
def test_rough_vectors_may_have_any_length(scale: float) -> None:
    rough = Rough()
    plain = DenseRanker(rough).fit(catalog(MIN_ROTATED_SLOTS)).rank("tool 7")
    rough.rows = rough.rows * np.float32(scale)
    scaled = DenseRanker(rough).fit(catalog(MIN_ROTATED_SLOTS)).rank("tool 7")
    assert (scaled.slots[scaled.scores.argmax()], len(scaled.slots)) == (7, len(plain.slots))
    np.testing.assert_allclose(scaled.scores, plain.scores, atol=1e-4)


def test_queries_that_are_read_together_mean_what_each_means_alone() -> None:
    rough = Rough()
    large = DenseRanker(rough).fit(catalog(MIN_ROTATED_SLOTS))
    texts = ["tool 7", "tool 8", "tool 2000"]
    alone = np.concatenate([large.embed_queries([text]) for text in texts])
    np.testing.assert_allclose(large.embed_queries(texts), alone, atol=1e-6)


@pytest.mark.parametrize("hole", [np.inf, np.nan])
def test_a_query_with_a_hole_is_refused_also_along_axes(hole: float) -> None:
    rough = Rough()
    large = DenseRanker(rough).fit(catalog(MIN_ROTATED_SLOTS))
    rough.rows = rough.rows.copy()
    rough.rows[7, 0] = hole
    with pytest.raises(EmbeddingFailed, match="infinite or none"):
        large.rank("tool 7")
    assert best(large, 8) == 8
