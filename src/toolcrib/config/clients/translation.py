"""A client's entry for a server in the words of ours: keys, variables, folders. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from toolcrib.config.clients.locations import Machine, Place
from toolcrib.config.expansion import escaped, needed
from toolcrib.config.kind import settings_of
from toolcrib.config.problems import Fault
from toolcrib.config.section import Section
from toolcrib.config.server import own_spelling, read_server
from toolcrib.config.settings import Server
from toolcrib.errors import InvalidConfig

_EDITOR_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_SHELL_VARIABLE = re.compile(r"\$(?:\{([^{}]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_NAME = re.compile(r"[^A-Z0-9_]+")
_CODEX_SAME = ("command", "args", "cwd", "url", "enabled")
_CODEX_KEYS = {
    "enabled_tools": "toolsAllowed",
    "disabled_tools": "toolsBlocked",
    "startup_timeout_sec": "connectSeconds",
    "tool_timeout_sec": "callSeconds",
}


@dataclass(frozen=True, slots=True)
class Translated:
    """An entry as it would stand in our file, and what to tell of it. `fault`: it cannot."""

    entry: dict[str, Any] = field(repr=False)
    notes: tuple[str, ...] = ()
    fault: str = ""


def translated(place: Place, name: str, entry: object, machine: Machine) -> Translated:
    """The entry of a client for a server, as ours."""
    notes: list[str] = []
    try:
        if not isinstance(entry, Mapping):
            return Translated({}, fault="it is no object")
        spelled = _from_codex(entry) if place.client == "codex" else dict(entry)
        reading = _Variables(place, machine, notes)
        spelled = {key: reading.text_in(value) for key, value in spelled.items()}
        own = own_spelling(spelled, (name,))
        known = {one.setting.key for one in settings_of(Server)}
        dropped = [key for key in own if key not in known]
        if dropped:
            notes.append(f"left out what is unknown here: {', '.join(sorted(dropped))}")
        own = {key: value for key, value in own.items() if key in known}
        _finish(own, place, machine)
        _check(name, own, spelled, notes)
    except InvalidConfig as fault:
        cause = fault.cause if isinstance(fault, Fault) else str(fault)
        return Translated({}, tuple(notes), cause)
    unset = [one for one in needed(own) if one not in machine.environment]
    if unset:
        notes.append(f"not set: {', '.join(unset)}")
    if unset or reading.unknown:
        own["enabled"] = False
        notes.append('switched off: correct that, then remove "enabled": false')
    return Translated(own, tuple(dict.fromkeys(notes)))


def is_ours(entry: object) -> bool:
    """Whether an entry starts this program, which must not be a server of itself."""
    if not isinstance(entry, Mapping):
        return False
    command, args = entry.get("command"), entry.get("args")
    if not isinstance(command, str):
        return False
    words = [word for word in args if isinstance(word, str)] if isinstance(args, list) else []
    program = re.split(r"[/\\]", command)[-1].removesuffix(".exe")
    return program == "toolcrib" or "toolcrib" in words[:2]


def _finish(own: dict[str, Any], place: Place, machine: Machine) -> None:
    """Tell what the client knows without being told: the folder, and the older transport."""
    if place.scope == "project" and own.get("command"):
        cwd = own.get("cwd")
        own["cwd"] = str(machine.project / cwd if isinstance(cwd, str) else machine.project)
    url = own.get("url")
    if isinstance(url, str) and "type" not in own and urlsplit(url).path.endswith("/sse"):
        own["type"] = "sse"


def _check(name: str, own: Mapping[str, Any], spelled: Mapping[str, Any], notes: list[str]) -> None:
    """Refuse what our reader would refuse, whatever the variables hold."""
    environment = dict.fromkeys(needed(own), "1")
    url = own.get("url")
    if isinstance(url, str) and needed(url):
        # An address that is a variable can't be judged yet.
        own = {**own, "url": "https://example.com"}
    read_server(name, Section.of(own, (name,), environment), [])
    for key in ("envFile", "oauth", "auth", "authProviderType", "headersHelper"):
        if key in spelled:
            notes.append(f"{key} is not taken over; see how the server gets its secrets")


def _from_codex(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Codex tells the names of variables in keys of their own; what it has as text is text."""
    own = {key: entry[key] for key in _CODEX_SAME if key in entry}
    own.update((ours, entry[theirs]) for theirs, ours in _CODEX_KEYS.items() if theirs in entry)
    if isinstance(entry.get("startup_timeout_ms"), int | float):
        own["connectSeconds"] = entry["startup_timeout_ms"] / 1000
    own = _each_text(own, escaped)
    env = _each_text(_map_of(entry, "env"), escaped)
    headers = _each_text(_map_of(entry, "http_headers"), escaped)
    for header, variable in _map_of(entry, "env_http_headers").items():
        headers[header] = f"${{{variable}}}"
    if "bearer_token_env_var" in entry:
        headers["Authorization"] = f"Bearer ${{{entry['bearer_token_env_var']}}}"
    variables = entry.get("env_vars", [])
    for variable in variables if isinstance(variables, list) else []:
        named = str(variable.get("name") if isinstance(variable, Mapping) else variable)
        env.setdefault(named, f"${{{named}:-}}")
    return {**own, **({"headers": headers} if headers else {}), **({"env": env} if env else {})}


def _map_of(entry: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = entry.get(key, {})
    if not isinstance(value, Mapping):
        raise Fault((key,), f"{key} should be a table")
    return dict(value)


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    """The value with each of its texts changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _each_text(one, change) for key, one in value.items()}
    if isinstance(value, list):
        return [_each_text(one, change) for one in value]
    return value


class _Variables:
    """What a client replaces in its texts, written as we write it."""

    def __init__(self, place: Place, machine: Machine, notes: list[str]) -> None:
        self._place = place
        self._notes = notes
        self.unknown = False
        self._fixed = {
            "userHome": str(machine.home),
            "pathSeparator": "\\" if machine.system == "win32" else "/",
            "/": "\\" if machine.system == "win32" else "/",
        }
        if place.scope == "project":
            self._fixed["workspaceFolder"] = self._fixed["cwd"] = str(machine.project)
            self._fixed["workspaceFolderBasename"] = machine.project.name

    def text_in(self, value: Any) -> Any:
        """The value with its texts rewritten."""
        client = self._place.client
        if client in ("claude-code", "codex"):
            # The one writes variables as we do, and the other's were rewritten with its keys.
            return value
        if client == "claude-desktop":
            return _each_text(value, escaped)
        if client == "gemini":
            return _each_text(value, self._of_shell)
        return _each_text(value, self._of_editor)

    def _of_shell(self, text: str) -> str:
        def rewritten(match: re.Match[str]) -> str:
            name = match[1] if match[1] is not None else match[2]
            return f"${{{name}}}" if _NAME.match(name) else escaped(match[0])

        return _SHELL_VARIABLE.sub(rewritten, text)

    def _of_editor(self, text: str) -> str:
        def rewritten(match: re.Match[str]) -> str:
            kind, _, name = match[1].partition(":")
            if match[1] in self._fixed:
                return escaped(self._fixed[match[1]])
            if kind == "env" and _NAME.fullmatch(name):
                return f"${{{name}}}"
            if kind == "input" and name:
                variable = _NO_NAME.sub("_", name.upper()).strip("_") or "INPUT"
                variable = variable if _NAME.match(variable) else f"INPUT_{variable}"
                self._notes.append(f"the client asks for {name}: set the variable {variable}")
                return f"${{{variable}}}"
            if kind in ("workspaceFolder", "cwd", "file", "config", "command"):
                self._notes.append(f"{match[0]} means nothing here: write what it stands for")
                self.unknown = True
            return escaped(match[0])

        return _EDITOR_VARIABLE.sub(rewritten, text)
