"""Check that the official SDKs accept what the adapters send, and that their objects are parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import pytest
from pydantic import TypeAdapter

from tests.scripted import REPLIES, ScriptedCall
from toolcrib import Tool, Toolcrib
from toolcrib.session.disclosure import Activation, Disclosure
from toolcrib.toolcrib import ToolcribSession

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    Tool("get_weather", "Weather forecast for a city.", SCHEMA, examples=[{"city": "Rome"}]),
    Tool("send.mail", "Send an e-mail.", category="mail & more"),
    Tool("refund", "Refund a charge.", server="shop", title="Refund", annotations={"readOnlyHint": True}),
]
CALLS: list[ScriptedCall] = [
    ("a", "search_tools", {"query": "weather", "limit": 1}),
    ("b", "get_weather", {"city": "Rome"}),
    ("c", "nowhere", {"a": None}),
]


def _session(**options: Any) -> ToolcribSession:
    return Toolcrib(TOOLS, disclosure=Disclosure(Activation(tools=0))).session(**options)


def _check(type: Any, values: list[dict[str, Any]]) -> None:
    adapter = TypeAdapter(type)
    for value in values:
        _walk(adapter.validate_python(value))


def _walk(value: object) -> None:
    """Visit every part: pydantic validates some lists only when they are iterated."""
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, Iterable) and not isinstance(value, str):
        for part in value:
            _walk(part)


def _anthropic() -> tuple[Any, Any, Any]:
    types = import_module("anthropic.types")
    return types.Message, types.MessageParam, types.ToolUnionParam


def _chat() -> tuple[Any, Any, Any]:
    types = import_module("openai.types.chat")
    return (types.ChatCompletion, types.ChatCompletionMessageParam, types.ChatCompletionToolUnionParam)


def _responses() -> tuple[Any, Any, Any]:
    types = import_module("openai.types.responses")
    return types.Response, types.ResponseInputItemParam, types.ToolParam


def _gemini() -> tuple[Any, Any, Any]:
    types = import_module("google.genai.types")
    return types.GenerateContentResponse, types.Content, types.Tool


SDKS: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "anthropic": _anthropic,
    "openai_chat": _chat,
    "openai_responses": _responses,
    "gemini": _gemini,
}


@pytest.mark.parametrize("wire", SDKS)
def test_a_complete_turn_matches_the_sdk_types(wire: str) -> None:
    reply_type, message_type, tool_type = SDKS[wire]()
    session = _session()
    sent = REPLIES[wire](CALLS)
    reply = reply_type.model_validate(sent)
    messages = session.handle(wire, reply)
    messages += session.answer(wire, {"b": "sunny"})
    _check(message_type, messages)
    _check(tool_type, session.tools(wire))
    again = _session()
    again.replay(wire, [message_type.model_validate(part) for part in messages] if wire == "gemini" else messages)
    assert again.state == session.state
    from_dicts = _session()
    from_dicts.handle(wire, sent)
    assert from_dicts.state == session.state
    assert [task.call for task in session.pending] == []


@pytest.mark.parametrize("wire", SDKS)
def test_nulls_in_arguments_are_kept(wire: str) -> None:
    session = Toolcrib([Tool("a")]).session()
    session.handle(wire, SDKS[wire]()[0].model_validate(REPLIES[wire]([("1", "a", {"x": None, "y": [None]})])))
    assert session.pending[0].arguments == {"x": None, "y": [None]}


@pytest.mark.parametrize("native", [True, "client"])
@pytest.mark.parametrize("wire", ["anthropic", "openai_responses"])
def test_deferred_tools_match_the_sdk_types(wire: str, native: Any) -> None:
    _check(SDKS[wire]()[2], _session(native=native).tools(wire))


def test_search_answers_match_the_sdk_types() -> None:
    session = _session(native="client")
    messages = session.handle("anthropic", REPLIES["anthropic"](CALLS[:1]))
    _check(_anthropic()[1], messages)
    reply = REPLIES["openai_responses"]([])
    reply["output"].append(
        {
            "type": "tool_search_call", "id": "t", "execution": "client", "call_id": "s",
            "status": "completed", "arguments": {"query": "weather"},
        }
    )  # fmt: skip
    response, item, _ = _responses()
    session = _session(native="client")
    _check(item, session.handle("openai_responses", response.model_validate(reply)))
    assert session.state.revealed


def test_mcp_lists_and_results_match_the_sdk_types() -> None:
    types = import_module("mcp.types")
    session = _session()
    types.ListToolsResult.model_validate({"tools": session.tools("mcp")})
    request, response = session.handle("mcp", REPLIES["mcp"](CALLS))
    types.CallToolRequestParams.model_validate(request["params"])
    assert types.CallToolResult.model_validate(response["result"])
    assert session.state.revealed


@pytest.mark.parametrize("wire", ["anthropic", "openai_chat", "openai_responses", "gemini", "mcp"])
def test_tools_survive_a_round_trip(wire: str) -> None:
    plain = [Tool("get_weather", "Weather forecast.", SCHEMA), Tool("a", "b", {"type": "object"})]
    sent = Toolcrib(plain).session().tools(wire)
    assert list(Toolcrib(sent).catalog) == plain
