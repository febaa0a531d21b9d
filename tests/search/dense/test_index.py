from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.search.meaning import Slow, Vectors, Words
from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.errors import EmbeddingFailed
from toolcrib.search.dense.index import MAX_ENCODED_PER_QUERY, DenseIndex, DenseRanker
from toolcrib.search.dense.vector_table import (
    BLOCK_SLOTS,
    HEAD_DIMENSIONS,
    MIN_ROTATED_SLOTS,
    VectorTable,
    normalize_vectors,
)
from toolcrib.search.ranker import MatchReason


def _found(index: DenseIndex, catalog: Catalog, query: str) -> list[str]:
    ranking = index.rank(query)
    order = np.argsort(-ranking.scores, kind="stable")
    tools = [catalog.tool_at(int(ranking.slots[at])) for at in order]
    return [tool.name for tool in tools if tool]


def test_tools_are_found_by_what_they_mean(office: Catalog) -> None:
    index = DenseRanker(Words()).fit(office)
    assert _found(index, office, "rain tomorrow?")[0] == "get_weather"
    ranking = index.rank("rain")
    assert (ranking.scores <= 1).all() and (np.diff(ranking.slots) > 0).all()
    assert index.reasons("rain", 6) == (MatchReason("rain", "meaning", 1.0),)
    assert index.reasons("rain", 999) == ()


@pytest.mark.parametrize("count", [3, MIN_ROTATED_SLOTS])
def test_a_tool_that_is_not_found_has_no_reasons(count: int) -> None:
    class Turned(Words):
        """So wide that of a large catalog not all numbers are compared with every tool."""

        def embed_queries(self, texts: Sequence[str]) -> Vectors:
            return np.pad(super().embed_queries(texts), ((0, 0), (0, 2 * HEAD_DIMENSIONS)))

    tools = [Tool("forecast", "The weather"), Tool("pay_bill", "Pay a bill")]
    catalog = Catalog([*tools, *(Tool(f"t{at}", "A letter") for at in range(count - 2))])
    engine = SearchEngine(catalog, {"dense": DenseRanker(Turned())})
    found, missed = (engine.explain("rain tomorrow", tool.id) for tool in tools)
    assert (found.rank, found.reasons) == (1, (MatchReason("rain tomorrow", "meaning", 1.0),))
    assert missed.reasons == ()
    assert missed.verdict == "does not match 'rain tomorrow' in mode dense"


def test_nothing_is_found_in_nothing() -> None:
    index = DenseRanker(Words()).fit(Catalog())
    assert len(index.rank("rain").slots) == 0


def test_only_what_has_changed_is_read(office: Catalog) -> None:
    words = Words()
    index = DenseRanker(words).fit(office)
    words.read.clear()
    later = office.with_tools([Tool("umbrella", "Against rain")]).without(["get_weather"])
    updated = index.with_catalog(later)
    assert len(words.read) == 1
    assert _found(updated, later, "rain") == _found(DenseRanker(Words()).fit(later), later, "rain")
    assert "get_weather" not in _found(updated, later, "rain")
    other = Catalog([Tool("sunglasses", "For the sun")])
    assert _found(updated.with_catalog(other), other, "sun") == ["sunglasses"]


def test_a_sketched_tool_is_read_when_it_is_promising() -> None:
    tools = [Tool(f"t{at}", "about the weather") for at in range(3 * MAX_ENCODED_PER_QUERY)]
    catalog, slow = Catalog(tools), Slow()
    index = DenseRanker(slow).fit(catalog)
    assert (index.provisional_count, slow.read) == (len(tools), [])
    index.rank("rain")
    assert len(slow.read) == MAX_ENCODED_PER_QUERY
    assert index.provisional_count == len(tools) - MAX_ENCODED_PER_QUERY
    assert index.warm_up(4) == len(tools) - MAX_ENCODED_PER_QUERY - 4
    assert index.warm_up(1_000) == 0
    read = len(slow.read)
    assert _found(index, catalog, "rain") == [tool.name for tool in tools]
    assert len(slow.read) == read == len(tools)
    later = catalog.with_tools([Tool("t0", "about bugs")])
    assert index.with_catalog(later).provisional_count == 1


class _Odd(Words):
    def __init__(self, vectors: Vectors) -> None:
        super().__init__()
        self._vectors = vectors

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self._vectors


@pytest.mark.parametrize(
    "vectors", [np.zeros(3), np.zeros((2, 3)), np.full((1, 3), np.nan), np.zeros((1, 9))]
)
def test_an_embedder_that_gives_something_else_is_named(vectors: Vectors) -> None:
    index = DenseRanker(Words()).fit(Catalog([Tool("x")]))
    index._embedder = _Odd(vectors)
    with pytest.raises(EmbeddingFailed, match="embedder g"):
        index.rank("rain")


def test_a_table_shares_what_has_not_changed() -> None:
    table = VectorTable.empty(2)
    assert table.compare(np.array([[1, 0]], np.float32)).rows.shape == (1, 0)
    span = BLOCK_SLOTS + 2
    east, north = np.array([1, 0], np.float32), np.array([0, 3], np.float32)
    first = table.with_vectors({0: east, BLOCK_SLOTS + 1: north}, span)
    second = first.with_vectors({0: None, 1: north}, span)
    assert first.compare(east[None]).rows[0, 0] == 1
    assert second.compare(east[None]).rows[0, 0] == 0
    assert second._blocks[1] is first._blocks[1]
    assert second.rows([BLOCK_SLOTS + 1]).tolist() == [[0, 1]]
    assert second.compare(np.stack((east, north))).rows[1, 1] == 3
    assert normalize_vectors(np.zeros((1, 2), np.float32)).tolist() == [[0, 0]]


def test_rows_of_several_widths_are_no_vectors() -> None:
    class Ragged(Words):
        def embed_tools(self, texts: Sequence[str]) -> Vectors:
            return [[1.0], [1.0, 2.0]]  # type: ignore[return-value]

    with pytest.raises(EmbeddingFailed, match="no table of numbers"):
        DenseRanker(Ragged()).fit(Catalog([Tool("a"), Tool("b")]))


def test_whatever_an_embedder_raises_is_told_with_its_cause(office: Catalog) -> None:
    class Broken(Words):
        fault: Exception = ConnectionError("no route " + "far " * 999)

        def embed_queries(self, texts: Sequence[str]) -> Vectors:
            raise self.fault

    index = DenseRanker(Broken()).fit(Catalog())
    with pytest.raises(EmbeddingFailed, match="raised ConnectionError: no route") as told:
        index.rank("rain")
    assert isinstance(told.value.__cause__, ConnectionError)
    assert len(str(told.value)) < 600
    with pytest.raises(EmbeddingFailed, match="raised ConnectionError"):
        DenseRanker(Broken()).fit(office)
    Broken.fault = EmbeddingFailed("as it says itself")
    with pytest.raises(EmbeddingFailed, match=r"^as it says itself$"):
        index.rank("rain")
