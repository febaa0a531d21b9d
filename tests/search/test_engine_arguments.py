"""Arguments that a new user passes by mistake, and one engine in several threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from toolcrib import Catalog, SearchEngine, SearchResult, Tool
from toolcrib.errors import InvalidConfig, InvalidLimit, InvalidQuery, InvalidSchema, InvalidTool
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.query.parser import Syntax
from toolcrib.search.ranker import Index

TOOLS = [Tool("send_email", "Send an email."), Tool("get_weather", "Tell the weather.")]
RANKERS = {"lexical": LexicalRanker()}
BROKEN_SCHEMAS = [
    {"properties": {"a": {"type": "strng"}}},
    {"properties": {"a": {"$ref": "#/$defs/missing"}}},
    {"properties": {"a": {"$ref": "https://example.com/schema.json"}}},
]


@pytest.fixture
def engine() -> SearchEngine:
    return SearchEngine(TOOLS, RANKERS)


@pytest.mark.parametrize("schema", BROKEN_SCHEMAS)
def test_broken_schema_is_an_error_that_names_the_entry(engine: SearchEngine, schema: dict[str, Any]) -> None:
    tools = [TOOLS[0], Tool("pay", "Pay a bill.", schema)]
    for source in (tools, [tools[0], tools[1].to_dict()]):
        with pytest.raises(InvalidSchema, match=r"^entry 2: tool 'pay': .*correct the schema, or leave the tool out"):
            SearchEngine(source, RANKERS)
        with pytest.raises(InvalidSchema, match=r"^entry 2: tool 'pay'"):
            engine.with_catalog(source)


def test_bytes_are_one_entry() -> None:
    with pytest.raises(InvalidTool, match="entry 1: a tool is an object, not a Python bytes"):
        SearchEngine(b"[]")


@pytest.mark.parametrize("rankers", [["lexical"], {"lexical": 1}, {"lexical": None}, "lexical"])
def test_rankers_are_given_by_mode(rankers: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"such as \{'lexical': LexicalRanker"):
        SearchEngine(TOOLS, rankers)


@pytest.mark.parametrize("ids", [TOOLS, set(TOOLS), Catalog(TOOLS), [None], b"send_email", {1: "send_email"}])
def test_allowed_ids_that_are_not_text_are_rejected(engine: SearchEngine, ids: Any) -> None:
    with pytest.raises(InvalidQuery, match=r"`allowed` has a (Tool|NoneType|int).*; write"):
        engine.search("email", allowed=ids)


@pytest.mark.parametrize("result", [None, "email", []])
def test_result_of_another_type_is_rejected(engine: SearchEngine, result: Any) -> None:
    for method in (engine.with_reasons, engine.group_hits):
        with pytest.raises(InvalidConfig, match="pass a result of `search`, not"):
            method(result)


def test_result_of_another_engine_is_rejected(engine: SearchEngine) -> None:
    result = engine.search("weather")
    changed = engine.with_catalog(engine.catalog.with_tools([Tool("get_weather", "Tell the climate.")]))
    for other in (SearchEngine([Tool("pay")], RANKERS), changed, SearchEngine(TOOLS, {"words": LexicalRanker()})):
        for method in (other.with_reasons, other.group_hits):
            with pytest.raises(InvalidConfig, match="of another engine or an earlier catalog"):
                method(result)
    unchanged = engine.with_catalog(engine.catalog.with_tools([Tool("pay")]))
    assert unchanged.with_reasons(result).hits[0].reasons


@pytest.mark.parametrize("threshold", [None, "0.5", -0.1, 1.1, float("nan"), True])
def test_threshold_is_a_number_from_0_to_1(engine: SearchEngine, threshold: Any) -> None:
    with pytest.raises(InvalidConfig, match="a confidence threshold is a number from 0 to 1, not"):
        engine.search("email").with_threshold(threshold)


@pytest.mark.parametrize("count", [-1, None, 1.5, "10", True])
def test_number_of_tools_to_warm_up_is_validated(engine: SearchEngine, count: Any) -> None:
    with pytest.raises(InvalidLimit, match="max_tools must be a whole number from 0"):
        engine.warm_up(max_tools=count)


def test_repr_has_the_number_of_tools_and_the_modes(engine: SearchEngine) -> None:
    assert repr(engine) == "SearchEngine(2 tools, modes: lexical)"


class _CountingRanker:
    """Counts how often an index is fitted, while all threads search."""

    syntax: Syntax = "words"

    def __init__(self, threads: int) -> None:
        self.fit_count = 0
        self.is_searching = Barrier(threads)

    def fit(self, catalog: Catalog) -> Index:
        self.fit_count += 1
        return LexicalRanker().fit(catalog)


def test_threads_that_search_at_the_same_time_fit_one_index() -> None:
    tools = [Tool(f"report_{number}", f"Print report {number} of a year.") for number in range(3_000)]
    ranker = _CountingRanker(8)
    engine = SearchEngine(Catalog(tools), {"lexical": ranker})

    def search(query: str) -> SearchResult:
        ranker.is_searching.wait()
        return engine.search(query)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(search, ["print a report"] * 8))
    assert ranker.fit_count == 1
    assert results == [results[0]] * 8
