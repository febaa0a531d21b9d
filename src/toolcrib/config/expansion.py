"""`${NAME}` and `${NAME:-default}` in a configuration's texts. Pure: the environment is given."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolcrib.config.problems import InvalidSetting, JsonPath

# `$${` stands for `${` itself. `${env:NAME}` is how VS Code and Cursor write it.
_VARIABLE = re.compile(r"(\$\$\{)|\$\{(?:env:)?([^{}]*)\}")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_MAX_QUOTED_CHARS = 40


class MissingVariable(InvalidSetting):
    """A variable that is not set and has no default."""

    def __init__(self, steps: JsonPath, name: str) -> None:
        super().__init__(
            steps,
            f"the environment variable {name} is not set; set it, "
            f"or write ${{{name}:-}} with what to use without it after the dash",
        )
        self.name = name


def expand_variables(text: str, environment: Mapping[str, str], path: JsonPath) -> str:
    """The text with its variables replaced; a default also stands in for an empty variable."""

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return "${"
        named = _NAME.fullmatch(match[2])
        if named is None:
            shown = match[0][:_MAX_QUOTED_CHARS]
            if match[2].startswith("input:"):
                cure = "only VS Code can ask for it; name an environment variable instead"
            else:
                cure = "a variable is written ${NAME} or ${NAME:-default}, and a plain ${ as $${"
            raise InvalidSetting(path, f"{shown} is no environment variable; {cure}")
        name, default = named[1], named[2]
        found = environment.get(name)
        if default is not None:
            return found or default
        if found is None:
            raise MissingVariable(path, name)
        return found

    return _VARIABLE.sub(value, text)


def list_required_variables(text: str) -> list[str]:
    """The names of the variables a text needs, without those that have a default."""
    found = [_NAME.fullmatch(match[2]) for match in _VARIABLE.finditer(text) if not match[1]]
    return [named[1] for named in found if named and named[2] is None]


def collect_required_variables(value: object) -> list[str]:
    """The variables all texts of a JSON value need, each once, in their order."""
    names: dict[str, None] = {}
    rest: list[object] = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            names.update(dict.fromkeys(list_required_variables(one)))
        elif isinstance(one, Mapping):
            rest.extend(reversed(list(one.values())))
        elif isinstance(one, list):
            rest.extend(reversed(one))
    return list(names)


def has_variables(text: str) -> bool:
    """Whether a text has variables in it."""
    return any(not match[1] for match in _VARIABLE.finditer(text))


def escape_variables(text: str) -> str:
    """The text as it has to be written so that nothing in it is taken for a variable."""
    return text.replace("${", "$${")
