"""What is wrong with a configuration, and where in it: names and numbers that lead to the value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from toolcrib.errors import InvalidConfig

JsonPath = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[\w$-]+")
_MAX_KEY_CHARS = 80
_MIN_SIMILARITY = 0.6


class InvalidSetting(InvalidConfig):
    """A fault at a place of a configuration; the reader of the file adds file and line."""

    def __init__(self, path: JsonPath, message: str) -> None:
        place = format_path(path)
        super().__init__(f"{place}: {message}" if place else message)
        self.path = path
        self.reason = message


def format_path(path: JsonPath) -> str:
    """A place as it is written, such as `mcpServers.github.args[2]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step[:_MAX_KEY_CHARS]}"
        else:
            # A name with a dot or a line break in it is quoted, so that it can't pass for another.
            text += f"[{step[:_MAX_KEY_CHARS]!r}]"
    return text.removeprefix(".")


def unknown_name(steps: JsonPath, what: str, name: str, known: Iterable[str]) -> InvalidSetting:
    """The fault that a name is none of the known ones, with the nearest, or with all if few."""
    names = list(known)
    near = find_nearest_name(name, names)
    if near:
        cure = f'did you mean "{near}"?'
    elif names:
        cure = "there are: " + ", ".join(sorted(names))
    else:
        cure = "there are none"
    return InvalidSetting(steps, f"unknown {what}; {cure}")


def find_nearest_name(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one, whatever its case and underscores, or none."""
    spelled = {_normalize_name(one): one for one in known}
    found = difflib.get_close_matches(_normalize_name(name), spelled, n=1, cutoff=_MIN_SIMILARITY)
    return spelled[found[0]] if found else ""


def _normalize_name(name: str) -> str:
    return re.sub(r"[\W_]", "", name[:_MAX_KEY_CHARS]).lower()
