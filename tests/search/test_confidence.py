"""Test that only the returned hits make a result confident."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.search.dense.embedder import Vectors
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.hybrid.ranker import HybridRanker
from toolcrib.search.lexical.ranker import LexicalRanker

ROWS = "invoice payment rows"


class OtherEmbedder:
    """Makes every query similar to the tool `other` only."""

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return np.array([[1, 0, 0]] * len(texts), np.float32)

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        return np.array([_vector(text) for text in texts], np.float32)


def _vector(text: str) -> list[float]:
    if "other" in text.lower():
        return [0.9, 0.43, 0]
    return [0, 0, 1] if "filler" in text.lower() else [0.05, 1, 0]


@pytest.fixture(scope="module")
def engine() -> SearchEngine:
    """Return an engine in which five lexical matches rank before the one that fits."""
    lexical_matches = [Tool(f"invoice_payment_rows_{letter}", "Invoice payment rows.") for letter in "abcde"]
    filler = [Tool(f"filler{at}", "Filler.") for at in range(100)]
    catalog = Catalog([*lexical_matches, Tool("other", "Something else."), *filler])
    return SearchEngine(
        catalog, {"hybrid": HybridRanker(LexicalRanker(syntax="lenient"), DenseRanker(OtherEmbedder()))}
    )


@pytest.mark.parametrize(
    ("limit", "offset", "confident"),
    [(1, 0, False), (5, 0, False), (6, 0, True), (1, 4, False), (1, 5, True), (5, 6, False)],
)
@pytest.mark.parametrize("query", [ROWS, [ROWS], [ROWS, "payment rows invoice"]])
def test_only_hits_on_the_page_make_a_result_confident(
    engine: SearchEngine, query: str | list[str], limit: int, offset: int, confident: bool
) -> None:
    result = engine.search(query, limit=limit, offset=offset)
    assert ("other" in [hit.tool.name for hit in result]) == confident
    assert result.confident == confident


def test_empty_page_is_not_confident(engine: SearchEngine) -> None:
    for query in (ROWS, [ROWS, "other"], "other"):
        page = engine.search(query, limit=5, offset=1_000)
        assert (page.hits, page.confidence, page.confident) == ((), 0.0, False)


def test_only_hits_on_the_page_count_for_several_queries(engine: SearchEngine) -> None:
    # The hit that fits is the sixth of one query, but the other query takes three of six places.
    result = engine.search([ROWS, "filler"], limit=6)
    assert [part.confident for part in result.parts] == [True, False]
    assert "other" not in [hit.tool.name for hit in result]
    assert not result.confident


def test_named_tool_makes_its_page_confident(engine: SearchEngine) -> None:
    query = "invoice payment rows c"
    first, second = (engine.search(query, limit=1, offset=at) for at in (0, 1))
    assert [hit.tool.name for hit in (*first, *second)] == ["invoice_payment_rows_c", "invoice_payment_rows_a"]
    assert (first.confident, second.confident) == (True, False)
