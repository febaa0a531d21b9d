"""Reading the fields of one entry: each is what it has to be, or the error names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from toolcrib.core.tool import Policy
from toolcrib.errors import InvalidTool

_MAX_LISTED_FIELDS = 8
_MAX_QUOTED_CHARS = 60


class FieldReader:
    """The fields of one entry. What is absent or null is empty; what has a wrong type raises.

    `within` is what stands before a field's name in an error, such as `function.`.
    """

    def __init__(self, entry: Mapping[str, Any], prefix: str = "") -> None:
        self._entry = entry
        self._within = prefix

    def read_name(self) -> str:
        """The tool's name, which no tool can do without."""
        name = self.read_text("name")
        if not name:
            raise self._error("name", "is missing; add one")
        return name

    def read_text(self, field: str) -> str:
        """A text."""
        value = self._entry.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._error(field, f"must be text, not {describe_json_type(value)}")
        return value

    def read_texts(self, field: str) -> tuple[str, ...]:
        """Several texts; one alone need not stand in a list."""
        value = self._entry.get(field)
        if isinstance(value, str):
            return (value,)
        for item in self.read_list(field):
            if not isinstance(item, str):
                raise self._error(
                    field, f"must be a list of texts; it holds {describe_json_type(item)}"
                )
        return tuple(self.read_list(field))

    def read_object(self, field: str) -> Mapping[str, Any]:
        """An object, such as a JSON Schema."""
        value = self._entry.get(field)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self._error(field, f"must be an object, not {describe_json_type(value)}")
        return value

    def read_list(self, field: str) -> Sequence[Any]:
        """A list of anything."""
        value = self._entry.get(field)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise self._error(field, f"must be a list, not {describe_json_type(value)}")
        return value

    def read_objects(self, field: str) -> Sequence[Mapping[str, Any]]:
        """A list of objects, such as tools."""
        for item in self.read_list(field):
            if not isinstance(item, Mapping):
                raise self._error(
                    field, f"must be a list of objects; it holds {describe_json_type(item)}"
                )
        return self.read_list(field)

    def read_policy(self) -> Policy:
        """What `defer_loading` asks for; who does not say leaves the choice to us."""
        value = self._entry.get("defer_loading")
        if value is None:
            return "automatic"
        if not isinstance(value, bool):
            raise self._error(
                "defer_loading", f"must be true or false, not {describe_json_type(value)}"
            )
        return "always" if value else "never"

    def _error(self, field: str, fault: str) -> InvalidTool:
        return InvalidTool(f"{describe_entry(self._entry)}: {self._within}{field} {fault}")


def describe_entry(entry: Mapping[str, Any]) -> str:
    """How an error speaks of an entry: by its name, else by the fields it has."""
    name = entry.get("name")
    if isinstance(name, str) and name:
        return f"tool {_shorten(repr(name))}"
    return f"an object with {format_field_names(entry)}"


def format_field_names(entry: Mapping[str, Any]) -> str:
    """The names of an entry's fields, the first few of them."""
    names = [_shorten(str(field)) for field in islice(entry, _MAX_LISTED_FIELDS)]
    return ", ".join(names + ["…"] * (len(entry) > len(names))) or "no fields"


def describe_json_type(value: object) -> str:
    """What a JSON value is, in plain words."""
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
    """The error for an entry by which a provider is asked to run a tool of its own."""
    return InvalidTool(
        f"{describe_entry(entry)}: type {_shorten(repr(entry.get('type')))} is not a function tool, "
        "so there is nothing to search; leave this entry out"
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_QUOTED_CHARS else f"{text[: _MAX_QUOTED_CHARS - 1]}…"
