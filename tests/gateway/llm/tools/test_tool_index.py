from __future__ import annotations

from typing import Any

from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.tools.tool_index import ToolIndexCache


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
