"""Test embedders whose vectors change their width."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.embedders.fallback import FallbackRanker
from toolcrib.errors import EmbeddingFailed
from toolcrib.search.dense import index as dense_index
from toolcrib.search.dense.embedder import Vectors
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.hybrid.ranker import HybridRanker
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.ranker import Ranker

OFFICE = Catalog([Tool("send_email", "Send an email."), Tool("get_weather", "Tell the weather.")])
LATER = OFFICE.with_tools([Tool("book_hotel", "Book a hotel.")])
ADVICE = "restart with the new one, and clear the cache"


class ConstantEmbedder:
    """Returns the same vector for every text; its width can be changed."""

    def __init__(self, width: int = 8) -> None:
        self.width = width

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return np.ones((len(texts), self.width), np.float32)

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        return self.embed_queries(texts)


class MixedWidthEmbedder(ConstantEmbedder):
    """Returns provisional vectors that are narrower than the final ones."""

    def embed_provisional(self, texts: Sequence[str]) -> Vectors:
        return np.ones((len(texts), 4), np.float32)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return np.ones((len(texts), 4), np.float32)

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        return np.ones((len(texts), 8), np.float32)


def _hybrid(embedder: ConstantEmbedder) -> Ranker:
    return HybridRanker(LexicalRanker(syntax="lenient"), DenseRanker(embedder))


@pytest.mark.parametrize("width", [4, 16])
def test_changed_width_raises_for_new_tools_and_queries(width: int) -> None:
    embedder = ConstantEmbedder()
    engine = SearchEngine(OFFICE, {"hybrid": _hybrid(embedder)})
    engine.search("an email to somebody")
    embedder.width = width
    with pytest.raises(EmbeddingFailed, match=f"{width} numbers for tools, .* 8 .*{ADVICE}"):
        engine.with_catalog(LATER)
    with pytest.raises(EmbeddingFailed, match=f"{width} numbers for queries, .* 8 .*{ADVICE}"):
        engine.search("an email to somebody else")


def test_changed_width_falls_back() -> None:
    embedder = ConstantEmbedder()
    ranker = FallbackRanker(_hybrid(embedder), LexicalRanker())
    engine = SearchEngine(OFFICE, {"hybrid": ranker})
    engine.search("an email to somebody")
    embedder.width = 16
    result = engine.with_catalog(LATER).search("book me a hotel please")
    assert [hit.tool.name for hit in result] == ["book_hotel"]
    assert ADVICE in str(ranker.primary_error)


@pytest.mark.parametrize("make", [DenseRanker, _hybrid])
def test_final_vectors_wider_than_provisional_ones_are_rejected(
    make: Callable[[ConstantEmbedder], Ranker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense_index, "MAX_ENCODED_ON_FIT", 1)
    ranker = FallbackRanker(make(MixedWidthEmbedder()), LexicalRanker())
    engine = SearchEngine(OFFICE, {"meaning": ranker})
    assert [hit.tool.name for hit in engine.search("email somebody")] == ["send_email"]
    assert "8 numbers for tools, but returned 4" in str(ranker.primary_error)


def test_changed_width_raises_for_provisional_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    class ProvisionalConstantEmbedder(ConstantEmbedder):
        def embed_provisional(self, texts: Sequence[str]) -> Vectors:
            return self.embed_tools(texts)

    monkeypatch.setattr(dense_index, "MAX_ENCODED_ON_FIT", 1)
    embedder = ProvisionalConstantEmbedder()
    engine = SearchEngine(OFFICE, {"hybrid": _hybrid(embedder)})
    assert not engine.search("an email to somebody").fully_encoded
    embedder.width = 4
    with pytest.raises(EmbeddingFailed, match=r"4 numbers for tools, .* 8 "):
        engine.with_catalog(LATER)
