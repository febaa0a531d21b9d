"""Test searches by the provider: the session and a replayed history know what they found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.scripted import REPLIES, ScriptedCall
from toolcrib import Tool, Toolcrib
from toolcrib.session.disclosure import Activation, Disclosure

CRM: dict[str, Any] = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [
        {"type": "function", "name": "get_profile", "description": "A customer's profile."},
        {"type": "function", "name": "list_orders", "description": "A customer's orders."},
    ],
}
TOOLS = [Tool("get_weather", "Weather."), Tool("send_mail", "Mail.", category="post"), CRM]


def _toolcrib() -> Toolcrib:
    return Toolcrib(TOOLS, disclosure=Disclosure(Activation(tools=0)))


def _anthropic(found: Sequence[str], calls: Sequence[ScriptedCall] = ()) -> dict[str, Any]:
    reply = REPLIES["anthropic"](calls)
    references = [{"type": "tool_reference", "tool_name": name} for name in found]
    reply["content"][1:1] = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_bm25", "input": {"query": "x"}},
        {
            "type": "tool_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {"type": "tool_search_tool_search_result", "tool_references": references},
        },
    ]
    return reply


def _responses(found: Sequence[dict[str, Any]], calls: Sequence[ScriptedCall] = ()) -> dict[str, Any]:
    reply = REPLIES["openai_responses"](calls)
    hosted = {"execution": "server", "call_id": None, "status": "completed"}
    reply["output"][1:1] = [
        {"type": "tool_search_call", "id": "tsc_1", "arguments": {"paths": ["x"]}, **hosted},
        {"type": "tool_search_output", "id": "tso_1", "tools": list(found), **hosted},
    ]
    return reply


WEATHER = {"type": "function", "name": "get_weather", "defer_loading": True, "parameters": {}}
POST = {"type": "namespace", "name": "post", "tools": [{"type": "function", "name": "send_mail"}]}
ORDERS = {**CRM, "tools": CRM["tools"][1:]}


@pytest.mark.parametrize(
    ("wire", "reply", "shown"),
    [
        ("anthropic", _anthropic(["get_weather", "gone"]), ["get_weather"]),
        ("anthropic", _anthropic([]), []),
        ("anthropic", _anthropic(["get_weather"], [("1", "send_mail", {})]), ["get_weather", "send_mail"]),
        ("openai_responses", _responses([WEATHER, POST]), ["get_weather", "send_mail"]),
        ("openai_responses", _responses([ORDERS], [("1", "get_weather", {})]), ["crm___list_orders", "get_weather"]),
    ],
)
def test_tools_found_by_the_provider_are_revealed(wire: str, reply: dict[str, Any], shown: list[str]) -> None:
    toolcrib = _toolcrib()
    live = toolcrib.session(native=True)
    offered = live.tools(wire)
    messages = live.handle(wire, reply)
    messages += live.answer(wire, {task.call.id: "done" for task in live.pending})
    assert [one.id for one in live.state.revealed] == shown
    assert live.tools(wire) == offered
    ours = toolcrib.session()
    ours.replay(wire, messages)
    assert ours.state == live.state
    names = [entry["function"]["name"] for entry in ours.tools("openai_chat")]
    assert names == ["search_tools", *shown]


def test_failed_search_of_the_provider_reveals_nothing() -> None:
    reply = _anthropic([])
    reply["content"][2]["content"] = {"type": "tool_search_tool_result_error", "error_code": "x"}
    session = _toolcrib().session(native=True)
    session.handle("anthropic", reply)
    reply["content"][2]["content"] = None
    session.handle("anthropic", reply)
    assert session.state.revealed == ()


def test_dispatch_ignores_tools_found_by_the_provider() -> None:
    toolcrib = _toolcrib()
    live = toolcrib.session(style="dispatch")
    messages = live.handle("anthropic", _anthropic(["get_weather"]))
    replayed = toolcrib.session(style="dispatch")
    replayed.replay("anthropic", messages)
    assert replayed.state == live.state
    assert live.state.revealed == ()


@pytest.mark.parametrize(
    ("name", "namespace", "meant"),
    [
        ("get_profile", "crm", "crm___get_profile"),
        ("crm___get_profile", "crm___get_profile", "crm___get_profile"),
        ("send_mail", "post", "send_mail"),
        ("get_weather", "get_weather", "get_weather"),
        ("get_profile", "elsewhere", ""),
        ("get_profile", "", ""),
    ],
)
def test_namespace_of_a_call_is_the_server(name: str, namespace: str, meant: str) -> None:
    toolcrib = _toolcrib()
    session = toolcrib.session(native=True)
    reply = REPLIES["openai_responses"]([("1", name, {})])
    reply["output"][-1]["namespace"] = namespace
    messages = session.handle("openai_responses", reply)
    assert [task.tool.id for task in session.pending] == ([meant] if meant else [])
    assert messages[1]["namespace"] == namespace
    replayed = toolcrib.session()
    replayed.replay("openai_responses", [*messages, *session.answer("openai_responses")])
    assert replayed.state == session.state
    assert [one.id for one in replayed.state.revealed] == ([meant] if meant else [])


@pytest.mark.parametrize("variant", ["bm25", "regex"])
def test_search_of_anthropic_can_be_chosen(variant: Any) -> None:
    session = _toolcrib().session(native=variant)
    first, *rest = session.tools("anthropic")
    assert first == {"type": f"tool_search_tool_{variant}_20251119", "name": f"tool_search_tool_{variant}"}
    assert any(entry.get("defer_loading") for entry in rest)
    assert session.tools("openai_chat")[0]["function"]["name"] == "search_tools"


def test_search_tool_of_a_provider_is_not_a_tool_to_search() -> None:
    entries = [{"type": "tool_search"}, {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}]
    body = {"model": "m", "tools": [*entries, {"name": "weave", "input_schema": {"type": "object"}}]}
    assert [tool.name for tool in Toolcrib([body]).catalog] == ["weave"]
