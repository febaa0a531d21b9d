"""Turn handlers over a few tools, and calls for them."""

from __future__ import annotations

import json

from toolcrib.core.calls import ToolCall
from toolcrib.core.catalog import Catalog
from toolcrib.core.rights import AllowedTools
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import ToolNames
from toolcrib.search.engine import SearchEngine
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.session.disclosure import Activation, Disclosure
from toolcrib.session.session import Session
from toolcrib.session.turn import Style, TurnHandler

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = (
    Tool("get_weather", "Weather forecast for a city. " + "Rain and sun. " * 30, CITY),
    Tool("send_mail", "Send an e-mail message.", {"properties": {"to": {"type": "string"}}}),
    Tool("refund", "Refund a charge to a customer.", server="shop"),
    Tool("help", "Say what to do.", policy="never"),
    Tool("odd", "A tool with a schema nobody can use.", {"type": "nonsense"}),
)


# These tests do not depend on the ranker.
WORDS = {"lexical": LexicalRanker()}


def build_handler(
    style: Style = "reveal", allowed: AllowedTools | None = None, tools: tuple[Tool, ...] = TOOLS
) -> TurnHandler:
    catalog = Catalog(tools)
    plan = Disclosure(Activation(tools=0)).plan(catalog)
    return TurnHandler(SearchEngine(catalog, WORDS), plan, ToolNames(catalog), style, allowed)


def budget_for(handler: TurnHandler, *names: str) -> int:
    """Return a budget in which exactly these tools fit besides the search tool and the pinned ones."""
    fixed = handler.start_session(100_000).fixed_tokens
    return fixed + sum(handler.count(handler.engine.catalog[name]) for name in names)


def search_call(query: object, **more: object) -> ToolCall:
    return ToolCall("1", "search_tools", {"query": query, **more})


def list_names(handler: TurnHandler, session: Session) -> list[str]:
    return [tool.id for tool in handler.tools(session)]


def found_names(text: str) -> list[str]:
    return [one["name"] for one in json.loads(text)["found"]]
