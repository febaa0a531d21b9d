from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from threading import Event, Thread
from typing import Any

import pytest
from anthropic import beta_tool
from mcp.types import Tool as mcp_tool

from tests.scripted import REPLIES, ScriptedCall, openai_chat_reply, openai_responses_reply
from toolcrib import Session, Tool, Toolcrib
from toolcrib.core.calls import CallResult
from toolcrib.errors import (
    DuplicateTool,
    InvalidConfig,
    InvalidMessage,
    InvalidSchema,
    InvalidTool,
)
from toolcrib.session.disclosure import Activation, Disclosure, DisclosurePlan

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {
    "name": "get_weather",
    "description": "Weather forecast for a city.",
    "input_schema": CITY,
}
MAIL = {
    "type": "function",
    "function": {"name": "send_mail", "description": "Send an e-mail.", "parameters": {}},
}
REFUND = {"name": "refund", "description": "Refund a charge.", "inputSchema": {}, "server": "shop"}
HELD = Disclosure(Activation(tools=0))


class Kitchen:
    """A toolset: what a registry of functions looks like from here."""

    tools = (
        Tool("boil", "Boil an egg for minutes.", {"required": ["minutes"]}),
        Tool("burn", "Burn."),
    )

    def has_tool(self, name: str) -> bool:
        return name in ("boil", "burn")

    def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        if name == "burn":
            raise RuntimeError("fire")
        return CallResult(f"boiled for {arguments['minutes']}")


def _crib() -> Toolcrib:
    return Toolcrib([WEATHER, MAIL, [REFUND], Kitchen()], disclosure=HELD)


def _names(entries: list[dict[str, Any]]) -> list[str]:
    return [entry.get("function", entry)["name"] for entry in entries]


def test_tools_of_every_kind_are_taken_mixed() -> None:
    assert [tool.id for tool in _crib().catalog] == [
        "get_weather", "send_mail", "shop___refund", "boil", "burn",
    ]  # fmt: skip


def test_objects_of_sdks_are_taken_alone_and_in_listings() -> None:
    listed = mcp_tool(name="refund", description="Refund.", input_schema=CITY)

    @beta_tool
    def get_weather(city: str) -> str:
        """Weather forecast.

        Args:
            city: Which one.
        """
        return f"sunny in {city}"

    crib = Toolcrib([{"server": "shop", "tools": [listed]}, listed, get_weather])
    assert [tool.id for tool in crib.catalog] == ["shop___refund", "refund", "get_weather"]
    assert crib.catalog["get_weather"].input_schema["properties"]["city"]["type"] == "string"
    reply = openai_chat_reply([("1", "get_weather", {"city": "Rome"})])
    assert crib.session().handle("openai_chat", reply)[-1]["content"] == "sunny in Rome"


@pytest.mark.parametrize(
    ("entries", "error", "message"),
    [
        (
            [WEATHER, [MAIL, WEATHER]],
            DuplicateTool,
            "entry 2, entry 2: the id 'get_weather' is that of entry 1",
        ),
        ([WEATHER, {"name": "", "input_schema": {}}], InvalidTool, "entry 2: "),
        ([{"name": "x", "input_schema": {"a": float("nan")}}], InvalidSchema, "entry 1: "),
        ([7], InvalidTool, "entry 1: a tool is an object, not a number"),
        ([print], InvalidTool, r"entry 1: function 'print': \*args does not say"),
    ],
)
def test_a_bad_entry_is_named(entries: list[object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Toolcrib(entries)


def test_a_search_is_answered_and_our_own_tools_are_run() -> None:
    session = _crib().session()
    assert _names(session.tools("openai_chat")) == ["search_tools"]
    reply = openai_chat_reply(
        [
            ("1", "search_tools", {"query": "boil an egg"}),
            ("2", "boil", {"minutes": 4}),
            ("3", "burn", {}),
        ]
    )
    said, found, boiled, burnt = session.handle("openai_chat", reply)
    assert said["tool_calls"] == reply["choices"][0]["message"]["tool_calls"]
    assert [found["tool_call_id"], boiled["tool_call_id"], burnt["tool_call_id"]] == ["1", "2", "3"]
    assert boiled["content"] == "boiled for 4"
    assert burnt["content"] == "burn failed: RuntimeError: fire"
    assert _names(session.tools("openai_chat")) == ["search_tools", "boil", "burn"]


def test_the_callers_calls_are_handed_back_and_all_results_go_out_together() -> None:
    session = _crib().session()
    reply = openai_chat_reply(
        [("1", "get_weather", {"city": "Rome"}), ("2", "boil", {"minutes": 1})]
    )
    assert len(session.handle("openai_chat", reply)) == 1
    (task,) = session.pending
    assert (task.call.id, task.tool.name, task.arguments) == ("1", "get_weather", {"city": "Rome"})
    sunny, boiled = session.answer("openai_chat", {"1": "sunny"})
    assert (sunny["content"], boiled["content"]) == ("sunny", "boiled for 1")
    assert session.pending == ()
    with pytest.raises(InvalidMessage, match="no call '9' is pending"):
        session.answer("openai_chat", {"9": CallResult("x")})


def test_in_an_event_loop_async_functions_run_on_it_and_calls_run_side_by_side() -> None:
    met: list[str] = []

    async def main() -> list[dict[str, Any]]:
        both = asyncio.Event()

        async def meet(name: str) -> str:
            """Meet somebody."""
            met.append(name)
            if len(met) == 2:
                both.set()
            # This belongs to the loop that `main` runs on, and nobody alone gets past it.
            await asyncio.wait_for(both.wait(), 60)
            return f"{name} met"

        crib = Toolcrib([meet, Kitchen(), WEATHER])
        session = crib.session()
        calls: list[ScriptedCall] = [
            ("1", "meet", {"name": "Ann"}),
            ("2", "meet", {"name": "Bob"}),
            ("3", "boil", {"minutes": 1}),
            ("4", "burn", {}),
            ("5", "get_weather", {"city": "Rome"}),
        ]
        messages = await session.handle_async("openai_chat", openai_chat_reply(calls))
        assert len(messages) == 1
        return session.answer("openai_chat", {"5": "sunny"})

    results = asyncio.run(main())
    assert [result["content"] for result in results] == [
        "Ann met",
        "Bob met",
        "boiled for 1",
        "burn failed: RuntimeError: fire",
        "sunny",
    ]


def test_a_call_nobody_answered_is_told_as_that() -> None:
    session = _crib().session()
    session.handle("openai_chat", openai_chat_reply([("1", "send_mail", {})]))
    (told,) = session.answer("openai_chat")
    assert told["content"] == "send_mail was not run."


def test_a_reply_without_calls_is_passed_on_alone() -> None:
    session = _crib().session()
    (message,) = session.handle("openai_chat", openai_chat_reply([]))
    assert message == {"role": "assistant", "content": "Done."}


def test_a_runner_beside_the_tools_runs_what_it_holds() -> None:
    crib = Toolcrib([{"name": "boil", "input_schema": {}}], runner=Kitchen())
    messages = crib.session().handle(
        "openai_chat", openai_chat_reply([("1", "boil", {"minutes": 2})])
    )
    assert messages[-1]["content"] == "boiled for 2"


@pytest.mark.parametrize("result", ["boiled", None])
def test_a_runner_that_gives_back_something_else_is_told_what_to_return(result: Any) -> None:
    class Careless(Kitchen):
        def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
            return result  # type: ignore[no-any-return]

    session = Toolcrib([Careless()]).session()
    reply = openai_chat_reply([("1", "boil", {"minutes": 2})])
    wrong = rf"runner of 'boil' gave back a {type(result).__name__}; .* CallResult\(text\)"
    with pytest.raises(InvalidConfig, match=wrong):
        session.handle("openai_chat", reply)
    with pytest.raises(InvalidConfig, match=wrong):
        asyncio.run(session.handle_async("openai_chat", reply))


@pytest.mark.parametrize(
    ("options", "cure"),
    [
        ({"disclosure": "auto"}, r"not 'auto'; write Disclosure\("),
        ({"disclosure": {}}, r"write Disclosure\("),
        ({"experience": {}}, r"not {}; write Experience\("),
    ],
)
def test_a_part_of_the_wrong_kind_is_refused_with_the_cure(
    options: dict[str, Any], cure: str
) -> None:
    with pytest.raises(InvalidConfig, match=cure):
        Toolcrib([WEATHER], **options)


@pytest.mark.parametrize("wire", REPLIES)
def test_on_every_wire_a_replayed_history_gives_the_live_session(wire: str) -> None:
    crib = _crib()
    live = crib.session(budget=60)
    messages: list[dict[str, Any]] = []
    turns: list[ScriptedCall] = [
        ("a", "search_tools", {"query": "weather forecast", "limit": 1}),
        ("b", "boil", {"minutes": 3}),
        ("c", "search_tools", {"query": "refund a charge", "limit": 1}),
        ("d", "nowhere", {}),
    ]
    for said in turns:
        messages += live.handle(wire, REPLIES[wire]([said]))
        live.tools(wire)
    replayed = crib.session(budget=60)
    replayed.replay(wire, messages)
    assert replayed.state == live.state
    assert [one.id for one in live.state.revealed] == ["boil", "shop___refund"]
    assert live.state.evicted == ("get_weather",)
    assert replayed.tools(wire) == live.tools(wire)
    compacted = crib.session()
    compacted.replay(wire, messages[2:])
    assert [one.id for one in compacted.state.revealed] == ["boil", "shop___refund"]


def test_a_saved_session_goes_on_with_what_is_still_there() -> None:
    crib = _crib()
    session = crib.session()
    session.handle(
        "openai_chat", openai_chat_reply([("1", "burn", {}), ("2", "boil", {"minutes": 1})])
    )
    stored = json.loads(json.dumps(session.save()))
    later = crib.session()
    later.restore(stored)
    assert _names(later.tools("mcp")) == ["search_tools", "burn", "boil"]
    refused = crib.session(allowed=lambda tool: tool.id != "burn")
    refused.restore(stored)
    assert _names(refused.tools("mcp")) == ["search_tools", "boil"]


def test_a_saved_session_loses_no_tool_that_a_new_one_would_show() -> None:
    saved = Toolcrib([Tool("a"), Tool("b")]).session().save()
    later = Toolcrib([Tool("a"), Tool("b", "Changed."), Tool("c")]).session()
    later.restore(saved)
    assert _names(later.tools("mcp")) == ["a", "b", "c"]


def test_a_changed_catalog_changes_nothing_that_was_shown_and_is_still_there() -> None:
    crib = _crib()
    session = crib.session()
    session.handle(
        "openai_chat", openai_chat_reply([("1", "burn", {}), ("2", "boil", {"minutes": 1})])
    )
    pinned = Tool("new", "Something new.", policy="never")
    crib.update(crib.catalog.with_tools([pinned]).without(["burn"]))
    assert _names(session.tools("mcp")) == ["search_tools", "boil", "new"]


def test_a_session_that_is_asked_while_the_catalog_changes_is_of_one_piece_and_follows() -> None:
    begun, go_on = Event(), Event()

    class Slow(Disclosure):
        def plan(self, tools: Iterable[Tool]) -> DisclosurePlan:
            plan = super().plan(tools)
            if "b" in [tool.id for tool in plan.visible_tools]:
                begun.set()
                assert go_on.wait(60)
            return plan

    crib = Toolcrib([Tool("a")], disclosure=Slow())
    session = crib.session()
    changing = Thread(target=crib.update, args=[crib.catalog.with_tools([Tool("b")])])
    changing.start()
    assert begun.wait(60)
    asked = crib.build_turn_handler("reveal", None)
    assert [tool.id for tool in asked.plan.visible_tools] == [
        tool.id for tool in asked.engine.catalog
    ]
    asking = Thread(target=session.tools, args=["mcp"])
    asking.start()
    go_on.set()
    changing.join(60)
    asking.join(60)
    assert _names(session.tools("mcp")) == ["a", "b"]


def test_dispatch_keeps_one_list() -> None:
    session = _crib().session(style="dispatch")
    before = session.tools("anthropic")
    execute = {"tool_name": "boil", "tool_input": {"minutes": 5}}
    calls: list[ScriptedCall] = [
        ("1", "search_tools", {"query": "egg"}),
        ("2", "execute_dynamic_tool", execute),
    ]
    messages = session.handle("anthropic", REPLIES["anthropic"](calls))
    assert messages[1]["content"][1]["content"] == "boiled for 5"
    assert session.tools("anthropic") == before


def test_anthropic_searches_itself_where_it_is_asked_to() -> None:
    session = _crib().session(native=True)
    search, *rest = session.tools("anthropic")
    assert search == {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    assert all(entry["defer_loading"] for entry in rest) and len(rest) == 5
    assert _names(session.tools("openai_chat")) == ["search_tools"]


def test_openai_searches_itself_where_it_is_asked_to() -> None:
    tools = [
        Tool("a", category="zoo"),
        Tool("b", category="air"),
        Tool("c"),
        Tool("d", policy="never"),
    ]
    entries = Toolcrib(tools, disclosure=HELD).session(native=True).tools("openai_responses")
    shown, air, zoo, alone, search = entries
    assert (shown["name"], alone["name"], alone["defer_loading"]) == ("d", "c", True)
    assert (air["name"], zoo["name"]) == ("air", "zoo")
    assert air["description"] == "Tools for air" and zoo["tools"][0]["defer_loading"]
    assert search == {"type": "tool_search"}


def test_auto_picks_by_the_models_id_and_unknown_means_ours() -> None:
    def first(model: str, wire: str) -> Any:
        return _crib().session(native="auto", model=model).tools(wire)[0]["name"]

    assert first("claude-opus-4-8", "anthropic") == "tool_search_tool_bm25"
    assert first("llama-4", "anthropic") == "search_tools"
    assert first("gpt-5.4", "anthropic") == "search_tools"
    assert first("anthropic/claude-opus-4-8", "anthropic") == "search_tools"


def test_with_nothing_held_back_nothing_is_handed_over() -> None:
    session = Toolcrib([WEATHER]).session(native=True)
    assert _names(session.tools("anthropic")) == ["get_weather"]


def test_our_search_answers_in_anthropics_shape() -> None:
    crib = _crib()
    session = crib.session(native="client")
    before = session.tools("anthropic")
    assert before[0]["name"] == "search_tools" and "defer_loading" not in before[0]
    reply = REPLIES["anthropic"](
        [("t", "search_tools", {"query": "weather", "limit": 1}), ("u", "search_tools", {})]
    )
    said, results = session.handle("anthropic", reply)
    found, empty = results["content"]
    assert found["content"] == [{"type": "tool_reference", "tool_name": "get_weather"}]
    assert empty["is_error"] and isinstance(empty["content"], str)
    assert session.tools("anthropic") == before
    replayed = crib.session(native="client")
    replayed.replay("anthropic", [said, results])
    assert replayed.state == session.state


def test_our_search_answers_in_openais_shape() -> None:
    crib = _crib()
    session = crib.session(native="client")
    (search,) = session.tools("openai_responses")
    assert (search["type"], search["execution"]) == ("tool_search", "client") and search[
        "description"
    ]
    reply = openai_responses_reply([])
    asked = {
        "type": "tool_search_call", "id": "tsc", "execution": "client", "call_id": "s",
        "status": "completed", "arguments": {"query": "weather", "limit": 1},
    }  # fmt: skip
    reply["output"].append(asked)
    *said, found = session.handle("openai_responses", reply)
    assert said == reply["output"]
    assert (found["type"], found["call_id"], found["tools"][0]["name"]) == (
        "tool_search_output",
        "s",
        "get_weather",
    )
    replayed = crib.session(native="client")
    replayed.replay("openai_responses", [*said, found])
    assert replayed.state == session.state


@pytest.mark.parametrize(
    "options",
    [
        {"style": "magic"},
        {"budget": 0},
        {"budget": True},
        {"budget": "much"},
        {"native": "perhaps"},
        {"allowed": 7},
    ],
)
def test_an_option_that_does_not_exist_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        _crib().session(**options)


@pytest.mark.parametrize("tools", [None, "get_weather", WEATHER, print, 7])
def test_tools_that_are_no_list_are_refused_with_the_cure(tools: Any) -> None:
    with pytest.raises(InvalidTool, match="tools come in a list"):
        Toolcrib(tools)


def test_a_list_is_no_catalog_to_go_on_with() -> None:
    with pytest.raises(InvalidTool, match="with_tools"):
        _crib().update([Tool("a")])  # type: ignore[arg-type]


def test_an_unknown_wire_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(
        InvalidConfig, match="anthropic, openai_chat, openai_responses, gemini, mcp"
    ):
        _crib().session().tools("telegraph")


@pytest.mark.parametrize("wire", REPLIES)
@pytest.mark.parametrize("reply", [None, 7, "text", []])
def test_what_is_no_reply_is_refused(wire: str, reply: object) -> None:
    with pytest.raises(InvalidMessage, match="pass it unchanged from the provider"):
        _crib().session().handle(wire, reply)


@pytest.mark.parametrize("wire", REPLIES)
@pytest.mark.parametrize("history", [None, 7, "text", {}, [None]])
def test_what_is_no_history_is_refused(wire: str, history: Any) -> None:
    with pytest.raises(InvalidMessage):
        _crib().session().replay(wire, history)


@pytest.mark.parametrize("wire", REPLIES)
@pytest.mark.parametrize(
    "reply",
    [
        {}, {"content": 7}, {"choices": []}, {"choices": [{}]}, {"output": [7, {"type": "function_call"}]},
        {"candidates": [{"content": {"parts": [{"functionCall": 7}]}}]}, {"params": 7},
        {"role": "assistant", "tool_calls": [{"function": {"name": "x", "arguments": "{"}}, {"function": 7}]},
        {"content": [{"type": "tool_use", "id": 7, "name": None, "input": "x"}]},
    ],
)  # fmt: skip
def test_odd_replies_are_read_as_far_as_they_go(wire: str, reply: dict[str, Any]) -> None:
    session = _crib().session()
    messages = session.handle(wire, reply)
    session.replay(wire, [*messages, *session.answer(wire)])
    assert all(one.id in session._crib.catalog for one in session.state.revealed)


def test_the_public_session_is_the_value_that_is_kept() -> None:
    assert isinstance(_crib().session().state, Session)
