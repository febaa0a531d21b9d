from __future__ import annotations

import pytest

from tests.search.topic_embedder import TopicEmbedder
from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.search.dense.index import DenseRanker

OTHERS = [Tool("make_chart", "Draw a chart"), Tool("list_files", "List the files of a folder")]
PLAIN = Tool("settle", "Settle what a customer is owed")
ENRICHED = PLAIN.replace(examples=["give back the money for a broken lamp", {"amount": 3}, "", 5])


def _first(tool: Tool, query: str, mode: str) -> str:
    result = SearchEngine(Catalog([*OTHERS, tool])).search(query, mode=mode)
    return result.hits[0].tool.name if result.hits else ""


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
def test_words_of_an_example_request_find_the_tool(mode: str) -> None:
    assert _first(ENRICHED, "broken lamp", mode) == "settle"


def test_example_request_is_part_of_the_vector() -> None:
    rankers = {"dense": DenseRanker(TopicEmbedder())}
    catalog = Catalog([Tool("forecast", "The weather"), PLAIN])
    engine = SearchEngine(catalog, rankers)
    assert [hit.tool.name for hit in engine.search("refund")] == []
    later = engine.with_catalog(catalog.with_tools([ENRICHED]))
    fresh = SearchEngine(later.catalog, rankers)
    for one in (later, fresh):
        assert [hit.tool.name for hit in one.search("refund")] == ["settle"]


def test_only_texts_are_example_requests() -> None:
    assert ENRICHED.example_requests == ("give back the money for a broken lamp",)
    assert PLAIN.example_requests == ()


def test_definition_fingerprint_ignores_what_is_added_to_a_definition() -> None:
    changed = ENRICHED.replace(id="other", hint="for shops", tags=["shop"], policy="always")
    assert changed.definition_fingerprint == PLAIN.definition_fingerprint
    assert PLAIN.replace(description="Settle a debt").definition_fingerprint != PLAIN.definition_fingerprint
    assert PLAIN.replace(server="shop").definition_fingerprint != PLAIN.definition_fingerprint


def test_long_description_does_not_displace_the_hint() -> None:
    tool = Tool("settle", "word " * 60, hint="for money")
    engine = SearchEngine(Catalog([tool]), {"dense": DenseRanker(TopicEmbedder())})
    assert [hit.tool.name for hit in engine.search("refund")] == ["settle"]
