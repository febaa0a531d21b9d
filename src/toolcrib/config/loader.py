"""Where the configuration is, and reading it from there: the only reader of that file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from os import PathLike
from pathlib import Path

from toolcrib.config.jsonc import Document, parsed
from toolcrib.config.problems import Fault, told
from toolcrib.config.reading import read
from toolcrib.config.settings import Config
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import read_json_file

FILE_NAME = "toolcrib.json"
VARIABLE = "TOOLCRIB_CONFIG"
HOLDS = 'a configuration such as {"mcpServers": {}}'


def places(
    config: str | PathLike[str] | None = None, environment: Mapping[str, str] | None = None
) -> list[Path]:
    """Where the configuration is looked for, first to last.

    The option `--config` or the variable `TOOLCRIB_CONFIG` name the one file; without them it is
    `toolcrib.json` in this folder, then in the user's folder of configurations.
    """
    variables = os.environ if environment is None else environment
    named = config or variables.get(VARIABLE)
    if named:
        return [Path(named).expanduser()]
    return [Path(FILE_NAME), user_file(variables)]


def user_file(environment: Mapping[str, str]) -> Path:
    """The file of this user, whatever the folder."""
    base = environment.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "toolcrib" / FILE_NAME


def find(
    config: str | PathLike[str] | None = None, environment: Mapping[str, str] | None = None
) -> Path | None:
    """The file the configuration is read from, or None where there is none.

    One that was named is given back even if it is not there: reading it says so.
    """
    candidates = places(config, environment)
    if len(candidates) == 1:
        return candidates[0]
    return next((path for path in candidates if path.is_file()), None)


def existing(
    config: str | PathLike[str] | None = None, environment: Mapping[str, str] | None = None
) -> Path:
    """The file the configuration is read from; where there is none, that is the error."""
    path = find(config, environment)
    if path is None:
        looked = " or ".join(str(one) for one in places(config, environment))
        raise InvalidConfig(f"there is no configuration at {looked}; make one: toolcrib import")
    return path


def load(
    path: str | PathLike[str],
    environment: Mapping[str, str] | None = None,
    *,
    tolerant: bool = False,
) -> Config:
    """The configuration in a file; what is wrong raises `InvalidConfig` with line and cure.

    Where it is `tolerant`, a server whose variables are not set is switched off and noted.
    """
    return interpreted(open_document(path), Path(path), environment, tolerant=tolerant)


def open_document(path: str | PathLike[str]) -> Document:
    """The JSON of a configuration file, not yet understood."""
    text = read_json_file(path, InvalidConfig, HOLDS)
    document = parsed(text.file, text.text, InvalidConfig)
    if document.twice:
        steps = document.twice[0]
        raise document.fault(
            Fault(
                steps,
                f'"{told(steps[-1:])}" is here twice, and only one would be read; '
                "rename or remove one",
            )
        )
    return document


def interpreted(
    document: Document,
    path: Path,
    environment: Mapping[str, str] | None = None,
    *,
    tolerant: bool = False,
) -> Config:
    """The configuration a document tells."""
    variables = os.environ if environment is None else environment
    try:
        return read(document.value, variables, path, tolerant=tolerant)
    except Fault as fault:
        raise document.fault(fault) from fault
