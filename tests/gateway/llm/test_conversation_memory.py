from __future__ import annotations

from typing import Any

from toolcrib.gateway.llm.conversation_memory import ConversationMemory, ScopedMemory
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.tool_index import ToolIndexCache
from toolcrib.gateway.llm.usage import add_usage


def test_what_was_kept_is_found_at_its_anchor_by_its_owner_alone() -> None:
    memory = ConversationMemory(10)
    recall = ScopedMemory(memory, "ann", "key")
    recall.put(["hidden"], "call", "call_1")
    assert recall.get("call", "call_1") == ["hidden"]
    assert recall.get("call", "call_2") is None
    assert ScopedMemory(memory, "bob", "key").get("call", "call_1") is None
    assert recall.narrow("a conversation").get("call", "call_1") is None


def test_the_longest_unused_is_forgotten_first() -> None:
    memory = ConversationMemory(2)
    memory.put("a", 1)
    memory.put("b", 2)
    memory.get("a")
    memory.put("c", 3)
    assert (memory.get("a"), memory.get("b"), memory.get("c")) == (1, None, 3)


def test_the_bytes_are_bounded_and_what_is_too_large_is_not_kept() -> None:
    memory = ConversationMemory(1_000, max_bytes=1_000)
    for number in range(100):
        memory.put(str(number), "x" * 100)
    assert 0 < len(memory) < 10
    memory.put("large", "x" * 2_000)
    assert memory.get("large") is None
    memory.put("99", "y")
    assert memory.get("99") == "y"


def test_tools_are_known_again_if_they_are_the_same_to_the_last_letter() -> None:
    kept: ToolIndexCache[str] = ToolIndexCache(4)
    tools: list[dict[str, Any]] = [{"name": "a", "description": "x"}, {"function": {"name": "b"}}]
    kept.put("made", tools, "on", size_bytes=10)
    assert kept.get([dict(tool) for tool in tools], "on") == "made"
    assert kept.get(tools, "auto") is None
    assert kept.get([{"name": "a", "description": "y"}, tools[1]], "on") is None


def test_sets_of_tools_make_room_by_number_and_by_size() -> None:
    kept: ToolIndexCache[int] = ToolIndexCache(2, max_tools=5, max_bytes=100)
    for number in range(3):
        kept.put(number, [{"name": str(number)}], size_bytes=10)
    assert len(kept) == 2
    assert kept.get([{"name": "0"}]) is None
    kept.put(9, [{"name": f"many {place}"} for place in range(5)], size_bytes=10)
    assert len(kept) == 1
    kept.put(9, [{"name": f"too many {place}"} for place in range(6)], size_bytes=10)
    assert len(kept) == 1


def test_sets_of_tools_make_room_by_their_bytes() -> None:
    tools: list[dict[str, Any]] = [{"name": str(number), "about": "x" * 70} for number in range(3)]
    kept: ToolIndexCache[int] = ToolIndexCache(10, max_bytes=2 * len(serialize_json(tools[0])))
    for number, tool in enumerate(tools):
        kept.put(number, [tool], size_bytes=len(serialize_json(tool)))
    assert [kept.get([tool]) for tool in tools] == [None, 1, 2]
    # The same set in a larger form takes the place of the smaller, and what is too large is not kept.
    larger = {**tools[1], "more": "x" * 70}
    kept.put(1, [larger], size_bytes=len(serialize_json(larger)))
    assert [kept.get([tool]) for tool in (tools[1], tools[2], larger)] == [None, None, 1]
    kept.put(5, [{"name": "5"}], size_bytes=10_000)
    assert kept.get([{"name": "5"}]) is None and len(kept) == 1


def test_usage_is_added_up_field_by_field_at_any_depth() -> None:
    one = {"input": 3, "details": {"cached": 1}, "tier": "a", "only": 1}
    other = {"input": 4, "details": {"cached": 2, "new": 5}, "tier": "b", "nothing": None}
    assert add_usage(one, other) == {
        "input": 7,
        "details": {"cached": 3, "new": 5},
        "tier": "b",
        "only": 1,
        "nothing": None,
    }
    assert add_usage(None, {"input": 1}) == {"input": 1}
    assert add_usage({"input": 1}, None) == {"input": 1}
    assert add_usage(True, True) is True
