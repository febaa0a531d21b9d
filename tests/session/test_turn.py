from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.session.turn_handlers import (
    CITY,
    TOOLS,
    WORDS,
    budget_for,
    build_handler,
    found_names,
    list_names,
    search_call,
)
from toolcrib.core import prompts
from toolcrib.core.calls import PastCall, ToolCall
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import ToolNames
from toolcrib.search.engine import SearchEngine
from toolcrib.session.disclosure import Activation, Disclosure
from toolcrib.session.session import Session
from toolcrib.session.turn import MAX_LISTED_NAMES, MAX_QUERIES, MAX_SEARCHES, MAX_SUGGESTIONS, Style, TurnHandler


def test_search_appends_the_found_tools() -> None:
    handler = build_handler()
    begun = handler.start_session()
    assert list_names(handler, begun) == ["search_tools", "help"]
    turn = handler.handle_calls(begun, [search_call("weather forecast", limit=1)])
    assert found_names(turn.replies[0].text) == ["get_weather"]
    assert "call these tools now" in turn.replies[0].text
    assert len(turn.replies[0].text) < 400
    assert list_names(handler, turn.session) == ["search_tools", "help", "get_weather"]


def test_one_turn_may_have_several_searches_and_calls() -> None:
    handler = build_handler()
    both = ToolCall("1", "search_tools", {"queries": ["weather forecast", "refund charge"], "limit": 1})
    mail = ToolCall("2", "send_mail", {"to": "a"})
    again = search_call("send mail message", limit=1)
    turn = handler.handle_calls(handler.start_session(), [both, mail, again])
    assert found_names(turn.replies[0].text) == ["get_weather", "shop___refund"]
    assert [task.tool.name for task in turn.tasks] == ["send_mail"]
    assert list_names(handler, turn.session)[2:] == ["get_weather", "shop___refund", "send_mail"]
    assert turn.session.consecutive_searches == 0


def test_call_of_a_deferred_tool_works_and_reveals_it() -> None:
    handler = build_handler()
    turn = handler.handle_calls(handler.start_session(), [ToolCall("1", "get_weather", {"city": "Rome"})])
    assert (turn.tasks[0].tool.name, turn.tasks[0].arguments) == ("get_weather", {"city": "Rome"})
    assert "get_weather" in list_names(handler, turn.session)


def test_invalid_arguments_are_reported_by_field_and_reveal_the_tool() -> None:
    handler = build_handler()
    turn = handler.handle_calls(handler.start_session(), [ToolCall("1", "get_weather", {"town": "Rome"})])
    (answer,) = turn.replies
    assert answer.is_error and "`city` is missing; expected string" in answer.text
    assert not turn.tasks and "get_weather" in list_names(handler, turn.session)
    broken = handler.handle_calls(handler.start_session(), [ToolCall("1", "get_weather", None)])
    assert "not a JSON object" in broken.replies[0].text


def test_usable_parts_of_a_broken_schema_are_checked() -> None:
    schema = {"type": "nonsense", "properties": {"a": {"$ref": "#/nowhere"}, "b": {"type": "integer"}}}
    handler = build_handler(tools=(Tool("odd", "A tool with a broken schema.", schema),))
    (task,) = handler.handle_calls(handler.start_session(), [ToolCall("1", "odd", {"a": 1})]).tasks
    assert task.is_validated
    (answer,) = handler.handle_calls(handler.start_session(), [ToolCall("1", "odd", {"b": "x"})]).replies
    assert answer.is_error and "`b`" in answer.text


def test_arguments_that_are_too_costly_to_validate_are_refused() -> None:
    loop = {"$defs": {"x": {"allOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x"}]}}, "$ref": "#/$defs/x"}
    handler = build_handler(tools=(Tool("deep", "A tool with a recursive schema.", loop),))
    turn = handler.handle_calls(handler.start_session(), [ToolCall("1", "deep", {"a": 1})])
    assert not turn.tasks
    assert "The arguments of deep are invalid" in turn.replies[0].text and "steps" in turn.replies[0].text


def test_unknown_tool_lists_nearest_names() -> None:
    handler = build_handler()
    (answer,) = handler.handle_calls(handler.start_session(), [ToolCall("1", "fetch_weather", {})]).replies
    assert answer.is_error and "get_weather" in answer.text and "search_tools" in answer.text
    (blank,) = handler.handle_calls(handler.start_session(), [ToolCall("1", "()", {})]).replies
    assert "nearest" not in blank.text


def test_misspelt_name_lists_names_of_similar_spelling() -> None:
    others = [Tool(f"shop_{number}", "An ech of the shop.", server="a") for number in range(5)]
    tools = (*others, Tool("close", server="shop"), Tool("echo", server="shop"))
    call = ToolCall("1", "shop___ech", {})
    handler, guest = (build_handler(tools=tools), build_handler(allowed=lambda tool: tool.name != "echo", tools=tools))
    told, hidden = (one.handle_calls(one.start_session(), [call]).replies[0].text for one in (handler, guest))
    assert "The nearest are shop___echo, " in told
    assert told.count("shop___echo") == 1 and told.count(",") == MAX_SUGGESTIONS - 1
    assert "shop___echo" not in hidden
    (long,) = handler.handle_calls(handler.start_session(), [ToolCall("1", "x\n" * 999, {})]).replies
    assert len(long.text) < 300 and "\n" not in long.text


def test_no_search_tool_without_deferred_tools() -> None:
    catalog = Catalog(TOOLS[:2])
    handler = TurnHandler(SearchEngine(catalog, WORDS), Disclosure().plan(catalog), ToolNames(catalog))
    assert list_names(handler, handler.start_session()) == ["get_weather", "send_mail"]
    (answer,) = handler.handle_calls(handler.start_session(), [search_call("x")]).replies
    assert answer.text == 'There is no tool "search_tools".'


def test_search_without_a_good_match_returns_the_nearest_and_reveals_nothing() -> None:
    handler = build_handler()
    turn = handler.handle_calls(handler.start_session(), [search_call("zzzz qqqq")])
    assert json.loads(turn.replies[0].text)["message"].startswith("No tool was found")
    weak = handler.handle_calls(
        handler.start_session(), [search_call("quantum entanglement of a customer in space today")]
    )
    told = json.loads(weak.replies[0].text)
    assert told["found"] == [] and told["nearest"][0]["name"] == "shop___refund"
    assert weak.session.revealed == handler.start_session().revealed


def test_uncovered_segment_is_reported_with_the_found_tools() -> None:
    handler = build_handler()
    needs = {"queries": ["weather forecast", "zzqxzz " * 30]}
    turn = handler.handle_calls(handler.start_session(), [ToolCall("1", "search_tools", needs)])
    message = json.loads(turn.replies[0].text)["message"]
    assert message.startswith(prompts.TOOLS_LOADED)
    assert prompts.UNCOVERED_SEGMENTS.partition("{")[0] in message
    assert message.count("zzqxzz") < 20
    one = handler.handle_calls(handler.start_session(), [search_call("weather forecast")])
    assert "No tool was found" not in one.replies[0].text


def test_deferred_tools_can_be_stubs_or_names() -> None:
    catalog = Catalog(TOOLS)
    engine, names = SearchEngine(catalog, WORDS), ToolNames(catalog)
    stubs = Disclosure(Activation(tools=0), tier="stub").plan(catalog)
    handler = TurnHandler(engine, stubs, names, allowed=lambda tool: tool.name != "odd")
    begun = handler.start_session()
    listed = ["search_tools", "help", "get_weather", "send_mail", "shop___refund"]
    assert list_names(handler, begun) == listed
    assert handler.tools(begun)[2].input_schema == {"type": "object", "additionalProperties": True}
    assert "listed here without their parameters" in handler.search_tool.description
    after = handler.handle_calls(begun, [search_call("get_weather", limit=1)]).session
    assert list_names(handler, after) == ["search_tools", "help", "send_mail", "shop___refund", "get_weather"]
    assert handler.tools(after)[4] == catalog["get_weather"]
    later = handler.handle_calls(after, [search_call("shop___refund", limit=1)]).session
    assert list_names(handler, later)[-2:] == ["get_weather", "shop___refund"]
    dispatching = replace(handler, style="dispatch")
    started = dispatching.start_session()
    searched = dispatching.handle_calls(started, [search_call("get_weather", limit=1)]).session
    assert dispatching.tools(searched) == dispatching.tools(started)
    assert "by their names or through execute_dynamic_tool" in dispatching.search_tool.description
    by_name = Disclosure(Activation(tools=0), tier="name").plan(catalog)
    handler = TurnHandler(engine, by_name, names, allowed=lambda tool: tool.name != "odd")
    assert handler.search_tool.description.endswith("They are get_weather, send_mail, shop___refund.")
    assert "…" in _many_names().search_tool.description


def _many_names() -> TurnHandler:
    catalog = Catalog(Tool(f"t{number}") for number in range(MAX_LISTED_NAMES + 1))
    plan = Disclosure(tier="name").plan(catalog)
    return TurnHandler(SearchEngine(catalog, WORDS), plan, ToolNames(catalog))


def test_search_arguments_are_parsed_leniently() -> None:
    handler = build_handler()
    for call in (
        ToolCall("1", "search_tools", {"query": "weather AND"}),
        ToolCall("1", "search_tools", {"query": 'weather" AND ('}),
        ToolCall("1", "search_tools", {"queries": "weather forecast"}),
        ToolCall("", "", {"query": "weather", "limit": float("nan")}, is_search=True),
        search_call("weather", limit=10**9),
        search_call("weather " * 2_000, limit=True),
    ):
        (answer,) = handler.handle_calls(handler.start_session(), [call]).replies
        assert "get_weather" in found_names(answer.text), call
    for arguments in (None, {}, {"query": 7}, {"query": "  "}):
        (answer,) = handler.handle_calls(handler.start_session(), [ToolCall("1", "search_tools", arguments)]).replies
        assert answer.is_error and "`query`" in answer.text
    many = ToolCall("1", "search_tools", {"queries": [f"weather {n}" for n in range(MAX_QUERIES + 1)]})
    assert f"at most {MAX_QUERIES}" in handler.handle_calls(handler.start_session(), [many]).replies[0].text


def test_consecutive_searches_are_limited() -> None:
    handler = build_handler()
    session = handler.start_session()
    for _ in range(MAX_SEARCHES):
        session = handler.handle_calls(session, [search_call("weather")]).session
    stopped = handler.handle_calls(session, [search_call("weather")])
    assert stopped.replies[0].is_error and "in a row" in stopped.replies[0].text
    rested = handler.handle_calls(stopped.session, [])
    assert not handler.handle_calls(rested.session, [search_call("weather")]).replies[0].is_error


def test_weak_and_distant_hits_are_named_and_not_loaded() -> None:
    tools = (
        Tool("weather_forecast", "Weather forecast for a city."),
        *(
            Tool(f"thing_{number}", "A thing of the city with many other long words in its text.")
            for number in range(2)
        ),
        Tool("unrelated", "Nothing."),
    )
    handler = build_handler(tools=tools)
    turn = handler.handle_calls(handler.start_session(), [search_call("weather forecast city")])
    answer = json.loads(turn.replies[0].text)
    assert [one["name"] for one in answer["found"]] == ["weather_forecast"]
    assert [one["name"] for one in answer["nearest"]] == ["thing_0", "thing_1"]
    assert prompts.SEARCH_NEAREST in answer["message"]
    assert list_names(handler, turn.session) == ["search_tools", "weather_forecast"]
    exact = handler.handle_calls(turn.session, [search_call("thing_1")])
    assert found_names(exact.replies[0].text) == ["thing_1"]


def test_disallowed_tools_do_not_exist_for_the_caller() -> None:
    for allowed in ({"send_mail", "help"}, ["send_mail", "help"], lambda tool: tool.id in ("send_mail", "help")):
        handler = build_handler(allowed=allowed)
        turn = handler.handle_calls(
            handler.start_session(), [search_call("weather city"), ToolCall("2", "get_weather", {"city": "x"})]
        )
        assert not turn.tasks and turn.replies[1].is_error
        told = turn.replies[0].text + turn.replies[1].text.replace('"get_weather"', "")
        assert "get_weather" not in told and "refund" not in told
    assert list_names(build_handler(allowed="help"), build_handler(allowed="help").start_session()) == [
        "search_tools",
        "help",
    ]


def test_dispatch_keeps_the_list_and_calls_through_one_tool() -> None:
    handler = build_handler("dispatch")
    begun = handler.start_session()
    names = ["search_tools", "execute_dynamic_tool", "help"]
    assert list_names(handler, begun) == names
    turn = handler.handle_calls(begun, [search_call("weather forecast", limit=1)])
    (found,) = json.loads(turn.replies[0].text)["found"]
    assert found["input_schema"] == CITY and "execute_dynamic_tool" in turn.replies[0].text
    execute = ToolCall("2", "execute_dynamic_tool", {"tool_name": "get_weather", "tool_input": {"city": "R"}})
    ran = handler.handle_calls(turn.session, [execute])
    assert (ran.tasks[0].tool.name, ran.tasks[0].arguments) == ("get_weather", {"city": "R"})
    assert ran.tasks[0].call is execute
    assert list_names(handler, ran.session) == names
    wrong = handler.handle_calls(ran.session, [ToolCall("3", "execute_dynamic_tool", {"tool_name": "get_weather"})])
    assert "`tool_input` is missing" in wrong.replies[0].text
    broken = handler.handle_calls(ran.session, [ToolCall("3", "execute_dynamic_tool", None)])
    assert "not a JSON object" in broken.replies[0].text
    assert handler.handle_calls(begun, [ToolCall("4", "send_mail", {})]).session.revealed == begun.revealed


def test_search_tool_avoids_names_of_catalog_tools() -> None:
    own = (*TOOLS, Tool("search_tools", "Search a tool shed."), Tool("_search_tools"))
    handler = build_handler("dispatch", tools=own)
    assert [tool.name for tool in handler.own_tools] == ["__search_tools", "execute_dynamic_tool"]
    assert "__search_tools" in handler.execute_tool.description


@pytest.mark.parametrize("style", ["reveal", "dispatch"])
def test_replayed_history_gives_the_same_session(style: Style) -> None:
    handler = build_handler(style)
    calls: list[list[ToolCall]] = [
        [search_call("weather forecast", limit=1), ToolCall("2", "send_mail", {})],
        [ToolCall("3", "nowhere", {})],
        [search_call("refund charge", limit=1)],
    ]
    live = handler.start_session()
    turns: list[list[PastCall]] = []
    for made in calls:
        turn = handler.handle_calls(live, made)
        live = turn.session
        texts = {answer.call.id: answer.text for answer in turn.replies}
        turns.append([PastCall(call, texts.get(call.id, "ran")) for call in made])
    replayed = Session.from_history(
        handler.actions_from_history(turns), handler.find_tool, start=handler.start_session()
    )
    assert replayed == live


@pytest.mark.parametrize("text", ["", "{", "[]", '{"found":7}', '{"found":[{"id":1}]}', "[" * 9_999])
def test_truncated_search_reply_reveals_nothing(text: str) -> None:
    handler = build_handler()
    turns = [[PastCall(search_call("weather"), text)]]
    session = Session.from_history(
        handler.actions_from_history(turns), handler.find_tool, start=handler.start_session()
    )
    assert session.revealed == handler.start_session().revealed


def test_names_in_a_provider_format_are_revealed() -> None:
    handler = build_handler()
    turns: Any = [[PastCall(search_call("weather"), "", ("get_weather", "nowhere"))]]
    session = Session.from_history(
        handler.actions_from_history(turns), handler.find_tool, start=handler.start_session()
    )
    assert [one.id for one in session.revealed] == ["help", "get_weather"]


def test_resumed_session_drops_stale_and_adds_pinned_tools() -> None:
    before = build_handler()
    found = before.handle_calls(
        before.start_session(), [search_call("weather forecast"), search_call("send mail")]
    ).session
    assert list_names(before, found) == ["search_tools", "help", "get_weather", "send_mail"]
    pinned = TOOLS[2].replace(policy="never")
    later = build_handler(tools=(*TOOLS[1:2], pinned, TOOLS[3]))
    assert list_names(later, later.resume_session(found)) == ["search_tools", "help", "send_mail", "shop___refund"]
    denied = build_handler(allowed={"send_mail"})
    assert list_names(denied, denied.resume_session(found)) == ["search_tools", "send_mail"]


def test_history_alone_restores_the_session() -> None:
    handler = build_handler()
    call = search_call("weather forecast", limit=1)
    budget = budget_for(handler, "get_weather")
    turn = handler.handle_calls(handler.start_session(budget), [call])
    assert [tool.id for tool in turn.replies[0].found_tools] == ["get_weather"]
    told = handler.replay_history([[PastCall(call, turn.replies[0].text)]], budget)
    assert told == replace(turn.session, evicted=told.evicted)
    assert handler.replay_history([]) == handler.start_session()


def test_search_tool_can_have_another_name() -> None:
    handler = replace(build_handler(), search_name="find")
    assert list_names(handler, handler.start_session()) == ["find", "help"]
    assert (
        handler.handle_calls(handler.start_session(), [ToolCall("1", "find", {"query": "weather"})])
        .replies[0]
        .found_tools
    )
    assert (
        "Use find to find tools." in handler.handle_calls(handler.start_session(), [search_call("x")]).replies[0].text
    )


def test_argument_validation_can_be_disabled() -> None:
    handler = replace(build_handler(), validates_arguments=False)
    turn = handler.handle_calls(handler.start_session(), [ToolCall("1", "get_weather", {"town": "Rome"})])
    assert (turn.replies, turn.tasks[0].arguments) == ((), {"town": "Rome"})


HARBOUR = (
    Tool("read_tide", "Tell when the water is high", CITY),
    Tool("water_plants", "Water the plants in the garden", CITY),
    Tool("ring_bell", "Ring a bell"),
)


@pytest.mark.parametrize("style", ["reveal", "dispatch"])
def test_weak_hits_are_named_and_not_loaded(style: Style) -> None:
    handler = replace(build_handler(style, tools=HARBOUR), min_score_share=0.8)
    turn = handler.handle_calls(handler.start_session(), [search_call("when is the water high")])
    answer = json.loads(turn.replies[0].text)
    assert [tool["name"] for tool in answer["found"]] == ["read_tide"]
    assert answer["nearest"] == [{"name": "water_plants", "description": "Water the plants in the garden"}]
    assert prompts.SEARCH_NEAREST in answer["message"]
    assert [tool.name for tool in turn.replies[0].found_tools] == ["read_tide"]


def test_nearest_tools_are_named_if_none_fits() -> None:
    handler = replace(build_handler("dispatch", tools=HARBOUR), min_score_share=0.8)
    (reply,) = handler.handle_calls(
        handler.start_session(), [search_call("water a submarine in the parliament")]
    ).replies
    answer = json.loads(reply.text)
    assert answer["found"] == [] and "input_schema" not in answer["nearest"][0]
    assert answer["message"] == f"{prompts.NONE_FITS} {prompts.SEARCH_NEAREST}"


def test_definitions_in_the_history_are_not_repeated() -> None:
    handler = replace(
        build_handler("dispatch", tools=HARBOUR), defined_ids=frozenset({"read_tide"}), execute_name="call"
    )
    (reply,) = handler.handle_calls(handler.start_session(), [search_call("read_tide")]).replies
    answer = json.loads(reply.text)
    assert answer["found"] == [{"name": "read_tide", "description": "Tell when the water is high"}]
    assert answer["message"] == "Call these tools through call. An earlier result has the parameters of read_tide."
