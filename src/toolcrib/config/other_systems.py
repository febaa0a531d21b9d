"""How two other systems tell what `toolSearch` tells: MCProxy's middleware, everruns' capabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolcrib.config.problems import InvalidSetting, JsonPath
from toolcrib.config.section import ConfigSection
from toolcrib.config.settings import ToolSearchConfig

TOOL_SEARCH = "tool_search"
EVERRUNS_THRESHOLD = 15

_ENTRY_KEYS = ("type", "enabled", "config")
_IGNORED_MIDDLEWARE = ("logging", "description_enricher")
_ALTERNATIVES = {
    "tool_filter": 'use "toolsAllowed" and "toolsBlocked" of the server',
    "security": 'use "toolsBlocked" of the server',
}


def http_from_mcproxy(server: ConfigSection, notes: list[str]) -> dict[str, Any]:
    """What MCProxy's `httpServer` tells that `http` tells here, in our keys."""
    known = ("host", "port", "corsEnabled", "corsOrigins", "shutdownTimeout", "middleware")
    for key in server.members:
        if key not in known:
            raise InvalidSetting((*server.path, key), f"unknown key; there are: {', '.join(known)}")
    own = {key: server.members[key] for key in ("host", "port") if key in server.members}
    if server.members.get("corsEnabled") is not False and "corsOrigins" in server.members:
        own["allowedOrigins"] = server.members["corsOrigins"]
    if "shutdownTimeout" in server.members:
        notes.append("httpServer.shutdownTimeout has no effect here")
    return own


def search_from_mcproxy(
    value: object, within: ConfigSection, notes: list[str]
) -> dict[str, Any] | None:
    """The fields of `ToolSearch` in MCProxy's middleware, if its search is among them."""
    found: dict[str, Any] | None = None
    for steps, one in _iter_middleware(value, (*within.path, "middleware")):
        entry = ConfigSection.from_value(one, steps, within.environment)
        for key in entry.members:
            if key not in _ENTRY_KEYS:
                keys = ", ".join(_ENTRY_KEYS)
                raise InvalidSetting((*steps, key), f"unknown key; a middleware has: {keys}")
        kind = entry.read_text(entry.members.get("type"), (*steps, "type"))
        if kind == TOOL_SEARCH:
            found = _read_search_entry(entry)
        elif entry.members.get("enabled") is False:
            continue
        elif kind in _IGNORED_MIDDLEWARE:
            notes.append(f"the middleware {kind} has no effect here")
        else:
            # Whoever relies on a filter must not lose it without being told.
            cure = _ALTERNATIVES.get(kind, "remove it")
            raise InvalidSetting(steps, f"there is no middleware {kind!r:.60} here; {cure}")
    return found


def _read_search_entry(entry: ConfigSection) -> dict[str, Any]:
    settings = entry.members.get("config")
    config = ConfigSection.from_value(
        {} if settings is None else settings, (*entry.path, "config"), entry.environment
    )
    fields = config.read_settings(ToolSearchConfig, others=("enabled",))
    if entry.members.get("enabled") is False or config.members.get("enabled") is False:
        return {"mode": "direct"}
    return fields


def _iter_middleware(value: object, steps: JsonPath) -> Iterator[tuple[JsonPath, object]]:
    """The middleware of a list, or of the lists for the proxy and for its clients."""
    if isinstance(value, list):
        for number, entry in enumerate(value):
            yield (*steps, number), entry
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _iter_middleware(inner, (*steps, name))
    else:
        raise InvalidSetting(steps, "should be a list of middleware")


def search_from_everruns(value: object, steps: JsonPath, notes: list[str]) -> dict[str, Any] | None:
    """The fields of `ToolSearch` in everruns' capabilities, if its search is among them.

    What cannot be used in it is passed over, as everruns does.
    """
    found: dict[str, Any] | None = None
    for name, config in _iter_capabilities(value, steps):
        if name == TOOL_SEARCH:
            found = _read_deferral(config if isinstance(config, Mapping) else {})
        else:
            notes.append(f"the capability {name!r:.60} has no effect here")
    return found


def _iter_capabilities(value: object, steps: JsonPath) -> Iterator[tuple[str, object]]:
    """Names with their configurations: of a list, a map, or a list of references."""
    if isinstance(value, Mapping):
        yield from value.items()
        return
    if not isinstance(value, list):
        raise InvalidSetting(steps, "should be a list of capabilities, or an object of them")
    for number, one in enumerate(value):
        name = one.get("ref") if isinstance(one, Mapping) else one
        if not isinstance(name, str):
            raise InvalidSetting((*steps, number), 'should be a name, or an object with a "ref"')
        yield name, one.get("config") if isinstance(one, Mapping) else None


def _read_deferral(config: Mapping[str, Any]) -> dict[str, Any]:
    """Their threshold is the first number of tools that is too many; ours the last that is not."""
    threshold, names = config.get("threshold"), config.get("never_defer")
    if isinstance(threshold, bool) or not isinstance(threshold, int) or threshold < 0:
        threshold = EVERRUNS_THRESHOLD
    fields: dict[str, Any] = {"max_tools_limit": min(threshold - 1, 1_000_000)}
    if threshold < 2:
        fields = {"mode": "search"}
    listed = names if isinstance(names, list) else []
    pinned = tuple(
        # They know a tool by its bare name, whatever server it is on.
        name if "___" in name else f"*___{name}"
        for name in listed
        if isinstance(name, str)
    )
    return {**fields, "always_expose": pinned} if pinned else fields
