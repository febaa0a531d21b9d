from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.search.meaning import Slow, Vectors, Words
from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.errors import EmbeddingFailed
from toolcrib.search.dense.index import READ_CLOSELY, Dense, DenseIndex
from toolcrib.search.dense.vector_table import BLOCK, HEAD, TURNED_FROM, VectorTable, unit
from toolcrib.search.ranker import Reason


def _found(index: DenseIndex, catalog: Catalog, query: str) -> list[str]:
    ranking = index.rank(query)
    order = np.argsort(-ranking.scores, kind="stable")
    tools = [catalog.at(int(ranking.slots[at])) for at in order]
    return [tool.name for tool in tools if tool]


def test_tools_are_found_by_what_they_mean(office: Catalog) -> None:
    index = Dense(Words()).fit(office)
    assert _found(index, office, "rain tomorrow?")[0] == "get_weather"
    ranking = index.rank("rain")
    assert (ranking.scores <= 1).all() and (np.diff(ranking.slots) > 0).all()
    assert index.reasons("rain", 6) == (Reason("rain", "meaning", 1.0),)
    assert index.reasons("rain", 999) == ()


@pytest.mark.parametrize("count", [3, TURNED_FROM])
def test_a_tool_that_is_not_found_has_no_reasons(count: int) -> None:
    class Turned(Words):
        """So wide that of a large catalog not all numbers are compared with every tool."""

        def queries(self, texts: Sequence[str]) -> Vectors:
            return np.pad(super().queries(texts), ((0, 0), (0, 2 * HEAD)))

    tools = [Tool("forecast", "The weather"), Tool("pay_bill", "Pay a bill")]
    catalog = Catalog([*tools, *(Tool(f"t{at}", "A letter") for at in range(count - 2))])
    engine = SearchEngine(catalog, {"dense": Dense(Turned())})
    found, missed = (engine.explain("rain tomorrow", tool.id) for tool in tools)
    assert (found.rank, found.reasons) == (1, (Reason("rain tomorrow", "meaning", 1.0),))
    assert missed.reasons == ()
    assert missed.verdict == "does not match 'rain tomorrow' in mode dense"


def test_nothing_is_found_in_nothing() -> None:
    index = Dense(Words()).fit(Catalog())
    assert len(index.rank("rain").slots) == 0


def test_only_what_has_changed_is_read(office: Catalog) -> None:
    words = Words()
    index = Dense(words).fit(office)
    words.read.clear()
    later = office.with_tools([Tool("umbrella", "Against rain")]).without(["get_weather"])
    updated = index.updated(later)
    assert len(words.read) == 1
    assert _found(updated, later, "rain") == _found(Dense(Words()).fit(later), later, "rain")
    assert "get_weather" not in _found(updated, later, "rain")
    other = Catalog([Tool("sunglasses", "For the sun")])
    assert _found(updated.updated(other), other, "sun") == ["sunglasses"]


def test_a_sketched_tool_is_read_when_it_is_promising() -> None:
    tools = [Tool(f"t{at}", "about the weather") for at in range(3 * READ_CLOSELY)]
    catalog, slow = Catalog(tools), Slow()
    index = Dense(slow).fit(catalog)
    assert (index.sketched, slow.read) == (len(tools), [])
    index.rank("rain")
    assert len(slow.read) == READ_CLOSELY
    assert index.sketched == len(tools) - READ_CLOSELY
    assert index.settle(4) == len(tools) - READ_CLOSELY - 4
    assert index.settle(1_000) == 0
    read = len(slow.read)
    assert _found(index, catalog, "rain") == [tool.name for tool in tools]
    assert len(slow.read) == read == len(tools)
    later = catalog.with_tools([Tool("t0", "about bugs")])
    assert index.updated(later).sketched == 1


class _Odd(Words):
    def __init__(self, vectors: Vectors) -> None:
        super().__init__()
        self._vectors = vectors

    def queries(self, texts: Sequence[str]) -> Vectors:
        return self._vectors


@pytest.mark.parametrize(
    "vectors", [np.zeros(3), np.zeros((2, 3)), np.full((1, 3), np.nan), np.zeros((1, 9))]
)
def test_an_embedder_that_gives_something_else_is_named(vectors: Vectors) -> None:
    index = Dense(Words()).fit(Catalog([Tool("x")]))
    index._embedder = _Odd(vectors)
    with pytest.raises(EmbeddingFailed, match="embedder g"):
        index.rank("rain")


def test_a_table_shares_what_has_not_changed() -> None:
    table = VectorTable.empty(2)
    assert table.compared(np.array([[1, 0]], np.float32)).rows.shape == (1, 0)
    span = BLOCK + 2
    east, north = np.array([1, 0], np.float32), np.array([0, 3], np.float32)
    first = table.updated({0: east, BLOCK + 1: north}, span)
    second = first.updated({0: None, 1: north}, span)
    assert first.compared(east[None]).rows[0, 0] == 1
    assert second.compared(east[None]).rows[0, 0] == 0
    assert second._blocks[1] is first._blocks[1]
    assert second.rows([BLOCK + 1]).tolist() == [[0, 1]]
    assert second.compared(np.stack((east, north))).rows[1, 1] == 3
    assert unit(np.zeros((1, 2), np.float32)).tolist() == [[0, 0]]


def test_rows_of_several_widths_are_no_vectors() -> None:
    class Ragged(Words):
        def tools(self, texts: Sequence[str]) -> Vectors:
            return [[1.0], [1.0, 2.0]]  # type: ignore[return-value]

    with pytest.raises(EmbeddingFailed, match="no table of numbers"):
        Dense(Ragged()).fit(Catalog([Tool("a"), Tool("b")]))


def test_whatever_an_embedder_raises_is_told_with_its_cause(office: Catalog) -> None:
    class Broken(Words):
        fault: Exception = ConnectionError("no route " + "far " * 999)

        def queries(self, texts: Sequence[str]) -> Vectors:
            raise self.fault

    index = Dense(Broken()).fit(Catalog())
    with pytest.raises(EmbeddingFailed, match="raised ConnectionError: no route") as told:
        index.rank("rain")
    assert isinstance(told.value.__cause__, ConnectionError)
    assert len(str(told.value)) < 600
    with pytest.raises(EmbeddingFailed, match="raised ConnectionError"):
        Dense(Broken()).fit(office)
    Broken.fault = EmbeddingFailed("as it says itself")
    with pytest.raises(EmbeddingFailed, match=r"^as it says itself$"):
        index.rank("rain")
