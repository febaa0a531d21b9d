from __future__ import annotations

from typing import Any

from toolcrib.gateway.llm.conversation_memory import ConversationMemory, ScopedMemory
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.tool_index import ToolIndexCache
from toolcrib.gateway.llm.usage import add_usage


def test_scoped_memory_is_private_to_owner() -> None:
    memory = ConversationMemory(10)
    recall = ScopedMemory(memory, "ann", "key")
    recall.put(["hidden"], "call", "call_1")
    assert recall.get("call", "call_1") == ["hidden"]
    assert recall.get("call", "call_2") is None
    assert ScopedMemory(memory, "bob", "key").get("call", "call_1") is None
    assert recall.narrow("a conversation").get("call", "call_1") is None


def test_least_recently_used_entry_is_evicted() -> None:
    memory = ConversationMemory(2)
    memory.put("a", 1)
    memory.put("b", 2)
    memory.get("a")
    memory.put("c", 3)
    assert (memory.get("a"), memory.get("b"), memory.get("c")) == (1, None, 3)


def test_memory_is_limited_by_bytes() -> None:
    memory = ConversationMemory(1_000, max_bytes=1_000)
    for number in range(100):
        memory.put(str(number), "x" * 100)
    assert 0 < len(memory) < 10
    memory.put("large", "x" * 2_000)
    assert memory.get("large") is None
    memory.put("99", "y")
    assert memory.get("99") == "y"


def test_cache_compares_whole_definitions() -> None:
    cache: ToolIndexCache[str] = ToolIndexCache(4)
    tools: list[dict[str, Any]] = [{"name": "a", "description": "x"}, {"function": {"name": "b"}}]
    cache.put("made", tools, "on", size_bytes=10)
    assert cache.get([dict(tool) for tool in tools], "on") == "made"
    assert cache.get(tools, "auto") is None
    assert cache.get([{"name": "a", "description": "y"}, tools[1]], "on") is None


def test_cache_is_limited_by_values_and_tools() -> None:
    cache: ToolIndexCache[int] = ToolIndexCache(2, max_tools=5, max_bytes=100)
    for number in range(3):
        cache.put(number, [{"name": str(number)}], size_bytes=10)
    assert len(cache) == 2
    assert cache.get([{"name": "0"}]) is None
    cache.put(9, [{"name": f"many {place}"} for place in range(5)], size_bytes=10)
    assert len(cache) == 1
    cache.put(9, [{"name": f"too many {place}"} for place in range(6)], size_bytes=10)
    assert len(cache) == 1


def test_cache_is_limited_by_bytes() -> None:
    tools: list[dict[str, Any]] = [{"name": str(number), "about": "x" * 70} for number in range(3)]
    cache: ToolIndexCache[int] = ToolIndexCache(10, max_bytes=2 * len(serialize_json(tools[0])))
    for number, tool in enumerate(tools):
        cache.put(number, [tool], size_bytes=len(serialize_json(tool)))
    assert [cache.get([tool]) for tool in tools] == [None, 1, 2]
    # A larger list replaces the smaller one with the same names; a list over the limit is not cached.
    larger = {**tools[1], "more": "x" * 70}
    cache.put(1, [larger], size_bytes=len(serialize_json(larger)))
    assert [cache.get([tool]) for tool in (tools[1], tools[2], larger)] == [None, None, 1]
    cache.put(5, [{"name": "5"}], size_bytes=10_000)
    assert cache.get([{"name": "5"}]) is None and len(cache) == 1


def test_usage_is_added_at_any_depth() -> None:
    rewriter = {"input": 3, "details": {"cached": 1}, "tier": "a", "only": 1}
    other = {"input": 4, "details": {"cached": 2, "new": 5}, "tier": "b", "nothing": None}
    assert add_usage(rewriter, other) == {
        "input": 7,
        "details": {"cached": 3, "new": 5},
        "tier": "b",
        "only": 1,
        "nothing": None,
    }
    assert add_usage(None, {"input": 1}) == {"input": 1}
    assert add_usage({"input": 1}, None) == {"input": 1}
    assert add_usage(True, True) is True
