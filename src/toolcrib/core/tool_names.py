"""The name a tool has towards a model, and the way back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Final

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool

# What every provider takes.
MAX_TOOL_NAME_CHARS: Final = 64
# Not every one takes a digit or a hyphen at the beginning, so an underscore is put before it.
_UNSAFE = re.compile(r"^(?=[0-9-])|[^A-Za-z0-9_-]")
_DIGEST_CHARS = 8


def public_name(tool: Tool) -> str:
    """A tool's id, made safe. It depends on this tool alone, so it never changes."""
    return safe_name(tool.id)


def safe_name(name: str, max_chars: int = MAX_TOOL_NAME_CHARS) -> str:
    """A name that every provider takes.

    One that had to be changed ends in a digest of what it was: two names never become one.
    """
    safe = _UNSAFE.sub("_", name)
    if safe == name and len(safe) <= max_chars:
        return safe
    digest = hashlib.blake2b(name.encode(), digest_size=_DIGEST_CHARS // 2).hexdigest()
    return f"{safe[: max_chars - _DIGEST_CHARS - 1]}_{digest}"


class ToolNames:
    """The tools of one catalog by the names they have towards a model.

    These are the public names, unless whoever sends the tools on has others for them, in `named`.
    """

    def __init__(self, catalog: Catalog, name_tool: Callable[[Tool], str] = public_name) -> None:
        self._catalog = catalog
        self._name_tool = name_tool
        self._renamed_ids = {
            name: tool.id for tool in catalog if (name := name_tool(tool)) != tool.id
        }

    def name_for(self, tool: Tool) -> str:
        """The name that a tool has."""
        return self._name_tool(tool)

    def find_tool(self, name: str) -> Tool | None:
        """The tool with this name, or with this id."""
        return self._catalog.get(self._renamed_ids.get(name, name))
