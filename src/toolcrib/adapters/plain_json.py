"""Plain JSON values out of what a program holds: dictionaries, or the objects of an official SDK."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolcrib.adapters.field_reader import describe_json_type
from toolcrib.errors import InvalidMessage


def to_plain_dict(value: object, what: str = "a reply") -> dict[str, Any]:
    """An object as a dictionary. SDK objects are asked for their JSON form, without unset fields."""
    if isinstance(value, Mapping):
        return {name: _to_plain_value(one) for name, one in value.items()}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        dumped: dict[str, Any] = dump(mode="json", by_alias=True, exclude_none=True)
        return dumped
    raise InvalidMessage(
        f"{what} is an object or what an official SDK returns, not {describe_json_type(value)}; "
        "pass it as the provider gave it"
    )


def to_plain_dicts(values: object, what: str = "a message") -> list[dict[str, Any]]:
    """Each of several, as dictionaries."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidMessage(f"messages come as a list, not as {describe_json_type(values)}")
    return [to_plain_dict(value, what) for value in values]


def _to_plain_value(value: object) -> Any:
    if isinstance(value, Mapping) or hasattr(value, "model_dump"):
        return to_plain_dict(value)
    if isinstance(value, list | tuple):
        return [_to_plain_value(one) for one in value]
    return value


def dicts_or_empty(value: object) -> Sequence[dict[str, Any]]:
    """The objects of a list; nothing of what is no list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else ()


def str_or_empty(value: object) -> str:
    """A text; nothing of what is none."""
    return value if isinstance(value, str) else ""


def parse_arguments(sent: object) -> Mapping[str, Any] | None:
    """The arguments of a call that come as JSON in a text; None if they are no JSON object."""
    if isinstance(sent, Mapping):
        return sent
    try:
        # No arguments at all is what models send to tools that take none.
        value = json.loads(sent) if isinstance(sent, str) and sent.strip() else {}
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
