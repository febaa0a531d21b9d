"""Shared code of the dynamic registry tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from toolcrib.profiles.dynamic_registry import DynamicToolRegistry

Row = dict[str, Any]


def call_meta_tool(registry: DynamicToolRegistry, name: str, **arguments: Any) -> Any:
    return json.loads(registry.call(name, arguments))


def raise_error(error: BaseException) -> Callable[..., Any]:
    def function(**_: Any) -> Any:
        raise error

    return function


def assert_same_groups(ours: list[Row], recorded: list[Row]) -> None:
    """Check that both have the same scores, and the same names per score except for the last one."""
    assert read_scores(ours) == read_scores(recorded)
    for score in set(read_scores(ours)) - set(read_scores(ours)[-1:]):
        assert names_with(score, ours) == names_with(score, recorded)


def read_scores(rows: list[Row]) -> list[float]:
    return [row["relevance_score"] for row in rows]


def names_with(score: float, rows: list[Row]) -> set[str]:
    return {row["name"] for row in rows if row["relevance_score"] == score}
