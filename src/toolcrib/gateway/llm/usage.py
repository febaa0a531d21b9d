"""What several requests cost together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def add_usage(one: object, other: object) -> Any:
    """Two counts of usage added up, field by field. What is no number is taken from the later."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        both = {**one, **other}
        return {name: add_usage(one.get(name), other.get(name)) for name in both}
    if _is_number(one) and _is_number(other):
        return one + other  # type: ignore[operator]
    return one if other is None else other


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
