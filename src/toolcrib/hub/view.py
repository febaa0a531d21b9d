"""What one kind of client may see: the tools of its profile, and the rules for showing them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from toolcrib.config.settings import Profile, ToolSearch
from toolcrib.core import prompts
from toolcrib.core.token_count import tool_tokens
from toolcrib.core.tool import Tool
from toolcrib.core.tool_names import Names
from toolcrib.hub.directory import Directory, Entry, Shelf, fits
from toolcrib.profiles.mcproxy import SEARCH_TOOL
from toolcrib.search.engine import SearchEngine
from toolcrib.search.filters import Where
from toolcrib.search.results import SearchResult
from toolcrib.session.disclosure import ALPHABETICAL, Activation, Disclosure, Plan, Selection
from toolcrib.session.turn import Conversation

ShownMode = Literal["direct", "search", "dynamic"]
_ALWAYS: Final = Activation(tools=0)


@dataclass(frozen=True)
class View:
    """A profile's part of the directory at one moment. Nothing outside it can be named or called."""

    directory: Directory
    profile: Profile
    settings: ToolSearch
    engine: SearchEngine

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        """The tools of this profile by their public names, in the order of the configuration."""
        return {entry.name: entry for entry in self.directory if self._may_see(entry)}

    @cached_property
    def listing(self) -> list[dict[str, Any]]:
        """All of them as they are listed."""
        return [entry.listed for entry in self.entries.values()]

    @cached_property
    def allowed(self) -> frozenset[str]:
        """Their ids."""
        return frozenset(self.entries)

    @cached_property
    def tokens(self) -> int:
        """What it would cost to show all of them."""
        return sum(tool_tokens(entry.tool) for entry in self.entries.values())

    def search(self, query: str, limit: int, where: Where) -> SearchResult:
        """The best of them, and whether that is enough for this profile."""
        own = self.profile.confident_from
        result = self.engine.search(query, limit=limit, where=where, allowed=self.allowed)
        return result.held_to(self.settings.confident_from if own is None else own)

    def sees_server(self, server: str) -> bool:
        """Whether this profile may know of a server, and of its prompts and resources.

        Where only some tools are let through, a server that has none of them is none of its affair.
        """
        if not self.may_hold(server):
            return False
        return self.profile.tools is None or server in self._servers_of_tools

    def may_hold(self, server: str) -> bool:
        """Whether a server that nobody has seen yet may turn out to have tools of this profile."""
        return self.profile.servers is None or server in self.profile.servers

    @cached_property
    def _servers_of_tools(self) -> frozenset[str]:
        tools = self.profile.tools or ()
        found = {
            shelf.server.name
            for shelf in self.directory.shelves
            if any(fits(name, tools) for name in shelf.held)
        }
        return frozenset(found | {one.server for one in self.directory if fits(one.name, tools)})

    def held(self, shelf: Shelf) -> list[str]:
        """The tools of a server that are held back from this profile until they are approved."""
        tools = self.profile.tools
        if not self.sees_server(shelf.server.name):
            return []
        return [name for name in shelf.held if tools is None or fits(name, tools)]

    @cached_property
    def unusable(self) -> Mapping[str, str]:
        """The servers that have tools nobody can use, and why; of what is wrong, the first.

        It names tools, and nobody can tell which of them a profile of some tools would let through.
        """
        if self.profile.tools is not None:
            return {}
        return {
            shelf.server.name: shelf.faults[0]
            for shelf in self.directory.shelves
            if shelf.faults and self.sees_server(shelf.server.name)
        }

    def mode(self, wanted: str, is_modern: bool, list_is_frozen: bool) -> ShownMode:
        """How tools are shown. A list that changes is for clients that read it again.

        Those without a handshake are promised a list that no request of theirs changes.
        """
        limit = self.settings.max_tools_limit
        if wanted in ("auto", "dynamic"):
            if not limit or len(self.entries) <= limit:
                return "direct"
            return "search" if is_modern or (wanted == "auto" and list_is_frozen) else "dynamic"
        return "search" if wanted == "search" else "direct"

    def conversation(self, mode: ShownMode) -> Conversation:
        """The rules of a conversation in this mode."""
        if mode == "direct":
            return self._direct
        return self._dynamic if mode == "dynamic" else self._constant

    @cached_property
    def _direct(self) -> Conversation:
        return self._conversation(Plan(self._tools, ()))

    @cached_property
    def _constant(self) -> Conversation:
        return self._conversation(self._plan(0))

    @cached_property
    def _dynamic(self) -> Conversation:
        return self._conversation(self._plan(self.settings.max_tools_limit), SEARCH_TOOL)

    def _conversation(self, plan: Plan, search: str = prompts.SEARCH_NAME) -> Conversation:
        return Conversation(
            self.engine,
            plan,
            Names(self.engine.catalog),
            allowed=self.allowed,
            checks_arguments=self.settings.validate_arguments,
            search_name=search,
        )

    def _plan(self, shown: int) -> Plan:
        """What is shown from the start: what is pinned, then as many others, in selection order."""
        patterns = (*self.settings.always_expose, *self.profile.pins)
        pinned = frozenset(name for name in self.entries if fits(name, patterns))
        servers = tuple(shelf.server.alias or shelf.server.name for shelf in self.directory.shelves)
        order = Selection((*self.settings.tool_selection_order, ALPHABETICAL), servers)
        limit = max(shown - len(pinned), 0)
        disclosure = Disclosure(_ALWAYS, pinned, shown_tools=limit, selection=order)
        # What is put in order, from A to Z too, is what clients see: the public names.
        named = [
            Tool(entry.name, id=entry.name, server=entry.tool.server, policy=entry.tool.policy)
            for entry in self.entries.values()
        ]
        plan = disclosure.plan(named)
        return Plan(
            tuple(self.entries[tool.id].tool for tool in order.ordered(plan.shown)),
            tuple(self.entries[tool.id].tool for tool in plan.held),
        )

    @property
    def _tools(self) -> tuple[Tool, ...]:
        return tuple(entry.tool for entry in self.entries.values())

    def _may_see(self, entry: Entry) -> bool:
        tools = self.profile.tools
        return self.sees_server(entry.server) and (tools is None or fits(entry.name, tools))
