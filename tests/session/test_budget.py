"""The token budget of a session: what is loaded, evicted and named."""

from __future__ import annotations

import json

import pytest

from tests.session.turn_handlers import TOOLS, WORDS, budget_for, build_handler, found_names, list_names, search_call
from toolcrib.core.calls import PastCall, ToolCall
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool_names import ToolNames
from toolcrib.errors import InvalidConfig
from toolcrib.search.engine import SearchEngine
from toolcrib.session.disclosure import Activation, Disclosure
from toolcrib.session.turn import TurnHandler


def test_search_reply_names_evicted_tools() -> None:
    handler = build_handler()
    begun = handler.start_session(budget_for(handler, "get_weather"))
    session = handler.handle_calls(begun, [search_call("refund charge", limit=1)]).session
    turn = handler.handle_calls(session, [search_call("weather forecast", limit=1)])
    assert "put away; search to load them again: shop___refund." in turn.replies[0].text
    smaller = build_handler(tools=TOOLS[:2])
    late = smaller.handle_calls(session, [search_call("weather forecast", limit=1)])
    assert "shop___refund" not in list_names(smaller, late.session)


def test_call_reply_names_evicted_tools() -> None:
    handler = build_handler()
    calls = [
        ToolCall("1", "send_mail", {}),
        ToolCall("2", "shop___refund", {}),
        ToolCall("3", "get_weather", {"town": "Rome"}),
        ToolCall("4", "send_mail", {"to": 7}),
    ]
    turn = handler.handle_calls(handler.start_session(budget_for(handler, "send_mail")), calls)
    mail, refund = turn.tasks
    assert mail.build_reply("sent").text == "sent"
    told = "To make room, these tools were put away; search to load them again:"
    assert refund.build_reply("ok").text == f"ok\n\n{told} send_mail."
    # This tool is larger than the budget, so the call evicts nothing.
    assert told not in turn.replies[0].text
    assert turn.replies[1].text.endswith(f"\n\n{told} shop___refund.")
    dispatch = build_handler("dispatch")
    dispatched = dispatch.handle_calls(dispatch.start_session(budget_for(dispatch)), calls[:2])
    assert [task.note for task in dispatched.tasks] == ["", ""]


def test_found_tools_that_do_not_fit_into_the_budget_are_named_and_not_loaded() -> None:
    handler = build_handler()
    both = ToolCall("1", "search_tools", {"queries": ["send mail message", "refund charge"], "limit": 1})
    begun = handler.start_session(budget_for(handler, "send_mail"))
    turn = handler.handle_calls(begun, [both])
    assert found_names(turn.replies[0].text) == ["send_mail"]
    assert "not loaded, because there is no room for more: shop___refund. Search for one" in turn.replies[0].text
    assert [tool.id for tool in turn.replies[0].found_tools] == ["send_mail"]
    named = handler.handle_calls(turn.session, [search_call("shop___refund")])
    assert list_names(handler, named.session) == ["search_tools", "help", "shop___refund"]
    large = handler.handle_calls(named.session, [search_call("weather forecast", limit=1)])
    assert json.loads(large.replies[0].text) == {"found": [], "message": "Too large to be loaded: get_weather."}
    assert large.session.revealed == named.session.revealed


def test_dispatch_returns_only_definitions_that_fit_into_the_budget() -> None:
    handler = build_handler("dispatch")
    both = ToolCall("1", "search_tools", {"queries": ["send mail message", "refund charge"], "limit": 1})
    turn = handler.handle_calls(handler.start_session(budget_for(handler, "send_mail")), [both])
    assert found_names(turn.replies[0].text) == ["send_mail"]
    assert "shop___refund" in json.loads(turn.replies[0].text)["message"]


def test_budget_that_does_not_hold_the_search_tool_is_rejected() -> None:
    handler = build_handler()
    with pytest.raises(InvalidConfig, match=r"take \d+ tokens, more than the budget of 9; raise the budget"):
        handler.start_session(9)


def test_stubs_are_sent_as_far_as_they_fit_into_the_budget() -> None:
    catalog = Catalog(TOOLS)
    plan = Disclosure(Activation(tools=0), tier="stub").plan(catalog)
    handler = TurnHandler(SearchEngine(catalog, WORDS), plan, ToolNames(catalog))
    assert list_names(handler, handler.start_session(budget_for(handler))) == ["search_tools", "help"]
    begun = handler.start_session(budget_for(handler, "get_weather"))
    sent = handler.tools(begun)
    assert len(sent) > 2 and sum(map(handler.count, sent)) <= budget_for(handler, "get_weather")


def test_newly_pinned_tool_that_does_not_fit_is_not_added() -> None:
    before = build_handler()
    session = before.start_session(budget_for(before, "send_mail"))
    later = build_handler(tools=(*(tool.replace(policy="never") for tool in TOOLS[:2]), *TOOLS[2:]))
    assert list_names(later, later.resume_session(session)) == ["search_tools", "help", "send_mail"]


def test_history_alone_restores_eviction_notes() -> None:
    handler = build_handler()
    made = [
        [search_call("refund charge", limit=1)],
        [ToolCall("2", "get_weather", {"city": "Rome"}), ToolCall("3", "nowhere", {})],
        [ToolCall("4", "get_weather", {"city": "Paris"}), ToolCall("5", "send_mail", {})],
    ]
    budget = budget_for(handler, "get_weather")
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
