"""shipit_agent: `ToolSearchTool` in place of its own, for `Agent(…, tools=[ToolSearchTool(), …])`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from shipit_agent.deferral import LOADED_NAMES_KEY, SCHEMAS_BY_NAME_KEY
from shipit_agent.tools.base import ToolContext, ToolOutput
from shipit_agent.tools.tool_search import ToolSearchTool as ShipitToolSearchTool

from toolcrib.core.tool import Tool
from toolcrib.frameworks.tool_index import FrameworkOptions, FrameworkToolIndex
from toolcrib.profiles import shipit
from toolcrib.profiles.shipit import ShipitContext, ShipitEntry, ShipitMatch


class ToolcribSearchTool(shipit.LoadingToolSearchTool, ShipitToolSearchTool):
    """shipit's search tool on Toolcrib's engine: same name, same answers, other ranking.

    The agent finds it by its class and loads what it finds. Parameters of tools are searched too,
    where the agent tells them. What the agent's permissions hide is not among what it is given.
    """

    def __init__(
        self,
        *,
        name: str = "tool_search",
        description: str | None = None,
        prompt: str | None = None,
        max_limit: int = 10,
        default_limit: int = 5,
        **options: Unpack[FrameworkOptions],
    ) -> None:
        super().__init__(
            name=name,
            description=description,
            prompt=prompt,
            max_limit=max_limit,
            default_limit=default_limit,
        )
        self._index = FrameworkToolIndex(**options)

    def run(self, context: ToolContext, **arguments: Any) -> ToolOutput:
        """Answer one call with the shortlist, and load what of it is deferred."""
        answer = super().run(context, **arguments)
        return ToolOutput(answer.text, answer.metadata)

    def _rank(
        self, query: str, entries: Sequence[ShipitEntry], context: ShipitContext
    ) -> list[ShipitMatch]:
        """The tools that fit, the best first. Where none does, the nearest, which score nothing."""
        schemas = context.state.get(SCHEMAS_BY_NAME_KEY) or {}
        listed = {entry.name: entry for entry in entries if entry.name != self.name}
        tools = (_to_core_tool(entry, schemas.get(name)) for name, entry in listed.items())
        result = self._index.build_turn_handler(tools).search(query, self.max_limit)
        return [
            ShipitMatch(listed[hit.tool.name], round(hit.score, 4) if result.is_confident else 0.0)
            for hit in result
        ]

    def _load(
        self, context: ShipitContext, matches: Sequence[ShipitMatch]
    ) -> tuple[list[str], dict[str, list[str]]]:
        """Have the agent load what it has deferred."""
        names = [match.entry.name for match in matches]
        before = set(context.state.get(LOADED_NAMES_KEY) or ())
        known = [name for name in names if name in before]
        lines: list[str] = []
        new = self._load_deferred(context, [{"name": name} for name in names], lines)
        if known:
            lines.append(shipit.ALREADY_LOADED.format(names=", ".join(known)))
        return lines, {"loaded": new, "already_loaded": known}


def _to_core_tool(entry: ShipitEntry, schema: Any) -> Tool:
    function = schema.get("function") if isinstance(schema, dict) else None
    return Tool(
        entry.name,
        entry.description,
        (function or {}).get("parameters"),
        # A name is unique within an agent, whichever server it came from.
        id=entry.name,
        server=entry.server,
        category=entry.category,
        hint=entry.prompt_instructions,
        tags=entry.discovery_terms.split(),
    )
