"""The names by which a model calls tools, and the tools for those names."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool

# The limit that all providers accept.
MAX_TOOL_NAME_CHARS: Final = 64
# Some providers reject a leading digit or hyphen, so an underscore is added before it.
_UNSAFE = re.compile(r"^(?=[0-9-])|[^A-Za-z0-9_-]")
_DIGEST_CHARS = 8


def public_name(tool: Tool) -> str:
    """Return the name of a tool for a model: its id, made safe. It depends on this tool alone."""
    return safe_name(tool.id)


def safe_name(name: str, max_chars: int = MAX_TOOL_NAME_CHARS) -> str:
    """Return a name that every provider accepts.

    A name that has to be changed ends in a digest of the original, so that names stay distinct.
    """
    safe = _UNSAFE.sub("_", name)
    if safe == name and len(safe) <= max_chars:
        return safe
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGEST_CHARS // 2).hexdigest()
    return f"{safe[: max_chars - _DIGEST_CHARS - 1]}_{digest}"


class ToolNames:
    """The tools of one catalog by the names that a model uses.

    `name_tool` returns the name of a tool; by default that is its public name.
    """

    def __init__(self, catalog: Catalog, name_tool: Callable[[Tool], str] = public_name) -> None:
        self._catalog = catalog
        self._name_tool = name_tool
        self._renamed_ids = {name: tool.id for tool in catalog if (name := name_tool(tool)) != tool.id}

    def name_for(self, tool: Tool) -> str:
        """Return the name of a tool."""
        return self._name_tool(tool)

    def find_tool(self, name: str) -> Tool | None:
        """Return the tool with this name or id."""
        return self._catalog.get(self._renamed_ids.get(name, name))
