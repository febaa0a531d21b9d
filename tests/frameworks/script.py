"""What a model does in every framework's tests, and what it then has to have been sent."""

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


def words(catalog: Catalog) -> SearchEngine:
    """An engine that is made at once. What is said of a framework holds whatever ranks."""
    return SearchEngine(catalog, {"lexical": LexicalRanker()})


def search(query: str, **options: Any) -> ToolCall:
    """A call of the search tool."""
    return ToolCall(SEARCH, {"query": query, **options})


def weather(city: str) -> ToolCall:
    """A call that a tool answers."""
    return ToolCall("get_weather", {"city": city})


REFUND = ToolCall("refund_charge", {"charge": "c1", "cents": 5})

# A search; then a found tool, one that was not shown, one that does not exist, and bad arguments.
TURNS = (
    Turn(search("weather forecast", limit=1)),
    Turn(weather("Rome"), REFUND, ToolCall("get_wether", {}), ToolCall("get_weather", {})),
    Turn("It is sunny."),
)


# A tool is found; then another is called that was not shown, and within a budget the first has to go.
SMALL_BUDGET = 60
TIGHT_TURNS = (Turn(search("weather forecast", limit=1)), Turn(REFUND), Turn("Done."))


def found(request: Request) -> list[str]:
    """The tools that the searches of the last turn have found."""
    results = [json.loads(result) for result in request.results]
    return [one["name"] for result in results for one in result["found"]]


def assert_as_told(requests: Sequence[Request], says_field: str = "`city` is missing") -> None:
    """What `TURNS` led to: the list grew at its end, and every call got the right answer."""
    assert [request.tool_names for request in requests[:3]] == [
        (SEARCH,),
        (SEARCH, "get_weather"),
        (SEARCH, "get_weather", "refund_charge"),
    ]
    assert found(requests[1]) == ["get_weather"]
    results = requests[2].results
    assert len(results) == 4
    for answer in (
        "sunny in Rome",
        "5 cents of c1 refunded",
        'There is no tool "get_wether". The nearest are get_weather',
        says_field,
    ):
        assert sum(answer in result for result in results) == 1, (answer, results)


def assert_told_what_was_put_away(requests: Sequence[Request]) -> None:
    """What `TIGHT_TURNS` led to: one tool made room for the other, and the model knows."""
    assert requests[1].tool_names == (SEARCH, "get_weather")
    assert requests[2].tool_names == (SEARCH, "refund_charge")
    [result] = requests[2].results
    assert "5 cents of c1 refunded" in result
    assert result.count(prompts.EVICTED_TOOLS.format(names="get_weather")) == 1, result
