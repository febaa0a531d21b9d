"""Translate a client's server entry to our keys, variables and folders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from toolcrib.config import fields
from toolcrib.config.clients.formats import convert_entry, map_strings, translate_shell_variables
from toolcrib.config.clients.locations import ClientFile, HostSystem
from toolcrib.config.server_entry import NOTED_KEYS, normalize_entry, read_server
from toolcrib.config.server_settings import ServerConfig
from toolcrib.errors import InvalidConfig

_EDITOR_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INVALID_NAME_CHARS = re.compile(r"[^A-Za-z0-9_]+")
# `{env:NAME}` and `{file:PATH}` of opencode, `${{ secrets.NAME }}` of Continue.
_OPENCODE_VARIABLE = re.compile(r"\{(env|file):([^{}]*)\}")
_CONTINUE_VARIABLE = re.compile(r"\$\{\{\s*(?:secrets|inputs|env)\.([^{}\s]+)\s*\}\}")


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
        members = convert_entry(source.client, entry)
        members = {key: translator.translate(value) for key, value in members.items()}
        own = normalize_entry(members, (name,))
        known = {setting.key for setting in fields.list_settings(ServerConfig)}
        unknown = sorted(key for key in own if key not in known)
        if unknown:
            notes.append(f"unknown keys were left out: {', '.join(unknown)}")
        own = {key: value for key, value in own.items() if key in known}
        _add_client_defaults(own, source, system)
        validate_entry(name, own)
    except InvalidConfig as error:
        reason = str(error)
        if isinstance(error, fields.InvalidSetting):
            # The table of the import has the name of the server already.
            inner = fields.format_path(error.path[error.path.index(name) + 1 :] if name in error.path else ())
            reason = f"{inner}: {error.reason}" if inner else error.reason
        return DiscoveredServer(source, name, {}, tuple(notes), reason)
    notes += [f"{key} {effect}" for key, effect in NOTED_KEYS.items() if key in members]
    unset = [name for name in fields.collect_required_variables(own) if name not in system.environment]
    if unset:
        pronoun = "it" if len(unset) == 1 else "them"
        notes.append(f"not set: {', '.join(unset)}; set {pronoun} before you start the gateway")
    if translator.has_unknown:
        own["enabled"] = False
        notes.append('disabled: correct this, then remove "enabled": false')
    return DiscoveredServer(source, name, own, tuple(dict.fromkeys(notes)))


def starts_toolcrib(entry: object) -> bool:
    """Return whether an entry starts Toolcrib itself, which must not become its own server."""
    if not isinstance(entry, Mapping):
        return False
    command: Any = entry.get("command", entry.get("cmd"))
    args: Any = entry.get("args")
    if isinstance(command, list):
        command, args = next(iter(command), None), command[1:]
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


def validate_entry(name: str, own: Mapping[str, Any]) -> None:
    """Raise `InvalidSetting` if the parser would reject the entry with its variables set."""
    environment = dict.fromkeys(fields.collect_required_variables(own), "1")
    url = own.get("url")
    if isinstance(url, str) and fields.collect_required_variables(url):
        # A URL with variables cannot be checked yet.
        own = {**own, "url": "https://example.com"}
    read_server(name, fields.ConfigSection.from_value(own, (name,), environment), [])


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
        # Claude Code and Kiro have our syntax, and the entries of Codex and Goose were converted before.
        if self._client in ("claude-code", "kiro", "codex", "goose"):
            return value
        if self._client in ("claude-desktop", "zed", "jetbrains"):
            return map_strings(value, fields.escape_variables)
        if self._client == "gemini":
            return map_strings(value, translate_shell_variables)
        if self._client == "opencode":
            escaped = map_strings(value, fields.escape_variables)
            return map_strings(escaped, lambda text: _OPENCODE_VARIABLE.sub(self._translate_opencode, text))
        if self._client == "continue":
            return map_strings(value, self._translate_continue)
        return map_strings(value, lambda text: _EDITOR_VARIABLE.sub(self._translate_editor, text))

    def _translate_opencode(self, match: re.Match[str]) -> str:
        if match[1] == "env" and _NAME.fullmatch(match[2]):
            return f"${{{match[2]}}}"
        self._notes.append(f"{match[0]} is not supported: replace it with its value")
        self.has_unknown = True
        return match[0]

    def _translate_continue(self, text: str) -> str:
        parts = _CONTINUE_VARIABLE.split(text)
        # The odd parts are the names of variables.
        return "".join(
            f"${{{_to_variable_name(part)}}}" if index % 2 else fields.escape_variables(part)
            for index, part in enumerate(parts)
        )

    def _translate_editor(self, match: re.Match[str]) -> str:
        kind, _, name = match[1].partition(":")
        if match[1] in self._fixed:
            return fields.escape_variables(self._fixed[match[1]])
        if kind == "env" and _NAME.fullmatch(name):
            return f"${{{name}}}"
        if kind == "input" and name:
            variable = _to_variable_name(name.upper())
            self._notes.append(f"the client prompts for {name}: set the variable {variable}")
            return f"${{{variable}}}"
        if kind in ("workspaceFolder", "cwd", "file", "config", "command"):
            self._notes.append(f"{match[0]} is not supported: replace it with its value")
            self.has_unknown = True
        return fields.escape_variables(match[0])


def _to_variable_name(name: str) -> str:
    variable = _INVALID_NAME_CHARS.sub("_", name).strip("_") or "INPUT"
    return variable if _NAME.match(variable) else f"INPUT_{variable}"
