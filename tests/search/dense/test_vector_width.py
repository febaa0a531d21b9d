"""An embedder whose vectors change their width: its model was changed, or it has two."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.embedders.fallback import WithFallback
from toolcrib.errors import EmbeddingFailed
from toolcrib.search.dense.embedder import QueryReader, Vectors
from toolcrib.search.dense.index import Dense
from toolcrib.search.dense.projection import NUMBERS
from toolcrib.search.dense.vector_table import TURNED_FROM
from toolcrib.search.hybrid.fusion import Hybrid
from toolcrib.search.lexical.ranker import Lexical
from toolcrib.search.ranker import Ranker

OFFICE = Catalog([Tool("send_email", "Send an email."), Tool("get_weather", "Tell the weather.")])
LATER = OFFICE.with_tools([Tool("book_hotel", "Book a hotel.")])
CURE = "start anew with the new one, and clear what is cached"


class Wide:
    """Every text is like every other; how many numbers say so can be changed."""

    def __init__(self, width: int = 8) -> None:
        self.width = width

    def queries(self, texts: Sequence[str]) -> Vectors:
        return np.ones((len(texts), self.width), np.float32)

    def tools(self, texts: Sequence[str]) -> Vectors:
        return self.queries(texts)


class Twofold(Wide):
    """Sketches with fewer numbers than it reads with."""

    def at_once(self, texts: Sequence[str]) -> tuple[Vectors, NDArray[np.bool_]]:
        return np.ones((len(texts), 4), np.float32), np.zeros(len(texts), np.bool_)

    def queries(self, texts: Sequence[str]) -> Vectors:
        return np.ones((len(texts), 4), np.float32)

    def tools(self, texts: Sequence[str]) -> Vectors:
        return np.ones((len(texts), 8), np.float32)


class Narrowed(Wide):
    """Its queries are read along the axes of a large catalog."""

    def along(self, axes: Vectors) -> QueryReader:
        return lambda texts: np.ones((len(texts), axes.shape[1]), np.float32)


def _hybrid(embedder: Wide) -> Ranker:
    return Hybrid(Lexical(syntax="lenient"), Dense(embedder))


@pytest.mark.parametrize("width", [4, 16])
def test_a_model_that_was_changed_is_told_when_tools_come(width: int) -> None:
    embedder = Wide()
    engine = SearchEngine(OFFICE, {"hybrid": _hybrid(embedder)})
    engine.search("an email to somebody")
    embedder.width = width
    with pytest.raises(EmbeddingFailed, match=f"tools {width} numbers, where .* 8; .*{CURE}"):
        engine.updated(LATER)
    with pytest.raises(EmbeddingFailed, match=f"queries {width} numbers, where .* 8; .*{CURE}"):
        engine.search("an email to somebody else")


def test_a_model_that_was_changed_is_fallen_back_from() -> None:
    embedder = Wide()
    ranker = WithFallback(_hybrid(embedder), Lexical())
    engine = SearchEngine(OFFICE, {"hybrid": ranker})
    engine.search("an email to somebody")
    embedder.width = 16
    result = engine.updated(LATER).search("book me a hotel please")
    assert [hit.tool.name for hit in result] == ["book_hotel"]
    assert CURE in str(ranker.fault)


@pytest.mark.parametrize("make", [Dense, _hybrid])
def test_a_model_that_reads_wider_than_it_sketches_is_told(make: Callable[[Wide], Ranker]) -> None:
    ranker = WithFallback(make(Twofold()), Lexical())
    engine = SearchEngine(OFFICE, {"meaning": ranker})
    assert [hit.tool.name for hit in engine.search("email somebody")] == ["send_email"]
    assert "tools 8 numbers, where it gave tools 4" in str(ranker.fault)


def test_a_model_that_was_changed_is_told_where_fewer_numbers_are_kept() -> None:
    catalog = Catalog([Tool(f"tool_{number}") for number in range(TURNED_FROM)])
    embedder = Narrowed(2 * NUMBERS)
    index = Dense(embedder).fit(catalog)
    later = catalog.with_tools([Tool("one_more")])
    assert len(index.updated(later).rank("any").slots) == TURNED_FROM + 1
    embedder.width = NUMBERS
    with pytest.raises(EmbeddingFailed, match=f"tools {NUMBERS} numbers, where .* {2 * NUMBERS};"):
        index.updated(later)
