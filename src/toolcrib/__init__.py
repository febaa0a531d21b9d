"""Toolcrib: tool search for LLM agents."""

from __future__ import annotations

from toolcrib.core.catalog import Catalog
from toolcrib.core.engine import Explanation, Hit, SearchEngine, SearchResult
from toolcrib.core.facet import Where
from toolcrib.core.tool import Tool
from toolcrib.errors import ToolcribError

__version__ = "0.1.0"

__all__ = [
    "Catalog",
    "Explanation",
    "Hit",
    "SearchEngine",
    "SearchResult",
    "Tool",
    "ToolcribError",
    "Where",
]
