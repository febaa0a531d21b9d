"""Convert a `server.json` of the MCP registry to an entry of `mcpServers`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolcrib.config.fields import escape_variables
from toolcrib.errors import InvalidConfig

_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z0-9_.-]+)\}")
_INVALID_NAME_CHARS: Final = re.compile(r"[^A-Z0-9_]+")
_RUNTIMES: Final = {"npm": "npx", "pypi": "uvx", "oci": "docker", "nuget": "dnx"}


@dataclass(frozen=True, slots=True)
class RegistryOption:
    """One way to run or reach a server: its kind (`npm`, `pypi`, `oci`, `nuget`, `remote`), command and entry."""

    kind: str
    entry: dict[str, Any]

    @property
    def command(self) -> str:
        """The program that must be installed; empty for a remote server."""
        return str(self.entry.get("command", ""))


@dataclass(frozen=True, slots=True)
class RegistryServer:
    """A server of the registry with the ways to use it, in the order of the document."""

    name: str
    options: tuple[RegistryOption, ...]
    unsupported: tuple[str, ...]


def read_registry_server(document: object, source: str) -> RegistryServer:
    """Return the server of a document: a `server.json`, or an answer of a registry with one server."""
    found = document
    if isinstance(found, Mapping) and isinstance(found.get("servers"), list):
        servers = found["servers"]
        if len(servers) != 1:
            raise InvalidConfig(f"{source}: has {len(servers):,} servers; pass the address of one server")
        found = servers[0]
    if isinstance(found, Mapping) and isinstance(found.get("server"), Mapping):
        found = found["server"]
    if not isinstance(found, Mapping) or not isinstance(found.get("name"), str):
        raise InvalidConfig(f"{source}: is not a server.json of the MCP registry; it has no `name`")
    options: list[RegistryOption] = []
    unsupported: list[str] = []
    for package in _list_objects(found, "packages"):
        kind, transport = _text(package, "registryType") or _text(package, "registryName"), package.get("transport")
        is_local = not isinstance(transport, Mapping) or transport.get("type") in (None, "stdio")
        if kind in _RUNTIMES and is_local and _text(package, "identifier"):
            options.append(RegistryOption(kind, _read_package(kind, package)))
        else:
            unsupported.append(kind or "unknown")
    for remote in _list_objects(found, "remotes"):
        if _text(remote, "url"):
            options.append(RegistryOption("remote", _read_remote(remote)))
    return RegistryServer(str(found["name"]).rpartition("/")[2], tuple(options), tuple(unsupported))


def _read_package(kind: str, package: Mapping[str, Any]) -> dict[str, Any]:
    runtime = _text(package, "runtimeHint") or _RUNTIMES[kind]
    before = list(_iter_arguments(package, "runtimeArguments"))
    after = list(_iter_arguments(package, "packageArguments"))
    env = dict(_iter_values(package, "environmentVariables"))
    name, version = _text(package, "identifier"), _text(package, "version")
    if kind == "oci":
        # The container gets the variables of the environment by name, so that no secret is in the command.
        variables = [word for variable in env for word in ("-e", variable)]
        has_tag = ":" in name.rpartition("/")[2] or "@" in name
        image = name if has_tag or not version else f"{name}:{version}"
        before = before if "run" in before[:1] else ["run", "-i", "--rm", *before]
        args = [*before, *variables, escape_variables(image), *after]
    else:
        target = escape_variables(f"{name}@{version}" if version else name)
        if runtime == "npx" and not {"-y", "--yes"} & set(before):
            before = ["-y", *before]
        separator = ["--yes", "--"] if runtime == "dnx" else []
        args = [*before, target, *separator, *after]
    return {"command": runtime, "args": args, **({"env": env} if env else {})}


def _read_remote(remote: Mapping[str, Any]) -> dict[str, Any]:
    kind = _text(remote, "type") or _text(remote, "transportType")
    url = _fill_placeholders(_text(remote, "url"), remote.get("variables"))
    headers = dict(_iter_values(remote, "headers"))
    return {"type": "sse" if kind == "sse" else "http", "url": url, **({"headers": headers} if headers else {})}


def _iter_arguments(package: Mapping[str, Any], key: str) -> Iterator[str]:
    for argument in _list_objects(package, key):
        name = _text(argument, "name") if argument.get("type") == "named" else ""
        value = _read_input(argument, name or _text(argument, "valueHint") or "argument")
        if name and (value is not None or "value" not in argument):
            yield escape_variables(name)
        if value:
            yield value


def _iter_values(holder: Mapping[str, Any], key: str) -> Iterator[tuple[str, str]]:
    """Yield the variables or headers that have a value or are required."""
    for item in _list_objects(holder, key):
        name = _text(item, "name")
        value = _read_input(item, name) if name else None
        if value is not None:
            yield name, value


def _read_input(item: Mapping[str, Any], name: str) -> str | None:
    """Return the value of an input with our variables; None if it is optional and has none."""
    if isinstance(item.get("value"), str):
        return _fill_placeholders(item["value"], item.get("variables"))
    default, variable = item.get("default"), _to_variable(name)
    if isinstance(default, str) and not _flag(item, "isSecret"):
        # A default with a brace cannot be written inside a variable.
        return escape_variables(default) if set("{}") & set(default) else f"${{{variable}:-{default}}}"
    return f"${{{variable}}}" if _flag(item, "isRequired") or _flag(item, "isSecret") else None


def _fill_placeholders(text: str, variables: object) -> str:
    """Return a text with each `{name}` that the document explains replaced by its value or our variable."""
    known = variables if isinstance(variables, Mapping) else {}

    def replace(match: re.Match[str]) -> str:
        item = known.get(match[1])
        if not isinstance(item, Mapping):
            return match[0]
        value = _read_input({"isRequired": True, **item, "variables": {}}, match[1])
        return f"${{{_to_variable(match[1])}}}" if value is None else value

    return _PLACEHOLDER.sub(replace, escape_variables(text))


def _to_variable(name: str) -> str:
    variable = _INVALID_NAME_CHARS.sub("_", name.upper()).strip("_") or "VALUE"
    return f"_{variable}" if variable[0].isdigit() else variable


def _list_objects(holder: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = holder.get(key, holder.get(_to_snake_case(key)))
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _text(holder: Mapping[str, Any], key: str) -> str:
    value = holder.get(key, holder.get(_to_snake_case(key)))
    return value if isinstance(value, str) else ""


def _flag(holder: Mapping[str, Any], key: str) -> bool:
    return holder.get(key, holder.get(_to_snake_case(key))) is True


def _to_snake_case(key: str) -> str:
    """Return the spelling of documents before September 2025."""
    return re.sub(r"([A-Z])", lambda match: f"_{match[1].lower()}", key)
