"""The API of the overview: servers, what waits for a decision, and how to connect a client."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from toolcrib.gateway.auth import get_principal
from toolcrib.gateway.mcp.admin.api import collect_stats, list_server_status
from toolcrib.gateway.mcp.admin.api_routes import ApiCall, ApiRoutes

_LOGIN_HINT: Final = "requires a login"
_KEY_PLACEHOLDER: Final = "YOUR_KEY"
_MCP_NAME: Final = "toolcrib"
_COMMAND: Final = "toolcrib"
_USED_COUNTS: Final = ("searches", "listings")


def add_overview_routes(routes: ApiRoutes) -> None:
    """Add the routes of the overview."""
    routes.add("GET", "/api/overview", _get_overview)
    routes.add("GET", "/api/setup", _get_setup)


def _get_overview(call: ApiCall) -> dict[str, Any]:
    """Return servers, those with problems first, totals, and what waits for a decision."""
    servers = list_server_status(call.router, call.view)
    servers.sort(key=_rank_attention)
    stats = collect_stats(call.router, call.view)
    config = call.router.hub.config
    return {
        "servers": servers,
        "tools": stats["tools"],
        "tokens": stats["tokens"],
        "sessions": stats["sessions"],
        "notices": stats["notices"],
        "decisions": list(_list_decisions(servers)),
        # Without a file, `toolcrib serve` runs the demo server.
        "is_demo": config.path is None,
        "is_unused": not any(stats["counts"].get(name) for name in _USED_COUNTS),
        "config_file": str(config.path or "") if not call.view.profile.name else "",
    }


def _rank_attention(server: dict[str, Any]) -> int:
    """Return the sort key of a server: those that cannot be used first, then those that wait for a decision."""
    if server["trouble"] and server["state"] != "stopped":
        return 0
    return 1 if server["waiting"] or server["changed"] or server["flagged"] else 2


def _list_decisions(servers: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for server in servers:
        name, trouble, waiting = server["name"], server["trouble"], server["waiting"]
        if waiting:
            what = "definition waits" if len(waiting) == 1 else "definitions wait"
            text = f"{len(waiting)} changed or suspicious {what} for your approval"
            yield {"kind": "definition", "server": name, "text": text, "tools": waiting}
        if changed := server["changed"]:
            what = "definition is" if len(changed) == 1 else "definitions are"
            text = f"{len(changed)} changed {what} in use without your approval"
            yield {"kind": "definition", "server": name, "text": text, "tools": changed}
        if trouble:
            kind = "login" if _LOGIN_HINT in trouble else "server"
            yield {"kind": kind, "server": name, "text": trouble, "tools": []}


def _get_setup(call: ApiCall) -> dict[str, Any]:
    """Return what to enter in each client to use this gateway."""
    request = call.request
    base = f"{request.url.scheme}://{request.url.netloc}"
    principal = get_principal(request.scope)
    needs_key = bool(principal.key_hash or principal.session)
    profile = call.view.profile.name
    url = f"{base}/mcp/p/{profile}" if profile else f"{base}/mcp"
    clients = list(_list_clients(call, url, needs_key))
    return {"url": url, "needs_key": needs_key, "command": _find_command(), "clients": clients}


def _find_command() -> str:
    """Return how to run Toolcrib in a terminal, also if it is not on the path, as in a checkout."""
    found = shutil.which(_COMMAND)
    if found and Path(found).parent == Path(sys.executable).parent:
        return _COMMAND
    return f"{shlex.quote(sys.executable)} -m toolcrib"


def _list_clients(call: ApiCall, url: str, needs_key: bool) -> Iterator[dict[str, str]]:
    bearer = f"Bearer {_KEY_PLACEHOLDER}"
    headers = {"headers": {"Authorization": bearer}} if needs_key else {}
    option = f' --header "Authorization: {bearer}"' if needs_key else ""
    codex_key = '\nhttp_headers = { Authorization = "Bearer YOUR_KEY" }' if needs_key else ""
    yield _command("Claude Code", f"claude mcp add --transport http {_MCP_NAME} {url}{option}")
    # It reads only programs from its file, so it starts a separate gateway.
    config = call.router.hub.config.path
    args = ["-m", "toolcrib", "stdio", *(["--config", str(config.resolve())] if config else [])]
    if not call.view.profile.name:
        entry = {"command": sys.executable, "args": args}
        yield _file("Claude Desktop", "claude_desktop_config.json", {"mcpServers": {_MCP_NAME: entry}})
    yield _file("Cursor", "~/.cursor/mcp.json", {"mcpServers": {_MCP_NAME: {"url": url, **headers}}})
    server = {"type": "http", "url": url, **headers}
    yield _file("VS Code", ".vscode/mcp.json", {"servers": {_MCP_NAME: server}})
    toml = f'[mcp_servers.{_MCP_NAME}]\nurl = "{url}"{codex_key}'
    yield {"name": "Codex", "where": "~/.codex/config.toml", "text": toml}
    yield _command("Gemini CLI", f"gemini mcp add --scope user --transport http{option} {_MCP_NAME} {url}")
    remote = {"type": "remote", "url": url, **headers}
    yield _file("opencode", "opencode.json", {"mcp": {"servers": {_MCP_NAME: remote}}})


def _command(name: str, text: str) -> dict[str, str]:
    return {"name": name, "where": "a terminal", "text": text}


def _file(name: str, where: str, document: dict[str, Any]) -> dict[str, str]:
    return {"name": name, "where": where, "text": json.dumps(document, indent=2)}
