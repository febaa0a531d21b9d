from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from toolcrib.core import prompts
from toolcrib.core.calls import PastCall, ToolCall
from toolcrib.core.catalog import Catalog
from toolcrib.core.rights import AllowedTools
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import ToolNames
from toolcrib.errors import InvalidConfig
from toolcrib.search.engine import SearchEngine
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.session.disclosure import Activation, Disclosure
from toolcrib.session.session import Session
from toolcrib.session.turn import MAX_LISTED_NAMES, MAX_QUERIES, MAX_SEARCHES, MAX_SUGGESTIONS, Style, TurnHandler

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


# These tests do not depend on the ranker.
WORDS = {"lexical": LexicalRanker()}


def _handler(
    style: Style = "reveal", allowed: AllowedTools | None = None, tools: tuple[Tool, ...] = TOOLS
) -> TurnHandler:
    catalog = Catalog(tools)
    plan = Disclosure(Activation(tools=0)).plan(catalog)
    return TurnHandler(SearchEngine(catalog, WORDS), plan, ToolNames(catalog), style, allowed)


def _budget(handler: TurnHandler, *names: str) -> int:
    """Return a budget in which exactly these tools fit besides the search tool and the pinned ones."""
    fixed = handler.start_session(100_000).fixed_tokens
    return fixed + sum(handler.count(handler.engine.catalog[name]) for name in names)


def _search(query: object, **more: object) -> ToolCall:
    return ToolCall("1", "search_tools", {"query": query, **more})


def _names(handler: TurnHandler, session: Session) -> list[str]:
    return [tool.id for tool in handler.tools(session)]


def _found_names(text: str) -> list[str]:
    return [one["name"] for one in json.loads(text)["found"]]


def test_search_appends_the_found_tools() -> None:
    handler = _handler()
    begun = handler.start_session()
    assert _names(handler, begun) == ["search_tools", "help"]
    turn = handler.handle_calls(begun, [_search("weather forecast", limit=1)])
    assert _found_names(turn.replies[0].text) == ["get_weather"]
    assert "call these tools now" in turn.replies[0].text
    assert len(turn.replies[0].text) < 400
    assert _names(handler, turn.session) == ["search_tools", "help", "get_weather"]


def test_one_turn_may_have_several_searches_and_calls() -> None:
    handler = _handler()
    both = ToolCall("1", "search_tools", {"queries": ["weather forecast", "refund charge"], "limit": 1})
    mail = ToolCall("2", "send_mail", {"to": "a"})
    again = _search("send mail message", limit=1)
    turn = handler.handle_calls(handler.start_session(), [both, mail, again])
    assert _found_names(turn.replies[0].text) == ["get_weather", "shop___refund"]
    assert [task.tool.name for task in turn.tasks] == ["send_mail"]
    assert _names(handler, turn.session)[2:] == ["get_weather", "shop___refund", "send_mail"]
    assert turn.session.consecutive_searches == 0


def test_call_of_a_deferred_tool_works_and_reveals_it() -> None:
    handler = _handler()
    turn = handler.handle_calls(handler.start_session(), [ToolCall("1", "get_weather", {"city": "Rome"})])
    assert (turn.tasks[0].tool.name, turn.tasks[0].arguments) == ("get_weather", {"city": "Rome"})
    assert "get_weather" in _names(handler, turn.session)


def test_invalid_arguments_are_reported_by_field_and_reveal_the_tool() -> None:
    handler = _handler()
    turn = handler.handle_calls(handler.start_session(), [ToolCall("1", "get_weather", {"town": "Rome"})])
    (answer,) = turn.replies
    assert answer.is_error and "`city` is missing; expected string" in answer.text
    assert not turn.tasks and "get_weather" in _names(handler, turn.session)
    broken = handler.handle_calls(handler.start_session(), [ToolCall("1", "get_weather", None)])
    assert "not a JSON object" in broken.replies[0].text


def test_usable_parts_of_a_broken_schema_are_checked() -> None:
    schema = {"type": "nonsense", "properties": {"a": {"$ref": "#/nowhere"}, "b": {"type": "integer"}}}
    handler = _handler(tools=(Tool("odd", "A tool with a broken schema.", schema),))
    (task,) = handler.handle_calls(handler.start_session(), [ToolCall("1", "odd", {"a": 1})]).tasks
    assert task.is_validated
    (answer,) = handler.handle_calls(handler.start_session(), [ToolCall("1", "odd", {"b": "x"})]).replies
    assert answer.is_error and "`b`" in answer.text


def test_arguments_that_are_too_costly_to_validate_are_refused() -> None:
    loop = {"$defs": {"x": {"allOf": [{"$ref": "#/$defs/x"}, {"$ref": "#/$defs/x"}]}}, "$ref": "#/$defs/x"}
    handler = _handler(tools=(Tool("deep", "A tool with a recursive schema.", loop),))
    turn = handler.handle_calls(handler.start_session(), [ToolCall("1", "deep", {"a": 1})])
    assert not turn.tasks
    assert "The arguments of deep are invalid" in turn.replies[0].text and "steps" in turn.replies[0].text


def test_unknown_tool_lists_nearest_names() -> None:
    handler = _handler()
    (answer,) = handler.handle_calls(handler.start_session(), [ToolCall("1", "fetch_weather", {})]).replies
    assert answer.is_error and "get_weather" in answer.text and "search_tools" in answer.text
    (blank,) = handler.handle_calls(handler.start_session(), [ToolCall("1", "()", {})]).replies
    assert "nearest" not in blank.text


def test_misspelt_name_lists_names_of_similar_spelling() -> None:
    others = [Tool(f"shop_{number}", "An ech of the shop.", server="a") for number in range(5)]
    tools = (*others, Tool("close", server="shop"), Tool("echo", server="shop"))
    call = ToolCall("1", "shop___ech", {})
    handler, guest = (_handler(tools=tools), _handler(allowed=lambda tool: tool.name != "echo", tools=tools))
    told, hidden = (one.handle_calls(one.start_session(), [call]).replies[0].text for one in (handler, guest))
    assert "The nearest are shop___echo, " in told
    assert told.count("shop___echo") == 1 and told.count(",") == MAX_SUGGESTIONS - 1
    assert "shop___echo" not in hidden
    (long,) = handler.handle_calls(handler.start_session(), [ToolCall("1", "x\n" * 999, {})]).replies
    assert len(long.text) < 300 and "\n" not in long.text


def test_no_search_tool_without_deferred_tools() -> None:
    catalog = Catalog(TOOLS[:2])
    handler = TurnHandler(SearchEngine(catalog, WORDS), Disclosure().plan(catalog), ToolNames(catalog))
    assert _names(handler, handler.start_session()) == ["get_weather", "send_mail"]
    (answer,) = handler.handle_calls(handler.start_session(), [_search("x")]).replies
    assert answer.text == 'There is no tool "search_tools".'


def test_search_without_a_good_match_returns_the_nearest_and_reveals_nothing() -> None:
    handler = _handler()
    turn = handler.handle_calls(handler.start_session(), [_search("zzzz qqqq")])
    assert json.loads(turn.replies[0].text)["message"].startswith("No tool was found")
    weak = handler.handle_calls(handler.start_session(), [_search("quantum entanglement of a customer in space today")])
    told = json.loads(weak.replies[0].text)
    assert told["found"] == [] and told["nearest"][0]["name"] == "shop___refund"
    assert weak.session.revealed == handler.start_session().revealed


def test_uncovered_segment_is_reported_with_the_found_tools() -> None:
    handler = _handler()
    needs = {"queries": ["weather forecast", "zzqxzz " * 30]}
    turn = handler.handle_calls(handler.start_session(), [ToolCall("1", "search_tools", needs)])
    message = json.loads(turn.replies[0].text)["message"]
    assert message.startswith(prompts.TOOLS_LOADED)
    assert prompts.UNCOVERED_SEGMENTS.partition("{")[0] in message
    assert message.count("zzqxzz") < 20
    one = handler.handle_calls(handler.start_session(), [_search("weather forecast")])
    assert "No tool was found" not in one.replies[0].text


def test_deferred_tools_can_be_stubs_or_names() -> None:
    catalog = Catalog(TOOLS)
    engine, names = SearchEngine(catalog, WORDS), ToolNames(catalog)
    stubs = Disclosure(Activation(tools=0), tier="stub").plan(catalog)
    handler = TurnHandler(engine, stubs, names, allowed=lambda tool: tool.name != "odd")
    begun = handler.start_session()
    listed = ["search_tools", "help", "get_weather", "send_mail", "shop___refund"]
    assert _names(handler, begun) == listed
    assert handler.tools(begun)[2].input_schema == {"type": "object", "additionalProperties": True}
    assert "listed here without their parameters" in handler.search_tool.description
    after = handler.handle_calls(begun, [_search("get_weather", limit=1)]).session
    assert _names(handler, after) == ["search_tools", "help", "send_mail", "shop___refund", "get_weather"]
    assert handler.tools(after)[4] == catalog["get_weather"]
    later = handler.handle_calls(after, [_search("shop___refund", limit=1)]).session
    assert _names(handler, later)[-2:] == ["get_weather", "shop___refund"]
    dispatching = replace(handler, style="dispatch")
    started = dispatching.start_session()
    searched = dispatching.handle_calls(started, [_search("get_weather", limit=1)]).session
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
    handler = _handler()
    for call in (
        ToolCall("1", "search_tools", {"query": 'weather" AND ('}),
        ToolCall("1", "search_tools", {"queries": "weather forecast"}),
        ToolCall("", "", {"query": "weather", "limit": float("nan")}, is_search=True),
        _search("weather", limit=10**9),
        _search("weather " * 2_000, limit=True),
    ):
        (answer,) = handler.handle_calls(handler.start_session(), [call]).replies
        assert "get_weather" in _found_names(answer.text), call
    for arguments in (None, {}, {"query": 7}, {"query": "  "}):
        (answer,) = handler.handle_calls(handler.start_session(), [ToolCall("1", "search_tools", arguments)]).replies
        assert answer.is_error and "`query`" in answer.text
    many = ToolCall("1", "search_tools", {"queries": [f"weather {n}" for n in range(MAX_QUERIES + 1)]})
    assert f"at most {MAX_QUERIES}" in handler.handle_calls(handler.start_session(), [many]).replies[0].text


def test_consecutive_searches_are_limited() -> None:
    handler = _handler()
    session = handler.start_session()
    for _ in range(MAX_SEARCHES):
        session = handler.handle_calls(session, [_search("weather")]).session
    stopped = handler.handle_calls(session, [_search("weather")])
    assert stopped.replies[0].is_error and "in a row" in stopped.replies[0].text
    rested = handler.handle_calls(stopped.session, [])
    assert not handler.handle_calls(rested.session, [_search("weather")]).replies[0].is_error


def test_search_reply_names_evicted_tools() -> None:
    handler = _handler()
    begun = handler.start_session(_budget(handler, "get_weather"))
    session = handler.handle_calls(begun, [_search("refund charge", limit=1)]).session
    turn = handler.handle_calls(session, [_search("weather forecast", limit=1)])
    assert "put away; search to load them again: shop___refund." in turn.replies[0].text
    smaller = _handler(tools=TOOLS[:2])
    late = smaller.handle_calls(session, [_search("weather forecast", limit=1)])
    assert "shop___refund" not in _names(smaller, late.session)


def test_call_reply_names_evicted_tools() -> None:
    handler = _handler()
    calls = [
        ToolCall("1", "send_mail", {}),
        ToolCall("2", "shop___refund", {}),
        ToolCall("3", "get_weather", {"town": "Rome"}),
        ToolCall("4", "send_mail", {"to": 7}),
    ]
    turn = handler.handle_calls(handler.start_session(_budget(handler, "send_mail")), calls)
    mail, refund = turn.tasks
    assert mail.build_reply("sent").text == "sent"
    told = "To make room, these tools were put away; search to load them again:"
    assert refund.build_reply("ok").text == f"ok\n\n{told} send_mail."
    # This tool is larger than the budget, so the call evicts nothing.
    assert told not in turn.replies[0].text
    assert turn.replies[1].text.endswith(f"\n\n{told} shop___refund.")
    dispatch = _handler("dispatch")
    dispatched = dispatch.handle_calls(dispatch.start_session(_budget(dispatch)), calls[:2])
    assert [task.note for task in dispatched.tasks] == ["", ""]


def test_found_tools_that_do_not_fit_into_the_budget_are_named_and_not_loaded() -> None:
    handler = _handler()
    both = ToolCall("1", "search_tools", {"queries": ["send mail message", "refund charge"], "limit": 1})
    begun = handler.start_session(_budget(handler, "send_mail"))
    turn = handler.handle_calls(begun, [both])
    assert _found_names(turn.replies[0].text) == ["send_mail"]
    assert "not loaded, because there is no room for more: shop___refund. Search for one" in turn.replies[0].text
    assert [tool.id for tool in turn.replies[0].found_tools] == ["send_mail"]
    named = handler.handle_calls(turn.session, [_search("shop___refund")])
    assert _names(handler, named.session) == ["search_tools", "help", "shop___refund"]
    large = handler.handle_calls(named.session, [_search("weather forecast", limit=1)])
    assert json.loads(large.replies[0].text) == {"found": [], "message": "Too large to be loaded: get_weather."}
    assert large.session.revealed == named.session.revealed


def test_dispatch_returns_only_definitions_that_fit_into_the_budget() -> None:
    handler = _handler("dispatch")
    both = ToolCall("1", "search_tools", {"queries": ["send mail message", "refund charge"], "limit": 1})
    turn = handler.handle_calls(handler.start_session(_budget(handler, "send_mail")), [both])
    assert _found_names(turn.replies[0].text) == ["send_mail"]
    assert "shop___refund" in json.loads(turn.replies[0].text)["message"]


def test_budget_that_does_not_hold_the_search_tool_is_rejected() -> None:
    handler = _handler()
    with pytest.raises(InvalidConfig, match=r"take \d+ tokens, more than the budget of 9; raise the budget"):
        handler.start_session(9)


def test_stubs_are_sent_as_far_as_they_fit_into_the_budget() -> None:
    catalog = Catalog(TOOLS)
    plan = Disclosure(Activation(tools=0), tier="stub").plan(catalog)
    handler = TurnHandler(SearchEngine(catalog, WORDS), plan, ToolNames(catalog))
    assert _names(handler, handler.start_session(_budget(handler))) == ["search_tools", "help"]
    begun = handler.start_session(_budget(handler, "get_weather"))
    sent = handler.tools(begun)
    assert len(sent) > 2 and sum(map(handler.count, sent)) <= _budget(handler, "get_weather")


def test_newly_pinned_tool_that_does_not_fit_is_not_added() -> None:
    before = _handler()
    session = before.start_session(_budget(before, "send_mail"))
    later = _handler(tools=(*(tool.replace(policy="never") for tool in TOOLS[:2]), *TOOLS[2:]))
    assert _names(later, later.resume_session(session)) == ["search_tools", "help", "send_mail"]


def test_weak_and_distant_hits_are_named_and_not_loaded() -> None:
    tools = (
        Tool("weather_forecast", "Weather forecast for a city."),
        *(
            Tool(f"thing_{number}", "A thing of the city with many other long words in its text.")
            for number in range(2)
        ),
        Tool("unrelated", "Nothing."),
    )
    handler = _handler(tools=tools)
    turn = handler.handle_calls(handler.start_session(), [_search("weather forecast city")])
    answer = json.loads(turn.replies[0].text)
    assert [one["name"] for one in answer["found"]] == ["weather_forecast"]
    assert [one["name"] for one in answer["nearest"]] == ["thing_0", "thing_1"]
    assert prompts.SEARCH_NEAREST in answer["message"]
    assert _names(handler, turn.session) == ["search_tools", "weather_forecast"]
    exact = handler.handle_calls(turn.session, [_search("thing_1")])
    assert _found_names(exact.replies[0].text) == ["thing_1"]


def test_disallowed_tools_do_not_exist_for_the_caller() -> None:
    for allowed in ({"send_mail", "help"}, ["send_mail", "help"], lambda tool: tool.id in ("send_mail", "help")):
        handler = _handler(allowed=allowed)
        turn = handler.handle_calls(
            handler.start_session(), [_search("weather city"), ToolCall("2", "get_weather", {"city": "x"})]
        )
        assert not turn.tasks and turn.replies[1].is_error
        told = turn.replies[0].text + turn.replies[1].text.replace('"get_weather"', "")
        assert "get_weather" not in told and "refund" not in told
    assert _names(_handler(allowed="help"), _handler(allowed="help").start_session()) == ["search_tools", "help"]


def test_dispatch_keeps_the_list_and_calls_through_one_tool() -> None:
    handler = _handler("dispatch")
    begun = handler.start_session()
    names = ["search_tools", "execute_dynamic_tool", "help"]
    assert _names(handler, begun) == names
    turn = handler.handle_calls(begun, [_search("weather forecast", limit=1)])
    (found,) = json.loads(turn.replies[0].text)["found"]
    assert found["input_schema"] == CITY and "execute_dynamic_tool" in turn.replies[0].text
    execute = ToolCall("2", "execute_dynamic_tool", {"tool_name": "get_weather", "tool_input": {"city": "R"}})
    ran = handler.handle_calls(turn.session, [execute])
    assert (ran.tasks[0].tool.name, ran.tasks[0].arguments) == ("get_weather", {"city": "R"})
    assert ran.tasks[0].call is execute
    assert _names(handler, ran.session) == names
    wrong = handler.handle_calls(ran.session, [ToolCall("3", "execute_dynamic_tool", {"tool_name": "get_weather"})])
    assert "`tool_input` is missing" in wrong.replies[0].text
    assert handler.handle_calls(begun, [ToolCall("4", "send_mail", {})]).session.revealed == begun.revealed


def test_search_tool_avoids_names_of_catalog_tools() -> None:
    own = (*TOOLS, Tool("search_tools", "Search a tool shed."), Tool("_search_tools"))
    handler = _handler("dispatch", tools=own)
    assert [tool.name for tool in handler.own_tools] == ["__search_tools", "execute_dynamic_tool"]
    assert "__search_tools" in handler.execute_tool.description


@pytest.mark.parametrize("style", ["reveal", "dispatch"])
def test_replayed_history_gives_the_same_session(style: Style) -> None:
    handler = _handler(style)
    calls: list[list[ToolCall]] = [
        [_search("weather forecast", limit=1), ToolCall("2", "send_mail", {})],
        [ToolCall("3", "nowhere", {})],
        [_search("refund charge", limit=1)],
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
    handler = _handler()
    turns = [[PastCall(_search("weather"), text)]]
    session = Session.from_history(
        handler.actions_from_history(turns), handler.find_tool, start=handler.start_session()
    )
    assert session.revealed == handler.start_session().revealed


def test_names_in_a_provider_format_are_revealed() -> None:
    handler = _handler()
    turns: Any = [[PastCall(_search("weather"), "", ("get_weather", "nowhere"))]]
    session = Session.from_history(
        handler.actions_from_history(turns), handler.find_tool, start=handler.start_session()
    )
    assert [one.id for one in session.revealed] == ["help", "get_weather"]


def test_resumed_session_drops_stale_and_adds_pinned_tools() -> None:
    before = _handler()
    found = before.handle_calls(before.start_session(), [_search("weather forecast"), _search("send mail")]).session
    assert _names(before, found) == ["search_tools", "help", "get_weather", "send_mail"]
    pinned = TOOLS[2].replace(policy="never")
    later = _handler(tools=(*TOOLS[1:2], pinned, TOOLS[3]))
    assert _names(later, later.resume_session(found)) == ["search_tools", "help", "send_mail", "shop___refund"]
    denied = _handler(allowed={"send_mail"})
    assert _names(denied, denied.resume_session(found)) == ["search_tools", "send_mail"]


def test_history_alone_restores_the_session() -> None:
    handler = _handler()
    call = _search("weather forecast", limit=1)
    budget = _budget(handler, "get_weather")
    turn = handler.handle_calls(handler.start_session(budget), [call])
    assert [tool.id for tool in turn.replies[0].found_tools] == ["get_weather"]
    told = handler.replay_history([[PastCall(call, turn.replies[0].text)]], budget)
    assert told == replace(turn.session, evicted=told.evicted)
    assert handler.replay_history([]) == handler.start_session()


def test_history_alone_restores_eviction_notes() -> None:
    handler = _handler()
    made = [
        [_search("refund charge", limit=1)],
        [ToolCall("2", "get_weather", {"city": "Rome"}), ToolCall("3", "nowhere", {})],
        [ToolCall("4", "get_weather", {"city": "Paris"}), ToolCall("5", "send_mail", {})],
    ]
    budget = _budget(handler, "get_weather")
    session = handler.start_session(budget)
    turns: list[list[PastCall]] = []
    notes: dict[str, str] = {}
    for calls in made:
        turn = handler.handle_calls(session, calls)
        session = turn.session
        notes |= {task.call.id: task.note for task in turn.tasks if task.note}
        texts = {answer.call.id: answer.text for answer in turn.replies}
        turns.append([PastCall(call, texts.get(call.id, "ran")) for call in calls])
    assert list(notes) == ["2", "5"]
    assert handler.eviction_notes(turns, budget) == notes
    assert handler.eviction_notes(turns) == {}


def test_search_tool_can_have_another_name() -> None:
    handler = replace(_handler(), search_name="find")
    assert _names(handler, handler.start_session()) == ["find", "help"]
    assert (
        handler.handle_calls(handler.start_session(), [ToolCall("1", "find", {"query": "weather"})])
        .replies[0]
        .found_tools
    )
    assert "Use find to find tools." in handler.handle_calls(handler.start_session(), [_search("x")]).replies[0].text


def test_argument_validation_can_be_disabled() -> None:
    handler = replace(_handler(), validates_arguments=False)
    turn = handler.handle_calls(handler.start_session(), [ToolCall("1", "get_weather", {"town": "Rome"})])
    assert (turn.replies, turn.tasks[0].arguments) == ((), {"town": "Rome"})


HARBOUR = (
    Tool("read_tide", "Tell when the water is high", CITY),
    Tool("water_plants", "Water the plants in the garden", CITY),
    Tool("ring_bell", "Ring a bell"),
)


@pytest.mark.parametrize("style", ["reveal", "dispatch"])
def test_weak_hits_are_named_and_not_loaded(style: Style) -> None:
    handler = replace(_handler(style, tools=HARBOUR), min_score_share=0.8)
    turn = handler.handle_calls(handler.start_session(), [_search("when is the water high")])
    answer = json.loads(turn.replies[0].text)
    assert [tool["name"] for tool in answer["found"]] == ["read_tide"]
    assert answer["nearest"] == [{"name": "water_plants", "description": "Water the plants in the garden"}]
    assert prompts.SEARCH_NEAREST in answer["message"]
    assert [tool.name for tool in turn.replies[0].found_tools] == ["read_tide"]


def test_nearest_tools_are_named_if_none_fits() -> None:
    handler = replace(_handler("dispatch", tools=HARBOUR), min_score_share=0.8)
    (reply,) = handler.handle_calls(handler.start_session(), [_search("water a submarine in the parliament")]).replies
    answer = json.loads(reply.text)
    assert answer["found"] == [] and "input_schema" not in answer["nearest"][0]
    assert answer["message"] == f"{prompts.NONE_FITS} {prompts.SEARCH_NEAREST}"


def test_definitions_in_the_history_are_not_repeated() -> None:
    handler = replace(_handler("dispatch", tools=HARBOUR), defined_ids=frozenset({"read_tide"}), execute_name="call")
    (reply,) = handler.handle_calls(handler.start_session(), [_search("read_tide")]).replies
    answer = json.loads(reply.text)
    assert answer["found"] == [{"name": "read_tide", "description": "Tell when the water is high"}]
    assert answer["message"] == "Call these tools through call. An earlier result has the parameters of read_tide."
