from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.search.topic_embedder import TOPICS, ProvisionalTopicEmbedder, TopicEmbedder, Vectors
from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.errors import EmbeddingFailed
from toolcrib.search.dense.index import MAX_ENCODED_ON_FIT, MAX_ENCODED_PER_QUERY, DenseIndex, DenseRanker
from toolcrib.search.query.parser import ParsedQuery
from toolcrib.search.ranker import MatchReason


def _find(index: DenseIndex, catalog: Catalog, query: str) -> list[str]:
    ranking = index.rank(ParsedQuery(query))
    order = np.argsort(-ranking.scores, kind="stable")
    tools = [catalog.tool_at(int(ranking.slots[at])) for at in order]
    return [tool.name for tool in tools if tool]


def test_tools_are_found_by_similarity(office: Catalog) -> None:
    index = DenseRanker(TopicEmbedder()).fit(office)
    assert _find(index, office, "rain tomorrow?")[0] == "get_weather"
    ranking = index.rank(ParsedQuery("rain"))
    assert (ranking.scores <= 1).all() and (np.diff(ranking.slots) > 0).all()
    assert index.reasons(ParsedQuery("rain"), 6) == (MatchReason("rain", "meaning", 1.0),)
    assert index.reasons(ParsedQuery("rain"), 999) == ()


def test_tool_that_does_not_match_has_no_reasons() -> None:
    tools = [Tool("forecast", "The weather"), Tool("pay_bill", "Pay a bill")]
    engine = SearchEngine(Catalog(tools), {"dense": DenseRanker(TopicEmbedder())})
    found, missed = (engine.explain("rain tomorrow", tool.id) for tool in tools)
    assert (found.rank, found.reasons) == (1, (MatchReason("rain tomorrow", "meaning", 1.0),))
    assert missed.reasons == ()
    assert missed.verdict == "does not match 'rain tomorrow' in mode dense"


def test_empty_catalog_has_no_matches() -> None:
    index = DenseRanker(TopicEmbedder()).fit(Catalog())
    assert len(index.rank(ParsedQuery("rain")).slots) == 0


def test_only_changed_tools_are_encoded(office: Catalog) -> None:
    words = TopicEmbedder()
    index = DenseRanker(words).fit(office)
    words.read.clear()
    later = office.with_tools([Tool("umbrella", "Against rain")]).without(["get_weather"])
    updated = index.with_catalog(later)
    assert len(words.read) == 1
    assert _find(updated, later, "rain") == _find(DenseRanker(TopicEmbedder()).fit(later), later, "rain")
    assert "get_weather" not in _find(updated, later, "rain")
    other = Catalog([Tool("sunglasses", "For the sun")])
    assert _find(updated.with_catalog(other), other, "sun") == ["sunglasses"]


def test_best_candidates_of_a_large_catalog_are_encoded() -> None:
    tools = [Tool(f"t{at}", "about the weather") for at in range(MAX_ENCODED_ON_FIT + 1)]
    catalog, slow = Catalog(tools).without(["t3"]), ProvisionalTopicEmbedder()
    DenseRanker(slow).fit(catalog)
    assert len(slow.read) == MAX_ENCODED_ON_FIT
    slow.read.clear()
    catalog = catalog.with_tools([Tool("t3", "about bugs")])
    index = DenseRanker(slow).fit(catalog)
    assert slow.read == []
    for _ in range(2):
        assert not index.rank(ParsedQuery("rain")).fully_encoded
        assert len(slow.read) == MAX_ENCODED_PER_QUERY
    assert index.warm_up(4) == len(tools) - MAX_ENCODED_PER_QUERY - 4
    assert index.warm_up(1_000) == 0
    assert len(slow.read) == len(tools)
    assert index.rank(ParsedQuery("rain")).fully_encoded
    assert _find(index, catalog, "rain") == [tool.name for tool in tools if tool.name != "t3"]
    assert index.reasons(ParsedQuery("bug"), 2) == ()


class StoringTopicEmbedder(ProvisionalTopicEmbedder):
    """Has stored the vectors of the texts in `stored`."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: set[str] = set()

    def read_stored(self, texts: Sequence[str]) -> Vectors | None:
        return super().embed_tools(texts) if self.stored.issuperset(texts) else None


def test_large_catalog_with_stored_vectors_is_exact_from_the_start() -> None:
    tools = [Tool(f"t{at}", "about the weather") for at in range(MAX_ENCODED_ON_FIT + 1)]
    catalog = Catalog([*tools, Tool("b", "about bugs", examples=["it rains"])])
    words = StoringTopicEmbedder()
    warm = DenseRanker(words).fit(catalog)
    assert not warm.rank(ParsedQuery("rain")).fully_encoded
    assert warm.warm_up(1_000) == 0
    words.stored = {*words.read}
    stored = DenseRanker(words).fit(catalog)
    for query in ("rain", "bug"):
        expected, found = warm.rank(ParsedQuery(query)), stored.rank(ParsedQuery(query))
        assert found.fully_encoded
        assert (found.slots.tobytes(), found.scores.tobytes()) == (expected.slots.tobytes(), expected.scores.tobytes())
    emptied = catalog.without([tool.id for tool in catalog])
    assert len(DenseRanker(words).fit(emptied).rank(ParsedQuery("rain")).slots) == 0


def test_warm_up_may_finish_while_another_thread_encodes() -> None:
    class MeanwhileEmbedder(ProvisionalTopicEmbedder):
        """Lets another warm-up finish before the first tools are returned."""

        def embed_tools(self, texts: Sequence[str]) -> Vectors:
            rows = super().embed_tools(texts)
            if meanwhile:
                meanwhile.pop().warm_up(1_000)
            return rows

    meanwhile: list[DenseIndex] = []
    catalog = Catalog([Tool(f"t{at}", "about the weather") for at in range(MAX_ENCODED_ON_FIT + 1)])
    index = DenseRanker(MeanwhileEmbedder()).fit(catalog)
    vectors = index.embed_queries(["rain"])
    assert index.compare_encoded(vectors, [999]) == {}
    meanwhile.append(index)
    assert index.warm_up(1_000) == 0
    assert index.compare(vectors).is_exact
    assert {slot: row.tolist() for slot, row in index.compare_encoded(vectors, [0, 999]).items()} == {0: [1.0]}


def test_large_catalog_without_tools_left_has_no_matches() -> None:
    tools = [Tool(f"t{at}", "about the weather") for at in range(MAX_ENCODED_ON_FIT + 1)]
    index = DenseRanker(ProvisionalTopicEmbedder()).fit(Catalog(tools))
    empty = Catalog(tools).without([tool.id for tool in tools])
    assert len(index.with_catalog(empty).rank(ParsedQuery("rain")).slots) == 0


def test_removed_tool_of_a_large_catalog_is_not_found() -> None:
    catalog = Catalog([Tool(f"t{at}", "about the weather") for at in range(MAX_ENCODED_ON_FIT + 2)])
    words = ProvisionalTopicEmbedder()
    index = DenseRanker(words).fit(catalog)
    later = catalog.without(["t3"])
    updated = index.with_catalog(later)
    assert words.read == []
    assert not updated.rank(ParsedQuery("rain")).fully_encoded
    assert _find(updated, later, "rain") == [tool.name for tool in catalog if tool.name != "t3"]


class FixedQueryEmbedder(TopicEmbedder):
    def __init__(self, vectors: Vectors) -> None:
        super().__init__()
        self._vectors = vectors

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self._vectors

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        return np.ones((len(texts), len(TOPICS)), np.float32)


@pytest.mark.parametrize("vectors", [np.zeros(3), np.zeros((2, 3)), np.full((1, 3), np.nan), np.zeros((1, 9))])
def test_invalid_query_vectors_raise_embedding_failed(vectors: Vectors) -> None:
    index = DenseRanker(FixedQueryEmbedder(vectors)).fit(Catalog([Tool("x")]))
    with pytest.raises(EmbeddingFailed, match="the embedder return"):
        index.rank(ParsedQuery("rain"))


def test_rows_of_different_widths_are_rejected() -> None:
    class RaggedEmbedder(TopicEmbedder):
        def embed_tools(self, texts: Sequence[str]) -> Vectors:
            return [[1.0], [1.0, 2.0]]  # type: ignore[return-value]

    with pytest.raises(EmbeddingFailed, match="not a table of numbers"):
        DenseRanker(RaggedEmbedder()).fit(Catalog([Tool("a"), Tool("b")]))


def test_embedding_failed_keeps_the_exception_of_the_embedder(office: Catalog) -> None:
    class BrokenEmbedder(TopicEmbedder):
        fault: Exception = ConnectionError("no route " + "far " * 999)

        def embed_queries(self, texts: Sequence[str]) -> Vectors:
            raise self.fault

    index = DenseRanker(BrokenEmbedder()).fit(Catalog())
    with pytest.raises(EmbeddingFailed, match="raised ConnectionError: no route") as told:
        index.rank(ParsedQuery("rain"))
    assert isinstance(told.value.__cause__, ConnectionError)
    assert len(str(told.value)) < 600
    with pytest.raises(EmbeddingFailed, match="raised ConnectionError"):
        DenseRanker(BrokenEmbedder()).fit(office)
    BrokenEmbedder.fault = EmbeddingFailed("as it says itself")
    with pytest.raises(EmbeddingFailed, match=r"^as it says itself$"):
        index.rank(ParsedQuery("rain"))
