"""Toolcrib: tool search for LLM agents."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolcrib.core.catalog import Catalog
    from toolcrib.core.tool import Tool
    from toolcrib.errors import ToolcribError
    from toolcrib.registry.registry import Registry
    from toolcrib.search.engine import SearchEngine
    from toolcrib.search.filters import Where
    from toolcrib.search.results import Explanation, Hit, SearchResult
    from toolcrib.session.session import Session
    from toolcrib.toolcrib import Toolcrib

__version__ = "0.3.0"

__all__ = [
    "Catalog",
    "Explanation",
    "Hit",
    "Registry",
    "SearchEngine",
    "SearchResult",
    "Session",
    "Tool",
    "Toolcrib",
    "ToolcribError",
    "Where",
]

_MODULES = {
    "Catalog": "toolcrib.core.catalog",
    "Explanation": "toolcrib.search.results",
    "Hit": "toolcrib.search.results",
    "Registry": "toolcrib.registry.registry",
    "SearchEngine": "toolcrib.search.engine",
    "SearchResult": "toolcrib.search.results",
    "Session": "toolcrib.session.session",
    "Tool": "toolcrib.core.tool",
    "Toolcrib": "toolcrib.toolcrib",
    "ToolcribError": "toolcrib.errors",
    "Where": "toolcrib.search.filters",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use, as `toolcrib --help` needs none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module 'toolcrib' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
