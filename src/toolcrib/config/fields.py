"""Declare settings as dataclass fields, and read their values from a JSON object."""

from __future__ import annotations

import difflib
import json
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import JsonPath

_PLAIN_KEY = re.compile(r"[\w$-]+")
_MAX_KEY_CHARS = 80
_MIN_SIMILARITY = 0.6

# `$${` is an escaped `${`. VS Code and Cursor write `${env:NAME}`.
_VARIABLE = re.compile(r"(\$\$\{)|\$\{(?:env:)?([^{}]*)\}")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_MAX_QUOTED_CHARS = 40

T = TypeVar("T")
ValueType = Literal["string", "boolean", "integer", "number", "map", "object"]

_VALUE_TYPES: Mapping[object, ValueType] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_TYPE_NAMES: Mapping[ValueType, str] = {
    "string": "a string",
    "boolean": "true or false",
    "integer": "an integer",
    "number": "a number",
    "map": "an object of strings",
    "object": "an object",
}
_BOOLEANS = {"true": True, "false": False}


class InvalidSetting(InvalidConfig):
    """A setting that cannot be used; `JsoncDocument.locate_error` adds the file and the line."""

    def __init__(self, path: JsonPath, reason: str) -> None:
        super().__init__(f"{format_path(path)}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


def format_path(path: JsonPath) -> str:
    """Return a path as text, such as `mcpServers.github.args[2]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step[:_MAX_KEY_CHARS]}"
        else:
            # Quoted, so that a key with a dot or a line break is not read as two keys.
            text += f"[{step[:_MAX_KEY_CHARS]!r}]"
    return text.removeprefix(".")


_REMOVED_KEYS: Final = {"learn": "learning from use was removed in version 0.2; delete this key"}


def unknown_name(path: JsonPath, what: str, name: str, known: Iterable[str]) -> InvalidSetting:
    """Return the error for an unknown name: it suggests the nearest known name or lists them all."""
    names = list(known)
    nearest = find_nearest_name(name, names)
    if name in _REMOVED_KEYS:
        hint = _REMOVED_KEYS[name]
    elif nearest:
        hint = f'did you mean "{nearest}"?'
    elif names:
        hint = "known: " + ", ".join(sorted(names))
    else:
        hint = "none are defined"
    return InvalidSetting(path, f"unknown {what}; {hint}")


def find_nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the most similar known name, ignoring case and underscores, or an empty string."""
    by_normalized = {_normalize_name(one): one for one in known}
    matches = difflib.get_close_matches(_normalize_name(name), by_normalized, n=1, cutoff=_MIN_SIMILARITY)
    return by_normalized[matches[0]] if matches else ""


def _normalize_name(name: str) -> str:
    return re.sub(r"[\W_]", "", name[:_MAX_KEY_CHARS]).lower()


class MissingVariable(InvalidSetting):
    """An environment variable that is not set and has no default."""

    def __init__(self, path: JsonPath, name: str) -> None:
        super().__init__(path, f"the environment variable {name} is not set; set it, or add a default: ${{{name}:-…}}")
        self.name = name


def expand_variables(text: str, environment: Mapping[str, str], path: JsonPath) -> str:
    """Return the text with its variables replaced; a default also replaces an empty variable."""

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return "${"
        variable = _NAME.fullmatch(match[2])
        if variable is None:
            quoted = match[0][:_MAX_QUOTED_CHARS]
            if match[2].startswith("input:"):
                hint = "only VS Code can prompt for it; use an environment variable instead"
            else:
                hint = "write ${NAME} or ${NAME:-default}, and $${ for a literal ${"
            raise InvalidSetting(path, f"{quoted} is not an environment variable; {hint}")
        name, default = variable[1], variable[2]
        value = environment.get(name)
        if default is not None:
            return value or default
        if value is None:
            raise MissingVariable(path, name)
        return value

    return _VARIABLE.sub(replace, text)


def collect_required_variables(value: object) -> list[str]:
    """Return the variables without a default in all strings of a JSON value, in order, each once."""
    names: dict[str, None] = {}
    remaining: list[object] = [value]
    while remaining:
        item = remaining.pop()
        if isinstance(item, str):
            matches = [_NAME.fullmatch(m[2]) for m in _VARIABLE.finditer(item) if not m[1]]
            names.update({match[1]: None for match in matches if match and match[2] is None})
        elif isinstance(item, Mapping):
            remaining.extend(reversed(list(item.values())))
        elif isinstance(item, list):
            remaining.extend(reversed(item))
    return list(names)


def has_variables(text: str) -> bool:
    """Return whether a text contains variables."""
    return any(not match[1] for match in _VARIABLE.finditer(text))


def escape_variables(text: str) -> str:
    """Return the text with every `${` escaped, so that expanding it returns the original."""
    return text.replace("${", "$${")


def setting(
    default: T,
    description: str,
    minimum: float | None = None,
    maximum: float | None = None,
    *,
    key: str = "",
    secret: bool = False,
) -> T:
    """Declare a dataclass field that is read from the configuration file.

    The JSON key is the field's name in camel case unless `key` is given. A secret field is left
    out of `repr`.
    """
    metadata = {"description": description, "minimum": minimum, "maximum": maximum, "key": key}
    # Typed as the default, like `dataclasses.field` itself.
    declared: Any
    if isinstance(default, dict):
        declared = field(default_factory=dict, repr=not secret, metadata=metadata)
    else:
        declared = field(default=default, repr=not secret, metadata=metadata)
    return declared  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class SettingField:
    """One setting of a section: its field name, JSON key, accepted values and default."""

    name: str
    key: str
    description: str
    type: ValueType
    default: Any
    choices: tuple[str, ...] = ()
    is_list: bool = False
    is_nullable: bool = False
    minimum: float | None = None
    maximum: float | None = None

    @property
    def accepted_values(self) -> str:
        """The accepted values in words."""
        choices = ", ".join(f'"{choice}"' for choice in self.choices)
        if self.is_list:
            text = f"a list of {choices or 'strings'}"
        else:
            text = f"one of {choices}" if choices else _TYPE_NAMES[self.type]
        if self.minimum is not None and self.maximum is not None:
            text += f" from {self.minimum:,.12g} to {self.maximum:,.0f}"
        return f"{text}, or null" if self.is_nullable else text


@lru_cache(maxsize=64)
def list_settings(section_type: type) -> tuple[SettingField, ...]:
    """Return the settings that a dataclass declares, in order."""
    hints = get_type_hints(section_type)
    settings = []
    for declared in fields(section_type):
        if "description" not in declared.metadata:
            continue
        info = dict(declared.metadata)
        info["key"] = info["key"] or re.sub(r"_([a-z])", lambda match: match[1].upper(), declared.name)
        default = declared.default
        if declared.default_factory is not MISSING:
            default = declared.default_factory()
        info.update(_describe_type(hints[declared.name]))
        settings.append(SettingField(declared.name, default=default, **info))
    return tuple(settings)


def _describe_type(hint: Any) -> dict[str, Any]:
    """Return the keyword arguments of `SettingField` for a type annotation."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (typing.Union, types.UnionType):
        inner = next(arg for arg in args if arg is not type(None))
        return {**_describe_type(inner), "is_nullable": True}
    if origin is Literal:
        return {"type": "string", "choices": args}
    if origin is tuple:
        return {**_describe_type(args[0]), "is_list": True}
    if origin is Mapping or args:
        return {"type": "map" if args[1] is str else "object"}
    return {"type": _VALUE_TYPES.get(hint, "map")}


@dataclass(frozen=True, slots=True)
class ConfigSection:
    """A JSON object of the configuration, its path, and the environment for its variables."""

    path: JsonPath
    members: Mapping[str, Any] = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)

    @classmethod
    def from_value(cls, value: object, path: JsonPath, environment: Mapping[str, str]) -> ConfigSection:
        """Return the section for a JSON value; raise `InvalidSetting` unless it is an object."""
        if not isinstance(value, Mapping):
            raise InvalidSetting(path, f"must be an object, not {_name_json_type(value)}")
        return cls(path, value, environment)

    def child(self, key: str) -> ConfigSection:
        """Return the object under a key, or an empty section without that key."""
        value = self.members.get(key, {})
        return ConfigSection.from_value(value, (*self.path, key), self.environment)

    def read_settings(self, section_type: type, extra_keys: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the settings in this section by field name, without defaults.

        An unknown key that is not among `extra_keys` raises `InvalidSetting`.
        """
        settings = {setting.key: setting for setting in list_settings(section_type)}
        values: dict[str, Any] = {}
        for key, value in self.members.items():
            if key in settings:
                values[settings[key].name] = self._read_value(settings[key], value)
            elif key not in extra_keys:
                raise unknown_name((*self.path, key), "key", key, [*settings, *extra_keys])
        return values

    def read_string(self, value: object, path: JsonPath) -> str:
        """Return a string with its variables expanded."""
        if not isinstance(value, str):
            raise InvalidSetting(path, f"must be a string, not {_name_json_type(value)}")
        return expand_variables(value, self.environment, path)

    def _read_value(self, setting: SettingField, value: object) -> Any:
        path = (*self.path, setting.key)
        if value is None and setting.is_nullable:
            return None
        if setting.is_list:
            if not isinstance(value, list):
                raise _wrong_type(setting, value, path)
            return tuple(self._read_choice(setting, item, (*path, number)) for number, item in enumerate(value))
        if setting.type in ("map", "object"):
            if not isinstance(value, Mapping):
                raise _wrong_type(setting, value, path)
            if setting.type == "object":
                return self._expand_members(value, path)
            return {name: self._read_member(item, (*path, name)) for name, item in value.items()}
        if setting.type == "string":
            if not isinstance(value, str):
                raise _wrong_type(setting, value, path)
            return self._read_choice(setting, value, path)
        return self._read_number(setting, value, path)

    def _read_choice(self, setting: SettingField, value: object, path: JsonPath) -> str:
        text = self.read_string(value, path)
        if setting.choices and text not in setting.choices:
            nearest = find_nearest_name(text, setting.choices)
            hint = f'; did you mean "{nearest}"?' if nearest else ""
            raise InvalidSetting(path, f"must be {setting.accepted_values}{hint}")
        return text

    def _expand_members(self, value: Any, path: JsonPath) -> Any:
        """Return a JSON value with the variables in its strings replaced."""
        if isinstance(value, str):
            return expand_variables(value, self.environment, path)
        if isinstance(value, Mapping):
            return {name: self._expand_members(item, (*path, name)) for name, item in value.items()}
        if isinstance(value, list):
            return [self._expand_members(item, (*path, number)) for number, item in enumerate(value)]
        return value

    def _read_member(self, value: object, path: JsonPath) -> str:
        """Return a member of a map. Clients also accept numbers and booleans as values."""
        return json.dumps(value) if isinstance(value, int | float) else self.read_string(value, path)

    def _read_number(self, setting: SettingField, value: object, path: JsonPath) -> Any:
        """Return a number or a boolean, which a variable may hold as text."""
        number = value
        if isinstance(value, str) and has_variables(value):
            text = expand_variables(value, self.environment, path).strip()
            if not text:
                return setting.default
            number = _parse_number(text, setting.type)
        if setting.type == "boolean":
            if not isinstance(number, bool):
                raise _wrong_type(setting, value, path)
            return number
        if setting.type == "integer" and isinstance(number, float) and number.is_integer():
            number = int(number)
        accepted = int if setting.type == "integer" else int | float
        if isinstance(number, bool) or not isinstance(number, accepted):
            raise _wrong_type(setting, value, path)
        if not _is_in_range(number, setting):
            raise InvalidSetting(path, f"must be {setting.accepted_values}")
        return number if setting.type == "integer" else float(number)


def _parse_number(text: str, type: ValueType) -> bool | float | None:
    if type == "boolean":
        return _BOOLEANS.get(text.lower())
    try:
        return int(text) if type == "integer" else float(text)
    except ValueError:
        return None


def _is_in_range(number: float, setting: SettingField) -> bool:
    if isinstance(number, float) and not math.isfinite(number):
        return False
    minimum = -math.inf if setting.minimum is None else setting.minimum
    return minimum <= number <= (math.inf if setting.maximum is None else setting.maximum)


def _wrong_type(setting: SettingField, value: object, path: JsonPath) -> InvalidSetting:
    # The value is not quoted, because it may be a secret.
    return InvalidSetting(path, f"must be {setting.accepted_values}, not {_name_json_type(value)}")


def _name_json_type(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return "a string"
    if isinstance(value, int | float):
        return "a number"
    return "an object" if isinstance(value, Mapping) else "a list"
