"""Check a configuration for problems that show before a server is started. Does no I/O."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

from toolcrib.config.fields import collect_required_variables, format_path, has_variables
from toolcrib.config.parser import SERVERS_KEY, VSCODE_SERVERS_KEY
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig
from toolcrib.files.json_file import JsonPath

Severity = Literal["error", "warning", "note"]
FindProgram = Callable[[str, str | None], str | None]
IsFolder = Callable[[str], bool]

# The tool names that most clients and LLM APIs accept.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]+")
_SEPARATOR = "___"
_MIN_TOOL_NAME_CHARS = 30

_INSTALL_HINTS: Mapping[str, str] = {
    "npx": "install Node.js (https://nodejs.org), which includes npx",
    "npm": "install Node.js (https://nodejs.org), which includes npm",
    "node": "install Node.js (https://nodejs.org)",
    "bunx": "install Bun (https://bun.sh)",
    "bun": "install Bun (https://bun.sh)",
    "deno": "install Deno (https://deno.com)",
    "uvx": "install uv (https://docs.astral.sh/uv), which includes uvx",
    "uv": "install uv (https://docs.astral.sh/uv)",
    "pipx": "install pipx (https://pipx.pypa.io)",
    "python": "install Python, or use python3",
    "python3": "install Python (https://python.org)",
    "docker": "install Docker (https://docs.docker.com/get-docker), and start it",
    "podman": "install Podman (https://podman.io)",
    "dotnet": "install .NET (https://dotnet.microsoft.com)",
    "java": "install a Java runtime (https://adoptium.net)",
    "go": "install Go (https://go.dev)",
}
_SECRET_NAME = re.compile(r"(?i)(?:api[-_]?key|token|secret|passw(?:or)?d|authorization|basicauth)$")
_SECRET_VALUE = re.compile(
    r"(?:\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,}|\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bglpat-[\w-]{15,}"
    r"|(?i:bearer\s+)[\w.~+/-]{16,}|\beyJ[\w-]{10,}\.[\w-]{10,}\.)"
)
_MIN_SECRET_CHARS = 8
_PASSWORD_IN_URL = re.compile(r"\w+://[^/\s:@]+:[^/\s@]+@")


@dataclass(frozen=True, slots=True)
class ConfigFinding:
    """A problem of the configuration or of one server, and how to fix it."""

    severity: Severity
    problem: str
    fix: str
    server: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the finding as `toolcrib doctor --json` prints it."""
        return {"severity": self.severity, "what": self.problem, "cure": self.fix, "server": self.server}


def check_config(config: GatewayConfig, find_program: FindProgram, is_folder: IsFolder) -> tuple[ConfigFinding, ...]:
    """Return the problems that can be found without starting a server, errors first.

    `find_program(program, path)` is `shutil.which`; `is_folder(path)` is `os.path.isdir`.
    """
    findings = [ConfigFinding("note", note, "none, if this is intended") for note in config.notes]
    for server in config.servers.values():
        if server.enabled:
            findings += _check_program(server, find_program, is_folder)
            findings += _check_connection(server)
            findings += _check_secrets(server)
        findings += _check_server_name(server, config.tool_search.max_name_chars)
    findings += _check_duplicates(config)
    findings += _check_exposure(config)
    findings += _check_patterns(config)
    order = ("error", "warning", "note")
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))


def find_unset_variables(document: object, environment: Mapping[str, str]) -> tuple[ConfigFinding, ...]:
    """Return a finding for every required variable that is not set, except of disabled servers."""
    sections = dict(document) if isinstance(document, Mapping) else {}
    servers: dict[str, object] = {}
    for key in (SERVERS_KEY, VSCODE_SERVERS_KEY):
        section = sections.pop(key, None)
        servers.update(section if isinstance(section, Mapping) else {})
    required = [("", name) for name in collect_required_variables(sections)]
    for server, entry in servers.items():
        is_disabled = isinstance(entry, Mapping) and (entry.get("enabled") is False or entry.get("disabled") is True)
        if not is_disabled:
            required += [(server, name) for name in collect_required_variables(entry)]
    return tuple(
        ConfigFinding(
            "error", f"the environment variable {name} is not set", f"set it, or add a default: ${{{name}:-…}}", server
        )
        for server, name in required
        if name not in environment
    )


def find_plain_secrets(document: object) -> list[str]:
    """Return the paths of the settings that contain a secret in plain text, such as `mcpServers.a.env.TOKEN`."""
    found: list[str] = []
    remaining: list[tuple[JsonPath, object]] = [((), document)]
    while remaining:
        path, value = remaining.pop()
        if isinstance(value, Mapping):
            remaining += [((*path, str(key)), item) for key, item in reversed(list(value.items()))]
        elif isinstance(value, list):
            remaining += [((*path, number), item) for number, item in reversed(list(enumerate(value)))]
        elif isinstance(value, str) and not has_variables(value) and _is_plain_secret(path, value):
            found.append(format_path(path))
    return found


def _is_plain_secret(path: JsonPath, value: str) -> bool:
    name = next((step for step in reversed(path) if isinstance(step, str)), "")
    is_named = any(_SECRET_NAME.search(name[:end]) for end in (len(name), len(name) - 1)) or name in ("key", "keys")
    is_long = len(value) >= _MIN_SECRET_CHARS and value.strip() == value and " " not in value
    return bool((is_named and is_long) or _SECRET_VALUE.search(value) or _PASSWORD_IN_URL.search(value))


def _check_program(server: ServerConfig, find_program: FindProgram, is_folder: IsFolder) -> Iterator[ConfigFinding]:
    if not server.command:
        return
    if server.cwd and not is_folder(server.cwd):
        problem = f"its working directory {server.cwd!r:.200} does not exist"
        fix = 'create it, or correct "cwd"; ~ is not expanded there'
        yield ConfigFinding("error", problem, fix, server.name)
        return

    def is_installed(command: str) -> bool:
        is_path = "/" in command or "\\" in command
        path = str(PurePath(server.cwd) / command) if server.cwd and is_path else command
        return find_program(path, server.env.get("PATH")) is not None

    if not is_installed(server.command):
        problem = f"the program {server.command!r:.200} was not found"
        fix = _suggest_program_fix(server.command, is_installed)
        yield ConfigFinding("error", problem, fix, server.name)


def _suggest_program_fix(command: str, is_installed: Callable[[str], bool]) -> str:
    first, *arguments = command.split(maxsplit=1) or [command]
    is_path = "/" in command or "\\" in command
    if arguments and (is_installed(first) or first in _INSTALL_HINTS or not is_path):
        return f'put its arguments into "args", and only {first!r:.100} into "command"'
    program = PurePath(command.replace("\\", "/")).name.removesuffix(".exe")
    if program not in _INSTALL_HINTS:
        return "install it, or use its full path as the command"
    hint = _INSTALL_HINTS[program]
    return hint if program == command else f"{hint}, or correct the path"


def _check_connection(server: ServerConfig) -> Iterator[ConfigFinding]:
    url = server.url or server.base_url
    if url and urlsplit(url).scheme == "http" and not _is_local(url):
        problem = "its URL uses plain http to another machine, so others can read the traffic"
        has_secret = server.headers or server.query or server.basic_auth
        severity: Severity = "error" if has_secret else "warning"
        yield ConfigFinding(severity, problem, "use https", server.name)
    if server.transport == "sse":
        problem = "it uses the SSE transport, which MCP has replaced"
        fix = 'use its streamable HTTP URL, which often ends in /mcp, with "type": "http"'
        yield ConfigFinding("note", problem, fix, server.name)


def _check_secrets(server: ServerConfig) -> Iterator[ConfigFinding]:
    """Yield the secrets that other processes or logs can read."""
    for index, argument in enumerate(server.args):
        if _is_secret_argument(argument, server.args[index - 1] if index else ""):
            problem = f"argument {index + 1} looks like a secret, and other processes can read it"
            fix = "pass it in env, if the program supports that"
            yield ConfigFinding("warning", problem, fix, server.name)
    if server.url:
        parts = urlsplit(server.url)
        names = [name for name, _ in parse_qsl(parts.query)]
        if parts.password or any(_SECRET_NAME.search(name) for name in names):
            problem = "its URL contains a secret, which may be logged"
            yield ConfigFinding("warning", problem, "pass it in headers", server.name)


def _is_secret_argument(argument: str, previous: str) -> bool:
    name, _, value = argument.partition("=")
    is_assigned = bool(value) and _SECRET_NAME.search(name)
    is_option = previous.startswith("-") and "=" not in previous and _SECRET_NAME.search(previous)
    return bool(
        is_assigned
        or (is_option and not argument.startswith("-"))
        or _SECRET_VALUE.search(argument)
        or _PASSWORD_IN_URL.search(argument)
    )


def _check_server_name(server: ServerConfig, max_name_chars: int) -> Iterator[ConfigFinding]:
    if not _TOOL_NAME.fullmatch(server.id):
        problem = "its name contains characters that tool names cannot have; they are replaced"
        fix = 'give it an "alias" of letters, digits and _'
        yield ConfigFinding("note", problem, fix, server.name)
    elif _SEPARATOR in server.id:
        problem = f"its name contains {_SEPARATOR}, which separates server and tool"
        yield ConfigFinding("warning", problem, 'give it an "alias"', server.name)
    room = max_name_chars - len(server.id) - len(_SEPARATOR)
    if room < _MIN_TOOL_NAME_CHARS:
        problem = f"its name leaves {max(room, 0)} characters for tool names; longer ones are cut"
        yield ConfigFinding("warning", problem, 'give it a short "alias"', server.name)


def _check_duplicates(config: GatewayConfig) -> Iterator[ConfigFinding]:
    first_names: dict[object, str] = {}
    for server in config.servers.values():
        if not server.enabled:
            continue
        env, headers = sorted(server.env.items()), sorted(server.headers.items())
        target = (server.command, server.args, server.cwd, server.url, server.openapi, server.base_url)
        identity = (*target, str(env), str(headers))
        first = first_names.setdefault(identity, server.name)
        if first != server.name:
            problem = f"it is the same server as {first}, so its tools appear twice"
            yield ConfigFinding("warning", problem, "remove one", server.name)


def _check_exposure(config: GatewayConfig) -> Iterator[ConfigFinding]:
    if config.http.host == "localhost" or _is_loopback(config.http.host):
        return
    problem = f"the gateway listens on {config.http.host}, which other machines can reach"
    if not config.auth.keys:
        yield ConfigFinding("error", f"{problem}, without keys", 'add "auth": {"keys": […]}')
    elif not config.http.allowed_hosts:
        fix = 'add its host name to "http": {"allowedHosts": […]}'
        yield ConfigFinding("warning", f"{problem}, without an allowed host name", fix)


def _check_patterns(config: GatewayConfig) -> Iterator[ConfigFinding]:
    """Yield the patterns that can match no tool."""
    known = {server.id for server in config.servers.values()}
    known |= set(config.servers)
    settings = {"toolSearch.alwaysExpose": config.tool_search.always_expose, "overrides": tuple(config.overrides)}
    for profile in config.profiles.values():
        settings[f"profiles.{profile.name}.alwaysExpose"] = profile.always_expose
    for key, patterns in settings.items():
        for pattern in patterns:
            server, separator, _ = pattern.partition(_SEPARATOR)
            if separator and server not in known and not set(server) & set("*?["):
                problem = f"{key} names {pattern!r:.80}, but there is no server {server!r:.60}"
                yield ConfigFinding("warning", problem, "correct the name, or remove it")
    for name in config.overrides:
        if config.tool_search.prefix and _SEPARATOR not in name and not set(name) & set("*?["):
            problem = f"overrides names {name!r:.80}, which is neither `server___tool` nor a pattern"
            yield ConfigFinding("warning", problem, "add the server to the name, or use a pattern")


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == "localhost" or host.endswith(".localhost") or _is_loopback(host)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
