from __future__ import annotations

from toolcrib.gateway.llm.search_loop import sum_usage


def test_usage_is_added_at_any_depth() -> None:
    rewriter = {"input": 3, "details": {"cached": 1}, "tier": "a", "only": 1}
    other = {"input": 4, "details": {"cached": 2, "new": 5}, "tier": "b", "nothing": None}
    assert sum_usage(rewriter, other) == {
        "input": 7,
        "details": {"cached": 3, "new": 5},
        "tier": "b",
        "only": 1,
        "nothing": None,
    }
    assert sum_usage(None, {"input": 1}) == {"input": 1}
    assert sum_usage({"input": 1}, None) == {"input": 1}
    assert sum_usage(True, True) is True
