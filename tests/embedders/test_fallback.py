from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.embedders.scripted import SimilarityRanker, WordEmbedder
from tests.search.topic_embedder import ProvisionalTopicEmbedder, TopicEmbedder, Vectors
from toolcrib import Catalog, SearchEngine, SearchResult, Tool
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.embedders.fallback import FallbackRanker
from toolcrib.search.dense import index as dense_index
from toolcrib.search.dense.embedder import Embedder
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.lexical.ranker import LexicalRanker

CATALOG = Catalog([Tool("a", "send an email"), Tool("b", "read the weather"), Tool("c", "resize a picture")])
FALLBACK_NOTES = ("the embedder is unavailable, so the fallback ranker was used",)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FallbackSetup:
    """A primary embedder of width 32, a fallback of width 64, and an engine with both."""

    def __init__(self, *, is_down: bool = False, primary: Embedder | None = None) -> None:
        self.clock = Clock()
        self.primary, self.fallback = WordEmbedder(32), WordEmbedder(64)
        self.primary.is_down = is_down
        self.ranker = FallbackRanker(
            SimilarityRanker(primary or self.primary, 32), SimilarityRanker(self.fallback, 64), clock=self.clock
        )
        self.engine = SearchEngine(CATALOG, {"meaning": self.ranker})

    def search(self, query: str = "the weather outside") -> SearchResult:
        return self.engine.search(query)

    def active_ranker(self) -> str:
        """Return a description of the ranker that answers a search."""
        return self.engine.with_reasons(self.search()).hits[0].reasons[0].field


def test_primary_is_used_while_it_works() -> None:
    setup = FallbackSetup()
    result = setup.search()
    assert result.hits[0].tool.id == "b"
    assert result.notes == ()
    assert setup.active_ranker() == "similarity, 32 dimensions"
    assert setup.ranker.primary_error is None


def test_fallback_is_fitted_in_advance() -> None:
    setup = FallbackSetup()
    setup.search()
    assert setup.fallback.embedded_texts == [tool.description for tool in CATALOG]


def test_fallback_uses_its_own_vectors_when_the_primary_fails() -> None:
    setup = FallbackSetup()
    setup.search()
    setup.primary.is_down = True
    result = setup.search()
    # Comparing vectors of 32 and 64 dimensions would raise an error.
    assert result.hits[0].tool.id == "b"
    assert result.notes == FALLBACK_NOTES
    assert setup.active_ranker() == "similarity, 64 dimensions"
    assert "scripted embedder is down" in str(setup.ranker.primary_error)


def test_primary_is_retried_after_a_pause() -> None:
    setup = FallbackSetup()
    setup.search()
    setup.primary.is_down = True
    setup.search()
    setup.primary.is_down = False
    setup.clock.now = 29.9
    assert setup.search().notes == FALLBACK_NOTES
    setup.clock.now = 30.0
    assert setup.search().notes == ()
    assert setup.ranker.primary_error is None
    assert setup.active_ranker() == "similarity, 32 dimensions"


def test_primary_that_fails_at_the_start_is_fitted_later() -> None:
    setup = FallbackSetup(is_down=True)
    assert setup.search().notes == FALLBACK_NOTES
    assert setup.primary.embedded_texts == []
    setup.primary.is_down = False
    setup.clock.now = 31
    assert setup.search().notes == ()
    assert setup.primary.embedded_texts[:3] == [tool.description for tool in CATALOG]


def test_tools_added_during_a_failure_are_found_by_both_rankers() -> None:
    setup = FallbackSetup()
    setup.search()
    setup.primary.is_down = True
    later = CATALOG.without(["b"]).with_tools([Tool("d", "water the garden")])
    engine = setup.engine.with_catalog(later)
    assert engine.search("water the garden").hits[0].tool.id == "d"
    assert engine.search("water the garden").notes == FALLBACK_NOTES
    setup.primary.is_down = False
    setup.clock.now = 31
    result = engine.search("water the garden")
    assert result.notes == ()
    assert result.hits[0].tool.id == "d"
    assert "b" not in [hit.tool.id for hit in result]
    # The earlier engine still searches its own catalog.
    assert setup.search().hits[0].tool.id == "b"


def test_catalog_may_change_several_times_during_a_failure() -> None:
    setup = FallbackSetup(is_down=True)
    engine = setup.engine
    engine.search("email")
    catalog = CATALOG
    for number in range(3):
        catalog = catalog.with_tools([Tool(f"new{number}", f"task number{number}")])
        engine = engine.with_catalog(catalog)
        assert engine.search(f"number{number}").hits[0].tool.id == f"new{number}"
    setup.primary.is_down = False
    setup.clock.now = 31
    result = engine.search("number1")
    assert (result.hits[0].tool.id, result.notes) == ("new1", ())


def test_cached_vectors_are_not_computed_again_after_a_failure() -> None:
    words = WordEmbedder(32)
    setup = FallbackSetup(primary=CachedEmbedder(words, "words"))
    setup.search("email")
    words.is_down = True
    setup.search("another question")
    words.is_down = False
    setup.clock.now = 31
    words.embedded_texts.clear()
    setup.engine.with_catalog(CATALOG.with_tools([Tool("d", "water the garden")])).search("email")
    assert words.embedded_texts == ["water the garden"]


class Unreachable(ProvisionalTopicEmbedder):
    """A `ProvisionalTopicEmbedder` embedder that can lose its connection."""

    is_down = True

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        if self.is_down:
            raise ConnectionError("no route to the model")
        return super().embed_queries(texts)


def _build_engine(primary: Embedder, fallback: Embedder) -> tuple[SearchEngine, FallbackRanker, Clock]:
    clock = Clock()
    ranker = FallbackRanker(DenseRanker(primary), DenseRanker(fallback), clock=clock)
    tools = [Tool("forecast", "The weather", server=server) for server in ("sky", "sun")]
    return SearchEngine(Catalog(tools), {"meaning": ranker}), ranker, clock


def test_any_exception_of_the_primary_embedder_leads_to_the_fallback() -> None:
    primary = Unreachable()
    engine, ranker, clock = _build_engine(primary, TopicEmbedder())
    assert engine.search("rain").notes == FALLBACK_NOTES
    assert isinstance(ranker.primary_error and ranker.primary_error.__cause__, ConnectionError)
    primary.is_down, clock.now = False, 31
    assert engine.search("rain").notes == ()


def test_hits_are_grouped_by_either_ranker() -> None:
    primary = Unreachable()
    engine, _, clock = _build_engine(primary, TopicEmbedder())
    for primary.is_down, clock.now in ((True, 0), (False, 31), (True, 62)):
        result = engine.search("rain")
        assert (len(result), len(engine.group_hits(result))) == (2, 1)


def test_warm_up_applies_to_the_active_ranker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_index, "MAX_ENCODED_ON_FIT", 1)
    primary, fallback = Unreachable(), ProvisionalTopicEmbedder()
    engine, ranker, _ = _build_engine(primary, fallback)
    assert engine.warm_up(max_tools=0) == 2
    assert ranker.primary_error is None
    # The primary fails during warm-up, so the fallback is active from now on.
    assert engine.warm_up(max_tools=1) == 1
    assert ranker.primary_error is not None
    assert engine.warm_up() == 0
    assert len(fallback.read) == 2

    primary, fallback = Unreachable(), ProvisionalTopicEmbedder()
    primary.is_down = False
    engine, _, _ = _build_engine(primary, fallback)
    assert engine.warm_up() == 0
    assert (len(primary.read), fallback.read) == (2, [])


def test_hits_of_a_fallback_without_vectors_are_not_grouped() -> None:
    ranker = FallbackRanker(LexicalRanker(), DenseRanker(TopicEmbedder()))
    engine = SearchEngine(
        Catalog([Tool("a", "send mail", server="x"), Tool("b", "send a mail", server="y")]), {"l": ranker}
    )
    result = engine.search("send mail")
    assert len(result) == 2
    assert [group.best for group in engine.group_hits(result)] == list(result)
