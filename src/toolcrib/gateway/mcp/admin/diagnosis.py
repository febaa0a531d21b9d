"""Why a server did not come up, and the cure, read from what it said before it failed. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Final

from toolcrib.config.checks import ConfigFinding
from toolcrib.config.settings import ServerConfig

MAX_QUOTED_CHARS: Final = 300

# Servers written for the first version of the Python SDK that did not say so get the second.
_MCP_2_ERROR = re.compile(
    r"No module named 'mcp\.(?:server\.fastmcp|types|shared\.\w+)|cannot import name .* from 'mcp\b"
    r"|'Server' object has no attribute '\w+'|module 'mcp[.\w]*' has no attribute"
)
_OLD_NODE_ERROR = re.compile(
    r"EBADENGINE|Unsupported engine|SyntaxError: Unexpected token|node:\w+'? .*not"
)
_UNKNOWN_PACKAGE_ERROR = re.compile(
    r"(?i)npm (?:ERR!|error) (?:code )?(?:E?404|ETARGET)|not found in the package registry"
    r"|no matching distribution|No solution found when resolving"
)
_NETWORK_ERROR = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT|Temporary failure in name|dns error"
)
_MISSING_MODULE_ERROR = re.compile(
    r"No module named '([\w.]+)'|Cannot find (?:module|package) '([^']{1,200})'"
)
_MISSING_VARIABLE_ERROR = re.compile(
    r"(?i)\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b[^\n]{0,80}"
    r"(?:required|missing|not set|not found|must be|provide|undefined|unset|empty)"
    r"|(?:required|missing|must (?:be )?set|provide|set the)[^\n]{0,80}?\b([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)\b"
)
_CREDENTIAL_ERROR = re.compile(
    r"(?i)\b(?:unauthori[sz]ed|forbidden|invalid (?:api[ _-]?key|token)|401|403)\b"
)
_USAGE_ERROR = re.compile(r"(?im)^\s*usage:|the following arguments are required|missing argument")


def diagnose_server(
    server: ServerConfig, error: str, stderr_lines: Sequence[str], http_status: int | None = None
) -> ConfigFinding:
    """What is wrong with a server that did not come up.

    `said` are its last lines on standard error; `http_status` is what its address answered with.
    """
    text = "\n".join(stderr_lines)
    for look in (
        _check_http_status,
        _check_python_sdk,
        _check_packages,
        _check_network,
        _check_settings,
    ):
        cure = look(server, text, http_status)
        if cure:
            break
    else:
        cure = _suggest_default_fix(server, error)
    what = f"it does not start: {error[:MAX_QUOTED_CHARS]}"
    if http_status is not None and http_status >= 400 and "HTTP" not in error:
        what = f"it does not start: it answered with HTTP {http_status}"
    return ConfigFinding("error", what, cure, server.name)


StartCheck = Callable[[ServerConfig, str, int | None], str]


def _check_http_status(server: ServerConfig, text: str, status: int | None) -> str:
    if status in (401, 403):
        if status == 401 and not server.headers:
            given = '"headers": {"Authorization": "Bearer ${ITS_TOKEN}"}'
            return f"log in to it: toolcrib login {server.name}; or give it a token: {given}"
        told = (
            "the token in its `headers` is not accepted" if server.headers else "it wants a token"
        )
        return f'{told}: "headers": {{"Authorization": "Bearer ${{ITS_TOKEN}}"}}, and set that variable'
    if status in (404, 405, 410):
        return 'correct its `url`; many end in /mcp. An older server may need "type": "sse"'
    if status is not None and status >= 500:
        return "the server itself fails; look at its own logs, or try again later"
    if status is not None and status < 400:
        return "there is a web server, but it does not speak MCP here; correct its `url`"
    return ""


def _check_python_sdk(server: ServerConfig, text: str, status: int | None) -> str:
    if not _MCP_2_ERROR.search(text):
        return ""
    program = PurePath(server.command).name
    if program in ("uvx", "uv"):
        first = '["--with", "mcp<2", …]' if program == "uvx" else '["run", "--with", "mcp<2", …]'
        how = f'write "args": {first}'
    elif program == "pipx":
        how = 'start it with uvx: "command": "uvx", "args": ["--with", "mcp<2", …]'
    else:
        how = f"{server.command} -m pip install 'mcp<2'"
    return f"it is written for version 1 of the Python package mcp; {how}"


def _check_packages(server: ServerConfig, text: str, status: int | None) -> str:
    if _OLD_NODE_ERROR.search(text):
        return "it wants a newer Node.js; install the current one (https://nodejs.org)"
    if _UNKNOWN_PACKAGE_ERROR.search(text):
        return "there is no such package or version; correct its name in `args`"
    found = _MISSING_MODULE_ERROR.search(text)
    if found:
        return f"install what it needs ({found[1] or found[2]}) where {server.command} looks for it"
    return ""


def _check_network(server: ServerConfig, text: str, status: int | None) -> str:
    if _NETWORK_ERROR.search(text):
        return "it needs the network, which it could not reach; check the connection or the proxy"
    return ""


def _check_settings(server: ServerConfig, text: str, status: int | None) -> str:
    found = _MISSING_VARIABLE_ERROR.search(text)
    if found:
        name = found[1] or found[2]
        return f'it wants {name}: "env": {{"{name}": "${{{name}}}"}}, and set that variable'
    if _CREDENTIAL_ERROR.search(text):
        return "its token or key is not accepted; renew the one in its `env`"
    if _USAGE_ERROR.search(text):
        return "it wants other arguments; see its documentation and correct `args`"
    return ""


def _suggest_default_fix(server: ServerConfig, trouble: str) -> str:
    if "in time" in trouble:
        return (
            "a first start may have to download it: try again, or raise its `connectSeconds` "
            f"({server.connect_seconds:g} now)"
        )
    if server.url:
        return "check its `url`, and whether the server is running"
    return "run its command by hand and see what it says"
