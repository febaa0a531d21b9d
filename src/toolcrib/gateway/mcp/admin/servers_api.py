"""`/api/servers/{name}`: one server in detail, its log, and starting, stopping and logging in."""

from __future__ import annotations

from typing import Any, Final

import anyio

from toolcrib.config.server_settings import ServerConfig
from toolcrib.core.token_count import count_tool_tokens
from toolcrib.errors import InvalidConfig, InvalidStore, LoginFailed, RequestFailed, StoreUnavailable
from toolcrib.gateway.logs import Redactor
from toolcrib.gateway.mcp.admin.api_routes import ApiCall, ApiRoutes
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.mcp.upstream.login import login
from toolcrib.gateway.mcp.upstream.oauth_tokens import TokenPlace, require_token_place
from toolcrib.gateway.secrets import collect_server_secrets
from toolcrib.storage.audit import AuditRow

MAX_LOGINS: Final = 20
LOGIN_PAGE_TIMEOUT_SECONDS: Final = 30.0


def add_server_routes(routes: ApiRoutes) -> None:
    """Add the routes of single servers."""
    logins = ServerLogins()
    routes.add("GET", "/api/servers/{name}", lambda call: _get_server(call, logins))
    routes.add("GET", "/api/servers/{name}/log", _get_log, needs_full_access=True)
    for action in ("start", "restart"):
        routes.add("POST", f"/api/servers/{{name}}/{action}", _start_server, needs_full_access=True)
    routes.add("POST", "/api/servers/{name}/stop", _stop_server, needs_full_access=True)
    routes.add("POST", "/api/servers/{name}/login", logins.start_login, needs_full_access=True)


def find_server(call: ApiCall) -> ServerConfig:
    """Return the configured server that the path names and that the caller may see."""
    name = call.text("name")
    server = call.router.hub.config.servers.get(name)
    is_visible = not call.view.profile.name if server and not server.enabled else call.view.can_see_server(name)
    if server is None or not is_visible:
        raise RequestFailed(f"there is no server {name!r:.200}; `toolcrib status` lists them", 404)
    return server


def _get_server(call: ApiCall, logins: ServerLogins) -> dict[str, Any]:
    server, hub = find_server(call), call.router.hub
    upstream = call.router.pool.servers.get(server.name)
    entries = [entry for entry in call.view.entries.values() if entry.server == server.name]
    store_trouble = ""
    try:
        manifest, usage = hub.store.get_manifest(server.name), hub.store.get_usage()
    except StoreUnavailable:
        # The state of a server does not depend on the database.
        manifest, usage, store_trouble = None, {}, "the database of the gateway cannot be reached"
    totals = [usage[entry.name] for entry in entries if entry.name in usage]
    heaviest = sorted(entries, key=lambda entry: -count_tool_tokens(entry.tool))[:5]
    return {
        "name": server.name,
        "enabled": server.enabled,
        "transport": server.transport,
        "start": server.start,
        "target": _describe_target(server) if not call.view.profile.name else "",
        "state": "disabled" if upstream is None else "stopped" if upstream.is_halted else upstream.state,
        "trouble": upstream.error if upstream and not upstream.connection else "",
        "info": dict(manifest.info) if manifest else {},
        "instructions": manifest.instructions if manifest else "",
        "protocol": upstream.connection.protocol if upstream and upstream.connection else "",
        "seenAt": manifest.seen_at if manifest else 0.0,
        "startedAt": upstream.started_at if upstream and upstream.connection else 0.0,
        "starts": upstream.start_count if upstream else 0,
        "tools": len(entries),
        "tokens": sum(count_tool_tokens(entry.tool) for entry in entries),
        "heaviest": [{"name": entry.name, "tokens": count_tool_tokens(entry.tool)} for entry in heaviest],
        "calls": sum(total.calls for total in totals),
        "failures": sum(total.failures for total in totals),
        "seconds": sum(total.seconds for total in totals),
        "canLogIn": bool(server.url),
        "login": logins.states.get(server.name),
        "storeTrouble": store_trouble,
    }


def _describe_target(server: ServerConfig) -> str:
    """Return the command or the address of a server without its secrets."""
    text = server.url or server.openapi or " ".join([server.command, *server.args])
    text = Redactor(collect_server_secrets(server))(text)
    # User information and queries of URLs often hold tokens.
    if "://" in text and not server.command:
        scheme, _, rest = text.partition("://")
        text = f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"
    return text


def _get_log(call: ApiCall) -> dict[str, Any]:
    upstream = call.router.pool.servers.get(find_server(call).name)
    return {"lines": upstream.read_log() if upstream else []}


async def _start_server(call: ApiCall) -> dict[str, Any]:
    server = _require_enabled(call)
    await anyio.to_thread.run_sync(_record_action, call, server.name, "started")
    call.router.pool.restart(server.name)
    return {"name": server.name}


async def _stop_server(call: ApiCall) -> dict[str, Any]:
    server = _require_enabled(call)
    await anyio.to_thread.run_sync(_record_action, call, server.name, "stopped")
    call.router.pool.halt(server.name)
    return {"name": server.name}


def _record_action(call: ApiCall, server: str, action: str) -> None:
    call.record_change("config", {"change": f"{action} the server"}, server=server)


def _require_enabled(call: ApiCall) -> ServerConfig:
    server = find_server(call)
    if server.name not in call.router.pool.servers:
        raise RequestFailed(f"{server.name} is disabled; enable it first", 409)
    return server


class ServerLogins:
    """The logins to servers that users have started in the console."""

    def __init__(self) -> None:
        # By server: {"state": "waiting", "done" or "failed", "message": …}.
        self.states: dict[str, dict[str, str]] = {}

    async def start_login(self, call: ApiCall) -> dict[str, Any]:
        """Start a login and return the address of the server's login page."""
        server, config = find_server(call), call.router.hub.config
        if not server.url:
            raise InvalidConfig(f"{server.name} has no `url`, so it cannot be logged in to")
        try:
            open_token = require_token_place(config, call.router.hub.store)
        except InvalidStore as error:
            raise InvalidConfig(str(error)) from None
        waiting = sum(state["state"] == "waiting" for state in self.states.values())
        if waiting >= MAX_LOGINS or self.states.get(server.name, {}).get("state") == "waiting":
            raise RequestFailed("a login is already waiting; finish it in the browser", 409)
        sender, receiver = anyio.create_memory_object_stream[str](1)
        self.states[server.name] = {"state": "waiting", "message": ""}
        place = open_token(server)
        call.router.pool.run_in_background(self._run_login, call.router, server, place, sender)
        with anyio.move_on_after(LOGIN_PAGE_TIMEOUT_SECONDS), receiver:
            try:
                return {"url": await receiver.receive(), "needed": True}
            except anyio.EndOfStream:
                pass
        state = self.states[server.name]
        if state["state"] == "failed":
            raise RequestFailed(state["message"], 502)
        return {"url": "", "needed": state["state"] == "waiting"}

    async def _run_login(
        self,
        router: McpRouter,
        server: ServerConfig,
        place: TokenPlace,
        sender: anyio.streams.memory.MemoryObjectSendStream[str],
    ) -> None:
        try:
            with sender:
                grant = await login(server, sender.send_nowait)
            if grant is not None:
                await anyio.to_thread.run_sync(place.save, grant)
                details = {"change": "logged in to the server"}
                row = AuditRow("login", client="console", server=server.name, details=details)
                await anyio.to_thread.run_sync(router.audit.record_change, row)
            self.states[server.name] = {"state": "done", "message": ""}
            if server.name in router.pool.servers:
                router.pool.restart(server.name)
        except LoginFailed as error:
            self.states[server.name] = {"state": "failed", "message": str(error)}
        except BaseException:
            self.states.pop(server.name, None)
            raise
