"""What one kind of client may see: the tools of its profile, and the rules for showing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from toolcrib.config.settings import AccessProfile, ToolSearchConfig
from toolcrib.core import prompts
from toolcrib.core.token_count import count_tool_tokens
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import ToolNames
from toolcrib.hub.directory import DirectoryEntry, ServerTools, ToolDirectory, matches_any
from toolcrib.profiles.mcproxy import SEARCH_TOOL_NAME
from toolcrib.search.engine import SearchEngine
from toolcrib.search.filters import Where
from toolcrib.search.results import SearchResult
from toolcrib.session.disclosure import (
    ALPHABETICAL,
    Activation,
    Disclosure,
    DisclosurePlan,
    Selection,
)
from toolcrib.session.turn import TurnHandler

DisclosureMode = Literal["direct", "search", "dynamic"]
_ALWAYS_ACTIVE: Final = Activation(tools=0)


@dataclass(frozen=True)
class AccessView:
    """A profile's part of the directory at one moment. Nothing outside it can be named or called."""

    directory: ToolDirectory
    profile: AccessProfile
    settings: ToolSearchConfig
    engine: SearchEngine

    @cached_property
    def entries(self) -> Mapping[str, DirectoryEntry]:
        """The tools of this profile by their public names, in the order of the configuration."""
        return {entry.name: entry for entry in self.directory if self._is_visible(entry)}

    @cached_property
    def tool_list(self) -> list[dict[str, Any]]:
        """All of them as they are listed."""
        return [entry.wire_definition for entry in self.entries.values()]

    @cached_property
    def tool_ids(self) -> frozenset[str]:
        """Their ids."""
        return frozenset(self.entries)

    @cached_property
    def total_tokens(self) -> int:
        """What it would cost to show all of them."""
        return sum(count_tool_tokens(entry.tool) for entry in self.entries.values())

    def search(self, query: str, limit: int, where: Where) -> SearchResult:
        """The best of them, and whether that is enough for this profile."""
        own = self.profile.confident_from
        result = self.engine.search(query, limit=limit, where=where, allowed=self.tool_ids)
        return result.with_threshold(self.settings.confident_from if own is None else own)

    def can_see_server(self, server: str) -> bool:
        """Whether this profile may know of a server, and of its prompts and resources.

        Where only some tools are let through, a server that has none of them is none of its affair.
        """
        if not self.may_use_server(server):
            return False
        return self.profile.tools is None or server in self._servers_of_tools

    def may_use_server(self, server: str) -> bool:
        """Whether a server that nobody has seen yet may turn out to have tools of this profile."""
        return self.profile.servers is None or server in self.profile.servers

    @cached_property
    def _servers_of_tools(self) -> frozenset[str]:
        tools = self.profile.tools or ()
        found = {
            shelf.server.name
            for shelf in self.directory.servers
            if any(matches_any(name, tools) for name in shelf.quarantined)
        }
        return frozenset(
            found | {one.server for one in self.directory if matches_any(one.name, tools)}
        )

    def list_quarantined(self, shelf: ServerTools) -> list[str]:
        """The tools of a server that are held back from this profile until they are approved."""
        tools = self.profile.tools
        if not self.can_see_server(shelf.server.name):
            return []
        return [name for name in shelf.quarantined if tools is None or matches_any(name, tools)]

    @cached_property
    def unusable_servers(self) -> Mapping[str, str]:
        """The servers that have tools nobody can use, and why; of what is wrong, the first.

        It names tools, and nobody can tell which of them a profile of some tools would let through.
        """
        if self.profile.tools is not None:
            return {}
        return {
            shelf.server.name: shelf.problems[0]
            for shelf in self.directory.servers
            if shelf.problems and self.can_see_server(shelf.server.name)
        }

    def resolve_mode(
        self, wanted: str, is_stateless: bool, reads_list_once: bool
    ) -> DisclosureMode:
        """How tools are shown. A list that changes is for clients that read it again.

        Those without a handshake are promised a list that no request of theirs changes.
        """
        limit = self.settings.max_tools_limit
        if wanted in ("auto", "dynamic"):
            if not limit or len(self.entries) <= limit:
                return "direct"
            return "search" if is_stateless or (wanted == "auto" and reads_list_once) else "dynamic"
        return "search" if wanted == "search" else "direct"

    def get_turn_handler(self, mode: DisclosureMode) -> TurnHandler:
        """The rules of a conversation in this mode."""
        if mode == "direct":
            return self._direct_handler
        return self._dynamic_handler if mode == "dynamic" else self._search_handler

    @cached_property
    def _direct_handler(self) -> TurnHandler:
        return self._build_turn_handler(DisclosurePlan(self._tools, ()))

    @cached_property
    def _search_handler(self) -> TurnHandler:
        return self._build_turn_handler(self._build_plan(0))

    @cached_property
    def _dynamic_handler(self) -> TurnHandler:
        return self._build_turn_handler(
            self._build_plan(self.settings.max_tools_limit), SEARCH_TOOL_NAME
        )

    def _build_turn_handler(
        self, plan: DisclosurePlan, search: str = prompts.SEARCH_NAME
    ) -> TurnHandler:
        return TurnHandler(
            self.engine,
            plan,
            ToolNames(self.engine.catalog),
            allowed=self.tool_ids,
            validates_arguments=self.settings.validate_arguments,
            search_name=search,
        )

    def _build_plan(self, shown: int) -> DisclosurePlan:
        """What is shown from the start: what is pinned, then as many others, in selection order."""
        patterns = (*self.settings.always_expose, *self.profile.always_expose)
        pinned = frozenset(name for name in self.entries if matches_any(name, patterns))
        servers = tuple(shelf.server.alias or shelf.server.name for shelf in self.directory.servers)
        order = Selection((*self.settings.tool_selection_order, ALPHABETICAL), servers)
        limit = max(shown - len(pinned), 0)
        disclosure = Disclosure(_ALWAYS_ACTIVE, pinned, max_visible_tools=limit, selection=order)
        # What is put in order, from A to Z too, is what clients see: the public names.
        named = [
            Tool(entry.name, id=entry.name, server=entry.tool.server, policy=entry.tool.policy)
            for entry in self.entries.values()
        ]
        plan = disclosure.plan(named)
        return DisclosurePlan(
            tuple(self.entries[tool.id].tool for tool in order.sort_tools(plan.visible_tools)),
            tuple(self.entries[tool.id].tool for tool in plan.deferred_tools),
        )

    @property
    def _tools(self) -> tuple[Tool, ...]:
        return tuple(entry.tool for entry in self.entries.values())

    def _is_visible(self, entry: DirectoryEntry) -> bool:
        tools = self.profile.tools
        return self.can_see_server(entry.server) and (
            tools is None or matches_any(entry.name, tools)
        )
