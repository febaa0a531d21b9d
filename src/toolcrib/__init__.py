"""Toolcrib: tool search for LLM agents.

    engine = SearchEngine([...])        search tools: Tool objects, functions, tools in any wire format
    engine.search("send an email")      hits with scores, and whether they can be trusted
    toolcrib = Toolcrib([...])          tools for an agent loop of your own
    session = toolcrib.session()        what to send to the model, and what its calls mean
    Agent(client, session, model=...)   the whole loop, with an official client
    Registry()                          Python functions as tools, validated and run

The names are imported on first use. `help(toolcrib.SearchEngine)` describes one of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolcrib.adapters.format_detection import tools_from_any
    from toolcrib.agent.agent import Agent, AgentFinished, TextDelta, ToolAnswered, ToolCalled
    from toolcrib.core.calls import CallResult
    from toolcrib.core.catalog import Catalog
    from toolcrib.core.rights import allow_all
    from toolcrib.core.token_count import estimate_tokens
    from toolcrib.core.tool import Tool
    from toolcrib.embedders.cache import use_vector_cache
    from toolcrib.errors import (
        AgentUnfinished,
        CallRefused,
        DuplicateTool,
        InvalidConfig,
        InvalidQuery,
        InvalidTool,
        ToolcribError,
        UnknownTool,
    )
    from toolcrib.files.catalog_file import read_catalog_file
    from toolcrib.registry.registry import Registry
    from toolcrib.search.engine import SearchEngine
    from toolcrib.search.filters import Where
    from toolcrib.search.ranker import MatchReason
    from toolcrib.search.results import Explanation, Hit, SearchResult
    from toolcrib.session.disclosure import Activation, Disclosure, Selection
    from toolcrib.session.session import Session
    from toolcrib.toolcrib import Toolcrib, ToolcribSession

__version__ = "0.4.0"

__all__ = [
    "Activation", "Agent", "AgentFinished", "AgentUnfinished", "CallRefused", "CallResult", "Catalog",
    "Disclosure", "DuplicateTool", "Explanation", "Hit", "InvalidConfig", "InvalidQuery", "InvalidTool",
    "MatchReason", "Registry", "SearchEngine", "SearchResult", "Selection", "Session", "TextDelta", "Tool",
    "ToolAnswered", "ToolCalled", "Toolcrib", "ToolcribError", "ToolcribSession", "UnknownTool", "Where",
    "allow_all", "estimate_tokens", "read_catalog_file", "tools_from_any", "use_vector_cache",
]  # fmt: skip

_NAMES = {
    "adapters.format_detection": "tools_from_any",
    "agent.agent": "Agent AgentFinished TextDelta ToolAnswered ToolCalled",
    "core.calls": "CallResult",
    "core.catalog": "Catalog",
    "core.rights": "allow_all",
    "core.token_count": "estimate_tokens",
    "core.tool": "Tool",
    "embedders.cache": "use_vector_cache",
    "errors": "AgentUnfinished CallRefused DuplicateTool InvalidConfig InvalidQuery InvalidTool ToolcribError UnknownTool",
    "files.catalog_file": "read_catalog_file",
    "registry.registry": "Registry",
    "search.engine": "SearchEngine",
    "search.filters": "Where",
    "search.ranker": "MatchReason",
    "search.results": "Explanation Hit SearchResult",
    "session.disclosure": "Activation Disclosure Selection",
    "session.session": "Session",
    "toolcrib": "Toolcrib ToolcribSession",
}
_MODULES = {name: f"toolcrib.{module}" for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a public name on first use, as `toolcrib --help` needs none of them."""
    if name not in _MODULES:
        raise AttributeError(f"module 'toolcrib' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
