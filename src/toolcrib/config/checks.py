"""What looks wrong with a configuration before anything is started, and what to do about it. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

from toolcrib.config.expansion import collect_required_variables
from toolcrib.config.reading import SERVERS_KEY, VSCODE_SERVERS_KEY
from toolcrib.config.settings import GatewayConfig, ServerConfig

Severity = Literal["error", "warning", "note"]
FindProgram = Callable[[str, str | None], str | None]
IsFolder = Callable[[str], bool]

# A tool's name as most clients and model APIs take it.
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_SEPARATOR = "___"
# A client may put its own prefix before a name, and a tool's own name needs room too.
_MIN_TOOL_NAME_CHARS = 30

_INSTALL_HINTS: Mapping[str, str] = {
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
class ConfigFinding:
    """One thing that is, or may be, wrong: with which server, what, and the cure."""

    severity: Severity
    problem: str
    fix: str
    server: str = ""


def check_config(
    config: GatewayConfig, find_program: FindProgram, is_folder: IsFolder
) -> tuple[ConfigFinding, ...]:
    """Everything that can be found wrong without starting a server, the worst first.

    `which(program, path)` says where a program is, as `shutil.which` does, or None;
    `is_folder(path)`, whether there is such a folder.
    """
    found = [ConfigFinding("note", note, "nothing, if that is meant") for note in config.notes]
    for server in config.servers.values():
        if server.enabled:
            found += _check_program(server, find_program, is_folder)
            found += _check_connection(server)
            found += _check_secrets(server)
        found += _check_server_name(server, config.tool_search.max_name_chars)
    found += _check_duplicates(config)
    found += _check_exposure(config)
    found += _check_patterns(config)
    order = ("error", "warning", "note")
    return tuple(sorted(found, key=lambda one: order.index(one.severity)))


def find_unset_variables(
    document: object, environment: Mapping[str, str]
) -> tuple[ConfigFinding, ...]:
    """The variables a configuration needs that are not set, of all servers that are switched on.

    Reading the configuration stops at the first; people want to know of all.
    """
    parts = dict(document) if isinstance(document, Mapping) else {}
    servers: dict[str, object] = {}
    for key in (SERVERS_KEY, VSCODE_SERVERS_KEY):
        section = parts.pop(key, None)
        servers.update(section if isinstance(section, Mapping) else {})
    found = [("", name) for name in collect_required_variables(parts)]
    for server, entry in servers.items():
        off = isinstance(entry, Mapping) and (
            entry.get("enabled") is False or entry.get("disabled") is True
        )
        found += [] if off else [(server, name) for name in collect_required_variables(entry)]
    return tuple(
        ConfigFinding(
            "error",
            f"the environment variable {name} is not set",
            f"set it, or give a default: ${{{name}:-…}}",
            server,
        )
        for server, name in found
        if name not in environment
    )


def _check_program(
    server: ServerConfig, which: FindProgram, is_folder: IsFolder
) -> Iterator[ConfigFinding]:
    """A program that is not there, or the folder it is to be started in."""
    if not server.command:
        return
    if server.cwd and not is_folder(server.cwd):
        what = f"the folder {server.cwd!r:.200}, to start it in, is not there"
        yield ConfigFinding(
            "error", what, 'make it, or correct "cwd"; ~ is not read there', server.name
        )
        return

    def is_there(command: str) -> bool:
        is_path = "/" in command or "\\" in command
        path = str(PurePath(server.cwd) / command) if server.cwd and is_path else command
        return which(path, server.env.get("PATH")) is not None

    if not is_there(server.command):
        what = f"the program {server.command!r:.200} is not found"
        yield ConfigFinding(
            "error", what, _suggest_program_fix(server.command, is_there), server.name
        )


def _suggest_program_fix(command: str, is_there: Callable[[str], bool]) -> str:
    """What to do about a program that is not found."""
    first, *others = command.split(maxsplit=1) or [command]
    is_path = "/" in command or "\\" in command
    if others and (is_there(first) or first in _INSTALL_HINTS or not is_path):
        return f'put its arguments into "args", and only {first!r:.100} into "command"'
    program = PurePath(command.replace("\\", "/")).name.removesuffix(".exe")
    cure = _INSTALL_HINTS.get(program, "install it, or give its full path as the command")
    return (
        f"{cure}, or correct the path" if program != command and program in _INSTALL_HINTS else cure
    )


def _check_connection(server: ServerConfig) -> Iterator[ConfigFinding]:
    if server.url and urlsplit(server.url).scheme == "http" and not _is_local(server.url):
        what = "it is reached over plain http on another machine: anybody between can read along"
        severity: Severity = "error" if server.headers else "warning"
        yield ConfigFinding(severity, what, "use https", server.name)
    if server.transport == "sse":
        what = "it is reached by SSE, which MCP has replaced"
        cure = 'ask for its streamable HTTP address, often ending in /mcp, with "type": "http"'
        yield ConfigFinding("note", what, cure, server.name)


def _check_secrets(server: ServerConfig) -> Iterator[ConfigFinding]:
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
            yield ConfigFinding("warning", what, cure, server.name)
    if server.url:
        parts = urlsplit(server.url)
        names = [name for name, _ in parse_qsl(parts.query)]
        if parts.password or any(_SECRET_NAME.search(name) for name in names):
            what = "its address holds a secret, which ends up in logs on the way"
            yield ConfigFinding("warning", what, "pass it in headers", server.name)


def _check_server_name(server: ServerConfig, max_name_chars: int) -> Iterator[ConfigFinding]:
    known = server.alias or server.name
    if not _NAME.fullmatch(known):
        what = "its name has characters that tool names cannot have; they will be replaced"
        yield ConfigFinding(
            "note", what, 'give it an "alias" of letters, digits and _', server.name
        )
    elif _SEPARATOR in known:
        what = f"its name has {_SEPARATOR} in it, which stands between server and tool"
        yield ConfigFinding("warning", what, 'give it an "alias"', server.name)
    room = max_name_chars - len(known) - len(_SEPARATOR)
    if room < _MIN_TOOL_NAME_CHARS:
        what = f"its name leaves {max(room, 0)} characters for tool names; longer ones are cut"
        yield ConfigFinding("warning", what, 'give it a short "alias"', server.name)


def _check_duplicates(config: GatewayConfig) -> Iterator[ConfigFinding]:
    """Servers that are the same but for their names."""
    first: dict[object, str] = {}
    for server in config.servers.values():
        if not server.enabled:
            continue
        env, headers = sorted(server.env.items()), sorted(server.headers.items())
        same = (server.command, server.args, server.cwd, server.url, str(env), str(headers))
        if same in first:
            what = f"it is the same server as {first[same]}, so its tools are there twice"
            yield ConfigFinding("warning", what, "remove one", server.name)
        first.setdefault(same, server.name)


def _check_exposure(config: GatewayConfig) -> Iterator[ConfigFinding]:
    """A gateway that others can reach."""
    if config.http.host == "localhost" or _is_loopback(config.http.host):
        return
    what = f"the gateway listens on {config.http.host}, which others can reach"
    if not config.auth.keys:
        yield ConfigFinding("error", f"{what}, without keys", 'add "auth": {"keys": […]}')
    elif not config.http.allowed_hosts:
        cure = 'name the host it is called by in "http": {"allowedHosts": […]}'
        yield ConfigFinding("warning", f"{what}, under no name it knows", cure)


def _check_patterns(config: GatewayConfig) -> Iterator[ConfigFinding]:
    """Tools to be shown always whose server is not there."""
    known = {server.alias or server.name for server in config.servers.values()}
    known |= set(config.servers)
    pins = {"toolSearch.alwaysExpose": config.tool_search.always_expose}
    for profile in config.profiles.values():
        pins[f"profiles.{profile.name}.alwaysExpose"] = profile.always_expose
    for where, patterns in pins.items():
        for pattern in patterns:
            server, separator, _ = pattern.partition(_SEPARATOR)
            if separator and server not in known and not set(server) & set("*?["):
                what = f"{where} names {pattern!r:.80}, but there is no server {server!r:.60}"
                yield ConfigFinding("warning", what, "correct the name, or remove it")


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == "localhost" or host.endswith(".localhost") or _is_loopback(host)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
