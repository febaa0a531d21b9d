"""An embedder whose vectors change their width: its model was changed, or it has two."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.embedders.fallback import FallbackRanker
from toolcrib.errors import EmbeddingFailed
from toolcrib.search.dense.embedder import EmbedQueries, Vectors
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.dense.projection import PROJECTED_DIMENSIONS
from toolcrib.search.dense.vector_table import MIN_ROTATED_SLOTS
from toolcrib.search.hybrid.fusion import HybridRanker
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.ranker import Ranker

OFFICE = Catalog([Tool("send_email", "Send an email."), Tool("get_weather", "Tell the weather.")])
LATER = OFFICE.with_tools([Tool("book_hotel", "Book a hotel.")])
CURE = "start anew with the new one, and clear what is cached"


class Wide:
    """Every text is like every other; how many numbers say so can be changed."""

    def __init__(self, width: int = 8) -> None:
        self.width = width

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return np.ones((len(texts), self.width), np.float32)

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        return self.embed_queries(texts)


class Twofold(Wide):
    """Sketches with fewer numbers than it reads with."""

    def embed_provisional(self, texts: Sequence[str]) -> tuple[Vectors, NDArray[np.bool_]]:
        return np.ones((len(texts), 4), np.float32), np.zeros(len(texts), np.bool_)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return np.ones((len(texts), 4), np.float32)

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        return np.ones((len(texts), 8), np.float32)


class Narrowed(Wide):
    """Its queries are read along the axes of a large catalog."""

    def build_projected_embedder(self, axes: Vectors) -> EmbedQueries:
        return lambda texts: np.ones((len(texts), axes.shape[1]), np.float32)


def _hybrid(embedder: Wide) -> Ranker:
    return HybridRanker(LexicalRanker(syntax="lenient"), DenseRanker(embedder))


@pytest.mark.parametrize("width", [4, 16])
def test_a_model_that_was_changed_is_told_when_tools_come(width: int) -> None:
    embedder = Wide()
    engine = SearchEngine(OFFICE, {"hybrid": _hybrid(embedder)})
    engine.search("an email to somebody")
    embedder.width = width
    with pytest.raises(EmbeddingFailed, match=f"tools {width} numbers, where .* 8; .*{CURE}"):
        engine.with_catalog(LATER)
    with pytest.raises(EmbeddingFailed, match=f"queries {width} numbers, where .* 8; .*{CURE}"):
        engine.search("an email to somebody else")


def test_a_model_that_was_changed_is_fallen_back_from() -> None:
    embedder = Wide()
    ranker = FallbackRanker(_hybrid(embedder), LexicalRanker())
    engine = SearchEngine(OFFICE, {"hybrid": ranker})
    engine.search("an email to somebody")
    embedder.width = 16
    result = engine.with_catalog(LATER).search("book me a hotel please")
    assert [hit.tool.name for hit in result] == ["book_hotel"]
    assert CURE in str(ranker.primary_error)


@pytest.mark.parametrize("make", [DenseRanker, _hybrid])
def test_a_model_that_reads_wider_than_it_sketches_is_told(make: Callable[[Wide], Ranker]) -> None:
    ranker = FallbackRanker(make(Twofold()), LexicalRanker())
    engine = SearchEngine(OFFICE, {"meaning": ranker})
    assert [hit.tool.name for hit in engine.search("email somebody")] == ["send_email"]
    assert "tools 8 numbers, where it gave tools 4" in str(ranker.primary_error)


def test_a_model_that_was_changed_is_told_where_fewer_numbers_are_kept() -> None:
    catalog = Catalog([Tool(f"tool_{number}") for number in range(MIN_ROTATED_SLOTS)])
    embedder = Narrowed(2 * PROJECTED_DIMENSIONS)
    index = DenseRanker(embedder).fit(catalog)
    later = catalog.with_tools([Tool("one_more")])
    assert len(index.with_catalog(later).rank("any").slots) == MIN_ROTATED_SLOTS + 1
    embedder.width = PROJECTED_DIMENSIONS
    with pytest.raises(
        EmbeddingFailed,
        match=f"tools {PROJECTED_DIMENSIONS} numbers, where .* {2 * PROJECTED_DIMENSIONS};",
    ):
        index.with_catalog(later)
