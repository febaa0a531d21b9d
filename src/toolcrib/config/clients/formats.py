"""Convert the server entries of clients that use another format to our keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from toolcrib.config.fields import InvalidSetting, escape_variables

_CODEX_SHARED_KEYS = ("command", "args", "cwd", "url", "enabled")
_CODEX_RENAMED_KEYS = {
    "enabled_tools": "toolsAllowed",
    "disabled_tools": "toolsBlocked",
    "startup_timeout_sec": "connectSeconds",
    "tool_timeout_sec": "callSeconds",
}
_SHELL_VARIABLE = re.compile(r"\$(?:\{([^{}]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Extensions that are parts of Goose and not MCP servers.
_GOOSE_OWN_TYPES = ("builtin", "platform", "frontend")


def select_servers(client: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that define MCP servers; other members of the same section are left out."""
    if client == "opencode":
        # Version 2 has the servers one level below, in the member `servers`.
        keys = ("type", "command", "url")
        return {
            name: entry
            for name, entry in entries.items()
            if isinstance(entry, Mapping) and (any(key in entry for key in keys) or entry.get("enabled") is True)
        }
    if client == "goose":
        return {
            name: entry
            for name, entry in entries.items()
            if not isinstance(entry, Mapping) or entry.get("type") not in _GOOSE_OWN_TYPES
        }
    return dict(entries)


def name_list_entries(entries: list[Any]) -> dict[str, Any]:
    """Return the servers of a list by their `name`; a repeated name gets a number."""
    named: dict[str, Any] = {}
    for entry in entries:
        name = entry.get("name", entry.get("uses")) if isinstance(entry, Mapping) else None
        base = name if isinstance(name, str) and name else "server"
        names = (base, *(f"{base}-{number}" for number in range(2, len(entries) + 2)))
        named[next(free for free in names if free not in named)] = entry
    return named


def convert_entry(client: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's entry with our keys; its variables are still those of the client.

    The entries of Codex and Goose also get our variables, because these clients name variables in keys.
    """
    convert = _CONVERTERS.get(client)
    transport = entry.get("transport")
    if isinstance(transport, Mapping):
        # Cline keeps the command or the address in this object.
        entry = {**{key: value for key, value in entry.items() if key != "transport"}, **transport}
    return convert(entry) if convert else dict(entry)


def _convert_codex(entry: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: entry[key] for key in _CODEX_SHARED_KEYS if key in entry}
    own.update((new, entry[old]) for old, new in _CODEX_RENAMED_KEYS.items() if old in entry)
    if isinstance(entry.get("startup_timeout_ms"), int | float):
        own["connectSeconds"] = entry["startup_timeout_ms"] / 1000
    own = map_strings(own, escape_variables)
    env = map_strings(_get_table(entry, "env"), escape_variables)
    headers = map_strings(_get_table(entry, "http_headers"), escape_variables)
    for header, variable in _get_table(entry, "env_http_headers").items():
        headers[header] = f"${{{variable}}}"
    if "bearer_token_env_var" in entry:
        headers["Authorization"] = f"Bearer ${{{entry['bearer_token_env_var']}}}"
    variables = entry.get("env_vars", [])
    for variable in variables if isinstance(variables, list) else []:
        name = str(variable.get("name") if isinstance(variable, Mapping) else variable)
        env.setdefault(name, f"${{{name}:-}}")
    return {**own, **({"headers": headers} if headers else {}), **({"env": env} if env else {})}


def _convert_goose(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Goose extension with our keys. `env_keys` names secrets that Goose keeps in a keyring."""
    if entry.get("type") == "inline_python":
        raise InvalidSetting(("type",), "it is Python code inside the file of Goose; save it as a server of its own")
    renamed = {"cmd": "command", "args": "args", "uri": "url", "type": "type", "enabled": "enabled"}
    own = {new: map_strings(entry[old], escape_variables) for old, new in renamed.items() if entry.get(old) is not None}
    env = map_strings(_get_table(entry, "envs"), escape_variables)
    keys = entry.get("env_keys", [])
    for name in keys if isinstance(keys, list) else []:
        env.setdefault(str(name), f"${{{name}}}")

    def insert_values(text: str) -> str:
        text = translate_shell_variables(text)
        for name, value in env.items():
            text = text.replace(f"${{{name}}}", str(value))
        return text

    headers = map_strings(_get_table(entry, "headers"), insert_values)
    if entry.get("available_tools"):
        own["toolsAllowed"] = entry["available_tools"]
    own |= {key: table for key, table in (("env", env), ("headers", headers)) if table}
    return _move_timeout(own, entry)


def _convert_opencode(entry: Mapping[str, Any]) -> dict[str, Any]:
    own = {key: value for key, value in entry.items() if key not in ("command", "environment", "timeout")}
    if own.keys() == {"enabled"} and "command" not in entry:
        raise InvalidSetting((), "an organization defines it, and the file does not say how; add it with its address")
    command = entry.get("command")
    if isinstance(command, list) and command:
        own |= {"command": command[0], "args": command[1:]}
    elif command is not None:
        own["command"] = command
    if "environment" in entry:
        own["env"] = entry["environment"]
    return own


def _convert_zed(entry: Mapping[str, Any]) -> dict[str, Any]:
    if "command" not in entry and "url" not in entry:
        reason = "an extension of Zed starts it, and the file does not say how; add it with its command"
        raise InvalidSetting((), reason)
    own = {key: value for key, value in entry.items() if key not in ("source", "remote", "settings", "timeout")}
    command = entry.get("command")
    if isinstance(command, Mapping):
        # Versions of Zed until 2025 have the command as an object.
        own |= {key: command[key] for key in ("args", "env") if command.get(key) is not None}
        own["command"] = command.get("path")
    return _move_timeout({key: value for key, value in own.items() if value is not None}, entry)


def _convert_cline(entry: Mapping[str, Any]) -> dict[str, Any]:
    return _move_timeout({key: value for key, value in entry.items() if key != "timeout"}, entry)


def _convert_continue(entry: Mapping[str, Any]) -> dict[str, Any]:
    if "uses" in entry:
        raise InvalidSetting((), "the file names a block of Continue's hub; add the server with its command")
    left_out = ("name", "serverName", "faviconUrl", "sourceFile", "connectionTimeout", "requestOptions", "apiKey")
    own = {key: value for key, value in entry.items() if key not in left_out}
    if "apiKey" in entry:
        own["authorizationToken"] = entry["apiKey"]
    options = entry.get("requestOptions")
    if isinstance(options, Mapping) and "headers" in options:
        own["headers"] = options["headers"]
    timeout = entry.get("connectionTimeout")
    if isinstance(timeout, int | float) and timeout >= 100:
        own["connectSeconds"] = timeout / 1000
    return own


def _move_timeout(own: dict[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return our entry with a timeout that the client writes in seconds."""
    timeout = entry.get("timeout")
    return own if timeout is None else {**own, "callSeconds": timeout}


_CONVERTERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "codex": _convert_codex,
    "goose": _convert_goose,
    "opencode": _convert_opencode,
    "zed": _convert_zed,
    "cline": _convert_cline,
    "continue": _convert_continue,
}


def _get_table(entry: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = entry.get(key, {})
    if not isinstance(value, Mapping):
        raise InvalidSetting((key,), f"{key} must be a table")
    return dict(value)


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with each of its strings changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [map_strings(item, change) for item in value]
    return value


def translate_shell_variables(text: str) -> str:
    """Return a text with `$NAME` and `${NAME}` as our variables, and everything else escaped."""
    return _SHELL_VARIABLE.sub(_translate_match, text)


def _translate_match(match: re.Match[str]) -> str:
    name = match[1] if match[1] is not None else match[2]
    return f"${{{name}}}" if _NAME.match(name) else escape_variables(match[0])
