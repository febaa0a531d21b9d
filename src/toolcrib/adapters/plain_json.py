"""Read JSON leniently from dictionaries or from the objects of an official SDK."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolcrib.adapters.field_reader import describe_json_type
from toolcrib.errors import InvalidMessage


def to_plain_dict(value: object, label: str = "a reply") -> dict[str, Any]:
    """Return a mapping or an SDK object as a dictionary of plain JSON values.

    SDK objects are dumped without their unset fields.
    """
    if isinstance(value, Mapping):
        return {name: _to_plain_value(item) for name, item in value.items()}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        dumped: dict[str, Any] = dump(mode="json", by_alias=True, exclude_none=True)
        return dumped
    raise InvalidMessage(
        f"{label} must be an object or a type of an official SDK, not {describe_json_type(value)}; "
        "pass it unchanged from the provider"
    )


def to_plain_dicts(values: object, label: str = "a message") -> list[dict[str, Any]]:
    """Return each of several mappings or SDK objects as a dictionary."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidMessage(f"messages must be a list, not {describe_json_type(values)}")
    return [to_plain_dict(value, label) for value in values]


def _to_plain_value(value: object) -> Any:
    if isinstance(value, Mapping) or hasattr(value, "model_dump"):
        return to_plain_dict(value)
    if isinstance(value, list | tuple):
        return [_to_plain_value(item) for item in value]
    return value


def dicts_or_empty(value: object) -> Sequence[dict[str, Any]]:
    """Return the dictionaries in a list; empty if the value is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else ()


def str_or_empty(value: object) -> str:
    """Return the value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def parse_arguments(arguments: object) -> Mapping[str, Any] | None:
    """Return the arguments of a call, given as JSON text; None if they are not a JSON object."""
    if isinstance(arguments, Mapping):
        return arguments
    try:
        # Models send an empty string to tools that take no arguments.
        value = json.loads(arguments) if isinstance(arguments, str) and arguments.strip() else {}
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
