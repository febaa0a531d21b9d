"""shipit 2.2's second search, of its discovery module: what waits behind MCP servers.

Servers stay as they are while their tools fit a budget, the smallest first; the tools of the others
wait until a search finds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from toolcrib.core.tool import Tool
from toolcrib.session.disclosure import SERVER_SIZE, Activation, Disclosure, Selection

NAME_WEIGHT = 3.0
DESCRIPTION_WEIGHT = 1.0
SERVER_WEIGHT = 0.5
WHOLE_QUERY_BONUS = 2.0
MAX_RESULTS = 8
MAX_EAGER_TOOLS = 12
MAX_EXAMPLES = 5

NO_QUERY = "No query given. Describe what you need to do."
FOUND = "Found {count} tool(s), now callable:\n"
NOTHING_UNLOADED = "No additional tools are available beyond those already loaded."
NO_MATCH = "No tool matched {query!r} among {count} unloaded tools."
SERVERS = "Connected servers: {names}."
EXAMPLES = "Examples of what is available: {names}."
ADVICE = "Try describing the task differently, or name a server."

_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class ShipitDiscovery:
    """One run: the tools that wait, and the names of those that were found."""

    unloaded: tuple[Tool, ...] = ()
    found: tuple[str, ...] = ()

    def is_available(self, name: str) -> bool:
        """Whether a tool may be called now."""
        return name in self.found or all(tool.name != name for tool in self.unloaded)

    def search(self, query: str, limit: int = MAX_RESULTS) -> tuple[ShipitDiscovery, str]:
        """The run after a search, and its answer."""
        asked = query.strip()
        if not asked:
            return self, NO_QUERY
        hits = rank_tools(asked, self.unloaded)[:limit]
        if not hits:
            return self, self._render_miss(asked)
        lines = [FOUND.format(count=len(hits))]
        for tool in hits:
            lines += [f"### {tool.name}\n{tool.description}", render_arguments(tool), ""]
        new = [tool.name for tool in hits if tool.name not in self.found]
        return replace(self, found=(*self.found, *new)), "\n".join(lines).strip()

    def _render_miss(self, query: str) -> str:
        """What there is instead: the servers, and a few names."""
        if not self.unloaded:
            return NOTHING_UNLOADED
        parts = [NO_MATCH.format(query=query, count=len(self.unloaded))]
        servers = sorted({tool.server for tool in self.unloaded if tool.server})
        if servers:
            parts.append(SERVERS.format(names=", ".join(servers)))
        names = sorted(tool.name for tool in self.unloaded)[:MAX_EXAMPLES]
        return " ".join([*parts, EXAMPLES.format(names=", ".join(names)), ADVICE])


def score_tool(query: str, tool: Tool) -> float:
    """How well a tool answers: by words of its name, of its description, and of its server."""
    asked = _split_words(query)
    if not asked:
        return 0.0
    points = NAME_WEIGHT * len(asked & _split_words(tool.name))
    points += DESCRIPTION_WEIGHT * len(asked & _split_words(tool.description))
    points += SERVER_WEIGHT * len(asked & _split_words(tool.server))
    whole = query.strip().lower() in f"{tool.name} {tool.description}".lower()
    return points + (WHOLE_QUERY_BONUS if whole else 0.0)


def rank_tools(query: str, tools: Iterable[Tool]) -> list[Tool]:
    """The tools that have anything of a query, the best first, those alike by name."""
    scored = [(score_tool(query, tool), tool) for tool in tools]
    scored.sort(key=lambda one: (-one[0], one[1].name))
    return [tool for points, tool in scored if points]


def select_deferred_servers(
    servers: Mapping[str, Sequence[Tool]], max_eager_tools: int = MAX_EAGER_TOOLS
) -> frozenset[str]:
    """The servers whose tools wait: all but the smallest ones that fit the budget together."""
    tools = (
        Tool("tool", server=server, id=f"{server} {number}")
        for server, listed in servers.items()
        for number in range(len(listed))
    )
    disclosure = Disclosure(
        Activation(tools=0),
        max_visible_tools=max_eager_tools,
        whole_servers=True,
        selection=Selection((SERVER_SIZE,), tuple(servers)),
    )
    return frozenset(tool.server for tool in disclosure.plan(tools).deferred_tools)


def render_arguments(tool: Tool) -> str:
    """What a tool is called with, in a line."""
    schema = tool.input_schema
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return "Arguments: none"
    needed = schema.get("required") or ()
    listed = (
        f"{name}{'' if name in needed else '?'}: {_argument_type(inner)}"
        for name, inner in properties.items()
    )
    return f"Arguments: {', '.join(listed)}"


def _argument_type(schema: object) -> object:
    return schema.get("type", "any") if isinstance(schema, dict) else "any"


def _split_words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))
