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
from toolcrib.adapters.wire_formats import count_wire_tokens
from toolcrib.core.calls import CallResult
from toolcrib.core.token_count import estimate_tokens
from toolcrib.errors import DuplicateTool, InvalidConfig, InvalidMessage, InvalidSchema, InvalidTool
from toolcrib.session.disclosure import Activation, Disclosure, DisclosurePlan

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "Weather forecast for a city.", "input_schema": CITY}
MAIL = {"type": "function", "function": {"name": "send_mail", "description": "Send an e-mail.", "parameters": {}}}
REFUND = {"name": "refund", "description": "Refund a charge.", "inputSchema": {}, "server": "shop"}
HELD = Disclosure(Activation(tools=0))


class KitchenToolset:
    """A toolset that is not a registry."""

    tools = (Tool("boil", "Boil an egg for minutes.", {"required": ["minutes"]}), Tool("burn", "Burn."))

    def has_tool(self, name: str) -> bool:
        return name in ("boil", "burn")

    def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        if name == "burn":
            raise RuntimeError("fire")
        return CallResult(f"boiled for {arguments['minutes']}")


def _toolcrib() -> Toolcrib:
    return Toolcrib([WEATHER, MAIL, [REFUND], KitchenToolset()], disclosure=HELD)


def _budget(toolcrib: Toolcrib, wire: str, *names: str) -> int:
    """Return the tokens of the search tool and of these tools in a format."""
    session = toolcrib.session(budget=10_000)
    session.tools(wire)
    tools = (toolcrib.catalog[name] for name in names)
    return session.state.fixed_tokens + sum(count_wire_tokens(wire, estimate_tokens, tool) for tool in tools)


def _names(entries: list[dict[str, Any]]) -> list[str]:
    return [entry.get("function", entry)["name"] for entry in entries]


def test_entries_of_every_type_can_be_mixed() -> None:
    assert [tool.id for tool in _toolcrib().catalog] == [
        "get_weather", "send_mail", "shop___refund", "boil", "burn",
    ]  # fmt: skip


def test_sdk_objects_are_accepted_alone_and_in_list_responses() -> None:
    listed = mcp_tool(name="refund", description="Refund.", input_schema=CITY)

    @beta_tool
    def get_weather(city: str) -> str:
        """Weather forecast.

        Args:
            city: Which one.
        """
        return f"sunny in {city}"

    toolcrib = Toolcrib([{"server": "shop", "tools": [listed]}, listed, get_weather])
    assert [tool.id for tool in toolcrib.catalog] == ["shop___refund", "refund", "get_weather"]
    assert toolcrib.catalog["get_weather"].input_schema["properties"]["city"]["type"] == "string"
    reply = openai_chat_reply([("1", "get_weather", {"city": "Rome"})])
    assert toolcrib.session().handle("openai_chat", reply)[-1]["content"] == "sunny in Rome"


@pytest.mark.parametrize(
    ("entries", "error", "message"),
    [
        ([WEATHER, [MAIL, WEATHER]], DuplicateTool, "entry 2, entry 2: entry 1 has the id 'get_weather' too"),
        ([WEATHER, {"name": "", "input_schema": {}}], InvalidTool, "entry 2: "),
        ([{"name": "x", "input_schema": {"a": float("nan")}}], InvalidSchema, "entry 1: "),
        ([7], InvalidTool, "entry 1: a tool is an object, not a number"),
        (
            [WEATHER, Tool("odd", "", {"properties": {"a": {"type": "strng"}}})],
            InvalidSchema,
            r"entry 2: tool 'odd': .*\"strng\" .*at properties.a.type.*; correct the schema",
        ),
        ([Tool("odd", "", {"$ref": "#/$defs/none"})], InvalidSchema, "entry 1: tool 'odd': .*/none"),
        ([Tool("odd", "", {"$ref": "https://example.test/x"})], InvalidSchema, "entry 1: tool 'odd': .*example.test"),
        ([print], InvalidTool, r"entry 1: function 'print': \*args does not name"),
    ],
)
def test_invalid_entry_is_located(entries: list[object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Toolcrib(entries)


def test_searches_are_answered_and_registered_tools_are_run() -> None:
    session = _toolcrib().session()
    assert _names(session.tools("openai_chat")) == ["search_tools"]
    reply = openai_chat_reply(
        [("1", "search_tools", {"query": "boil an egg"}), ("2", "boil", {"minutes": 4}), ("3", "burn", {})]
    )
    said, found, boiled, burnt = session.handle("openai_chat", reply)
    assert said["tool_calls"] == reply["choices"][0]["message"]["tool_calls"]
    assert [found["tool_call_id"], boiled["tool_call_id"], burnt["tool_call_id"]] == ["1", "2", "3"]
    assert boiled["content"] == "boiled for 4"
    assert burnt["content"] == "burn failed: RuntimeError: fire"
    assert _names(session.tools("openai_chat")) == ["search_tools", "boil", "burn"]


def test_pending_calls_are_answered_together_with_the_others() -> None:
    session = _toolcrib().session()
    reply = openai_chat_reply([("1", "get_weather", {"city": "Rome"}), ("2", "boil", {"minutes": 1})])
    assert len(session.handle("openai_chat", reply)) == 1
    (task,) = session.pending
    assert (task.call.id, task.tool.name, task.arguments) == ("1", "get_weather", {"city": "Rome"})
    sunny, boiled = session.answer("openai_chat", {"1": "sunny"})
    assert (sunny["content"], boiled["content"]) == ("sunny", "boiled for 1")
    assert session.pending == ()
    with pytest.raises(InvalidMessage, match="no call '9' is pending"):
        session.answer("openai_chat", {"9": CallResult("x")})


def test_async_functions_run_concurrently_in_the_event_loop() -> None:
    met: list[str] = []

    async def main() -> list[dict[str, Any]]:
        both = asyncio.Event()

        async def meet(name: str) -> str:
            """Meet another person."""
            met.append(name)
            if len(met) == 2:
                both.set()
            # The barrier belongs to the event loop of `main`; it opens only for two concurrent calls.
            await asyncio.wait_for(both.wait(), 60)
            return f"{name} met"

        toolcrib = Toolcrib([meet, KitchenToolset(), WEATHER])
        session = toolcrib.session()
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


def test_unanswered_call_is_reported_as_not_run() -> None:
    session = _toolcrib().session()
    session.handle("openai_chat", openai_chat_reply([("1", "send_mail", {})]))
    (told,) = session.answer("openai_chat")
    assert told["content"] == "send_mail was not run."


def test_reply_without_calls_adds_only_itself() -> None:
    session = _toolcrib().session()
    (message,) = session.handle("openai_chat", openai_chat_reply([]))
    assert message == {"role": "assistant", "content": "Done."}


def test_separate_runner_runs_its_tools() -> None:
    toolcrib = Toolcrib([{"name": "boil", "input_schema": {}}], runner=KitchenToolset())
    messages = toolcrib.session().handle("openai_chat", openai_chat_reply([("1", "boil", {"minutes": 2})]))
    assert messages[-1]["content"] == "boiled for 2"


@pytest.mark.parametrize("result", ["boiled", None])
def test_invalid_result_of_a_runner_raises_with_advice(result: Any) -> None:
    class InvalidRunner(KitchenToolset):
        def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
            return result  # type: ignore[no-any-return]

    session = Toolcrib([InvalidRunner()]).session()
    reply = openai_chat_reply([("1", "boil", {"minutes": 2})])
    wrong = rf"runner of 'boil' returned a {type(result).__name__}; .* CallResult\(text\)"
    with pytest.raises(InvalidConfig, match=wrong):
        session.handle("openai_chat", reply)
    with pytest.raises(InvalidConfig, match=wrong):
        asyncio.run(session.handle_async("openai_chat", reply))


@pytest.mark.parametrize(
    ("options", "advice"),
    [({"disclosure": "auto"}, r"not 'auto'; write Disclosure\("), ({"disclosure": {}}, r"write Disclosure\(")],
)
def test_option_of_the_wrong_type_is_rejected_with_advice(options: dict[str, Any], advice: str) -> None:
    with pytest.raises(InvalidConfig, match=advice):
        Toolcrib([WEATHER], **options)


@pytest.mark.parametrize("wire", REPLIES)
def test_replayed_history_equals_the_live_session_on_every_wire(wire: str) -> None:
    toolcrib = _toolcrib()
    budget = _budget(toolcrib, wire, "get_weather", "boil", "shop___refund") - 1
    live = toolcrib.session(budget=budget)
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
    replayed = toolcrib.session(budget=budget)
    replayed.replay(wire, messages)
    assert replayed.state == live.state
    assert [one.id for one in live.state.revealed] == ["boil", "shop___refund"]
    assert live.state.evicted == ("get_weather",)
    assert replayed.tools(wire) == live.tools(wire)
    compacted = toolcrib.session()
    compacted.replay(wire, messages[2:])
    assert [one.id for one in compacted.state.revealed] == ["boil", "shop___refund"]


def test_restored_session_keeps_tools_that_still_exist() -> None:
    toolcrib = _toolcrib()
    session = toolcrib.session()
    session.handle("openai_chat", openai_chat_reply([("1", "burn", {}), ("2", "boil", {"minutes": 1})]))
    stored = json.loads(json.dumps(session.save()))
    later = toolcrib.session()
    later.restore(stored)
    assert _names(later.tools("mcp")) == ["search_tools", "burn", "boil"]
    refused = toolcrib.session(allowed=lambda tool: tool.id != "burn")
    refused.restore(stored)
    assert _names(refused.tools("mcp")) == ["search_tools", "boil"]


def test_restored_session_has_every_tool_of_a_new_one() -> None:
    saved = Toolcrib([Tool("a"), Tool("b")]).session().save()
    later = Toolcrib([Tool("a"), Tool("b", "Changed."), Tool("c")]).session()
    later.restore(saved)
    assert _names(later.tools("mcp")) == ["a", "b", "c"]


def test_catalog_update_keeps_revealed_tools_in_place() -> None:
    toolcrib = _toolcrib()
    session = toolcrib.session()
    session.handle("openai_chat", openai_chat_reply([("1", "burn", {}), ("2", "boil", {"minutes": 1})]))
    pinned = Tool("new", "Something new.", policy="never")
    toolcrib.update(toolcrib.catalog.with_tools([pinned]).without(["burn"]))
    assert _names(session.tools("mcp")) == ["search_tools", "boil", "new"]


def test_session_is_consistent_during_a_catalog_update() -> None:
    begun, go_on = Event(), Event()

    class Slow(Disclosure):
        def plan(self, tools: Iterable[Tool]) -> DisclosurePlan:
            plan = super().plan(tools)
            if "b" in [tool.id for tool in plan.visible_tools]:
                begun.set()
                assert go_on.wait(60)
            return plan

    toolcrib = Toolcrib([Tool("a")], disclosure=Slow())
    session = toolcrib.session()
    changing = Thread(target=toolcrib.update, args=[toolcrib.catalog.with_tools([Tool("b")])])
    changing.start()
    assert begun.wait(60)
    asked = toolcrib.build_turn_handler("reveal", None)
    assert [tool.id for tool in asked.plan.visible_tools] == [tool.id for tool in asked.engine.catalog]
    asking = Thread(target=session.tools, args=["mcp"])
    asking.start()
    go_on.set()
    changing.join(60)
    asking.join(60)
    assert _names(session.tools("mcp")) == ["a", "b"]


def test_dispatch_never_changes_the_list() -> None:
    session = _toolcrib().session(style="dispatch")
    before = session.tools("anthropic")
    execute = {"tool_name": "boil", "tool_input": {"minutes": 5}}
    calls: list[ScriptedCall] = [("1", "search_tools", {"query": "egg"}), ("2", "execute_dynamic_tool", execute)]
    messages = session.handle("anthropic", REPLIES["anthropic"](calls))
    assert messages[1]["content"][1]["content"] == "boiled for 5"
    assert session.tools("anthropic") == before


def test_native_search_by_anthropic() -> None:
    session = _toolcrib().session(native=True)
    search, *rest = session.tools("anthropic")
    assert search == {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    assert all(entry["defer_loading"] for entry in rest) and len(rest) == 5
    assert _names(session.tools("openai_chat")) == ["search_tools"]


def test_native_search_by_openai() -> None:
    tools = [Tool("a", category="zoo"), Tool("b", category="air"), Tool("c"), Tool("d", policy="never")]
    entries = Toolcrib(tools, disclosure=HELD).session(native=True).tools("openai_responses")
    shown, air, zoo, alone, search = entries
    assert (shown["name"], alone["name"], alone["defer_loading"]) == ("d", "c", True)
    assert (air["name"], zoo["name"]) == ("air", "zoo")
    assert air["description"] == "Tools for air" and zoo["tools"][0]["defer_loading"]
    assert search == {"type": "tool_search"}


def test_auto_chooses_by_model_id() -> None:
    def first(model: str, wire: str) -> Any:
        return _toolcrib().session(native="auto", model=model).tools(wire)[0]["name"]

    assert first("claude-opus-4-8", "anthropic") == "tool_search_tool_bm25"
    assert first("llama-4", "anthropic") == "search_tools"
    assert first("gpt-5.4", "anthropic") == "search_tools"
    assert first("anthropic/claude-opus-4-8", "anthropic") == "search_tools"


def test_native_search_needs_deferred_tools() -> None:
    session = Toolcrib([WEATHER]).session(native=True)
    assert _names(session.tools("anthropic")) == ["get_weather"]


def test_client_search_answers_in_the_anthropic_format() -> None:
    toolcrib = _toolcrib()
    session = toolcrib.session(native="client")
    before = session.tools("anthropic")
    assert before[0]["name"] == "search_tools" and "defer_loading" not in before[0]
    reply = REPLIES["anthropic"]([("t", "search_tools", {"query": "weather", "limit": 1}), ("u", "search_tools", {})])
    said, results = session.handle("anthropic", reply)
    found, empty = results["content"]
    assert found["content"] == [{"type": "tool_reference", "tool_name": "get_weather"}]
    assert empty["is_error"] and isinstance(empty["content"], str)
    assert session.tools("anthropic") == before
    replayed = toolcrib.session(native="client")
    replayed.replay("anthropic", [said, results])
    assert replayed.state == session.state


def test_client_search_answers_in_the_openai_format() -> None:
    toolcrib = _toolcrib()
    session = toolcrib.session(native="client")
    (search,) = session.tools("openai_responses")
    assert (search["type"], search["execution"]) == ("tool_search", "client") and search["description"]
    reply = openai_responses_reply([])
    asked = {
        "type": "tool_search_call", "id": "tsc", "execution": "client", "call_id": "s",
        "status": "completed", "arguments": {"query": "weather", "limit": 1},
    }  # fmt: skip
    reply["output"].append(asked)
    *said, found = session.handle("openai_responses", reply)
    assert said == reply["output"]
    assert (found["type"], found["call_id"], found["tools"][0]["name"]) == ("tool_search_output", "s", "get_weather")
    replayed = toolcrib.session(native="client")
    replayed.replay("openai_responses", [*said, found])
    assert replayed.state == session.state


@pytest.mark.parametrize(
    "options",
    [{"style": "magic"}, {"budget": 0}, {"budget": True}, {"budget": "much"}, {"native": "perhaps"}, {"allowed": 7}],
)
def test_invalid_session_option_is_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        _toolcrib().session(**options)


@pytest.mark.parametrize("tools", [None, "get_weather", print, 7])
def test_invalid_single_entry_is_an_error(tools: Any) -> None:
    with pytest.raises(InvalidTool, match="entry 1: "):
        Toolcrib(tools)


def test_single_tool_may_be_passed_without_a_list() -> None:
    assert [tool.id for tool in Toolcrib(WEATHER).catalog] == ["get_weather"]


def test_update_needs_a_catalog() -> None:
    with pytest.raises(InvalidTool, match="with_tools"):
        _toolcrib().update([Tool("a")])  # type: ignore[arg-type]


def test_unknown_wire_lists_the_known_ones() -> None:
    with pytest.raises(InvalidConfig, match="anthropic, openai_chat, openai_responses, gemini, mcp"):
        _toolcrib().session().tools("telegraph")


@pytest.mark.parametrize("wire", REPLIES)
@pytest.mark.parametrize("reply", [None, 7, "text", []])
def test_invalid_reply_is_rejected(wire: str, reply: object) -> None:
    with pytest.raises(InvalidMessage, match="pass it unchanged from the provider"):
        _toolcrib().session().handle(wire, reply)


def test_reply_of_another_provider_is_rejected_before_its_calls_are_lost() -> None:
    session = _toolcrib().session()
    for wire in ("anthropic", "openai_chat", "openai_responses", "gemini"):
        reply = REPLIES[wire]([("1", "search_tools", {"query": "weather"})])
        for other in {*REPLIES} - {wire}:
            with pytest.raises(InvalidMessage, match=f"in the format '{wire}', not '{other}'"):
                session.handle(other, reply)
        assert len(session.handle(wire, reply)) > 1


@pytest.mark.parametrize("wire", REPLIES)
def test_error_of_the_provider_is_not_a_reply(wire: str) -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "try again later"}}
    with pytest.raises(InvalidMessage, match="an error of the provider, not a reply: try again later"):
        _toolcrib().session().handle(wire, body)


@pytest.mark.parametrize("runner", ["shop", print, object()])
def test_runner_without_its_methods_is_rejected(runner: Any) -> None:
    with pytest.raises(InvalidConfig, match="runner is an object with `has_tool` and `call`"):
        Toolcrib([WEATHER], runner=runner)


@pytest.mark.parametrize("wire", REPLIES)
@pytest.mark.parametrize("history", [None, 7, "text", {}, [None]])
def test_invalid_history_is_rejected(wire: str, history: Any) -> None:
    with pytest.raises(InvalidMessage):
        _toolcrib().session().replay(wire, history)


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
def test_malformed_replies_are_handled(wire: str, reply: dict[str, Any]) -> None:
    toolcrib = _toolcrib()
    session = toolcrib.session()
    messages = session.handle(wire, reply)
    session.replay(wire, [*messages, *session.answer(wire)])
    assert all(entry.id in toolcrib.catalog for entry in session.state.revealed)


def test_state_of_a_session_is_a_public_session() -> None:
    assert isinstance(_toolcrib().session().state, Session)
