"""shipit 2.2's discovery policy: what is sent from the start, what is searched, what is gone on with."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolcrib.adapters import openai_chat
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig
from toolcrib.profiles.shipit import AVAILABLE_TOOLS_KEY, CORE_TOOLS
from toolcrib.session.disclosure import Activation, Disclosure
from toolcrib.session.session import SessionTable

HIDDEN_KEY = "discovery_hidden"
CHECKPOINT_VERSION = 1
MAX_REUSE_SESSIONS = 32
MAX_RESTORED_SCHEMAS = 64
MAX_RESTORED_NAME_CHARS = 256

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class DiscoveryPolicy:
    """What release 2.2 sends from the start by itself: few tools, and few tokens of definitions."""

    initial_tools: int = 10
    schema_tokens: int = 4_096
    reuse_tools: int = 3

    def __post_init__(self) -> None:
        for field, least in (("initial_tools", 2), ("schema_tokens", 1), ("reuse_tools", 0)):
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidConfig(f"{field} must be a whole number from {least}, not {value!r}")

    def select_deferred(
        self,
        tools: Sequence[Tool],
        search: str,
        *,
        priority: Mapping[str, float] | None = None,
        recent: Sequence[str] = (),
    ) -> frozenset[str]:
        """The tools to defer, by name; never the one called `search`.

        Those of high priority stay, then those of recent use, then the core, then the first ones.
        """
        weights = priority or {}
        places = {name: place for place, name in enumerate(recent)}

        def preference(tool: Tool) -> tuple[float, int, bool]:
            place = places.get(tool.name, len(places))
            return -weights.get(tool.name, 0), place, tool.name not in CORE_TOOLS

        disclosure = Disclosure(
            Activation(tools=self.initial_tools + 1, tokens=self.schema_tokens + 1),
            frozenset({search}),
            max_visible_tools=self.initial_tools - 1,
            max_visible_tokens=self.schema_tokens,
        )
        return frozenset(
            tool.name for tool in disclosure.plan(sorted(tools, key=preference)).deferred_tools
        )


class SchemaReuse:
    """What a session goes on with in its next turn: the last few tools it loaded.

    A tool that has changed since, or is denied by now, is not gone on with.
    """

    def __init__(self, policy: DiscoveryPolicy | None = None) -> None:
        self._most = (policy or DiscoveryPolicy()).reuse_tools
        self._sessions = SessionTable[dict[str, str]](MAX_REUSE_SESSIONS)

    def remember(self, session: str, loaded: Sequence[Tool]) -> None:
        """Note what a session has loaded, in the order of loading."""
        last = loaded[len(loaded) - self._most :] if self._most < len(loaded) else loaded
        self._sessions.put(session, {tool.name: schema_fingerprint(tool) for tool in last})

    def reusable_names(self, session: str, tools: Iterable[Tool]) -> list[str]:
        """The names to load at once, of the tools that are there and not denied."""
        known = self._sessions.get(session) or {}
        prints = {tool.name: schema_fingerprint(tool) for tool in tools if tool.name in known}
        kept = [name for name, fingerprint in known.items() if prints.get(name) == fingerprint]
        return kept[len(kept) - self._most :] if self._most < len(kept) else kept

    def checkpoint(self, session: str) -> dict[str, Any]:
        """What is to be stored of a session: names and fingerprints, nothing that tools said."""
        schemas = dict(self._sessions.get(session) or {})
        return {"version": CHECKPOINT_VERSION, "session_id": session, "schemas": schemas}

    def restore(self, session: str, checkpoint: object) -> bool:
        """Go on from what was stored. That of another version or session is passed over."""
        stored = checkpoint if isinstance(checkpoint, Mapping) else {}
        schemas = stored.get("schemas")
        if (
            stored.get("version") != CHECKPOINT_VERSION
            or stored.get("session_id") != session
            or not isinstance(schemas, Mapping)
        ):
            return False
        last = list(schemas.items())[-MAX_RESTORED_SCHEMAS:]
        self._sessions.put(
            session, {name: mark for name, mark in last if _is_valid_schema(name, mark)}
        )
        return True


def schema_fingerprint(tool: Tool) -> str:
    """A digest of a tool's definition, whatever the order of its fields."""
    [schema] = openai_chat.tools_to_wire([tool])
    text = json.dumps(schema, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def hide_denied(
    state: MutableMapping[str, Any], discoverable: Callable[[str], bool]
) -> frozenset[str]:
    """Take what the permissions deny out of what is searched; the names of it are the result.

    The question is asked of a name alone: whether certain arguments are allowed is seen when the
    tool is called, and has to be.
    """
    listed = list(state.get(AVAILABLE_TOOLS_KEY) or ())
    hidden = frozenset(
        name for tool in listed if not discoverable(name := str(tool.get("name") or ""))
    )
    state[HIDDEN_KEY] = set(hidden)
    state[AVAILABLE_TOOLS_KEY] = [
        tool for tool in listed if str(tool.get("name") or "") not in hidden
    ]
    return hidden


def _is_valid_schema(name: object, mark: object) -> bool:
    return (
        isinstance(name, str)
        and len(name) <= MAX_RESTORED_NAME_CHARS
        and isinstance(mark, str)
        and _DIGEST.fullmatch(mark) is not None
    )
