from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import AfterValidator, BaseModel, Field

from toolcrib.core.callbacks import is_async
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidArguments, InvalidTool
from toolcrib.registry.function import FunctionSignature


class Address(BaseModel):
    street: str
    number: int = Field(ge=1)


@dataclass
class Parcel:
    grams: int
    fragile: bool = False


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Opaque:
    pass


def even(number: int) -> int:
    if number % 2:
        raise ValueError("has to be even")
    return number


def build_tool(function: Callable[..., Any]) -> Tool:
    return FunctionSignature(function).tool


def call_with(function: Callable[..., Any], **arguments: Any) -> Any:
    return FunctionSignature(function).bind(arguments)()


def google(city: str, days: int = 3) -> None:
    """Tell the weather.

    Only for cities with an airport.

    Args:
        city: The city's name.
            In English.
        days (int): How many days ahead.

    Returns:
        Nothing.
    """


def numpy(city: str, days: int = 3) -> None:
    """Tell the weather.

    Only for cities with an airport.

    Parameters
    ----------
    city : str
        The city's name.
        In English.
    days : int, optional
        How many days ahead.
    """


def sphinx(city: str, days: int = 3) -> None:
    """Tell the weather.

    Only for cities with an airport.

    :param city: The city's name.
        In English.
    :param int days: How many days ahead.
    :returns: Nothing.
    """


@pytest.mark.parametrize("function", [google, numpy, sphinx])
def test_schema_and_texts_come_from_signature_and_docstring(function: Callable[..., Any]) -> None:
    tool = build_tool(function)
    assert tool.name == function.__name__
    assert tool.description == "Tell the weather.\n\nOnly for cities with an airport."
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city's name.\nIn English."},
            "days": {"type": "integer", "description": "How many days ahead.", "default": 3},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


def test_annotated_description_overrides_the_docstring() -> None:
    def paint(
        colour: Annotated[str, "Any colour."], coats: Annotated[int, Field(description="How thick.", ge=1)]
    ) -> None:
        """Paint.

        Args:
            colour: not this
            coats: nor this
        """

    assert build_tool(paint).input_schema["properties"] == {
        "colour": {"type": "string", "description": "Any colour."},
        "coats": {"type": "integer", "description": "How thick.", "minimum": 1},
    }


def test_common_types_have_schemas() -> None:
    def send(  # type: ignore[no-untyped-def]
        to: Address,
        parcel: Parcel,
        colour: Colour,
        speed: Literal["slow", "fast"],
        on: date,
        tags: list[str],
        note: Optional[str] = None,  # noqa: UP045  the older spelling is in use too
        extra=None,
    ) -> None:
        """Send."""

    schema = build_tool(send).input_schema
    properties = schema["properties"]
    assert schema["required"] == ["to", "parcel", "colour", "speed", "on", "tags"]
    assert schema["$defs"]["Address"]["properties"]["number"]["minimum"] == 1
    assert schema["$defs"]["Parcel"]["required"] == ["grams"]
    assert schema["$defs"]["Colour"]["enum"] == ["red", "blue"]
    assert properties["speed"] == {"type": "string", "enum": ["slow", "fast"]}
    assert properties["on"] == {"type": "string", "format": "date"}
    assert properties["tags"] == {"type": "array", "items": {"type": "string"}}
    assert properties["note"]["default"] is None
    assert properties["extra"] == {"default": None}


def test_json_arguments_are_converted_to_python_types() -> None:
    def send(to: Address, parcel: Parcel, colour: Colour, on: date) -> Any:
        return to, parcel, colour, on

    assert call_with(
        send, to={"street": "High", "number": 7}, parcel={"grams": 500}, colour="blue", on="2026-01-02"
    ) == (Address(street="High", number=7), Parcel(500), Colour.BLUE, date(2026, 1, 2))


def test_missing_argument_uses_the_default() -> None:
    nothing = object()

    def keep(items: list[int] | None = None, mark: Any = nothing) -> Any:
        return items, mark

    assert "default" not in build_tool(keep).input_schema["properties"]["mark"]
    assert call_with(keep) == (None, nothing)


def test_validators_beyond_the_schema_are_applied() -> None:
    def halve(number: Annotated[int, AfterValidator(even)]) -> int:
        return number // 2

    assert call_with(halve, number=4) == 2
    with pytest.raises(InvalidArguments, match=r"do not fit halve: number: .*has to be even"):
        call_with(halve, number=3)


def test_invalid_argument_error_names_the_field() -> None:
    def send(to: Address) -> None: ...

    with pytest.raises(InvalidArguments, match=r"to\.number: .*; correct them and call again"):
        call_with(send, to={"street": "High", "number": 0})
    with pytest.raises(InvalidArguments, match="subject"):
        call_with(send, to={"street": "High", "number": 1}, subject="x")


def test_parameters_may_have_any_name_and_kind() -> None:
    def odd(json: int, copy: int = 2, /, schema: int = 3, *, model_fields: int = 4) -> Any:
        return json, copy, schema, model_fields

    assert [*build_tool(odd).input_schema["properties"]] == ["json", "copy", "schema", "model_fields"]
    assert call_with(odd, json=1) == (1, 2, 3, 4)
    assert call_with(odd, json=1, copy=5, model_fields=6) == (1, 5, 3, 6)


class Shop:
    def __init__(self, owner: str) -> None:
        self.owner = owner

    def sell(self, item: str) -> str:
        """Sell an item."""
        return f"{self.owner} sells {item}"

    async def order(self, item: str) -> str:
        return item

    def __call__(self, item: str) -> str:
        """Ask about an item."""
        return item

    @staticmethod
    def close(early: bool) -> bool:
        return early


def test_bound_methods_are_accepted_and_unbound_ones_rejected() -> None:
    tool = build_tool(Shop("Ann").sell)
    assert (tool.name, tool.description) == ("sell", "Sell an item.")
    assert [*tool.input_schema["properties"]] == ["item"]
    assert call_with(Shop("Ann").sell, item="tea") == "Ann sells tea"
    assert call_with(Shop.close, early=True) is True
    with pytest.raises(InvalidTool, match="'sell' is an unbound method"):
        build_tool(Shop.sell)


def test_callable_object_needs_a_name() -> None:
    with pytest.raises(InvalidTool, match="has no name; give one"):
        build_tool(Shop("Ann"))
    tool = FunctionSignature(Shop("Ann"), "ask").tool
    assert (tool.name, tool.description) == ("ask", "Ask about an item.")


def test_arguments_set_by_a_partial_are_hidden() -> None:
    def post(text: str, key: str, room: str = "hall") -> str:
        """Post a text."""
        return f"{room}: {text} ({key})"

    bound = functools.partial(post, key="s3cret")
    tool = build_tool(bound)
    assert (tool.name, tool.description) == ("post", "Post a text.")
    assert "s3cret" not in str(tool.to_dict())
    assert [*tool.input_schema["properties"]] == ["text", "room"]
    assert call_with(bound, text="hi", room="yard") == "yard: hi (s3cret)"
    with pytest.raises(InvalidArguments, match="key"):
        call_with(bound, text="hi", key="mine")


def test_async_is_detected_through_wrappers() -> None:
    async def wait() -> None: ...

    class Waiter:
        async def __call__(self) -> None: ...

    assert is_async(wait)
    assert is_async(functools.partial(functools.partial(wait)))
    assert is_async(Shop("Ann").order)
    assert is_async(Waiter())
    assert not is_async(google)
    assert not is_async(Shop("Ann"))


def missing(address: Adress) -> None:  # type: ignore[name-defined]  # noqa: F821
    """A misspelt annotation."""


def returns_unknown(city: str) -> Nothing:  # type: ignore[name-defined]  # noqa: F821
    """What it returns is not the model's business."""


def opaque(key: str, thing: Opaque) -> None:
    """A type without a schema."""


def many(*names: str) -> None: ...


def keywords(**names: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda city: city, r"the lambda in test_function\.py, line \d+ has no name; use def"),
        (functools.partial(lambda city: city), "has no name; give one"),
        (missing, r"function 'missing': an annotation cannot be read: name 'Adress'"),
        (opaque, r"function 'opaque': .* parameter 'thing': .*Opaque"),
        (many, r"function 'many': \*names does not name"),
        (keywords, r"function 'keywords': \*\*names does not name"),
        (max, "function 'max' has no readable signature"),
        (7, "7 is not a function"),
        (Shop, "is not a function"),
    ],
)
def test_invalid_function_error_gives_the_reason(function: Any, message: str) -> None:
    with pytest.raises(InvalidTool, match=message):
        FunctionSignature(function)


def test_unparsable_docstring_becomes_the_description() -> None:
    def broken(a: int) -> None:
        """Do it.

        :param:
        """

    assert build_tool(broken).description.startswith("Do it.")
    assert build_tool(lambda_named("no_docs")).description == ""


def lambda_named(name: str) -> Callable[..., Any]:
    function = lambda: None  # noqa: E731
    function.__name__ = name
    return function


def test_return_annotation_may_be_unresolvable() -> None:
    assert [*build_tool(returns_unknown).input_schema["properties"]] == ["city"]
    assert build_tool(len).name == "len"


def test_same_function_gives_the_same_tool() -> None:
    assert build_tool(google).fingerprint == build_tool(google).fingerprint
