"""Find the configuration file, read it and parse it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from toolcrib.config.fields import InvalidSetting
from toolcrib.config.jsonc import JsoncDocument, parse_jsonc
from toolcrib.config.parser import parse_config
from toolcrib.config.settings import GatewayConfig
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import read_json_file

FILE_NAME = "toolcrib.json"
CONFIG_VARIABLE = "TOOLCRIB_CONFIG"
EXPECTED_CONTENT = 'a configuration such as {"mcpServers": {}}'


def list_config_paths(
    config: str | PathLike[str] | None = None, environment: Mapping[str, str] | None = None
) -> list[Path]:
    """Return the paths to search for the configuration, in order.

    The option `--config` or the variable `TOOLCRIB_CONFIG` names the only path. Otherwise it is
    `toolcrib.json` in the working directory, then in the user's configuration folder.
    """
    variables = os.environ if environment is None else environment
    named = config or variables.get(CONFIG_VARIABLE)
    if named:
        return [Path(named).expanduser()]
    return [Path(FILE_NAME), user_config_path(variables)]


def user_config_path(environment: Mapping[str, str]) -> Path:
    """Return the path of the user's own configuration file."""
    base = environment.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "toolcrib" / FILE_NAME


def find_config_path(
    config: str | PathLike[str] | None = None, environment: Mapping[str, str] | None = None
) -> Path | None:
    """Return the path of the configuration file, or None.

    A path that was named explicitly is returned even if the file does not exist.
    """
    candidates = list_config_paths(config, environment)
    if len(candidates) == 1:
        return candidates[0]
    return next((path for path in candidates if path.is_file()), None)


def require_config_path(config: str | PathLike[str] | None = None) -> Path:
    """Return the path of the configuration file, or raise `InvalidConfig`."""
    path = find_config_path(config)
    if path is None:
        candidates = " or ".join(map(str, list_config_paths(config)))
        raise InvalidConfig(f"no configuration found at {candidates}; run: toolcrib import, or toolcrib add")
    return path


def load_config(path: str | PathLike[str], environment: Mapping[str, str] | None = None) -> GatewayConfig:
    """Return the configuration in a file; raise `InvalidConfig` with the line of the problem."""
    return parse_document(read_document(path), Path(path), environment)


def read_document(path: str | PathLike[str]) -> JsoncDocument:
    """Return the JSON document in a configuration file, without interpreting it."""
    source = read_json_file(path, InvalidConfig, EXPECTED_CONTENT)
    document = parse_jsonc(source.file, source.text)
    if document.duplicates:
        key_path = document.duplicates[0]
        reason = f'the key "{key_path[-1]}" appears twice; rename or remove one'
        raise document.locate_error(InvalidSetting(key_path, reason))
    return document


def parse_document(document: JsoncDocument, path: Path, environment: Mapping[str, str] | None = None) -> GatewayConfig:
    """Return the configuration in a document."""
    variables = os.environ if environment is None else environment
    try:
        return parse_config(document.value, variables, path)
    except InvalidSetting as error:
        raise document.locate_error(error) from error
