"""Reading one part of a configuration: known keys, the kinds and ranges of their values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.config.expansion import expand_variables, has_variables
from toolcrib.config.kind import SettingField, list_settings
from toolcrib.config.problems import InvalidSetting, JsonPath, find_nearest_name, unknown_name

_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class ConfigSection:
    """An object of the configuration, where it stands, and the environment for its variables."""

    path: JsonPath
    members: Mapping[str, Any] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)

    @classmethod
    def from_value(
        cls, value: object, steps: JsonPath, environment: Mapping[str, str]
    ) -> ConfigSection:
        """The object at a place; anything else is a fault."""
        if not isinstance(value, Mapping):
            raise InvalidSetting(steps, f"should be an object, not {_form(value)}")
        return cls(steps, value, environment)

    def child(self, key: str) -> ConfigSection:
        """The object under a key; an empty one if there is none."""
        return ConfigSection.from_value(
            self.members.get(key, {}), (*self.path, key), self.environment
        )

    def read_settings(self, part: type, others: tuple[str, ...] = ()) -> dict[str, Any]:
        """The fields of a part that are told here; a key that is none of its or `others` is a fault."""
        settings = {one.setting.key: one for one in list_settings(part)}
        found: dict[str, Any] = {}
        for key, value in self.members.items():
            if key in settings:
                one = settings[key]
                found[one.name] = self._value(one, value)
            elif key not in others:
                raise unknown_name((*self.path, key), "key", key, [*settings, *others])
        return found

    def read_text(self, value: object, steps: JsonPath) -> str:
        """A text with its variables expanded; anything else is a fault."""
        if not isinstance(value, str):
            raise InvalidSetting(steps, f"should be a text, not {_form(value)}")
        return expand_variables(value, self.environment, steps)

    def _value(self, one: SettingField, value: object) -> Any:
        steps = (*self.path, one.setting.key)
        if value is None and one.type.nullable:
            return None
        if one.type.form in ("flag", "whole", "number") and self._is_blank(value, steps):
            return one.default
        return _READERS[one.type.form](self, one, value, steps)

    def _text(self, one: SettingField, value: object, steps: JsonPath) -> str:
        if not isinstance(value, str):
            raise _wrong(one, value, steps)
        return self.read_text(value, steps)

    def _texts(self, one: SettingField, value: object, steps: JsonPath) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise _wrong(one, value, steps)
        return tuple(self.read_text(item, (*steps, number)) for number, item in enumerate(value))

    def _choice(self, one: SettingField, value: object, steps: JsonPath) -> str:
        text = self._text(one, value, steps)
        if text not in one.type.choices:
            near = find_nearest_name(text, one.type.choices)
            cure = f'; did you mean "{near}"?' if near else ""
            raise InvalidSetting(steps, f"should be {one.expected}{cure}")
        return text

    def _choices(self, one: SettingField, value: object, steps: JsonPath) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise _wrong(one, value, steps)
        return tuple(self._choice(one, item, (*steps, number)) for number, item in enumerate(value))

    def _map(self, one: SettingField, value: object, steps: JsonPath) -> dict[str, str]:
        if not isinstance(value, Mapping):
            raise _wrong(one, value, steps)
        return {name: self._member(member, (*steps, name)) for name, member in value.items()}

    def _member(self, value: object, steps: JsonPath) -> str:
        """A text, or a number or a flag, which clients take in its place."""
        if isinstance(value, int | float):
            return json.dumps(value)
        return self.read_text(value, steps)

    def _flag(self, one: SettingField, value: object, steps: JsonPath) -> bool:
        flag = _FLAGS.get(self._from_variable(value, steps).lower(), value)
        if not isinstance(flag, bool):
            raise _wrong(one, value, steps)
        return flag

    def _number(self, one: SettingField, value: object, steps: JsonPath) -> float:
        number = value
        text = self._from_variable(value, steps)
        if text:
            try:
                number = float(text) if one.type.form == "number" else int(text)
            except ValueError:
                raise _wrong(one, value, steps) from None
        if isinstance(number, float) and number.is_integer() and one.type.form == "whole":
            number = int(number)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise _wrong(one, value, steps)
        if one.type.form == "whole" and not isinstance(number, int):
            raise _wrong(one, value, steps)
        if not _is_within(number, one):
            raise InvalidSetting(steps, f"should be {one.expected}")
        return float(number) if one.type.form == "number" else number

    def _is_blank(self, value: object, steps: JsonPath) -> bool:
        """Whether a variable stands there that is empty, which no number and no flag is."""
        return (
            isinstance(value, str)
            and has_variables(value)
            and not self._from_variable(value, steps)
        )

    def _from_variable(self, value: object, steps: JsonPath) -> str:
        """The text of a variable that stands where a number or a flag does, which JSON can't."""
        if isinstance(value, str) and has_variables(value):
            return expand_variables(value, self.environment, steps).strip()
        return ""


_READERS: Mapping[str, Callable[[ConfigSection, SettingField, object, JsonPath], Any]] = {
    "text": ConfigSection._text,
    "flag": ConfigSection._flag,
    "whole": ConfigSection._number,
    "number": ConfigSection._number,
    "choice": ConfigSection._choice,
    "texts": ConfigSection._texts,
    "choices": ConfigSection._choices,
    "map": ConfigSection._map,
}


def _is_within(number: float, one: SettingField) -> bool:
    least, most = one.setting.minimum, one.setting.maximum
    if isinstance(number, float) and not math.isfinite(number):
        return False
    return (least is None or number >= least) and (most is None or number <= most)


def _wrong(one: SettingField, value: object, steps: JsonPath) -> InvalidSetting:
    """The fault that a value is of another kind. The value itself may be secret: it is not told."""
    return InvalidSetting(steps, f"should be {one.expected}, not {_form(value)}")


def _form(value: object) -> str:
    """What JSON calls a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, int | float):
        return "a number"
    return "an object" if isinstance(value, Mapping) else "a list"
