"""Definitions that the strictest client can read: such a client drops a whole list for one fault."""

from __future__ import annotations

from typing import Any, Final

from mcp_types import methods as _methods
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import ValidationError

from toolcrib.hub.definitions import (
    MAX_DISPLAYED_NAME_CHARS,
    describe_tool,
    limit_problems,
    render_definition,
)
from toolcrib.safety.hidden_text import escape_invisible

_VERSIONS: Final = (LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION)
# Without these there is no tool; whatever else is wrong can be left away.
_REQUIRED_FIELDS: Final = frozenset({"name", "inputSchema"})


def remove_invalid_fields(
    tools: tuple[dict[str, Any], ...],
) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """The same tools, and what was left away: what a strict client would choke on."""
    if not _find_invalid_fields([render_definition(tool, "tool") for tool in tools]):
        return tools, ()
    kept: list[dict[str, Any]] = []
    altered: list[str] = []
    for number, tool in enumerate(tools, 1):
        faults = _find_invalid_fields([render_definition(tool, "tool")])
        if not faults or faults & _REQUIRED_FIELDS:
            # What is wrong with the name or the schema is found when it is read.
            kept.append(tool)
            continue
        kept.append({key: value for key, value in tool.items() if key not in faults})
        parts = escape_invisible(", ".join(sorted(faults)), MAX_DISPLAYED_NAME_CHARS)
        altered.append(
            f"{describe_tool(tool, number)} is used without its {parts}: not as MCP has it"
        )
    return tuple(kept), limit_problems(altered)


def _find_invalid_fields(tools: list[dict[str, Any]]) -> set[str]:
    """The fields of these tools that a strict client would refuse."""
    stamps = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    faults: set[str] = set()
    for version in _VERSIONS:
        try:
            _methods.validate_server_result("tools/list", version, {"tools": tools, **stamps})
        except ValidationError as refused:
            faults |= {str(error["loc"][2]) for error in refused.errors() if len(error["loc"]) > 2}
    return faults
