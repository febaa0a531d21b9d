"""The log levels of MCP, least severe first."""

from __future__ import annotations

from typing import Final

LOG_LEVELS: Final = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
