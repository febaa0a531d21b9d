from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from toolcrib.core import prompts
from toolcrib.core.calls import PastCall, ToolCall
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import ToolNames
from toolcrib.search.engine import AllowedTools, SearchEngine
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.session.disclosure import Activation, Disclosure
from toolcrib.session.session import Session
from toolcrib.session.turn import (
    MAX_LISTED_NAMES,
    MAX_QUERIES,
    MAX_SEARCHES,
    MAX_SUGGESTIONS,
    Style,
    TurnHandler,
)

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = (
    Tool("get_weather", "Weather forecast for a city. " + "Rain and sun. " * 30, CITY),
    Tool("send_mail", "Send an e-mail message.", {"properties": {"to": {"type": "string"}}}),
    Tool("refund", "Refund a charge to a customer.", server="shop"),
    Tool("help", "Say what to do.", policy="never"),
    Tool("odd", "A tool with a schema nobody can use.", {"type": "nonsense"}),
)


# What is said of a conversation holds whatever ranks.
WORDS = {"lexical": LexicalRanker()}


def _talk(
    style: Style = "reveal", allowed: AllowedTools | None = None, tools: tuple[Tool, ...] = TOOLS
) -> TurnHandler:
    catalog = Catalog(tools)
    plan = Disclosure(Activation(tools=0)).plan(catalog)
    return TurnHandler(SearchEngine(catalog, WORDS), plan, ToolNames(catalog), style, allowed)


def _search(query: object, **more: object) -> ToolCall:
    return ToolCall("1", "search_tools", {"query": query, **more})


def _names(talk: TurnHandler, session: Session) -> list[str]:
    return [tool.id for tool in talk.tools(session)]


def _found(text: str) -> list[str]:
    return [one["name"] for one in json.loads(text)["found"]]


def test_a_search_reveals_what_it_finds_behind_what_is_there() -> None:
    talk = _talk()
    begun = talk.start_session()
    assert _names(talk, begun) == ["search_tools", "help"]
    turn = talk.handle_calls(begun, [_search("weather forecast", limit=1)])
    assert _found(turn.answers[0].text) == ["get_weather"]
    assert "call these tools now" in turn.answers[0].text
    assert len(turn.answers[0].text) < 400
    assert _names(talk, turn.session) == ["search_tools", "help", "get_weather"]


def test_several_needs_and_several_searches_and_calls_fit_into_one_turn() -> None:
    talk = _talk()
    both = ToolCall(
        "1", "search_tools", {"queries": ["weather forecast", "refund charge"], "limit": 1}
    )
    mail = ToolCall("2", "send_mail", {"to": "a"})
    again = _search("send mail message", limit=1)
    turn = talk.handle_calls(talk.start_session(), [both, mail, again])
    assert _found(turn.answers[0].text) == ["get_weather", "shop___refund"]
    assert [task.tool.name for task in turn.tasks] == ["send_mail"]
    assert _names(talk, turn.session)[2:] == ["get_weather", "shop___refund", "send_mail"]
    assert turn.session.consecutive_searches == 0


def test_a_call_to_a_hidden_tool_works_and_reveals_it() -> None:
    talk = _talk()
    turn = talk.handle_calls(talk.start_session(), [ToolCall("1", "get_weather", {"city": "Rome"})])
    assert (turn.tasks[0].tool.name, turn.tasks[0].arguments) == ("get_weather", {"city": "Rome"})
    assert "get_weather" in _names(talk, turn.session)


def test_wrong_arguments_are_told_by_field_and_the_tool_is_shown() -> None:
    talk = _talk()
    turn = talk.handle_calls(talk.start_session(), [ToolCall("1", "get_weather", {"town": "Rome"})])
    (answer,) = turn.answers
    assert answer.is_error and "`city` is missing; expected string" in answer.text
    assert not turn.tasks and "get_weather" in _names(talk, turn.session)
    broken = talk.handle_calls(talk.start_session(), [ToolCall("1", "get_weather", None)])
    assert "not a JSON object" in broken.answers[0].text


def test_a_schema_nobody_can_use_does_not_stand_in_the_way() -> None:
    talk = _talk()
    assert talk.handle_calls(talk.start_session(), [ToolCall("1", "odd", {"a": 1})]).tasks


def test_an_unknown_tool_is_answered_with_the_nearest_names() -> None:
    talk = _talk()
    (answer,) = talk.handle_calls(
        talk.start_session(), [ToolCall("1", "fetch_weather", {})]
    ).answers
    assert answer.is_error and "get_weather" in answer.text and "search_tools" in answer.text
    (blank,) = talk.handle_calls(talk.start_session(), [ToolCall("1", "()", {})]).answers
    assert "nearest" not in blank.text


def test_the_nearest_to_a_misspelt_name_are_those_spelled_alike() -> None:
    others = [Tool(f"shop_{number}", "An ech of the shop.", server="a") for number in range(5)]
    tools = (*others, Tool("close", server="shop"), Tool("echo", server="shop"))
    call = ToolCall("1", "shop___ech", {})
    talk, guest = _talk(tools=tools), _talk(allowed=lambda tool: tool.name != "echo", tools=tools)
    told, hidden = (
        one.handle_calls(one.start_session(), [call]).answers[0].text for one in (talk, guest)
    )
    assert "The nearest are shop___echo, " in told
    assert told.count("shop___echo") == 1 and told.count(",") == MAX_SUGGESTIONS - 1
    assert "shop___echo" not in hidden
    (long,) = talk.handle_calls(talk.start_session(), [ToolCall("1", "x\n" * 999, {})]).answers
    assert len(long.text) < 300 and "\n" not in long.text


def test_without_anything_held_back_there_is_no_search_tool() -> None:
    catalog = Catalog(TOOLS[:2])
    talk = TurnHandler(SearchEngine(catalog, WORDS), Disclosure().plan(catalog), ToolNames(catalog))
    assert _names(talk, talk.start_session()) == ["get_weather", "send_mail"]
    (answer,) = talk.handle_calls(talk.start_session(), [_search("x")]).answers
    assert answer.text == 'There is no tool "search_tools".'


def test_nothing_that_fits_is_a_result_with_the_nearest_and_reveals_nothing() -> None:
    talk = _talk()
    turn = talk.handle_calls(talk.start_session(), [_search("zzzz qqqq")])
    assert json.loads(turn.answers[0].text)["message"].startswith("No tool was found")
    weak = talk.handle_calls(
        talk.start_session(), [_search("quantum entanglement of a customer in space today")]
    )
    told = json.loads(weak.answers[0].text)
    assert told["found"] == [] and told["nearest"][0]["name"] == "shop___refund"
    assert weak.session.revealed == talk.start_session().revealed


def test_a_need_that_nothing_serves_is_told_beside_what_was_found() -> None:
    talk = _talk()
    needs = {"queries": ["weather forecast", "zzqxzz " * 30]}
    turn = talk.handle_calls(talk.start_session(), [ToolCall("1", "search_tools", needs)])
    message = json.loads(turn.answers[0].text)["message"]
    assert message.startswith(prompts.TOOLS_LOADED)
    assert prompts.UNCOVERED_SEGMENTS.partition("{")[0] in message
    assert message.count("zzqxzz") < 20
    one = talk.handle_calls(talk.start_session(), [_search("weather forecast")])
    assert "No tool was found" not in one.answers[0].text


def test_what_is_held_back_can_be_shown_as_stubs_or_by_name() -> None:
    catalog = Catalog(TOOLS)
    engine, names = SearchEngine(catalog, WORDS), ToolNames(catalog)
    stubs = Disclosure(Activation(tools=0), tier="stub").plan(catalog)
    talk = TurnHandler(engine, stubs, names, allowed=lambda tool: tool.name != "odd")
    begun = talk.start_session()
    listed = ["search_tools", "help", "get_weather", "send_mail", "shop___refund"]
    assert _names(talk, begun) == listed
    assert talk.tools(begun)[2].input_schema == {"type": "object", "additionalProperties": True}
    after = talk.handle_calls(begun, [_search("refund charge", limit=1)]).session
    assert _names(talk, after) == [
        "search_tools",
        "help",
        "shop___refund",
        "get_weather",
        "send_mail",
    ]
    assert talk.tools(after)[2] == catalog["shop___refund"]
    by_name = Disclosure(Activation(tools=0), tier="name").plan(catalog)
    talk = TurnHandler(engine, by_name, names, allowed=lambda tool: tool.name != "odd")
    assert talk.search_tool.description.endswith("They are get_weather, send_mail, shop___refund.")
    assert "…" in _many_names().search_tool.description


def _many_names() -> TurnHandler:
    catalog = Catalog(Tool(f"t{number}") for number in range(MAX_LISTED_NAMES + 1))
    plan = Disclosure(tier="name").plan(catalog)
    return TurnHandler(SearchEngine(catalog, WORDS), plan, ToolNames(catalog))


def test_a_search_in_any_shape_is_read_and_an_empty_one_says_what_to_write() -> None:
    talk = _talk()
    for call in (
        ToolCall("1", "search_tools", {"query": 'weather" AND ('}),
        ToolCall("1", "search_tools", {"queries": "weather forecast"}),
        ToolCall("", "", {"query": "weather", "limit": float("nan")}, is_search=True),
        _search("weather", limit=10**9),
        _search("weather " * 2_000, limit=True),
    ):
        (answer,) = talk.handle_calls(talk.start_session(), [call]).answers
        assert "get_weather" in _found(answer.text), call
    for arguments in (None, {}, {"query": 7}, {"query": "  "}):
        (answer,) = talk.handle_calls(
            talk.start_session(), [ToolCall("1", "search_tools", arguments)]
        ).answers
        assert answer.is_error and "`query`" in answer.text
    many = ToolCall(
        "1", "search_tools", {"queries": [f"weather {n}" for n in range(MAX_QUERIES + 1)]}
    )
    assert (
        f"at most {MAX_QUERIES}" in talk.handle_calls(talk.start_session(), [many]).answers[0].text
    )


def test_searching_without_end_is_stopped_until_something_else_is_done() -> None:
    talk = _talk()
    session = talk.start_session()
    for _ in range(MAX_SEARCHES):
        session = talk.handle_calls(session, [_search("weather")]).session
    stopped = talk.handle_calls(session, [_search("weather")])
    assert stopped.answers[0].is_error and "in a row" in stopped.answers[0].text
    rested = talk.handle_calls(stopped.session, [])
    assert not talk.handle_calls(rested.session, [_search("weather")]).answers[0].is_error


def test_the_model_is_told_what_a_budget_put_away() -> None:
    talk = _talk()
    session = talk.handle_calls(
        talk.start_session(budget_tokens=1), [_search("refund charge", limit=1)]
    ).session
    turn = talk.handle_calls(session, [_search("weather forecast", limit=1)])
    assert "put away; search to load them again: shop___refund." in turn.answers[0].text
    smaller = _talk(tools=TOOLS[:2])
    late = smaller.handle_calls(session, [_search("weather forecast", limit=1)])
    assert "shop___refund" not in _names(smaller, late.session)


def test_the_model_is_told_what_its_own_calls_put_away() -> None:
    talk = _talk()
    calls = [
        ToolCall("1", "send_mail", {}),
        ToolCall("2", "shop___refund", {}),
        ToolCall("3", "get_weather", {"town": "Rome"}),
    ]
    turn = talk.handle_calls(talk.start_session(budget_tokens=1), calls)
    mail, refund = turn.tasks
    assert mail.build_answer("sent").text == "sent"
    told = "To make room, these tools were put away; search to load them again:"
    assert refund.build_answer("ok").text == f"ok\n\n{told} send_mail."
    assert turn.answers[0].text.endswith(f"\n\n{told} shop___refund.")
    dispatched = _talk("dispatch").handle_calls(talk.start_session(budget_tokens=1), calls[:2])
    assert [task.note for task in dispatched.tasks] == ["", ""]


def test_what_may_not_be_used_is_not_there() -> None:
    for allowed in (
        {"send_mail", "help"},
        ["send_mail", "help"],
        lambda tool: tool.id in ("send_mail", "help"),
    ):
        talk = _talk(allowed=allowed)
        turn = talk.handle_calls(
            talk.start_session(),
            [_search("weather city"), ToolCall("2", "get_weather", {"city": "x"})],
        )
        assert not turn.tasks and turn.answers[1].is_error
        told = turn.answers[0].text + turn.answers[1].text.replace('"get_weather"', "")
        assert "get_weather" not in told and "refund" not in told
    assert _names(_talk(allowed="help"), _talk(allowed="help").start_session()) == [
        "search_tools",
        "help",
    ]


def test_dispatch_never_changes_its_list_and_calls_through_one_tool() -> None:
    talk = _talk("dispatch")
    begun = talk.start_session()
    names = ["search_tools", "execute_dynamic_tool", "help"]
    assert _names(talk, begun) == names
    turn = talk.handle_calls(begun, [_search("weather forecast", limit=1)])
    (found,) = json.loads(turn.answers[0].text)["found"]
    assert found["input_schema"] == CITY and "execute_dynamic_tool" in turn.answers[0].text
    execute = ToolCall(
        "2", "execute_dynamic_tool", {"tool_name": "get_weather", "tool_input": {"city": "R"}}
    )
    ran = talk.handle_calls(turn.session, [execute])
    assert (ran.tasks[0].tool.name, ran.tasks[0].arguments) == ("get_weather", {"city": "R"})
    assert ran.tasks[0].call is execute
    assert _names(talk, ran.session) == names
    wrong = talk.handle_calls(
        ran.session, [ToolCall("3", "execute_dynamic_tool", {"tool_name": "get_weather"})]
    )
    assert "`tool_input` is missing" in wrong.answers[0].text
    assert (
        talk.handle_calls(begun, [ToolCall("4", "send_mail", {})]).session.revealed
        == begun.revealed
    )


def test_our_tools_give_way_to_tools_of_the_same_name() -> None:
    own = (*TOOLS, Tool("search_tools", "Search a tool shed."), Tool("_search_tools"))
    talk = _talk("dispatch", tools=own)
    assert [tool.name for tool in talk.own_tools] == ["__search_tools", "execute_dynamic_tool"]
    assert "__search_tools" in talk.execute_tool.description


@pytest.mark.parametrize("style", ["reveal", "dispatch"])
def test_a_history_of_exchanges_gives_the_same_session(style: Style) -> None:
    talk = _talk(style)
    calls: list[list[ToolCall]] = [
        [_search("weather forecast", limit=1), ToolCall("2", "send_mail", {})],
        [ToolCall("3", "nowhere", {})],
        [_search("refund charge", limit=1)],
    ]
    live = talk.start_session()
    turns: list[list[PastCall]] = []
    for made in calls:
        turn = talk.handle_calls(live, made)
        live = turn.session
        texts = {answer.call.id: answer.text for answer in turn.answers}
        turns.append([PastCall(call, texts.get(call.id, "ran")) for call in made])
    replayed = Session.from_history(
        talk.actions_from_history(turns), talk.find_tool, start=talk.start_session()
    )
    assert replayed == live


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"found":7}', '{"found":[{"id":1}]}', "[" * 9_999]
)
def test_an_answer_that_was_cut_short_means_unloaded(text: str) -> None:
    talk = _talk()
    turns = [[PastCall(_search("weather"), text)]]
    session = Session.from_history(
        talk.actions_from_history(turns), talk.find_tool, start=talk.start_session()
    )
    assert session.revealed == talk.start_session().revealed


def test_names_in_a_providers_own_shape_are_read() -> None:
    talk = _talk()
    turns: Any = [[PastCall(_search("weather"), "", ("get_weather", "nowhere"))]]
    session = Session.from_history(
        talk.actions_from_history(turns), talk.find_tool, start=talk.start_session()
    )
    assert [one.id for one in session.revealed] == ["help", "get_weather"]


def test_a_session_from_before_loses_what_is_gone_and_gains_what_is_newly_pinned() -> None:
    before = _talk()
    found = before.handle_calls(
        before.start_session(), [_search("weather forecast"), _search("send mail")]
    ).session
    assert _names(before, found) == ["search_tools", "help", "get_weather", "send_mail"]
    pinned = TOOLS[2].replace(policy="never")
    later = _talk(tools=(*TOOLS[1:2], pinned, TOOLS[3]))
    assert _names(later, later.resume_session(found)) == [
        "search_tools",
        "help",
        "send_mail",
        "shop___refund",
    ]
    denied = _talk(allowed={"send_mail"})
    assert _names(denied, denied.resume_session(found)) == ["search_tools", "send_mail"]


def test_a_history_alone_tells_what_was_shown() -> None:
    talk = _talk()
    call = _search("weather forecast", limit=1)
    turn = talk.handle_calls(talk.start_session(100), [call])
    told = talk.replay_history([[PastCall(call, turn.answers[0].text)]], 100)
    assert told == replace(turn.session, evicted=told.evicted)
    assert talk.replay_history([]) == talk.start_session()


def test_a_history_alone_tells_what_was_said_beside_results() -> None:
    talk = _talk()
    made = [
        [_search("refund charge", limit=1)],
        [ToolCall("2", "get_weather", {"city": "Rome"}), ToolCall("3", "nowhere", {})],
        [ToolCall("4", "get_weather", {"city": "Paris"}), ToolCall("5", "send_mail", {})],
    ]
    session = talk.start_session(1)
    turns: list[list[PastCall]] = []
    notes: dict[str, str] = {}
    for calls in made:
        turn = talk.handle_calls(session, calls)
        session = turn.session
        notes |= {task.call.id: task.note for task in turn.tasks if task.note}
        texts = {answer.call.id: answer.text for answer in turn.answers}
        turns.append([PastCall(call, texts.get(call.id, "ran")) for call in calls])
    assert list(notes) == ["2", "5"]
    assert talk.eviction_notes(turns, 1) == notes
    assert talk.eviction_notes(turns) == {}


def test_the_search_tool_goes_by_the_name_it_is_given() -> None:
    talk = replace(_talk(), search_name="find")
    assert _names(talk, talk.start_session()) == ["find", "help"]
    assert (
        talk.handle_calls(talk.start_session(), [ToolCall("1", "find", {"query": "weather"})])
        .answers[0]
        .found_tools
    )
    assert (
        "Use find to find tools."
        in talk.handle_calls(talk.start_session(), [_search("x")]).answers[0].text
    )


def test_arguments_are_left_to_the_tool_where_that_is_wanted() -> None:
    talk = replace(_talk(), validates_arguments=False)
    turn = talk.handle_calls(talk.start_session(), [ToolCall("1", "get_weather", {"town": "Rome"})])
    assert (turn.answers, turn.tasks[0].arguments) == ((), {"town": "Rome"})
