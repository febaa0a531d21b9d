"""A client's entry for a server in the words of ours: keys, variables, folders. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from toolcrib.config.clients.locations import ClientFile, HostSystem
from toolcrib.config.expansion import collect_required_variables, escape_variables
from toolcrib.config.kind import list_settings
from toolcrib.config.problems import InvalidSetting
from toolcrib.config.section import ConfigSection
from toolcrib.config.server import normalize_entry, read_server
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
class TranslatedEntry:
    """An entry as it would stand in our file, and what to tell of it. `fault`: it cannot."""

    entry: dict[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()
    error: str = ""


def translate_entry(
    place: ClientFile, name: str, entry: object, machine: HostSystem
) -> TranslatedEntry:
    """The entry of a client for a server, as ours."""
    notes: list[str] = []
    try:
        if not isinstance(entry, Mapping):
            return TranslatedEntry({}, error="it is no object")
        spelled = _convert_codex_entry(entry) if place.client == "codex" else dict(entry)
        reading = _VariableTranslator(place, machine, notes)
        spelled = {key: reading.translate(value) for key, value in spelled.items()}
        own = normalize_entry(spelled, (name,))
        known = {one.setting.key for one in list_settings(ServerConfig)}
        dropped = [key for key in own if key not in known]
        if dropped:
            notes.append(f"left out what is unknown here: {', '.join(sorted(dropped))}")
        own = {key: value for key, value in own.items() if key in known}
        _add_client_defaults(own, place, machine)
        _validate_entry(name, own, spelled, notes)
    except InvalidConfig as fault:
        cause = fault.reason if isinstance(fault, InvalidSetting) else str(fault)
        return TranslatedEntry({}, tuple(notes), cause)
    unset = [one for one in collect_required_variables(own) if one not in machine.environment]
    if unset:
        notes.append(f"not set: {', '.join(unset)}")
    if unset or reading.has_unknown:
        own["enabled"] = False
        notes.append('switched off: correct that, then remove "enabled": false')
    return TranslatedEntry(own, tuple(dict.fromkeys(notes)))


def starts_toolcrib(entry: object) -> bool:
    """Whether an entry starts this program, which must not be a server of itself."""
    if not isinstance(entry, Mapping):
        return False
    command, args = entry.get("command"), entry.get("args")
    if not isinstance(command, str):
        return False
    words = [word for word in args if isinstance(word, str)] if isinstance(args, list) else []
    program = re.split(r"[/\\]", command)[-1].removesuffix(".exe")
    return program == "toolcrib" or "toolcrib" in words[:2]


def _add_client_defaults(own: dict[str, Any], place: ClientFile, machine: HostSystem) -> None:
    """Tell what the client knows without being told: the folder, and the older transport."""
    if place.scope == "project" and own.get("command"):
        cwd = own.get("cwd")
        own["cwd"] = str(
            machine.project_folder / cwd if isinstance(cwd, str) else machine.project_folder
        )
    url = own.get("url")
    if isinstance(url, str) and "type" not in own and urlsplit(url).path.endswith("/sse"):
        own["type"] = "sse"


def _validate_entry(
    name: str, own: Mapping[str, Any], spelled: Mapping[str, Any], notes: list[str]
) -> None:
    """Refuse what our reader would refuse, whatever the variables hold."""
    environment = dict.fromkeys(collect_required_variables(own), "1")
    url = own.get("url")
    if isinstance(url, str) and collect_required_variables(url):
        # An address that is a variable can't be judged yet.
        own = {**own, "url": "https://example.com"}
    read_server(name, ConfigSection.from_value(own, (name,), environment), [])
    for key in ("envFile", "oauth", "auth", "authProviderType", "headersHelper"):
        if key in spelled:
            notes.append(f"{key} is not taken over; see how the server gets its secrets")


def _convert_codex_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Codex tells the names of variables in keys of their own; what it has as text is text."""
    own = {key: entry[key] for key in _CODEX_SHARED_KEYS if key in entry}
    own.update(
        (ours, entry[theirs]) for theirs, ours in _CODEX_RENAMED_KEYS.items() if theirs in entry
    )
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
        named = str(variable.get("name") if isinstance(variable, Mapping) else variable)
        env.setdefault(named, f"${{{named}:-}}")
    return {**own, **({"headers": headers} if headers else {}), **({"env": env} if env else {})}


def _get_table(entry: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = entry.get(key, {})
    if not isinstance(value, Mapping):
        raise InvalidSetting((key,), f"{key} should be a table")
    return dict(value)


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """The value with each of its texts changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _map_strings(one, change) for key, one in value.items()}
    if isinstance(value, list):
        return [_map_strings(one, change) for one in value]
    return value


class _VariableTranslator:
    """What a client replaces in its texts, written as we write it."""

    def __init__(self, place: ClientFile, machine: HostSystem, notes: list[str]) -> None:
        self._place = place
        self._notes = notes
        self.has_unknown = False
        self._fixed = {
            "userHome": str(machine.home),
            "pathSeparator": "\\" if machine.system == "win32" else "/",
            "/": "\\" if machine.system == "win32" else "/",
        }
        if place.scope == "project":
            self._fixed["workspaceFolder"] = self._fixed["cwd"] = str(machine.project_folder)
            self._fixed["workspaceFolderBasename"] = machine.project_folder.name

    def translate(self, value: Any) -> Any:
        """The value with its texts rewritten."""
        client = self._place.client
        if client in ("claude-code", "codex"):
            # The one writes variables as we do, and the other's were rewritten with its keys.
            return value
        if client == "claude-desktop":
            return _map_strings(value, escape_variables)
        if client == "gemini":
            return _map_strings(value, self._translate_shell)
        return _map_strings(value, self._translate_editor)

    def _translate_shell(self, text: str) -> str:
        def rewritten(match: re.Match[str]) -> str:
            name = match[1] if match[1] is not None else match[2]
            return f"${{{name}}}" if _NAME.match(name) else escape_variables(match[0])

        return _SHELL_VARIABLE.sub(rewritten, text)

    def _translate_editor(self, text: str) -> str:
        def rewritten(match: re.Match[str]) -> str:
            kind, _, name = match[1].partition(":")
            if match[1] in self._fixed:
                return escape_variables(self._fixed[match[1]])
            if kind == "env" and _NAME.fullmatch(name):
                return f"${{{name}}}"
            if kind == "input" and name:
                variable = _INVALID_NAME_CHARS.sub("_", name.upper()).strip("_") or "INPUT"
                variable = variable if _NAME.match(variable) else f"INPUT_{variable}"
                self._notes.append(f"the client asks for {name}: set the variable {variable}")
                return f"${{{variable}}}"
            if kind in ("workspaceFolder", "cwd", "file", "config", "command"):
                self._notes.append(f"{match[0]} means nothing here: write what it stands for")
                self.has_unknown = True
            return escape_variables(match[0])

        return _EDITOR_VARIABLE.sub(rewritten, text)
