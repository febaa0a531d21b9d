"""The parts of shipit 2.2 around its search: deferred tools, reused schemas, and discovery on MCP servers.

Tools of MCP servers are loaded as long as they fit a budget, smallest server first; the tools of
the other servers are loaded when `ShipitDiscovery.search` finds them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from toolcrib.adapters import openai_chat
from toolcrib.core.callbacks import returns_true
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig
from toolcrib.profiles.shipit import AVAILABLE_TOOLS_KEY, CORE_TOOLS, render_parameters
from toolcrib.session.disclosure import SERVER_SIZE, Activation, Disclosure, Selection
from toolcrib.session.session import SessionTable

HIDDEN_KEY = "discovery_hidden"
CHECKPOINT_VERSION = 1
MAX_REUSE_SESSIONS = 32
MAX_RESTORED_SCHEMAS = 64
MAX_RESTORED_NAME_CHARS = 256

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

_DIGEST = re.compile(r"[0-9a-f]{64}")
_WORD = re.compile(r"[a-z0-9]+")

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class DiscoveryPolicy:
    """The limits of release 2.2 for the first request: number of tools, and tokens of schemas."""

    initial_tools: int = 10
    schema_tokens: int = 4_096
    reuse_tools: int = 3

    def __post_init__(self) -> None:
        for field, minimum in (("initial_tools", 2), ("schema_tokens", 1), ("reuse_tools", 0)):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
                raise InvalidConfig(f"{field} must be a whole number from {minimum}, not {value!r}")

    def select_deferred(
        self,
        tools: Sequence[Tool],
        search: str,
        *,
        priority: Mapping[str, float] | None = None,
        recent: Sequence[str] = (),
    ) -> frozenset[str]:
        """Return the names of the tools to defer, never `search`.

        Tools stay in this order of preference: high priority, recent use, core tools, first ones.
        """
        weights = priority or {}
        positions = {name: position for position, name in enumerate(recent)}

        def preference(tool: Tool) -> tuple[float, int, bool]:
            position = positions.get(tool.name, len(positions))
            return -weights.get(tool.name, 0), position, tool.name not in CORE_TOOLS

        disclosure = Disclosure(
            Activation(tools=self.initial_tools + 1, tokens=self.schema_tokens + 1),
            frozenset({search}),
            max_visible_tools=self.initial_tools - 1,
            max_visible_tokens=self.schema_tokens,
        )
        return frozenset(tool.name for tool in disclosure.plan(sorted(tools, key=preference)).deferred_tools)


class SchemaReuse:
    """The last few tools that a session loaded, to load again in its next turn.

    A tool that has changed since, or is denied now, is not reused.
    """

    def __init__(self, policy: DiscoveryPolicy | None = None) -> None:
        self._max_tools = (policy or DiscoveryPolicy()).reuse_tools
        self._sessions = SessionTable[dict[str, str]](MAX_REUSE_SESSIONS)

    def remember(self, session: str, loaded: Sequence[Tool]) -> None:
        """Remember the tools that a session has loaded, in order of loading."""
        last = self._last(loaded)
        self._sessions.put(session, {tool.name: schema_fingerprint(tool) for tool in last})

    def reusable_names(self, session: str, tools: Iterable[Tool]) -> list[str]:
        """Return the names to load, from the tools that are available and not denied."""
        remembered = self._sessions.get(session) or {}
        current = {tool.name: schema_fingerprint(tool) for tool in tools if tool.name in remembered}
        unchanged = [name for name, digest in remembered.items() if current.get(name) == digest]
        return self._last(unchanged)

    def checkpoint(self, session: str) -> dict[str, Any]:
        """Return a session for storage: names and fingerprints, without results of tools."""
        schemas = dict(self._sessions.get(session) or {})
        return {"version": CHECKPOINT_VERSION, "session_id": session, "schemas": schemas}

    def restore(self, session: str, checkpoint: object) -> bool:
        """Restore a stored session; return False if it is from another version or session."""
        stored = checkpoint if isinstance(checkpoint, Mapping) else {}
        schemas = stored.get("schemas")
        if (
            stored.get("version") != CHECKPOINT_VERSION
            or stored.get("session_id") != session
            or not isinstance(schemas, Mapping)
        ):
            return False
        last = list(schemas.items())[-MAX_RESTORED_SCHEMAS:]
        self._sessions.put(session, {name: digest for name, digest in last if _is_valid_schema(name, digest)})
        return True

    def _last(self, items: Sequence[Item]) -> list[Item]:
        return list(items[max(0, len(items) - self._max_tools) :])


def schema_fingerprint(tool: Tool) -> str:
    """Return a digest of a tool's definition, independent of the order of its fields."""
    [schema] = openai_chat.tools_to_wire([tool])
    text = json.dumps(schema, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def hide_denied(state: MutableMapping[str, Any], discoverable: Callable[[str], bool]) -> frozenset[str]:
    """Remove denied tools from the searchable tools and return their names.

    Only the name is checked; whether certain arguments are allowed is checked when the tool is
    called. A check that raises, is async or does not return True denies.
    """
    available = list(state.get(AVAILABLE_TOOLS_KEY) or ())
    names = [str(tool.get("name") or "") for tool in available]
    hidden = frozenset(name for name in names if not returns_true(discoverable, name))
    state[HIDDEN_KEY] = set(hidden)
    state[AVAILABLE_TOOLS_KEY] = [tool for tool in available if str(tool.get("name") or "") not in hidden]
    return hidden


def _is_valid_schema(name: object, digest: object) -> bool:
    return (
        isinstance(name, str)
        and len(name) <= MAX_RESTORED_NAME_CHARS
        and isinstance(digest, str)
        and _DIGEST.fullmatch(digest) is not None
    )


@dataclass(frozen=True, slots=True)
class ShipitDiscovery:
    """One run: the tools that are not loaded, and the names of those that a search found."""

    unloaded: tuple[Tool, ...] = ()
    found: tuple[str, ...] = ()

    def is_available(self, name: str) -> bool:
        """Return whether a tool can be called now."""
        return name in self.found or all(tool.name != name for tool in self.unloaded)

    def search(self, query: str, limit: int = MAX_RESULTS) -> tuple[ShipitDiscovery, str]:
        """Return the run after a search, and the answer to the search."""
        stripped = query.strip()
        if not stripped:
            return self, NO_QUERY
        hits = rank_tools(stripped, self.unloaded)[:limit]
        if not hits:
            return self, self._render_miss(stripped)
        lines = [FOUND.format(count=len(hits))]
        for tool in hits:
            lines += [f"### {tool.name}\n{tool.description}", render_arguments(tool), ""]
        new = [tool.name for tool in hits if tool.name not in self.found]
        return replace(self, found=(*self.found, *new)), "\n".join(lines).strip()

    def _render_miss(self, query: str) -> str:
        """Return an answer that names the servers and a few of their tools."""
        if not self.unloaded:
            return NOTHING_UNLOADED
        parts = [NO_MATCH.format(query=query, count=len(self.unloaded))]
        servers = sorted({tool.server for tool in self.unloaded if tool.server})
        if servers:
            parts.append(SERVERS.format(names=", ".join(servers)))
        names = sorted(tool.name for tool in self.unloaded)[:MAX_EXAMPLES]
        return " ".join([*parts, EXAMPLES.format(names=", ".join(names)), ADVICE])


def score_tool(query: str, tool: Tool) -> float:
    """Return the score of a tool, from the words of its name, description and server."""
    query_words = _split_words(query)
    if not query_words:
        return 0.0
    points = NAME_WEIGHT * len(query_words & _split_words(tool.name))
    points += DESCRIPTION_WEIGHT * len(query_words & _split_words(tool.description))
    points += SERVER_WEIGHT * len(query_words & _split_words(tool.server))
    contains_query = query.strip().lower() in f"{tool.name} {tool.description}".lower()
    return points + (WHOLE_QUERY_BONUS if contains_query else 0.0)


def rank_tools(query: str, tools: Iterable[Tool]) -> list[Tool]:
    """Return the tools with a positive score, best first, ties by name."""
    scored = [(score_tool(query, tool), tool) for tool in tools]
    scored.sort(key=lambda pair: (-pair[0], pair[1].name))
    return [tool for points, tool in scored if points]


def select_deferred_servers(
    servers: Mapping[str, Sequence[Tool]], max_eager_tools: int = MAX_EAGER_TOOLS
) -> frozenset[str]:
    """Return the servers to defer: all but the smallest that fit the budget together."""
    tools = (
        Tool("tool", server=server, id=f"{server} {number}")
        for server, server_tools in servers.items()
        for number in range(len(server_tools))
    )
    disclosure = Disclosure(
        Activation(tools=0),
        max_visible_tools=max_eager_tools,
        whole_servers=True,
        selection=Selection((SERVER_SIZE,), tuple(servers)),
    )
    return frozenset(tool.server for tool in disclosure.plan(tools).deferred_tools)


def render_arguments(tool: Tool) -> str:
    """Return the arguments of a tool in one line."""
    return f"Arguments: {render_parameters(tool.input_schema) or 'none'}"


def _split_words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))
