"""Translate a client's server entry to our keys, variables and folders."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from toolcrib.config.clients.locations import ClientFile, HostSystem
from toolcrib.config.fields import (
    ConfigSection,
    InvalidSetting,
    collect_required_variables,
    escape_variables,
    list_settings,
)
from toolcrib.config.server_entry import NOTED_KEYS, normalize_entry, read_server
from toolcrib.config.settings import ServerConfig
from toolcrib.errors import InvalidConfig

_EDITOR_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_SHELL_VARIABLE = re.compile(r"\$(?:\{([^{}]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INVALID_NAME_CHARS = re.compile(r"[^A-Z0-9_]+")
_CODEX_SHARED_KEYS = ("command", "args", "cwd", "url", "enabled")
_CODEX_RENAMED_KEYS = {
    "enabled_tools": "toolsAllowed",
    "disabled_tools": "toolsBlocked",
    "startup_timeout_sec": "connectSeconds",
    "tool_timeout_sec": "callSeconds",
}


@dataclass(frozen=True, slots=True)
class DiscoveredServer:
    """A server in a client's file with its entry for our file, or the `error` that prevents it."""

    source: ClientFile
    name: str
    entry: dict[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()
    error: str = ""


def translate_entry(source: ClientFile, name: str, entry: object, system: HostSystem) -> DiscoveredServer:
    """Return a client's entry in our format."""
    if not isinstance(entry, Mapping):
        return DiscoveredServer(source, name, {}, error="it is not an object")
    notes: list[str] = []
    translator = _VariableTranslator(source, system, notes)
    try:
        members = _convert_codex_entry(entry) if source.client == "codex" else dict(entry)
        members = {key: translator.translate(value) for key, value in members.items()}
        own = normalize_entry(members, (name,))
        known = {setting.key for setting in list_settings(ServerConfig)}
        unknown = sorted(key for key in own if key not in known)
        if unknown:
            notes.append(f"unknown keys were left out: {', '.join(unknown)}")
        own = {key: value for key, value in own.items() if key in known}
        _add_client_defaults(own, source, system)
        _validate_entry(name, own)
    except InvalidConfig as error:
        reason = error.reason if isinstance(error, InvalidSetting) else str(error)
        return DiscoveredServer(source, name, {}, tuple(notes), reason)
    notes += [f"{key} {effect}" for key, effect in NOTED_KEYS.items() if key in members]
    unset = [name for name in collect_required_variables(own) if name not in system.environment]
    if unset:
        notes.append(f"not set: {', '.join(unset)}; set it before you start the gateway")
    if translator.has_unknown:
        own["enabled"] = False
        notes.append('disabled: correct this, then remove "enabled": false')
    return DiscoveredServer(source, name, own, tuple(dict.fromkeys(notes)))


def starts_toolcrib(entry: object) -> bool:
    """Return whether an entry starts Toolcrib itself, which must not become its own server."""
    if not isinstance(entry, Mapping):
        return False
    command, args = entry.get("command"), entry.get("args")
    if not isinstance(command, str):
        return False
    words = [word for word in args if isinstance(word, str)] if isinstance(args, list) else []
    program = re.split(r"[/\\]", command)[-1].removesuffix(".exe")
    return program == "toolcrib" or ("toolcrib" in words[:2] and "stdio" in words)


def _add_client_defaults(own: dict[str, Any], source: ClientFile, system: HostSystem) -> None:
    """Add what the client infers: the working directory and the SSE transport."""
    if source.scope == "project" and own.get("command"):
        folder, cwd = system.project_folder, own.get("cwd")
        own["cwd"] = str(folder / cwd if isinstance(cwd, str) else folder)
    url = own.get("url")
    if isinstance(url, str) and "type" not in own and urlsplit(url).path.endswith("/sse"):
        own["type"] = "sse"


def _validate_entry(name: str, own: Mapping[str, Any]) -> None:
    """Raise `InvalidSetting` if the parser would reject the entry with its variables set."""
    environment = dict.fromkeys(collect_required_variables(own), "1")
    url = own.get("url")
    if isinstance(url, str) and collect_required_variables(url):
        # A URL with variables cannot be checked yet.
        own = {**own, "url": "https://example.com"}
    read_server(name, ConfigSection.from_value(own, (name,), environment), [])


def _convert_codex_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Codex entry with our keys. Codex expands no variables, but has keys that name them."""
    own = {key: entry[key] for key in _CODEX_SHARED_KEYS if key in entry}
    own.update((new, entry[old]) for old, new in _CODEX_RENAMED_KEYS.items() if old in entry)
    if isinstance(entry.get("startup_timeout_ms"), int | float):
        own["connectSeconds"] = entry["startup_timeout_ms"] / 1000
    own = _map_strings(own, escape_variables)
    env = _map_strings(_get_table(entry, "env"), escape_variables)
    headers = _map_strings(_get_table(entry, "http_headers"), escape_variables)
    for header, variable in _get_table(entry, "env_http_headers").items():
        headers[header] = f"${{{variable}}}"
    if "bearer_token_env_var" in entry:
        headers["Authorization"] = f"Bearer ${{{entry['bearer_token_env_var']}}}"
    variables = entry.get("env_vars", [])
    for variable in variables if isinstance(variables, list) else []:
        name = str(variable.get("name") if isinstance(variable, Mapping) else variable)
        env.setdefault(name, f"${{{name}:-}}")
    return {**own, **({"headers": headers} if headers else {}), **({"env": env} if env else {})}


def _get_table(entry: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = entry.get(key, {})
    if not isinstance(value, Mapping):
        raise InvalidSetting((key,), f"{key} must be a table")
    return dict(value)


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with each of its strings changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_map_strings(item, change) for item in value]
    return value


class _VariableTranslator:
    """Translates the variables of a client to `${NAME}`."""

    def __init__(self, source: ClientFile, system: HostSystem, notes: list[str]) -> None:
        self._client = source.client
        self._notes = notes
        self.has_unknown = False
        separator = "\\" if system.system == "win32" else "/"
        self._fixed = {"userHome": str(system.home), "pathSeparator": separator, "/": separator}
        if source.scope == "project":
            self._fixed["workspaceFolder"] = self._fixed["cwd"] = str(system.project_folder)
            self._fixed["workspaceFolderBasename"] = system.project_folder.name

    def translate(self, value: Any) -> Any:
        """Return a JSON value with the variables in its strings translated."""
        # Claude Code has our syntax, and the entries of Codex were converted before.
        if self._client in ("claude-code", "codex"):
            return value
        if self._client == "claude-desktop":
            return _map_strings(value, escape_variables)
        if self._client == "gemini":
            return _map_strings(value, lambda text: _SHELL_VARIABLE.sub(_translate_shell, text))
        return _map_strings(value, lambda text: _EDITOR_VARIABLE.sub(self._translate_editor, text))

    def _translate_editor(self, match: re.Match[str]) -> str:
        kind, _, name = match[1].partition(":")
        if match[1] in self._fixed:
            return escape_variables(self._fixed[match[1]])
        if kind == "env" and _NAME.fullmatch(name):
            return f"${{{name}}}"
        if kind == "input" and name:
            variable = _INVALID_NAME_CHARS.sub("_", name.upper()).strip("_") or "INPUT"
            variable = variable if _NAME.match(variable) else f"INPUT_{variable}"
            self._notes.append(f"the client prompts for {name}: set the variable {variable}")
            return f"${{{variable}}}"
        if kind in ("workspaceFolder", "cwd", "file", "config", "command"):
            self._notes.append(f"{match[0]} is not supported: replace it with its value")
            self.has_unknown = True
        return escape_variables(match[0])


def _translate_shell(match: re.Match[str]) -> str:
    name = match[1] if match[1] is not None else match[2]
    return f"${{{name}}}" if _NAME.match(name) else escape_variables(match[0])
