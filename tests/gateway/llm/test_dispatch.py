"""Dispatch style: a list of tools that never changes, in each API, whole and streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.llm.sdk_conversations import APIS, Json, sdk_conversation
from tests.support.scripted_model.turn import ToolCall, Turn

EVERY_API = pytest.mark.parametrize("api", APIS)
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def schema(*names: str) -> Json:
    properties = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": list(names), "additionalProperties": False}


TOOLS: list[tuple[str, str, Json]] = [
    *((f"errand_{number}", f"Run errand number {number}", schema("text")) for number in range(40)),
    ("read_tide", "Tell when the water is high", schema("place")),
    ("moor_boat", "Tie a boat to the quay", schema("boat")),
    ("ring_bell", "Ring the bell", schema("times")),
]


def search(query: str) -> ToolCall:
    return ToolCall("search_tools", {"query": query})


def dispatch(name: str, **arguments: Any) -> ToolCall:
    return ToolCall("call_tool", {"tool_name": name, "tool_input": arguments})


class HalfPair(ToolCall):
    """A call whose JSON has escapes, as half of a surrogate pair needs them."""

    @property
    def json(self) -> str:
        return json.dumps(self.arguments)


class NoObject(ToolCall):
    """A call whose arguments are a JSON list."""

    @property
    def json(self) -> str:
        return "[1]"


@BOTH
@EVERY_API
def test_client_gets_calls_of_its_own_tools_and_the_prefix_stays(api: str, stream: bool) -> None:
    script = [
        Turn("I look.", search("when is the water high")),
        Turn("Found.", dispatch("read_tide", place="Brest")),
        Turn("At noon."),
        Turn(dispatch("read_tide", place="Ostend")),
        Turn(search("tie a boat to the quay"), dispatch("read_tide", place="Calais")),
        Turn(dispatch("moor_boat", boat="Anna")),
        Turn("Moored."),
    ]
    options: Any = {"style": "dispatch", "prefetch": False, "always_expose": ("ring_*",), "stream": stream}
    with sdk_conversation(api, script, TOOLS, **options) as talk:
        first = talk.ask("When is high tide?")
        assert first.calls == [("read_tide", {"place": "Brest"})]
        assert "I look." in first.text and "Found." in first.text
        assert talk.answer(first, "noon").text == "At noon."
        second = talk.ask("And in Ostend?")
        assert second.calls == [("read_tide", {"place": "Ostend"})]
        both = talk.answer(second, "one")
        assert both.calls == [("read_tide", {"place": "Calais"})]
        moored = talk.answer(both, "two")
        assert moored.calls == [("moor_boat", {"boat": "Anna"})]
        assert talk.answer(moored, "ok").text == "Moored."
        assert {request.tool_names for request in talk.requests} == {("ring_bell", "search_tools", "call_tool")}
        assert talk.is_prefix_stable()
        (found,) = talk.requests[1].results
        assert json.loads(found)["found"] == [
            {"name": "read_tide", "description": "Tell when the water is high", "input_schema": schema("place")}
        ]
        last = json.dumps(talk.requests[-1].body)
        assert last.count("when is the water high") == 1 and last.count("tie a boat") == 1
        assert "search_tools" not in json.dumps(talk.history) and "call_tool" not in json.dumps(talk.history)


@BOTH
@EVERY_API
def test_model_corrects_invalid_calls_without_the_client(api: str, stream: bool) -> None:
    script = [
        Turn(dispatch("read_tides", place="Brest")),
        Turn(dispatch("read_tide", harbour="Brest")),
        Turn(ToolCall("call_tool", {"name": "read_tide"})),
        Turn(ToolCall("read_tide", {"place": "Brest"})),
        Turn("At noon."),
    ]
    with sdk_conversation(api, script, TOOLS, style="dispatch", prefetch=False, stream=stream) as talk:
        reply = talk.ask("When is high tide?")
        assert reply.calls == [("read_tide", {"place": "Brest"})]
        assert talk.answer(reply).text == "At noon."
        results = [request.results[-1] for request in talk.requests[1:4]]
        assert "read_tide" in results[0] and "place" in results[1] and "tool_name" in results[2]
        assert talk.is_prefix_stable()


@BOTH
@pytest.mark.parametrize("api", ["chat", "responses"])
def test_arguments_that_are_not_valid_text_do_not_end_the_conversation(api: str, stream: bool) -> None:
    # Models cut pictures between the halves of a surrogate pair, and write JSON that is not an object.
    script = [
        Turn(HalfPair("call_tool", {"tool_name": "read_tide", "tool_input": {"place": "\ud83d"}})),
        Turn("At noon."),
        Turn(HalfPair("call_tool", {"tool_name": "\ud83d", "tool_input": {}})),
        Turn(NoObject("call_tool", {})),
        Turn("Sorry."),
    ]
    with sdk_conversation(api, script, TOOLS, style="dispatch", prefetch=False, stream=stream) as talk:
        reply = talk.ask("When is high tide?")
        assert reply.calls == [("read_tide", {"place": "?"})]
        assert talk.answer(reply).text == "At noon."
        assert talk.ask("And tomorrow?").text == "Sorry."
        assert "not a JSON object" in talk.requests[-1].results[-1]


@BOTH
@EVERY_API
def test_calls_reach_the_client_in_the_order_of_the_model(api: str, stream: bool) -> None:
    calls = (
        dispatch("read_tide", place="Brest"),
        ToolCall("ring_bell", {"times": "2"}),
        dispatch("errand_3", text="x"),
    )
    options: Any = {"style": "dispatch", "prefetch": False, "always_expose": ("ring_bell",), "stream": stream}
    with sdk_conversation(api, [Turn("Now.", *calls), Turn("Done.")], TOOLS, **options) as talk:
        reply = talk.ask("All three.")
        assert [name for name, _ in reply.calls] == ["read_tide", "ring_bell", "errand_3"]
        assert len(set(reply.ids)) == 3
        talk.answer(reply)
        sent = json.dumps(talk.requests[1].body)
        assert sent.count('"call_tool"') == 3 and sent.count('"ring_bell"') == 2


@EVERY_API
def test_definition_is_sent_once_and_weak_hits_are_named(api: str) -> None:
    tools: list[tuple[str, str, Json]] = [*TOOLS, ("water_plants", "Water the plants in the garden", schema("minutes"))]
    script = [Turn(search("when is the water high")), Turn(search("read_tide")), Turn("Hm.")]
    with sdk_conversation(api, script, tools, style="dispatch", prefetch=False) as talk:
        talk.ask("When is high tide?")
        first, second = (json.loads(talk.requests[number].results[-1]) for number in (1, 2))
    defined = [tool["name"] for tool in first["found"]]
    named = [tool["name"] for tool in first["nearest"]]
    assert (defined, named) == (["read_tide"], ["water_plants"])
    assert all("input_schema" not in tool for tool in first["nearest"])
    assert [tool["name"] for tool in second["found"]] == ["read_tide"]
    assert "input_schema" not in second["found"][0] and "read_tide" in second["message"]


@EVERY_API
def test_forced_tool_is_listed_for_this_request(api: str) -> None:
    choices: dict[str, Json] = {
        "messages": {"type": "tool", "name": "moor_boat"},
        "chat": {"type": "function", "function": {"name": "moor_boat"}},
        "responses": {"type": "function", "name": "moor_boat"},
    }
    script = [Turn(ToolCall("moor_boat", {"boat": "Anna"})), Turn("Done.")]
    with sdk_conversation(api, script, TOOLS, style="dispatch", prefetch=False) as talk:
        talk.options = {"tool_choice": choices[api]}
        reply = talk.ask("Moor.")
        assert talk.requests[0].tool_names == ("search_tools", "call_tool", "moor_boat")
        talk.options = {}
        talk.answer(reply)
        assert talk.requests[1].tool_names == ("search_tools", "call_tool")
        assert '"call_tool"' in json.dumps(talk.upstream_messages(1))


@EVERY_API
def test_stubs_show_names_and_descriptions_in_a_constant_list(api: str) -> None:
    script = [Turn(ToolCall("moor_boat", {"boat": "Anna"})), Turn("Done.")]
    with sdk_conversation(
        api, script, TOOLS[-4:], style="dispatch", prefetch=False, tier="stub", tool_search="on"
    ) as talk:
        reply = talk.ask("Moor.")
        assert reply.calls == [("moor_boat", {"boat": "Anna"})]
        talk.answer(reply)
        names = ("search_tools", "call_tool", "errand_39", "read_tide", "moor_boat", "ring_bell")
        assert {request.tool_names for request in talk.requests} == {names}
        stubs = json.dumps(talk.requests[0].body["tools"][2:])
        assert "Tie a boat to the quay" in stubs and '"boat"' not in stubs
        assert talk.is_prefix_stable()


@EVERY_API
def test_endless_searches_stop_without_a_change_of_the_list(api: str) -> None:
    with sdk_conversation(
        api, lambda request: Turn("Hm.", search("tide")), TOOLS, style="dispatch", prefetch=False
    ) as talk:
        assert talk.ask("Search for ever.").calls == []
        assert 10 <= len(talk.requests) <= 12
        assert talk.is_prefix_stable()


@BOTH
@EVERY_API
def test_definitions_are_sent_with_the_message_that_needs_them(api: str, stream: bool) -> None:
    script = [
        Turn(dispatch("read_tide", place="Brest")),
        Turn("At noon."),
        Turn(dispatch("read_tide", place="Ostend")),
        Turn("At one."),
        Turn("You are welcome."),
    ]
    with sdk_conversation(api, script, TOOLS, style="dispatch", stream=stream) as talk:
        for question, place in (
            ("Tell when the water is high", "Brest"),
            ("Tell when the water is high now", "Ostend"),
        ):
            reply = talk.ask(question)
            assert reply.calls == [("read_tide", {"place": place})]
            talk.answer(reply)
        # A lost memory changes nothing, because the definitions depend on the message alone.
        talk.gateway.memory.clear()
        talk.ask("Thank you very much, that was all.")
        first, *_, last = (json.dumps(talk.upstream_messages(number)) for number in range(5))
        assert '\\"input_schema\\"' in first and "call_tool" in first
        assert last.count('\\"input_schema\\"') == 1
        assert "input_schema" not in json.dumps(talk.history)
        assert talk.is_prefix_stable()


def test_long_messages_are_not_searched_for_tools() -> None:
    with sdk_conversation("chat", lambda request: Turn("Hm."), TOOLS, style="dispatch") as talk:
        talk.ask("Tell when the water is high. " + "It is a long story. " * 20)
        assert talk.upstream_messages(0) == talk.history[:1]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_stored_response_keeps_the_list_and_its_definitions(stream: bool) -> None:
    script = [
        Turn(search("when is the water high")),
        Turn(dispatch("read_tide", place="Brest")),
        Turn(search("read_tide")),
        Turn("At noon."),
    ]
    with sdk_conversation("responses", script, TOOLS, style="dispatch", prefetch=False, stream=stream) as talk:
        first = talk.ask("When is high tide?")
        talk.options = {"previous_response_id": talk.last_id}
        talk.history = []
        assert talk.answer(first).text == "At noon."
        assert {request.tool_names for request in talk.requests} == {("search_tools", "call_tool")}
        assert "input_schema" not in talk.requests[3].results[-1], "the upstream has stored the definition"
