"""Read JSON from dictionaries or from the objects of an official SDK.

Messages are read leniently. `FieldReader` validates the fields of a tool entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from toolcrib.core.tool import Policy
from toolcrib.errors import InvalidMessage, InvalidTool

_MAX_LISTED_FIELDS = 8
_MAX_QUOTED_CHARS = 60
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|(u[dD][c-fC-F][0-9a-fA-F]{2})|[^uU]|u)"
)


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


def to_plain_dicts(values: object) -> list[dict[str, Any]]:
    """Return each of several messages, which are mappings or SDK objects, as a dictionary."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidMessage(f"messages must be a list, not {describe_json_type(values)}")
    return [to_plain_dict(value, "a message") for value in values]


def _to_plain_value(value: object) -> Any:
    if isinstance(value, Mapping) or hasattr(value, "model_dump"):
        return to_plain_dict(value)
    if isinstance(value, list | tuple):
        return [_to_plain_value(item) for item in value]
    return value


def dicts_or_empty(value: object) -> Sequence[dict[str, Any]]:
    """Return the dictionaries in a list; empty if the value is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else ()


def dict_or_empty(value: object) -> dict[str, Any]:
    """Return the value if it is a dictionary, else an empty one."""
    return value if isinstance(value, dict) else {}


def str_or_empty(value: object) -> str:
    """Return the value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def join_texts(parts: object) -> str:
    """Return the texts of a list of content parts as one string."""
    return "".join(str_or_empty(part.get("text")) for part in dicts_or_empty(parts))


def referenced_tool_names(parts: object) -> list[str]:
    """Return the names of the tools that a list of content parts refers to."""
    return [
        str_or_empty(part.get("tool_name")) for part in dicts_or_empty(parts) if part.get("type") == "tool_reference"
    ]


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


def repair_surrogates(text: str) -> str:
    """Return a JSON text with the escapes of halves of surrogate pairs replaced, which cannot be encoded."""
    return _ESCAPE.sub(_repair_escape, text) if "\\ud" in text or "\\uD" in text else text


def _repair_escape(match: re.Match[str]) -> str:
    is_half = match[2] or (match[0][1:3] in ("ud", "uD") and not match[1])
    return r"\ufffd" if is_half else match[0]


class FieldReader:
    """Typed access to the fields of one entry.

    A field that is absent or null reads as empty; a field of a wrong type raises `InvalidTool`.
    `prefix` precedes the field name in errors, for example `function.`.
    """

    def __init__(self, entry: Mapping[str, Any], prefix: str = "") -> None:
        self._entry = entry
        self._prefix = prefix

    def read_name(self) -> str:
        """Return the tool's name, which is required."""
        name = self.read_text("name")
        if not name:
            raise self._error("name", "is missing; add one")
        return name

    def read_text(self, field: str) -> str:
        """Return a string field."""
        value = self._entry.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._error(field, f"must be text, not {describe_json_type(value)}")
        return value

    def read_texts(self, field: str) -> tuple[str, ...]:
        """Return a list of strings; a single string is accepted as a list of one."""
        value = self._entry.get(field)
        if isinstance(value, str):
            return (value,)
        items = self.read_list(field)
        for item in items:
            if not isinstance(item, str):
                problem = f"must be a list of texts; it holds {describe_json_type(item)}"
                raise self._error(field, problem)
        return tuple(items)

    def read_object(self, field: str) -> Mapping[str, Any]:
        """Return an object field, such as a JSON Schema."""
        value = self._entry.get(field)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self._error(field, f"must be an object, not {describe_json_type(value)}")
        return value

    def read_list(self, field: str) -> Sequence[Any]:
        """Return a list field with items of any type."""
        value = self._entry.get(field)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise self._error(field, f"must be a list, not {describe_json_type(value)}")
        return value

    def read_objects(self, field: str) -> Sequence[Mapping[str, Any]]:
        """Return a list of objects, such as tools."""
        items = self.read_list(field)
        for item in items:
            if not isinstance(item, Mapping):
                problem = f"must be a list of objects; it holds {describe_json_type(item)}"
                raise self._error(field, problem)
        return items

    def read_policy(self) -> Policy:
        """Return the deferral policy for `defer_loading`; "automatic" if the field is absent."""
        value = self._entry.get("defer_loading")
        if value is None:
            return "automatic"
        if not isinstance(value, bool):
            problem = f"must be true or false, not {describe_json_type(value)}"
            raise self._error("defer_loading", problem)
        return "always" if value else "never"

    def _error(self, field: str, problem: str) -> InvalidTool:
        return InvalidTool(f"{describe_entry(self._entry)}: {self._prefix}{field} {problem}")


def describe_entry(entry: Mapping[str, Any]) -> str:
    """Return a phrase that identifies an entry in an error: its name, or else its field names."""
    name = entry.get("name")
    if isinstance(name, str) and name:
        return f"tool {_shorten(repr(name))}"
    return f"an object with {format_field_names(entry)}"


def format_field_names(entry: Mapping[str, Any]) -> str:
    """Return the first few field names of an entry, separated by commas."""
    names = [_shorten(str(field)) for field in islice(entry, _MAX_LISTED_FIELDS)]
    return ", ".join(names + ["…"] * (len(entry) > len(names))) or "no fields"


def describe_json_type(value: object) -> str:
    """Return the JSON type of a value as a noun phrase, such as "a number"."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "an object"
        case _:
            return f"a Python {type(value).__name__}"


def not_a_function_error(entry: Mapping[str, Any]) -> InvalidTool:
    """Return the error for an entry that declares a tool which the provider runs."""
    return InvalidTool(
        f"{describe_entry(entry)}: type {_shorten(repr(entry.get('type')))} is not a function tool, "
        "so there is nothing to search; leave this entry out"
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_QUOTED_CHARS else f"{text[: _MAX_QUOTED_CHARS - 1]}…"
