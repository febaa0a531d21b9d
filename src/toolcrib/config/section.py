"""Reading one part of a configuration: known keys, the kinds and ranges of their values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolcrib.config.expansion import expanded, is_expanded
from toolcrib.config.kind import Told, settings_of
from toolcrib.config.problems import Fault, Steps, nearest, unknown

_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Section:
    """An object of the configuration, where it stands, and the environment for its variables."""

    steps: Steps
    members: Mapping[str, Any] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, value: object, steps: Steps, environment: Mapping[str, str]) -> Section:
        """The object at a place; anything else is a fault."""
        if not isinstance(value, Mapping):
            raise Fault(steps, f"should be an object, not {_form(value)}")
        return cls(steps, value, environment)

    def inner(self, key: str) -> Section:
        """The object under a key; an empty one if there is none."""
        return Section.of(self.members.get(key, {}), (*self.steps, key), self.environment)

    def read(self, part: type, others: tuple[str, ...] = ()) -> dict[str, Any]:
        """The fields of a part that are told here; a key that is none of its or `others` is a fault."""
        settings = {one.setting.key: one for one in settings_of(part)}
        found: dict[str, Any] = {}
        for key, value in self.members.items():
            if key in settings:
                one = settings[key]
                found[one.field] = self._value(one, value)
            elif key not in others:
                raise unknown((*self.steps, key), "key", key, [*settings, *others])
        return found

    def text(self, value: object, steps: Steps) -> str:
        """A text with its variables expanded; anything else is a fault."""
        if not isinstance(value, str):
            raise Fault(steps, f"should be a text, not {_form(value)}")
        return expanded(value, self.environment, steps)

    def _value(self, one: Told, value: object) -> Any:
        steps = (*self.steps, one.setting.key)
        if value is None and one.kind.nullable:
            return None
        if one.kind.form in ("flag", "whole", "number") and self._is_blank(value, steps):
            return one.default
        return _READERS[one.kind.form](self, one, value, steps)

    def _text(self, one: Told, value: object, steps: Steps) -> str:
        if not isinstance(value, str):
            raise _wrong(one, value, steps)
        return self.text(value, steps)

    def _texts(self, one: Told, value: object, steps: Steps) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise _wrong(one, value, steps)
        return tuple(self.text(item, (*steps, number)) for number, item in enumerate(value))

    def _choice(self, one: Told, value: object, steps: Steps) -> str:
        text = self._text(one, value, steps)
        if text not in one.kind.choices:
            near = nearest(text, one.kind.choices)
            cure = f'; did you mean "{near}"?' if near else ""
            raise Fault(steps, f"should be {one.expected}{cure}")
        return text

    def _choices(self, one: Told, value: object, steps: Steps) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise _wrong(one, value, steps)
        return tuple(self._choice(one, item, (*steps, number)) for number, item in enumerate(value))

    def _map(self, one: Told, value: object, steps: Steps) -> dict[str, str]:
        if not isinstance(value, Mapping):
            raise _wrong(one, value, steps)
        return {name: self._member(member, (*steps, name)) for name, member in value.items()}

    def _member(self, value: object, steps: Steps) -> str:
        """A text, or a number or a flag, which clients take in its place."""
        if isinstance(value, int | float):
            return json.dumps(value)
        return self.text(value, steps)

    def _flag(self, one: Told, value: object, steps: Steps) -> bool:
        flag = _FLAGS.get(self._from_variable(value, steps).lower(), value)
        if not isinstance(flag, bool):
            raise _wrong(one, value, steps)
        return flag

    def _number(self, one: Told, value: object, steps: Steps) -> float:
        number = value
        text = self._from_variable(value, steps)
        if text:
            try:
                number = float(text) if one.kind.form == "number" else int(text)
            except ValueError:
                raise _wrong(one, value, steps) from None
        if isinstance(number, float) and number.is_integer() and one.kind.form == "whole":
            number = int(number)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise _wrong(one, value, steps)
        if one.kind.form == "whole" and not isinstance(number, int):
            raise _wrong(one, value, steps)
        if not _is_within(number, one):
            raise Fault(steps, f"should be {one.expected}")
        return float(number) if one.kind.form == "number" else number

    def _is_blank(self, value: object, steps: Steps) -> bool:
        """Whether a variable stands there that is empty, which no number and no flag is."""
        return (
            isinstance(value, str) and is_expanded(value) and not self._from_variable(value, steps)
        )

    def _from_variable(self, value: object, steps: Steps) -> str:
        """The text of a variable that stands where a number or a flag does, which JSON can't."""
        if isinstance(value, str) and is_expanded(value):
            return expanded(value, self.environment, steps).strip()
        return ""


_READERS: Mapping[str, Callable[[Section, Told, object, Steps], Any]] = {
    "text": Section._text,
    "flag": Section._flag,
    "whole": Section._number,
    "number": Section._number,
    "choice": Section._choice,
    "texts": Section._texts,
    "choices": Section._choices,
    "map": Section._map,
}


def _is_within(number: float, one: Told) -> bool:
    least, most = one.setting.least, one.setting.most
    if isinstance(number, float) and not math.isfinite(number):
        return False
    return (least is None or number >= least) and (most is None or number <= most)


def _wrong(one: Told, value: object, steps: Steps) -> Fault:
    """The fault that a value is of another kind. The value itself may be secret: it is not told."""
    return Fault(steps, f"should be {one.expected}, not {_form(value)}")


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
