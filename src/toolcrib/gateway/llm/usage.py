"""Sum the token usage that an upstream reports over the rounds of one response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def add_usage(left: object, right: object) -> Any:
    """Return the sum of two usage reports, field by field.

    Numbers are added and lists are joined. For any other value the right one is used, unless it is
    None.
    """
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return {key: add_usage(left.get(key), right.get(key)) for key in {**left, **right}}
    if isinstance(left, list) and isinstance(right, list):
        return left + right
    if _is_number(left) and _is_number(right):
        return left + right  # type: ignore[operator]
    return left if right is None else right


def merge_reports(*reports: object) -> dict[str, Any]:
    """Return the usage of one round that was reported several times; a later report wins."""
    return {
        key: value
        for report in reports
        if isinstance(report, Mapping)
        for key, value in report.items()
        if value is not None
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
