"""Haystack: `Agent(…, tools=ToolcribSearchableToolset([…]))`, in place of `SearchableToolset`."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any, Self, Unpack

from haystack.core.serialization import generate_qualified_class_name
from haystack.tools import Tool as HaystackTool
from haystack.tools import flatten_tools_or_toolsets
from haystack.tools.searchable_toolset import SearchableToolset
from haystack.tools.serde_utils import deserialize_tools_or_toolset_inplace, serialize_tools_or_toolset
from haystack.tools.tool_types import ToolsType

from toolcrib.core.calls import ToolCall
from toolcrib.core.rights import AllowedTools
from toolcrib.core.tool import Tool
from toolcrib.frameworks.tool_index import FrameworkOptions, FrameworkToolIndex
from toolcrib.session.session import Session
from toolcrib.session.turn import TurnHandler


class ToolcribSearchableToolset(SearchableToolset):
    """Show the model a search tool and the tools it found, from a catalog of tools and toolsets.

    The agent makes a copy for each run, so runs do not share what they found. `allowed` are the tools
    that may be used.
    """

    def __init__(
        self, catalog: ToolsType, *, allowed: AllowedTools | None = None, **options: Unpack[FrameworkOptions]
    ) -> None:
        super().__init__(catalog)
        self._allowed = allowed
        self._index = FrameworkToolIndex(**options)
        self._handler: TurnHandler | None = None
        self._session: Session
        self._lock = Lock()

    def spawn(self, selected_tool_names: set[str] | None = None) -> Self:
        """Return a copy for one run, restricted to the selected tools."""
        copy = super().spawn(selected_tool_names)
        assert isinstance(copy, type(self))
        copy._lock = Lock()
        copy._start()
        return copy

    def clear(self) -> None:
        """Forget which tools were found."""
        self._start()

    def __iter__(self) -> Iterator[HaystackTool]:
        if self._passthrough is None:
            self.warm_up()
        assert self._handler
        with self._lock:
            tools = self._handler.tools(self._session)
        for tool in tools:
            haystack_tool = self._tools_by_name.get(tool.id)
            if haystack_tool is None:
                yield self._build_search_tool(tool)
            else:
                yield haystack_tool

    def to_dict(self) -> dict[str, Any]:
        """Return the catalog as JSON; options are not included."""
        data = {"catalog": serialize_tools_or_toolset(self._raw_catalog)}
        return {"type": generate_qualified_class_name(type(self)), "data": data}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return a toolset from its JSON."""
        inner = data["data"]
        deserialize_tools_or_toolset_inplace(inner, key="catalog")
        return cls(inner["catalog"])

    def _build_catalog(self) -> None:
        if self._passthrough is not None:
            return
        self._catalog = flatten_tools_or_toolsets(self._raw_catalog)
        self._tools_by_name = {tool.name: tool for tool in self._catalog}
        self._core_tools = [Tool(tool.name, tool.description, tool.parameters) for tool in self._catalog]
        # The disclosure decides which tools are visible, so the base class never has to.
        self._passthrough = True
        self._start()

    def _start(self) -> None:
        """Begin a session without found tools."""
        selected = self._selected_tool_names
        tools = [tool for tool in self._core_tools if selected is None or tool.name in selected]
        self._handler = self._index.build_turn_handler(tools, self._allowed)
        self._session = self._handler.start_session(self._index.budget)

    def _build_search_tool(self, tool: Tool) -> HaystackTool:
        return HaystackTool(
            name=tool.name, description=tool.description, parameters=dict(tool.input_schema), function=self._search
        )

    def _search(self, **arguments: Any) -> str:
        """Answer a search and reveal the tools it found."""
        assert self._handler
        # The agent runs the calls of a step in threads.
        with self._lock:
            call = ToolCall("", self._handler.search_tool.name, arguments)
            turn = self._handler.handle_calls(self._session, [call])
            self._session = turn.session
        return turn.replies[0].text
