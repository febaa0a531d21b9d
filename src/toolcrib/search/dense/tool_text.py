"""A tool as one short text: what an encoder of meanings reads of it."""

from __future__ import annotations

import re
from typing import Final

from toolcrib.core.schema import list_parameters
from toolcrib.core.tool import Tool

# The first words say what a tool does; what follows is mostly how to call it.
MAX_DESCRIPTION_WORDS: Final = 40
MAX_PARAMETERS: Final = 12

_JOINT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\W]+")
# Nearly every server is called one: the words tell none from another.
_SERVER_NOISE: Final = frozenset({"mcp", "server"})


def build_tool_text(tool: Tool) -> str:
    """Server and name in words, the head of the description, the names of the parameters."""
    server = (word for word in _split(tool.server) if word.lower() not in _SERVER_NOISE)
    name = _split(tool.name)
    head = " ".join([*server, *name, *_unless_said(tool.title, name)])
    told = " ".join(f"{tool.description} {tool.hint}".split()[:MAX_DESCRIPTION_WORDS])
    named = list_parameters(tool.input_schema, MAX_PARAMETERS)
    taken = ", ".join(" ".join(_split(parameter.name)) for parameter in named)
    return f"{head}: {told} ({taken})" if taken else f"{head}: {told}"


def _unless_said(title: str, name: list[str]) -> list[str]:
    """The words of a title that say more than the name."""
    said = {word.lower() for word in name}
    words = _split(title)
    return words if any(word.lower() not in said for word in words) else []


def _split(name: str) -> list[str]:
    return _JOINT.sub(" ", name).split()
