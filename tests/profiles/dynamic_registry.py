"""What the tests of the dynamic registry have in common."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from toolcrib.profiles.dynamic_registry import DynamicToolRegistry

Row = dict[str, Any]


def answer(registry: DynamicToolRegistry, name: str, **arguments: Any) -> Any:
    return json.loads(registry.call(name, arguments))


def raising(fault: BaseException) -> Callable[..., Any]:
    def function(**_: Any) -> Any:
        raise fault

    return function


def same_groups(ours: list[Row], recorded: list[Row]) -> None:
    """The same scores, and under each score the same names; a cut may fall inside the last one."""
    assert scores(ours) == scores(recorded)
    for score in set(scores(ours)) - set(scores(ours)[-1:]):
        assert names_with(score, ours) == names_with(score, recorded)


def scores(rows: list[Row]) -> list[float]:
    return [row["relevance_score"] for row in rows]


def names_with(score: float, rows: list[Row]) -> set[str]:
    return {row["name"] for row in rows if row["relevance_score"] == score}
