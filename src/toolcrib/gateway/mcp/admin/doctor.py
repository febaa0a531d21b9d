"""Start every server once and report its problems, for `toolcrib doctor`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any, Final

import anyio
import httpx2

from toolcrib.config.checks import ConfigFinding, Severity
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig
from toolcrib.core.token_count import count_tool_tokens
from toolcrib.gateway.mcp.upstream.connection import is_inherited
from toolcrib.gateway.mcp.upstream.login import fetch_ping_status
from toolcrib.gateway.mcp.upstream.pool import OnServerStart, UpstreamPool, ignore_event
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.hub.directory import DirectoryEntry, ServerTools, format_tool_count
from toolcrib.hub.hub import Hub
from toolcrib.safety.pinning import Pin
from toolcrib.storage import open_store

LARGE_DEFINITION_TOKENS: Final = 10_000
MAX_LISTED_PROBLEMS: Final = 5
MAX_QUOTED_CHARS: Final = 300
_PROBE_TIMEOUT_SECONDS: Final = 10.0
_REPORT_FIX: Final = "report it to the developers of the server"

# Servers that need version 1 of the Python SDK without pinning it are installed with version 2.
_MCP_2_ERROR = re.compile(
    r"No module named 'mcp\.(?:server\.fastmcp|types|shared\.\w+)|cannot import name .* from 'mcp\b"
    r"|'Server' object has no attribute '\w+'|module 'mcp[.\w]*' has no attribute"
)
_OLD_NODE_ERROR = re.compile(r"EBADENGINE|Unsupported engine|SyntaxError: Unexpected token|node:\w+'? .*not")
_UNKNOWN_PACKAGE_ERROR = re.compile(
    r"(?i)npm (?:ERR!|error) (?:code )?(?:E?404|ETARGET)|not found in the package registry"
    r"|no matching distribution|No solution found when resolving"
)
_NETWORK_ERROR = re.compile(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|Temporary failure in name|dns error")
_MISSING_MODULE_ERROR = re.compile(r"No module named '([\w.]+)'|Cannot find (?:module|package) '([^']{1,200})'")
_VARIABLE = r"\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b"
_MISSING = (
    r"(?i:required|missing|not (?:set|found|defined|specified|provided|configured)|must be|to be set|provide|"
    r"undefined|unset|empty)"
)
_MISSING_VARIABLE_ERROR = re.compile(
    rf"KeyError: '([A-Z][A-Z0-9_]+)'|(?i:environment variable|env var)s?:? ['\"`]?([A-Z][A-Z0-9_]{{2,}})\b"
    rf"|{_VARIABLE}[^\n]{{0,80}}?{_MISSING}"
    rf"|(?:{_MISSING}|(?i:set the|please set|export))[^\n]{{0,80}}?{_VARIABLE}"
)
_CREDENTIAL_ERROR = re.compile(r"(?i)\b(?:unauthori[sz]ed|forbidden|invalid (?:api[ _-]?key|token)|401|403)\b")
_USAGE_ERROR = re.compile(r"(?im)^\s*usage:|the following arguments are required|missing argument")


@dataclass(frozen=True, slots=True)
class ServerReport:
    """The state of one server and its problems."""

    server: str
    is_running: bool
    protocol: str = ""
    tools: int = 0
    tokens: int = 0
    findings: list[ConfigFinding] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the report as `toolcrib doctor --json` prints it, without the findings."""
        return {
            "server": self.server,
            "is_up": self.is_running,
            "protocol": self.protocol,
            "tools": self.tools,
            "tokens": self.tokens,
        }


async def check_servers(
    config: GatewayConfig,
    pins: Mapping[str, Iterable[Pin]],
    on_started: OnServerStart,
    *,
    tokens: Mapping[str, bytes] | None = None,
) -> list[ServerReport]:
    """Start every server of a configuration, report on it, and stop it.

    Nothing is stored. `pins` are the approved definitions of each server's tools, and `tokens` the encrypted
    OAuth tokens of the store.
    """
    eager = {name: replace(server, start="eager") for name, server in config.servers.items()}
    hub = Hub(replace(config, servers=eager), open_store("sqlite://"))
    for server, server_pins in pins.items():
        hub.store.put_pins(server, server_pins)
    for name, body in (tokens or {}).items():
        hub.store.put_token(name, body)
    pool = UpstreamPool(hub, ignore_event, ignore_event)
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(pool.run)
            await pool.report_starts(on_started)
            reports = await _build_reports(pool)
            tasks.cancel_scope.cancel()
    finally:
        hub.close()
    return reports


async def _build_reports(pool: UpstreamPool) -> list[ServerReport]:
    listed = {tools.server.name: tools for tools in pool.hub.directory.servers}
    reports: list[ServerReport] = []
    for name, upstream in pool.servers.items():
        if upstream.connection is None:
            status = await _fetch_http_status(upstream.config)
            stderr = upstream.stderr_tail.lines
            finding = diagnose_server(upstream.config, upstream.error, stderr, status)
            reports.append(ServerReport(name, False, findings=[finding]))
        else:
            tools = listed.get(name) or ServerTools(upstream.config)
            reports.append(_build_report(upstream, tools, pool.hub.directory.entries))
    return reports


def _build_report(
    upstream: UpstreamServer, tools: ServerTools, all_entries: Mapping[str, DirectoryEntry]
) -> ServerReport:
    tokens = sum(count_tool_tokens(entry.tool) for entry in tools.entries)
    protocol = upstream.connection.protocol if upstream.connection else ""
    findings = [
        *_find_unusable_tools(tools),
        *_find_unapproved_tools(tools),
        *_find_suspicious_tools(tools),
        *_find_name_conflicts(tools, all_entries),
        *_find_large_definitions(tools, tokens),
    ]
    return ServerReport(upstream.name, True, protocol, len(tools.entries), tokens, findings)


def _find_unusable_tools(tools: ServerTools) -> Iterator[ConfigFinding]:
    name = tools.server.name
    if not tools.entries and not tools.quarantined and not tools.problems:
        fix = "check `toolsAllowed` and `toolsBlocked`, or remove the server"
        yield ConfigFinding("warning", "it has no tools", fix, name)
    for problem in tools.problems[:MAX_LISTED_PROBLEMS]:
        yield ConfigFinding("warning", problem, f"{_REPORT_FIX}; its other tools work", name)
    if (more := len(tools.problems) - MAX_LISTED_PROBLEMS) > 0:
        yield ConfigFinding("warning", f"{format_tool_count(more)} more cannot be used", _REPORT_FIX, name)
    for problem in tools.override_problems[:MAX_LISTED_PROBLEMS]:
        yield ConfigFinding("warning", problem, 'correct it in "overrides"', name)
    if tools.repaired_tools:
        more = len(tools.repaired_tools) - 1
        others = f" (and {format_tool_count(more)} more like this)" if more else ""
        yield ConfigFinding("note", f"{tools.repaired_tools[0]}{others}", _REPORT_FIX, name)


def _find_unapproved_tools(tools: ServerTools) -> Iterator[ConfigFinding]:
    fix = f"review the change and approve it: toolcrib approve {tools.server.name}"
    if names := list(tools.quarantined):
        verb = "is" if len(names) == 1 else "are"
        problem = f"{_join_names(names)} {verb} quarantined until the definition is approved"
        yield ConfigFinding("warning", problem, fix, tools.server.name)
    if changed := [entry.remote_name for entry in tools.entries if entry.is_changed]:
        problem = f"the definition of {_join_names(changed)} is not the approved one, and is used"
        yield ConfigFinding("warning", problem, fix, tools.server.name)


def _find_suspicious_tools(tools: ServerTools) -> Iterator[ConfigFinding]:
    for entry in tools.entries:
        for finding in entry.findings[:1]:
            severity: Severity = "warning" if finding.severity == "high" else "note"
            problem = f"{entry.remote_name}, {finding.location}: {finding.message}"
            fix = 'read the definition; exclude the tool with "toolsBlocked" if it is malicious'
            yield ConfigFinding(severity, problem, fix, tools.server.name)


def _find_name_conflicts(tools: ServerTools, all_entries: Mapping[str, DirectoryEntry]) -> Iterator[ConfigFinding]:
    server = tools.server
    changed = [
        entry.name
        for entry in tools.entries
        if not entry.name.endswith((entry.override and entry.override.name) or entry.remote_name)
    ]
    if changed:
        names = _join_names(changed)
        problem = f"names that are too long or invalid are changed, of {format_tool_count(len(changed))}: {names}"
        fix = f'give it a shorter "alias" than {server.id}'
        yield ConfigFinding("note", problem, fix, server.name)
    taken = [entry.name for entry in tools.entries if all_entries.get(entry.name, entry).server != server.name]
    if taken:
        names = _join_names(taken)
        problem = f"an earlier server has the names of {format_tool_count(len(taken))}: {names}"
        yield ConfigFinding("warning", problem, 'give it its own "alias"', server.name)


def _find_large_definitions(tools: ServerTools, tokens: int) -> Iterator[ConfigFinding]:
    if tokens >= LARGE_DEFINITION_TOKENS:
        problem = f"its definitions have about {tokens:,} tokens"
        fix = 'use "mode": "search", or select tools with "toolsAllowed"'
        yield ConfigFinding("note", problem, fix, tools.server.name)


def _join_names(names: list[str]) -> str:
    more = len(names) - MAX_LISTED_PROBLEMS
    listed = ", ".join(names[:MAX_LISTED_PROBLEMS])
    return f"{listed} and {more} more" if more > 0 else listed


async def _fetch_http_status(server: ServerConfig) -> int | None:
    """Return the status of the server's response to a ping, or None without a response."""
    if not server.url:
        return None
    headers = dict(server.headers)
    try:
        async with httpx2.AsyncClient(headers=headers, timeout=_PROBE_TIMEOUT_SECONDS) as client:
            return await fetch_ping_status(client, server)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError):
        return None


def diagnose_server(
    server: ServerConfig, error: str, stderr_lines: Sequence[str], http_status: int | None = None
) -> ConfigFinding:
    """Return why a server did not start and how to fix it.

    `stderr_lines` are its last lines on stderr; `http_status` is the status of a ping to its URL.
    """
    stderr = "\n".join(stderr_lines)
    fix = (
        _check_http_status(server, http_status)
        or _check_python_sdk(server, stderr)
        or _check_packages(server, stderr)
        or _check_settings(server, stderr)
        or _suggest_default_fix(server, error)
    )
    problem = f"it does not start: {error[:MAX_QUOTED_CHARS]}"
    if http_status is not None and http_status >= 400 and "HTTP" not in error:
        problem = f"it does not start: it answered with HTTP {http_status}"
    return ConfigFinding("error", problem, fix, server.name)


def _check_http_status(server: ServerConfig, status: int | None) -> str:
    if status is None:
        return ""
    if status in (401, 403):
        header = '"headers": {"Authorization": "Bearer ${ITS_TOKEN}"}'
        if status == 401 and not server.headers:
            return f"log in: toolcrib login {server.name}; or add a token: {header}"
        reason = "it rejects the token in its `headers`" if server.headers else "it requires a token"
        return f"{reason}: {header}, and set that variable"
    if status in (404, 405, 410):
        return 'correct its `url`; many end in /mcp. An older server may need "type": "sse"'
    if status >= 500:
        return "the server itself fails; check its logs, or try again later"
    if status < 400:
        return "a web server answers, but not with MCP; correct its `url`"
    return ""


def _check_python_sdk(server: ServerConfig, stderr: str) -> str:
    if not _MCP_2_ERROR.search(stderr):
        return ""
    program = PurePath(server.command).name
    if program in ("uvx", "uv"):
        args = '["--with", "mcp<2", …]' if program == "uvx" else '["run", "--with", "mcp<2", …]'
        fix = f'use "args": {args}'
    elif program.startswith("py"):
        fix = f"{server.command} -m pip install 'mcp<2'"
    else:
        fix = 'start it with uvx: "command": "uvx", "args": ["--with", "mcp<2", …]'
    return f"it needs version 1 of the Python package mcp; {fix}"


def _check_packages(server: ServerConfig, stderr: str) -> str:
    if _OLD_NODE_ERROR.search(stderr):
        return "it needs a newer Node.js; install the current version (https://nodejs.org)"
    if _UNKNOWN_PACKAGE_ERROR.search(stderr):
        return "there is no such package or version; correct its name in `args`"
    if match := _MISSING_MODULE_ERROR.search(stderr):
        return f"install {match[1] or match[2]} in the environment of {server.command}"
    if _NETWORK_ERROR.search(stderr):
        return "it could not reach the network; check the connection or the proxy"
    return ""


def _check_settings(server: ServerConfig, stderr: str) -> str:
    if match := _MISSING_VARIABLE_ERROR.search(stderr):
        name = next(filter(None, match.groups()))
        if name in os.environ and not is_inherited(server, name):
            return f'it requires {name}, which is set but not passed on: add it to "inheritEnv"'
        return f'it requires {name}: set this variable before you start the gateway, or add it to its "env"'
    if _CREDENTIAL_ERROR.search(stderr):
        return "its token or key was rejected; renew the one in its `env`"
    if _USAGE_ERROR.search(stderr):
        return "it requires other arguments; see its documentation and correct `args`"
    return ""


def _suggest_default_fix(server: ServerConfig, error: str) -> str:
    if "in time" in error:
        return (
            "the first start may include a download: try again, or raise its `connectSeconds` "
            f"(now {server.connect_seconds:g})"
        )
    if server.url:
        return "check its `url`, and whether the server is running"
    if server.openapi:
        return "correct its `openapi` or `baseUrl`"
    return "run its command by hand and check its output"
