"""Test that only the returned hits make a result confident."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.cli.catalog.search import load_demo_catalog
from toolcrib.search.dense.embedder import Vectors
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.hybrid.fusion import FusionWeights
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
    lexical, dense = LexicalRanker(syntax="lenient"), DenseRanker(OtherEmbedder())
    return SearchEngine(catalog, {"hybrid": HybridRanker(lexical, dense, FusionWeights(lexical_base=0.0))})


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


DEMO = load_demo_catalog()


def test_request_that_no_demo_tool_serves_is_not_confident() -> None:
    engine = SearchEngine(DEMO)
    assert not engine.search("play the trombone").confident
    assert not engine.search("paint the fence").confident


@pytest.mark.parametrize("query", ["🎺", "😀😀", "x", "?", "é", "🚀 🚀"])
@pytest.mark.parametrize("mode", ["hybrid", "fast"])
def test_emoji_or_single_letter_is_not_confident(query: str, mode: str) -> None:
    assert not SearchEngine(DEMO).search(query, mode=mode).confident


def test_few_demo_requests_are_refused_wrongly_and_most_rightly() -> None:
    rows = (Path(__file__).parents[2] / "benchmarks" / "demo_requests" / "queries.jsonl").read_text(encoding="utf-8")
    engine = SearchEngine(DEMO)
    refused: dict[str, int] = {"answerable": 0, "impossible": 0}
    for row in map(json.loads, rows.splitlines()):
        refused[row["kind"]] += not engine.search(row["query"]).confident
    assert refused["answerable"] == 0
    assert refused["impossible"] >= 21


def test_only_tools_of_the_named_service_keep_their_confidence() -> None:
    post = "Post a message to a channel."
    tools = {
        "named": Tool("post_message", post, server="discord"),
        "compound": Tool("discordPostMessage", post),
        "prefix": Tool("post_message", post, server="discordlabs-mcp"),
        "described": Tool("post_message", f"{post} Unlike Discord, channels are private."),
        "parameter": Tool("post_message", post, {"properties": {"to": {"description": "Not for Discord"}}}),
        "missing": Tool("post_message", post),
    }
    query = "please post a message to our channel on Discord"
    confidence = {case: SearchEngine(Catalog([tool])).search(query).confidence for case, tool in tools.items()}
    assert min(confidence["named"], confidence["compound"], confidence["prefix"]) > confidence["described"]
    assert confidence["described"] > max(confidence["parameter"], confidence["missing"])


def test_service_may_be_known_by_another_name() -> None:
    bucket = "Create a bucket for files."
    aws, other = (SearchEngine(Catalog([Tool("create_bucket", bucket, server=server)])) for server in ("aws", "gcs"))
    query = "set up a new bucket on Amazon for our files"
    assert aws.search(query).confidence > other.search(query).confidence


def test_parts_of_a_compound_name_are_not_the_service() -> None:
    click = SearchEngine(Catalog([Tool("add_task", "Add a task to a list. Click to look it up.")]))
    known = SearchEngine(Catalog([Tool("add_task", "Add a task to a ClickUp list.")]))
    query = "please add a task to the ClickUp list of our team"
    assert click.search(query).confidence < known.search(query).confidence
