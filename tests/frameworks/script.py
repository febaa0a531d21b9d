"""The scripted model of the framework tests, and checks of the requests it received."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.support.scripted_model.server import Request
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib.core import prompts
from toolcrib.core.catalog import Catalog
from toolcrib.search.engine import SearchEngine
from toolcrib.search.lexical.ranker import LexicalRanker

SEARCH = "search_tools"


def build_lexical_engine(catalog: Catalog) -> SearchEngine:
    """Return a lexical engine, which is fast to build; the tests do not depend on the ranking."""
    return SearchEngine(catalog, {"lexical": LexicalRanker()})


def search_call(query: str, **options: Any) -> ToolCall:
    """Return a call of the search tool."""
    return ToolCall(SEARCH, {"query": query, **options})


def weather_call(city: str) -> ToolCall:
    """Return a call of the weather tool."""
    return ToolCall("get_weather", {"city": city})


REFUND = ToolCall("refund_charge", {"charge": "c1", "cents": 5})

# A search, then calls of a found, an unrevealed and an unknown tool, and one with bad arguments.
TURNS = (
    Turn(search_call("weather forecast", limit=1)),
    Turn(weather_call("Rome"), REFUND, ToolCall("get_wether", {}), ToolCall("get_weather", {})),
    Turn("It is sunny."),
)


# A tool is found, then an unrevealed one is called. The budget holds the search tool and one of them.
SMALL_BUDGET = 225
TIGHT_TURNS = (Turn(search_call("weather forecast", limit=1)), Turn(REFUND), Turn("Done."))


def found_names(request: Request) -> list[str]:
    """Return the names of the tools that the last turn's searches found."""
    results = [json.loads(result) for result in request.results]
    return [item["name"] for result in results for item in result["found"]]


def assert_conversation(requests: Sequence[Request], field_error: str = "`city` is missing") -> None:
    """Check the requests after `TURNS`: the tool list grew at its end, every call was answered."""
    assert [request.tool_names for request in requests[:3]] == [
        (SEARCH,),
        (SEARCH, "get_weather"),
        (SEARCH, "get_weather", "refund_charge"),
    ]
    assert found_names(requests[1]) == ["get_weather"]
    results = requests[2].results
    assert len(results) == 4
    for answer in (
        "sunny in Rome",
        "5 cents of c1 refunded",
        'There is no tool "get_wether". The nearest are get_weather',
        field_error,
    ):
        assert sum(answer in result for result in results) == 1, (answer, results)


def assert_eviction_is_noted(requests: Sequence[Request]) -> None:
    """Check the requests after `TIGHT_TURNS`: one tool was evicted, and a note names it."""
    assert requests[1].tool_names == (SEARCH, "get_weather")
    assert requests[2].tool_names == (SEARCH, "refund_charge")
    [result] = requests[2].results
    assert "5 cents of c1 refunded" in result
    assert result.count(prompts.EVICTED_TOOLS.format(names="get_weather")) == 1, result
