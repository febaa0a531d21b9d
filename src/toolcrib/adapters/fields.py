"""Reading the fields of one entry: each is what it has to be, or the error names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from toolcrib.core.tool import Policy
from toolcrib.errors import InvalidTool

_MAX_FIELDS_SHOWN = 8
_MAX_CHARS_SHOWN = 60


class Fields:
    """The fields of one entry. What is absent or null is empty; what has a wrong type raises.

    `within` is what stands before a field's name in an error, such as `function.`.
    """

    def __init__(self, entry: Mapping[str, Any], within: str = "") -> None:
        self._entry = entry
        self._within = within

    def name(self) -> str:
        """The tool's name, which no tool can do without."""
        name = self.text("name")
        if not name:
            raise self._fault("name", "is missing; add one")
        return name

    def text(self, field: str) -> str:
        """A text."""
        value = self._entry.get(field)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._fault(field, f"must be text, not {kind(value)}")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        """Several texts; one alone need not stand in a list."""
        value = self._entry.get(field)
        if isinstance(value, str):
            return (value,)
        for item in self.items(field):
            if not isinstance(item, str):
                raise self._fault(field, f"must be a list of texts; it holds {kind(item)}")
        return tuple(self.items(field))

    def object(self, field: str) -> Mapping[str, Any]:
        """An object, such as a JSON Schema."""
        value = self._entry.get(field)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self._fault(field, f"must be an object, not {kind(value)}")
        return value

    def items(self, field: str) -> Sequence[Any]:
        """A list of anything."""
        value = self._entry.get(field)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise self._fault(field, f"must be a list, not {kind(value)}")
        return value

    def objects(self, field: str) -> Sequence[Mapping[str, Any]]:
        """A list of objects, such as tools."""
        for item in self.items(field):
            if not isinstance(item, Mapping):
                raise self._fault(field, f"must be a list of objects; it holds {kind(item)}")
        return self.items(field)

    def policy(self) -> Policy:
        """What `defer_loading` asks for; who does not say leaves the choice to us."""
        value = self._entry.get("defer_loading")
        if value is None:
            return "automatic"
        if not isinstance(value, bool):
            raise self._fault("defer_loading", f"must be true or false, not {kind(value)}")
        return "always" if value else "never"

    def _fault(self, field: str, fault: str) -> InvalidTool:
        return InvalidTool(f"{seen(self._entry)}: {self._within}{field} {fault}")


def seen(entry: Mapping[str, Any]) -> str:
    """How an error speaks of an entry: by its name, else by the fields it has."""
    name = entry.get("name")
    if isinstance(name, str) and name:
        return f"tool {_short(repr(name))}"
    return f"an object with {field_names(entry)}"


def field_names(entry: Mapping[str, Any]) -> str:
    """The names of an entry's fields, the first few of them."""
    names = [_short(str(field)) for field in islice(entry, _MAX_FIELDS_SHOWN)]
    return ", ".join(names + ["…"] * (len(entry) > len(names))) or "no fields"


def kind(value: object) -> str:
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


def not_a_function(entry: Mapping[str, Any]) -> InvalidTool:
    """The error for an entry by which a provider is asked to run a tool of its own."""
    return InvalidTool(
        f"{seen(entry)}: type {_short(repr(entry.get('type')))} is not a function tool, "
        "so there is nothing to search; leave this entry out"
    )


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARS_SHOWN else f"{text[: _MAX_CHARS_SHOWN - 1]}…"
