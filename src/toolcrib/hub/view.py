"""The access view: the tools that one access profile may use, and how they are disclosed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Final, Literal

from toolcrib.config.settings import AccessProfile, ToolSearchConfig
from toolcrib.core import prompts
from toolcrib.core.token_count import count_tool_tokens
from toolcrib.core.tool import SERVER_SEPARATOR, Tool
from toolcrib.core.tool_names import ToolNames
from toolcrib.errors import InvalidQuery
from toolcrib.hub.directory import DirectoryEntry, QuarantinedTool, ServerTools, ToolDirectory, matches_any
from toolcrib.profiles.mcproxy import SEARCH_TOOL_NAME
from toolcrib.search.engine import SearchEngine
from toolcrib.search.filters import Where
from toolcrib.search.query.expression import QueryNode, iter_leaves
from toolcrib.search.query.parser import parse_query
from toolcrib.search.results import SearchResult
from toolcrib.session.disclosure import ALPHABETICAL, Activation, Disclosure, DisclosurePlan, Selection
from toolcrib.session.turn import TurnHandler

# The search mode for expressions such as `name:github`.
EXPRESSION_MODE: Final = "expression"
# Hosts show the user interface of a tool only if the tool is in the list.
MAX_LISTED_APPS: Final = 50
DisclosureMode = Literal["direct", "search", "dynamic"]
_ALWAYS_ACTIVE: Final = Activation(tools=0)


@dataclass(frozen=True)
class AccessView:
    """A snapshot of the directory for one profile. Tools outside it cannot be named or called."""

    directory: ToolDirectory
    profile: AccessProfile
    settings: ToolSearchConfig
    engine: SearchEngine

    @cached_property
    def entries(self) -> Mapping[str, DirectoryEntry]:
        """The tools of this profile by public name, in the order of the configuration."""
        return {entry.name: entry for entry in self.directory if self.may_use_tool(entry.server, entry.name)}

    @cached_property
    def tool_list(self) -> list[dict[str, Any]]:
        """The definitions of all tools of this profile."""
        return [entry.wire_definition for entry in self.entries.values()]

    @cached_property
    def tool_ids(self) -> frozenset[str]:
        """The ids of all tools of this profile."""
        return frozenset(self.entries)

    @cached_property
    def total_tokens(self) -> int:
        """The number of tokens that a list of all tools takes."""
        return sum(count_tool_tokens(entry.tool) for entry in self.entries.values())

    def search(self, query: str, limit: int, where: Where, mode: str = "") -> SearchResult:
        """Return the best tools of this profile, with the profile's confidence threshold.

        Without a mode, an expression that names a field is matched exactly.
        """
        threshold = self.profile.confident_from
        if threshold is None:
            threshold = self.settings.confident_from
        if not mode:
            node = _parse_expression(query)
            names_field = node is not None and any(field for _, field, _ in iter_leaves(node))
            mode = EXPRESSION_MODE if names_field else ""
        result = self.engine.search(query, limit=limit, mode=mode, where=where, allowed=self.tool_ids)
        return result.with_threshold(threshold)

    def search_expression(self, query: str, limit: int, where: Where) -> SearchResult | None:
        """Return exactly the tools that an expression matches, or None if the query is not an expression.

        The field `name` holds the public name, which usually starts with the server.
        """
        if _parse_expression(query) is None:
            return None
        return self.engine.search(query, limit=limit, mode=EXPRESSION_MODE, where=where, allowed=self.tool_ids)

    def may_use_tool(self, server: str, name: str) -> bool:
        """Return whether this profile may use a tool or a prompt, known by its public name."""
        tools = self.profile.tools
        return self.may_use_server(server) and (tools is None or matches_any(name, tools))

    def may_use_server(self, server: str) -> bool:
        """Return whether a server may have tools of this profile, before its tools are known."""
        return self.profile.servers is None or server in self.profile.servers

    def may_use_resources(self, server: str) -> bool:
        """Return whether this profile may use a server's resources.

        Resources have no names that a tool filter could match, so the filter must allow the whole
        server, as `github___*` does.
        """
        if self.profile.tools is None or not self.may_use_server(server):
            return self.may_use_server(server)
        prefixes = [tools.server.id for tools in self.directory.servers if tools.server.name == server]
        start = f"{next(iter(prefixes), server)}{SERVER_SEPARATOR}"
        return any(pattern.endswith("*") and fnmatchcase(start, pattern) for pattern in self.profile.tools)

    def can_see_server(self, server: str) -> bool:
        """Return whether this profile may know of a server.

        A profile with a tool filter sees only the servers that have a tool for it.
        """
        if self.profile.tools is None:
            return self.may_use_server(server)
        return server in self._servers_with_tools

    def list_quarantined(self, tools: ServerTools) -> list[str]:
        """Return the public names of a server's quarantined tools that this profile could use."""
        server = tools.server.name
        return [name for name in tools.quarantined if self.may_use_tool(server, name)]

    def find_quarantined(self, name: str) -> QuarantinedTool | None:
        """Return the quarantined tool with this name in any case style, if this profile could use it."""
        wanted = _normalize_name(name)
        for tools in self.directory.servers:
            for public_name in self.list_quarantined(tools):
                if _normalize_name(public_name) == wanted:
                    return tools.quarantined[public_name]
        return None

    @cached_property
    def unusable_servers(self) -> Mapping[str, str]:
        """The servers with unusable tools, each with the first problem.

        Empty for a profile with a tool filter: a problem may name a tool outside the profile.
        """
        if self.profile.tools is not None:
            return {}
        return {
            tools.server.name: tools.problems[0]
            for tools in self.directory.servers
            if tools.problems and self.can_see_server(tools.server.name)
        }

    @property
    def configured_mode(self) -> str:
        """The disclosure mode of the profile, or else of the gateway; `auto` depends on the client."""
        return self.profile.mode or self.settings.mode

    def resolve_mode(self, is_stateless: bool, reads_list_once: bool) -> DisclosureMode:
        """Return how tools are disclosed to a client.

        Dynamic mode needs a client that reads a changed list. The stateless protocol revision
        promises a list that does not depend on earlier requests.
        """
        configured, limit = self.configured_mode, self.settings.max_tools_limit
        if configured in ("auto", "dynamic"):
            if not limit or len(self.entries) <= limit:
                return "direct"
            needs_fixed_list = is_stateless or (configured == "auto" and reads_list_once)
            return "search" if needs_fixed_list else "dynamic"
        return "search" if configured == "search" else "direct"

    def get_turn_handler(self, mode: DisclosureMode) -> TurnHandler:
        """Return the turn handler of a disclosure mode."""
        if mode == "direct":
            return self._direct_handler
        return self._dynamic_handler if mode == "dynamic" else self._search_handler

    @cached_property
    def _servers_with_tools(self) -> frozenset[str]:
        quarantined = (tools.server.name for tools in self.directory.servers if self.list_quarantined(tools))
        return frozenset(quarantined) | {entry.server for entry in self.entries.values()}

    @cached_property
    def _direct_handler(self) -> TurnHandler:
        tools = tuple(entry.tool for entry in self.entries.values())
        return self._build_turn_handler(DisclosurePlan(tools, ()))

    @cached_property
    def _search_handler(self) -> TurnHandler:
        return self._build_turn_handler(self._build_plan(0))

    @cached_property
    def _dynamic_handler(self) -> TurnHandler:
        plan = self._build_plan(self.settings.max_tools_limit)
        return self._build_turn_handler(plan, SEARCH_TOOL_NAME)

    def _build_turn_handler(self, plan: DisclosurePlan, search: str = prompts.SEARCH_NAME) -> TurnHandler:
        return TurnHandler(
            self.engine,
            plan,
            ToolNames(self.engine.catalog),
            allowed=self.tool_ids,
            validates_arguments=self.settings.validate_arguments,
            search_name=search,
        )

    def _build_plan(self, max_visible: int) -> DisclosurePlan:
        """Return the initial disclosure: always exposed tools and MCP Apps, then others up to the limit."""
        patterns = (*self.settings.always_expose, *self.profile.always_expose)
        apps = [name for name, entry in self.entries.items() if entry.is_app][:MAX_LISTED_APPS]
        exposed = frozenset(name for name in self.entries if matches_any(name, patterns)) | frozenset(apps)
        servers = tuple(tools.server.id for tools in self.directory.servers)
        order = Selection((*self.settings.tool_selection_order, ALPHABETICAL), servers)
        limit = max(max_visible - len(exposed), 0)
        disclosure = Disclosure(_ALWAYS_ACTIVE, exposed, max_visible_tools=limit, selection=order)
        # The selection sorts by name, and clients see the public names.
        renamed = [
            Tool(entry.name, id=entry.name, server=entry.tool.server, policy=entry.tool.policy)
            for entry in self.entries.values()
        ]
        plan = disclosure.plan(renamed)
        return DisclosurePlan(
            tuple(self.entries[tool.id].tool for tool in order.sort_tools(plan.visible_tools)),
            tuple(self.entries[tool.id].tool for tool in plan.deferred_tools),
        )


def _normalize_name(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def _parse_expression(query: str) -> QueryNode | None:
    """Return a query with operators as an expression; None if it is plain words or malformed."""
    try:
        return parse_query(query, "strict").operators
    except InvalidQuery:
        return None
