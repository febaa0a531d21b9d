"""The text of a tool that an embedder encodes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from toolcrib.core.schema import list_parameter_texts
from toolcrib.core.tool import Tool

# The first words say what a tool does; what follows is mostly how to call it.
MAX_DESCRIPTION_WORDS: Final = 40
MAX_PARAMETERS: Final = 12

_WORD_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_\W]+")
# Words in the names of most servers, which do not distinguish them.
_SERVER_STOP_WORDS: Final = frozenset({"mcp", "server"})


def build_tool_text(tool: Tool) -> str:
    """Return the words of the server and name, the hint, the start of the description, and the parameters.

    The hint comes first, so that a long description does not displace it.
    """
    server = [word for word in _split(tool.server) if word.lower() not in _SERVER_STOP_WORDS]
    name = _split(tool.name)
    title = _split(tool.title)
    name_words = {word.lower() for word in name}
    if all(word.lower() in name_words for word in title):
        title = ()
    head = " ".join([*server, *name, *title])
    body = " ".join(f"{tool.hint} {tool.description}".split()[:MAX_DESCRIPTION_WORDS])
    parameters = ", ".join(
        " ".join(_split(parameter.name)) for parameter in list_parameter_texts(tool.input_schema, MAX_PARAMETERS)
    )
    return f"{head}: {body} ({parameters})" if parameters else f"{head}: {body}"


@lru_cache(maxsize=10_000)
def _split(name: str) -> tuple[str, ...]:
    return tuple(_WORD_BOUNDARY.sub(" ", name).split())
