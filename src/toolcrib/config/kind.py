"""What values a setting takes, read off its type: for the reader, the schema and the errors."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from toolcrib.config.setting import SettingInfo

ValueForm = Literal["text", "flag", "whole", "number", "choice", "texts", "choices", "map"]

_PLAIN: Mapping[object, ValueForm] = {str: "text", bool: "flag", int: "whole", float: "number"}
_WORDS: Mapping[ValueForm, str] = {
    "text": "a text",
    "flag": "true or false",
    "whole": "a whole number",
    "number": "a number",
    "texts": "a list of texts",
    "map": "an object of texts",
}


@dataclass(frozen=True, slots=True)
class SettingType:
    """The values of one setting: their form, the choices there are, and whether null is one."""

    form: ValueForm
    choices: tuple[str, ...] = ()
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class SettingField:
    """One setting of a part: the name of its field, how it is told, its kind and its default."""

    name: str
    setting: SettingInfo
    type: SettingType
    default: Any

    @property
    def expected(self) -> str:
        """What the value should be, in words."""
        told, kind = self.setting, self.type
        if kind.choices:
            words = ", ".join(f'"{choice}"' for choice in kind.choices)
            text = f"one of {words}" if kind.form == "choice" else f"a list of {words}"
        else:
            text = _WORDS[kind.form]
        if told.minimum is not None and told.maximum is not None:
            text += f" from {told.minimum:,g} to {told.maximum:,.0f}"
        return f"{text}, or null" if kind.nullable else text


@lru_cache(maxsize=64)
def list_settings(part: type) -> tuple[SettingField, ...]:
    """The settings of a part, in their order."""
    hints = get_type_hints(part)
    return tuple(
        SettingField(
            one.name, one.metadata["setting"], _read_type(hints[one.name]), _get_default(one)
        )
        for one in fields(part)
        if "setting" in one.metadata
    )


def _get_default(one: Field[Any]) -> Any:
    return one.default if one.default_factory is MISSING else one.default_factory()


def _read_type(hint: Any) -> SettingType:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = _read_type(next(arg for arg in args if arg is not type(None)))
        return SettingType(inner.form, inner.choices, nullable=True)
    if origin is Literal:
        return SettingType("choice", args)
    if origin is tuple:
        inner = _read_type(args[0])
        return SettingType("choices" if inner.choices else "texts", inner.choices)
    return SettingType(_PLAIN.get(hint, "map"))
