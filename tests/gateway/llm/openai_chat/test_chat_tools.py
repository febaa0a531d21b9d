from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.llm.serving_openai import WORDS, chat_functions
from toolcrib.adapters.openai_chat import tools_to_wire
from toolcrib.gateway.llm.openai_chat.endpoint import build_deferred_index, build_transparent_index, uses_tool_search
from toolcrib.gateway.llm.tools.exposure import Exposure

NAMES = [name for name, _, _ in WORDS]


def function_names(entries: Any) -> list[str]:
    return [entry["function"]["name"] for entry in entries]


@pytest.mark.parametrize("inside", [False, True])
def test_deferred_tool_is_sent_without_defer_field(inside: bool) -> None:
    tools = chat_functions()
    for tool in tools[1:]:
        (tool["function"] if inside else tool)["defer_loading"] = True
    assert uses_tool_search(tools)
    index = build_deferred_index(tools, client_loads=False)
    assert function_names(index.always_sent) == NAMES[:1]
    assert list(index.deferred) == NAMES[1:]
    assert all("defer_loading" not in str(indexed.wire_entry) for indexed in index.deferred.values())
    assert index.offers_search


@pytest.mark.parametrize("kind", ["tool_search", "orq:tool_search", "tool_search_tool_bm25"])
def test_search_tool_of_any_provider_enables_search(kind: str) -> None:
    tools = [{"type": kind}, *chat_functions(defer_loading=True)]
    index = build_deferred_index(tools, client_loads=True)
    assert index.always_sent == ()
    assert index.offers_search


def test_no_search_tool_for_clients_that_search() -> None:
    index = build_deferred_index(chat_functions(defer_loading=True), client_loads=False)
    tools = [*tools_to_wire([index.search_tool]), *chat_functions(defer_loading=True)]
    assert not build_deferred_index(tools, client_loads=False).offers_search
    assert not build_deferred_index(tools[1:], client_loads=True).offers_search


def test_tools_are_deferred_from_threshold_on() -> None:
    few = build_transparent_index(chat_functions(), Exposure(style="reveal", threshold_tools=7))
    many = build_transparent_index(chat_functions(), Exposure(style="reveal", threshold_tools=6))
    costly = build_transparent_index(
        chat_functions(), Exposure(style="reveal", threshold_tools=99, threshold_tokens=50)
    )
    assert function_names(few.always_sent) == NAMES and not few.deferred and not few.offers_search
    assert list(many.deferred) == list(costly.deferred) == NAMES
    assert many.count_saved_tokens() > many.count_saved_tokens(NAMES[:2]) > many.count_saved_tokens(NAMES) == 0


def test_defer_loading_false_pins_tool() -> None:
    tools = [chat_functions(defer_loading=False)[0], *chat_functions()[1:]]
    index = build_transparent_index(tools, Exposure(style="reveal"))
    assert function_names(index.always_sent) == NAMES[:1]
    assert "defer_loading" not in index.always_sent[0]


def test_invalid_entries_are_sent_in_place() -> None:
    tools: list[dict[str, Any]] = [
        {"type": "custom", "custom": {"name": "c", "format": {"type": "text"}}},
        {"type": "function"},
        {"type": "function", "function": {"name": "not.safe", "parameters": {}}},
        {"type": "function", "function": {"name": "broken", "parameters": [1]}},
        {"type": "function", "function": {"name": 7}},
        {"type": "web_search"},
        *chat_functions(),
        chat_functions()[0],
    ]
    index = build_transparent_index(tools, Exposure(style="reveal"))
    assert list(index.always_sent) == [*tools[:6], tools[-1]]
    assert list(index.deferred) == NAMES


def test_search_tool_gets_unused_name() -> None:
    mine = chat_functions()[0]
    mine["function"]["name"] = "search_tools"
    index = build_transparent_index([mine, *chat_functions()], Exposure(style="reveal"))
    assert index.search_tool.name == "_search_tools"
