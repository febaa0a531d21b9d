"""Parse YAML as JSON values, safe for text from other programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolcrib.errors import ToolcribError

MAX_YAML_DEPTH: Final = 100
MAX_YAML_VALUES: Final = 500_000


def parse_yaml(file: str, text: str, error_type: type[ToolcribError]) -> Any:
    """Return the content of a YAML text as JSON values; any problem raises `error_type`.

    Dates stay text and keys become text. Nesting and the size after the expansion of aliases are limited.
    """
    try:
        import yaml  # Only users of YAML files need the package.
    except ImportError:
        raise error_type(f'{file}: YAML needs a package; run: pip install "toolcrib[gateway]"') from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        # The parser of events does not recurse; the loader does, without a limit.
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_YAML_DEPTH:
                raise error_type(f"{file}: the values are nested too deeply; use fewer levels")
        value = yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        raise error_type(f"{file}: not valid YAML: {_describe_error(error)}") from error
    except ValueError as error:
        raise error_type(f"{file}: not valid YAML: {error}") from error
    return _to_json(value, [MAX_YAML_VALUES], error_type(f"{file}: more than {MAX_YAML_VALUES:,} values; split it"))


def _describe_error(error: Exception) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    return f"line {mark.line + 1}: {problem}" if mark else str(error).splitlines()[0]


def _to_json(value: Any, budget: list[int], error: ToolcribError) -> Any:
    """Return a value of the loader as a JSON value; raise the error when the budget is spent."""
    budget[0] -= 1
    if budget[0] < 0:
        raise error
    if isinstance(value, Mapping):
        return {str(key): _to_json(item, budget, error) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_to_json(item, budget, error) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value)
