"""Expand `${NAME}` and `${NAME:-default}` in the strings of a configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolcrib.config.problems import InvalidSetting
from toolcrib.files.json_file import JsonPath

# `$${` is an escaped `${`. VS Code and Cursor write `${env:NAME}`.
_VARIABLE = re.compile(r"(\$\$\{)|\$\{(?:env:)?([^{}]*)\}")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_MAX_QUOTED_CHARS = 40


class MissingVariable(InvalidSetting):
    """An environment variable that is not set and has no default."""

    def __init__(self, path: JsonPath, name: str) -> None:
        super().__init__(
            path,
            f"the environment variable {name} is not set; set it, or add a default: ${{{name}:-…}}",
        )
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
