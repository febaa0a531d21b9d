"""The error for an invalid setting, with its path in the file and the nearest known name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import JsonPath

_PLAIN_KEY = re.compile(r"[\w$-]+")
_MAX_KEY_CHARS = 80
_MIN_SIMILARITY = 0.6


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


def unknown_name(path: JsonPath, what: str, name: str, known: Iterable[str]) -> InvalidSetting:
    """Return the error for an unknown name: it suggests the nearest known name or lists them all."""
    names = list(known)
    nearest = find_nearest_name(name, names)
    if nearest:
        hint = f'did you mean "{nearest}"?'
    elif names:
        hint = "known: " + ", ".join(sorted(names))
    else:
        hint = "none are defined"
    return InvalidSetting(path, f"unknown {what}; {hint}")


def find_nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the most similar known name, ignoring case and underscores, or an empty string."""
    by_normalized = {_normalize_name(one): one for one in known}
    matches = difflib.get_close_matches(
        _normalize_name(name), by_normalized, n=1, cutoff=_MIN_SIMILARITY
    )
    return by_normalized[matches[0]] if matches else ""


def _normalize_name(name: str) -> str:
    return re.sub(r"[\W_]", "", name[:_MAX_KEY_CHARS]).lower()
