"""Read the tool search and HTTP settings of MCProxy and everruns in their own formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolcrib.config.fields import ConfigSection, InvalidSetting
from toolcrib.config.settings import ToolSearchConfig
from toolcrib.files.json_file import JsonPath

TOOL_SEARCH = "tool_search"
EVERRUNS_THRESHOLD = 15

_HTTP_KEYS = ("host", "port", "corsEnabled", "corsOrigins", "shutdownTimeout", "middleware")
_MIDDLEWARE_KEYS = ("type", "enabled", "config")
_IGNORED_MIDDLEWARE = ("logging", "description_enricher")
_ALTERNATIVES = {
    "tool_filter": 'use "toolsAllowed" and "toolsBlocked" of the server',
    "security": 'use "toolsBlocked" of the server',
}


def http_from_mcproxy(server: ConfigSection, notes: list[str]) -> ConfigSection:
    """Return MCProxy's `httpServer` section with the keys of `http`."""
    _check_keys(server, _HTTP_KEYS, "known")
    members = {key: server.members[key] for key in ("host", "port") if key in server.members}
    if server.members.get("corsEnabled") is not False and "corsOrigins" in server.members:
        members["allowedOrigins"] = server.members["corsOrigins"]
    if "shutdownTimeout" in server.members:
        notes.append("httpServer.shutdownTimeout has no effect here")
    return ConfigSection(server.path, members, server.environment)


def search_from_mcproxy(parent: ConfigSection, notes: list[str]) -> dict[str, Any] | None:
    """Return the fields of `ToolSearchConfig` in MCProxy's `middleware`, or None without a search.

    A filter raises `InvalidSetting`: ignoring it would expose the tools that it hides.
    """
    settings: dict[str, Any] | None = None
    for path, value in _iter_middleware(parent.members["middleware"], (*parent.path, "middleware")):
        entry = ConfigSection.from_value(value, path, parent.environment)
        _check_keys(entry, _MIDDLEWARE_KEYS, "a middleware has")
        name = entry.read_string(entry.members.get("type"), (*path, "type"))
        if name == TOOL_SEARCH:
            settings = _read_search_entry(entry)
        elif entry.members.get("enabled") is False:
            continue
        elif name in _IGNORED_MIDDLEWARE:
            notes.append(f"the middleware {name} has no effect here")
        else:
            hint = _ALTERNATIVES.get(name, "remove it")
            raise InvalidSetting(path, f"the middleware {name!r:.60} is not supported; {hint}")
    return settings


def _check_keys(section: ConfigSection, known: tuple[str, ...], label: str) -> None:
    for key in section.members:
        if key not in known:
            raise InvalidSetting((*section.path, key), f"unknown key; {label}: {', '.join(known)}")


def _read_search_entry(entry: ConfigSection) -> dict[str, Any]:
    value = entry.members.get("config")
    path = (*entry.path, "config")
    section = ConfigSection.from_value({} if value is None else value, path, entry.environment)
    settings = section.read_settings(ToolSearchConfig, extra_keys=("enabled",))
    is_disabled = any(part.members.get("enabled") is False for part in (entry, section))
    return {"mode": "direct"} if is_disabled else settings


def _iter_middleware(value: object, path: JsonPath) -> Iterator[tuple[JsonPath, object]]:
    """Yield the entries of a list, or of the nested lists for the proxy and its clients."""
    if isinstance(value, list):
        for number, entry in enumerate(value):
            yield (*path, number), entry
    elif isinstance(value, Mapping):
        for name, nested in value.items():
            yield from _iter_middleware(nested, (*path, name))
    else:
        raise InvalidSetting(path, "must be a list of middleware")


def search_from_everruns(value: object, path: JsonPath, notes: list[str]) -> dict[str, Any] | None:
    """Return the fields of `ToolSearchConfig` in everruns' capabilities, or None without a search.

    Invalid values are ignored, as everruns does.
    """
    settings: dict[str, Any] | None = None
    for name, config in _iter_capabilities(value, path):
        if name == TOOL_SEARCH:
            settings = _read_deferral(config if isinstance(config, Mapping) else {})
        else:
            notes.append(f"the capability {name!r:.60} has no effect here")
    return settings


def _iter_capabilities(value: object, path: JsonPath) -> Iterator[tuple[str, object]]:
    """Yield each capability's name and configuration from a list, an object or references."""
    if isinstance(value, Mapping):
        yield from value.items()
        return
    if not isinstance(value, list):
        raise InvalidSetting(path, "must be a list or an object of capabilities")
    for number, item in enumerate(value):
        name = item.get("ref") if isinstance(item, Mapping) else item
        if not isinstance(name, str):
            raise InvalidSetting((*path, number), 'must be a name, or an object with a "ref"')
        yield name, item.get("config") if isinstance(item, Mapping) else None


def _read_deferral(config: Mapping[str, Any]) -> dict[str, Any]:
    threshold, names = config.get("threshold"), config.get("never_defer")
    if isinstance(threshold, bool) or not isinstance(threshold, int) or threshold < 0:
        threshold = EVERRUNS_THRESHOLD
    # everruns defers from `threshold` tools on; `maxToolsLimit` is the last number that does not.
    settings: dict[str, Any] = {"max_tools_limit": min(threshold - 1, 1_000_000)}
    if threshold < 2:
        settings = {"mode": "search"}
    # everruns names tools without their server.
    exposed = tuple(
        name if "___" in name else f"*___{name}"
        for name in (names if isinstance(names, list) else [])
        if isinstance(name, str)
    )
    return {**settings, "always_expose": exposed} if exposed else settings
