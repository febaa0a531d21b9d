"""What is wrong with a configuration, and where in it: names and numbers that lead to the value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from toolcrib.errors import InvalidConfig

Steps = tuple[str | int, ...]

_PLAIN_STEP = re.compile(r"[\w$-]+")
_MAX_STEP_CHARS = 80
_ALIKE = 0.6


class Fault(InvalidConfig):
    """A fault at a place of a configuration; the reader of the file adds file and line."""

    def __init__(self, steps: Steps, message: str) -> None:
        place = told(steps)
        super().__init__(f"{place}: {message}" if place else message)
        self.steps = steps
        self.cause = message


def told(steps: Steps) -> str:
    """A place as it is written, such as `mcpServers.github.args[2]`."""
    text = ""
    for step in steps:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_STEP.fullmatch(step):
            text += f".{step[:_MAX_STEP_CHARS]}"
        else:
            # A name with a dot or a line break in it is quoted, so that it can't pass for another.
            text += f"[{step[:_MAX_STEP_CHARS]!r}]"
    return text.removeprefix(".")


def unknown(steps: Steps, what: str, name: str, known: Iterable[str]) -> Fault:
    """The fault that a name is none of the known ones, with the nearest, or with all if few."""
    names = list(known)
    near = nearest(name, names)
    if near:
        cure = f'did you mean "{near}"?'
    elif names:
        cure = "there are: " + ", ".join(sorted(names))
    else:
        cure = "there are none"
    return Fault(steps, f"unknown {what}; {cure}")


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most like this one, whatever its case and underscores, or none."""
    spelled = {_bare(one): one for one in known}
    found = difflib.get_close_matches(_bare(name), spelled, n=1, cutoff=_ALIKE)
    return spelled[found[0]] if found else ""


def _bare(name: str) -> str:
    return re.sub(r"[\W_]", "", name[:_MAX_STEP_CHARS]).lower()
