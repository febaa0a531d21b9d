"""What looks wrong with a configuration before anything is started, and what to do about it. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

from toolcrib.config.expansion import needed
from toolcrib.config.reading import SERVERS, SERVERS_OF_VSCODE
from toolcrib.config.settings import Config, Server

Severity = Literal["error", "warning", "note"]
Which = Callable[[str, str | None], str | None]
IsFolder = Callable[[str], bool]

# A tool's name as most clients and model APIs take it.
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_SEPARATOR = "___"
# A client may put its own prefix before a name, and a tool's own name needs room too.
_ROOMY_NAME_CHARS = 30

_RUNTIMES: Mapping[str, str] = {
    "npx": "install Node.js (https://nodejs.org), which brings npx",
    "npm": "install Node.js (https://nodejs.org), which brings npm",
    "node": "install Node.js (https://nodejs.org)",
    "bunx": "install Bun (https://bun.sh)",
    "bun": "install Bun (https://bun.sh)",
    "deno": "install Deno (https://deno.com)",
    "uvx": "install uv (https://docs.astral.sh/uv), which brings uvx",
    "uv": "install uv (https://docs.astral.sh/uv)",
    "pipx": "install pipx (https://pipx.pypa.io)",
    "python": "install Python, or write python3",
    "python3": "install Python (https://python.org)",
    "docker": "install Docker (https://docs.docker.com/get-docker), and start it",
    "podman": "install Podman (https://podman.io)",
    "dotnet": "install .NET (https://dotnet.microsoft.com)",
    "java": "install a Java runtime (https://adoptium.net)",
    "go": "install Go (https://go.dev)",
}
_SECRET_NAME = re.compile(r"(?i)(?:api[-_]?key|token|secret|passw(?:or)?d|authorization)$")
_SECRET_VALUE = re.compile(
    r"(?:\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bglpat-[\w-]{15,}"
    r"|(?i:bearer\s+)[\w.~+/-]{16,}|\beyJ[\w-]{10,}\.[\w-]{10,}\.)"
)
_PASSWORD_IN_URL = re.compile(r"\w+://[^/\s:@]+:[^/\s@]+@")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is, or may be, wrong: with which server, what, and the cure."""

    severity: Severity
    what: str
    cure: str
    server: str = ""


def check(config: Config, which: Which, is_folder: IsFolder) -> tuple[Finding, ...]:
    """Everything that can be found wrong without starting a server, the worst first.

    `which(program, path)` says where a program is, as `shutil.which` does, or None;
    `is_folder(path)`, whether there is such a folder.
    """
    found = [Finding("note", note, "nothing, if that is meant") for note in config.notes]
    for server in config.servers.values():
        if server.enabled:
            found += _start(server, which, is_folder)
            found += _connection(server)
            found += _secrets(server)
        found += _name(server, config.tool_search.max_name_chars)
    found += _duplicates(config)
    found += _exposure(config)
    found += _patterns(config)
    order = ("error", "warning", "note")
    return tuple(sorted(found, key=lambda one: order.index(one.severity)))


def check_variables(document: object, environment: Mapping[str, str]) -> tuple[Finding, ...]:
    """The variables a configuration needs that are not set, of all servers that are switched on.

    Reading the configuration stops at the first; people want to know of all.
    """
    parts = dict(document) if isinstance(document, Mapping) else {}
    servers: dict[str, object] = {}
    for key in (SERVERS, SERVERS_OF_VSCODE):
        section = parts.pop(key, None)
        servers.update(section if isinstance(section, Mapping) else {})
    found = [("", name) for name in needed(parts)]
    for server, entry in servers.items():
        off = isinstance(entry, Mapping) and (
            entry.get("enabled") is False or entry.get("disabled") is True
        )
        found += [] if off else [(server, name) for name in needed(entry)]
    return tuple(
        Finding(
            "error",
            f"the environment variable {name} is not set",
            f"set it, or give a default: ${{{name}:-…}}",
            server,
        )
        for server, name in found
        if name not in environment
    )


def _start(server: Server, which: Which, is_folder: IsFolder) -> Iterator[Finding]:
    """A program that is not there, or the folder it is to be started in."""
    if not server.command:
        return
    if server.cwd and not is_folder(server.cwd):
        what = f"the folder {server.cwd!r:.200}, to start it in, is not there"
        yield Finding("error", what, 'make it, or correct "cwd"; ~ is not read there', server.name)
        return

    def is_there(command: str) -> bool:
        is_path = "/" in command or "\\" in command
        path = str(PurePath(server.cwd) / command) if server.cwd and is_path else command
        return which(path, server.env.get("PATH")) is not None

    if not is_there(server.command):
        what = f"the program {server.command!r:.200} is not found"
        yield Finding("error", what, _cure(server.command, is_there), server.name)


def _cure(command: str, is_there: Callable[[str], bool]) -> str:
    """What to do about a program that is not found."""
    first, *others = command.split(maxsplit=1) or [command]
    is_path = "/" in command or "\\" in command
    if others and (is_there(first) or first in _RUNTIMES or not is_path):
        return f'put its arguments into "args", and only {first!r:.100} into "command"'
    program = PurePath(command.replace("\\", "/")).name.removesuffix(".exe")
    cure = _RUNTIMES.get(program, "install it, or give its full path as the command")
    return f"{cure}, or correct the path" if program != command and program in _RUNTIMES else cure


def _connection(server: Server) -> Iterator[Finding]:
    if server.url and urlsplit(server.url).scheme == "http" and not _is_local(server.url):
        what = "it is reached over plain http on another machine: anybody between can read along"
        severity: Severity = "error" if server.headers else "warning"
        yield Finding(severity, what, "use https", server.name)
    if server.transport == "sse":
        what = "it is reached by SSE, which MCP has replaced"
        cure = 'ask for its streamable HTTP address, often ending in /mcp, with "type": "http"'
        yield Finding("note", what, cure, server.name)


def _secrets(server: Server) -> Iterator[Finding]:
    """Secrets where every program on the machine, or every log on the way, can see them."""
    for number, argument in enumerate(server.args):
        name, _, value = argument.partition("=")
        before = server.args[number - 1] if number else ""
        named = _SECRET_NAME.search(name) and value
        follows = before.startswith("-") and "=" not in before and _SECRET_NAME.search(before)
        if (
            named
            or (follows and not argument.startswith("-"))
            or _SECRET_VALUE.search(argument)
            or _PASSWORD_IN_URL.search(argument)
        ):
            what = f"argument {number + 1} looks like a secret, which every process here can read"
            cure = "pass it in env, if the program takes it from there"
            yield Finding("warning", what, cure, server.name)
    if server.url:
        parts = urlsplit(server.url)
        names = [name for name, _ in parse_qsl(parts.query)]
        if parts.password or any(_SECRET_NAME.search(name) for name in names):
            what = "its address holds a secret, which ends up in logs on the way"
            yield Finding("warning", what, "pass it in headers", server.name)


def _name(server: Server, max_name_chars: int) -> Iterator[Finding]:
    known = server.alias or server.name
    if not _NAME.fullmatch(known):
        what = "its name has characters that tool names cannot have; they will be replaced"
        yield Finding("note", what, 'give it an "alias" of letters, digits and _', server.name)
    elif _SEPARATOR in known:
        what = f"its name has {_SEPARATOR} in it, which stands between server and tool"
        yield Finding("warning", what, 'give it an "alias"', server.name)
    room = max_name_chars - len(known) - len(_SEPARATOR)
    if room < _ROOMY_NAME_CHARS:
        what = f"its name leaves {max(room, 0)} characters for tool names; longer ones are cut"
        yield Finding("warning", what, 'give it a short "alias"', server.name)


def _duplicates(config: Config) -> Iterator[Finding]:
    """Servers that are the same but for their names."""
    first: dict[object, str] = {}
    for server in config.servers.values():
        if not server.enabled:
            continue
        env, headers = sorted(server.env.items()), sorted(server.headers.items())
        same = (server.command, server.args, server.cwd, server.url, str(env), str(headers))
        if same in first:
            what = f"it is the same server as {first[same]}, so its tools are there twice"
            yield Finding("warning", what, "remove one", server.name)
        first.setdefault(same, server.name)


def _exposure(config: Config) -> Iterator[Finding]:
    """A gateway that others can reach."""
    if config.http.host == "localhost" or _is_loopback(config.http.host):
        return
    what = f"the gateway listens on {config.http.host}, which others can reach"
    if not config.auth.keys:
        yield Finding("error", f"{what}, without keys", 'add "auth": {"keys": […]}')
    elif not config.http.allowed_hosts:
        cure = 'name the host it is called by in "http": {"allowedHosts": […]}'
        yield Finding("warning", f"{what}, under no name it knows", cure)


def _patterns(config: Config) -> Iterator[Finding]:
    """Tools to be shown always whose server is not there."""
    known = {server.alias or server.name for server in config.servers.values()}
    known |= set(config.servers)
    pins = {"toolSearch.alwaysExpose": config.tool_search.always_expose}
    for profile in config.profiles.values():
        pins[f"profiles.{profile.name}.alwaysExpose"] = profile.pins
    for where, patterns in pins.items():
        for pattern in patterns:
            server, separator, _ = pattern.partition(_SEPARATOR)
            if separator and server not in known and not set(server) & set("*?["):
                what = f"{where} names {pattern!r:.80}, but there is no server {server!r:.60}"
                yield Finding("warning", what, "correct the name, or remove it")


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == "localhost" or host.endswith(".localhost") or _is_loopback(host)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
