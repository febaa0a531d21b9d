"""Where the configuration is, and reading it from there: the only reader of that file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from toolcrib.config.jsonc import JsoncDocument, parse_jsonc
from toolcrib.config.problems import InvalidSetting, format_path
from toolcrib.config.reading import parse_config
from toolcrib.config.settings import GatewayConfig
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import read_json_file

FILE_NAME = "toolcrib.json"
CONFIG_VARIABLE = "TOOLCRIB_CONFIG"
EXPECTED_CONTENT = 'a configuration such as {"mcpServers": {}}'


def list_config_paths(
    config: str | PathLike[str] | None = None, environment: Mapping[str, str] | None = None
) -> list[Path]:
    """Where the configuration is looked for, first to last.

    The option `--config` or the variable `TOOLCRIB_CONFIG` name the one file; without them it is
    `toolcrib.json` in this folder, then in the user's folder of configurations.
    """
    variables = os.environ if environment is None else environment
    named = config or variables.get(CONFIG_VARIABLE)
    if named:
        return [Path(named).expanduser()]
    return [Path(FILE_NAME), user_config_path(variables)]


def user_config_path(environment: Mapping[str, str]) -> Path:
    """The file of this user, whatever the folder."""
    base = environment.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "toolcrib" / FILE_NAME


def find_config_path(
    config: str | PathLike[str] | None = None, environment: Mapping[str, str] | None = None
) -> Path | None:
    """The file the configuration is read from, or None where there is none.

    One that was named is given back even if it is not there: reading it says so.
    """
    candidates = list_config_paths(config, environment)
    if len(candidates) == 1:
        return candidates[0]
    return next((path for path in candidates if path.is_file()), None)


def require_config_path(
    config: str | PathLike[str] | None = None, environment: Mapping[str, str] | None = None
) -> Path:
    """The file the configuration is read from; where there is none, that is the error."""
    path = find_config_path(config, environment)
    if path is None:
        looked = " or ".join(str(one) for one in list_config_paths(config, environment))
        raise InvalidConfig(f"there is no configuration at {looked}; make one: toolcrib import")
    return path


def load_config(
    path: str | PathLike[str],
    environment: Mapping[str, str] | None = None,
    *,
    allow_unset_variables: bool = False,
) -> GatewayConfig:
    """The configuration in a file; what is wrong raises `InvalidConfig` with line and cure.

    Where it is `tolerant`, a server whose variables are not set is switched off and noted.
    """
    return parse_document(
        read_document(path), Path(path), environment, allow_unset_variables=allow_unset_variables
    )


def read_document(path: str | PathLike[str]) -> JsoncDocument:
    """The JSON of a configuration file, not yet understood."""
    text = read_json_file(path, InvalidConfig, EXPECTED_CONTENT)
    document = parse_jsonc(text.file, text.text, InvalidConfig)
    if document.duplicates:
        steps = document.duplicates[0]
        raise document.error_at(
            InvalidSetting(
                steps,
                f'"{format_path(steps[-1:])}" is here twice, and only one would be read; '
                "rename or remove one",
            )
        )
    return document


def parse_document(
    document: JsoncDocument,
    path: Path,
    environment: Mapping[str, str] | None = None,
    *,
    allow_unset_variables: bool = False,
) -> GatewayConfig:
    """The configuration a document tells."""
    variables = os.environ if environment is None else environment
    try:
        return parse_config(
            document.value, variables, path, allow_unset_variables=allow_unset_variables
        )
    except InvalidSetting as fault:
        raise document.error_at(fault) from fault
