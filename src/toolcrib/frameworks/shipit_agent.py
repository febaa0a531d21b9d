"""shipit_agent: a replacement for its search tool: `Agent(…, tools=[ToolcribSearchTool(), …])`."""

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
    """shipit's search tool on Toolcrib's engine: same name and answers, different ranking.

    The agent finds it by its class and loads the tools it finds. Parameters are searched too if the
    agent provides the schemas. Tools that the agent's permissions hide are not searched.
    `token_bonus` is added to the score for each query word in a tool's texts; it is 0 by default,
    because the engine already weights words.
    """

    def __init__(
        self,
        *,
        name: str = "tool_search",
        description: str | None = None,
        prompt: str | None = None,
        max_limit: int = 10,
        default_limit: int = 5,
        token_bonus: float = 0.0,
        **options: Unpack[FrameworkOptions],
    ) -> None:
        super().__init__(
            name=name,
            description=description,
            prompt=prompt,
            max_limit=max_limit,
            default_limit=default_limit,
            token_bonus=token_bonus,
        )
        self._index = FrameworkToolIndex(**options)

    def run(self, context: ToolContext, **arguments: Any) -> ToolOutput:
        """Answer one call with the shortlist, and load the deferred tools in it."""
        output = super().run(context, **arguments)
        return ToolOutput(output.text, output.metadata)

    def _rank(self, query: str, entries: Sequence[ShipitEntry], context: ShipitContext) -> list[ShipitMatch]:
        """Return the matching tools, best first; if none match, the nearest tools with score 0."""
        schemas = context.state.get(SCHEMAS_BY_NAME_KEY) or {}
        entries_by_name = {entry.name: entry for entry in entries if entry.name != self.name}
        tools = (_to_core_tool(entry, schemas.get(name)) for name, entry in entries_by_name.items())
        result = self._index.build_turn_handler(tools).search(query, self.max_limit)
        if not result.confident:
            return [ShipitMatch(entries_by_name[hit.tool.name], 0.0) for hit in result]
        matches = [self._score(query, entries_by_name[hit.tool.name], hit.score) for hit in result]
        return sorted(matches, key=lambda match: -match.score)

    def _score(self, query: str, entry: ShipitEntry, score: float) -> ShipitMatch:
        """Add the bonus for each query word that the texts of the tool contain, as shipit 1.0 does."""
        haystack = shipit.build_haystack(entry)
        token_hits = sum(word in haystack for word in query.lower().split())
        return ShipitMatch(entry, round(score + self.token_bonus * token_hits, 4))

    def _load(self, context: ShipitContext, matches: Sequence[ShipitMatch]) -> tuple[list[str], dict[str, list[str]]]:
        """Load the deferred tools of the matches into the agent."""
        names = [match.entry.name for match in matches]
        loaded_names = set(context.state.get(LOADED_NAMES_KEY) or ())
        already_loaded = [name for name in names if name in loaded_names]
        lines: list[str] = []
        newly_loaded = self._load_deferred(context, [{"name": name} for name in names], lines)
        if already_loaded:
            lines.append(shipit.ALREADY_LOADED.format(names=", ".join(already_loaded)))
        return lines, {"loaded": newly_loaded, "already_loaded": already_loaded}


def _to_core_tool(entry: ShipitEntry, schema: Any) -> Tool:
    function = schema.get("function") if isinstance(schema, dict) else None
    return Tool(
        entry.name,
        entry.description,
        (function or {}).get("parameters"),
        # Names are unique within an agent, across servers.
        id=entry.name,
        server=entry.server,
        category=entry.category,
        hint=entry.prompt_instructions,
        tags=entry.discovery_terms.split(),
    )


# The name in shipit_agent, so that only the import changes.
ToolSearchTool = ToolcribSearchTool
