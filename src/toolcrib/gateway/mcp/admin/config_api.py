"""`/api/config`: add, change and remove servers in toolcrib.json, with a preview and a test before saving."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from toolcrib.config.clients.file_writes import encode_like, replace_file
from toolcrib.config.clients.importing import discover_servers, parse_toml
from toolcrib.config.clients.locations import SERVERS, ClientFile, HostSystem
from toolcrib.config.clients.translation import DiscoveredServer, starts_toolcrib, translate_entry
from toolcrib.config.fields import ConfigSection, InvalidSetting
from toolcrib.config.jsonc import parse_jsonc, remove_members, set_member
from toolcrib.config.loader import EXPECTED_CONTENT, parse_document, user_config_path
from toolcrib.config.parser import SERVERS_KEY, VSCODE_SERVERS_KEY
from toolcrib.config.server_entry import read_server
from toolcrib.config.settings import GatewayConfig
from toolcrib.errors import InvalidConfig, InvalidQuery, RequestFailed
from toolcrib.files.json_file import read_json_file
from toolcrib.gateway.hosts import is_loopback
from toolcrib.gateway.mcp.admin.api_routes import ApiCall, ApiRoutes
from toolcrib.gateway.mcp.admin.doctor import check_servers
from toolcrib.gateway.secrets import collect_document_secrets

MAX_PASTED_SERVERS: Final = 100
MAX_RECORDED_CHARS: Final = 500
HIDDEN_SECRET: Final = "•••"
_EMPTY_CONFIG: Final = '{\n  "mcpServers": {}\n}\n'
_ACTIONS: Final = ("add", "enable", "disable", "remove")
# Where clients keep their servers in a file: the path of the section.
_SECTIONS: Final = (("mcpServers",), ("servers",), ("mcp", "servers"), ("mcp_servers",), ("context_servers",))


def add_config_routes(routes: ApiRoutes) -> None:
    """Add the routes of configuration edits."""
    routes.add("GET", "/api/config/clients", _discover_servers, needs_full_access=True)
    routes.add("POST", "/api/config/parse", _parse_pasted, needs_full_access=True)
    routes.add("POST", "/api/config/test", _test_server, needs_full_access=True)
    routes.add("POST", "/api/config/servers", _edit_servers, needs_full_access=True)


def _parse_pasted(call: ApiCall) -> dict[str, Any]:
    """Return the servers in a text that was copied from any client's configuration."""
    text = call.body.get("text")
    if not isinstance(text, str) or not text.strip():
        raise InvalidQuery("paste the configuration of a server, such as a block with `mcpServers`")
    is_toml, entries = _find_entries(text.strip(), str(call.body.get("name") or ""))
    source = ClientFile("codex" if is_toml else "vscode", Path("pasted text"), SERVERS)
    servers = [
        translate_entry(source, name, entry, HostSystem.detect())
        for name, entry in list(entries.items())[:MAX_PASTED_SERVERS]
        if not starts_toolcrib(entry)
    ]
    if not servers:
        raise InvalidConfig("there is no server in this text; paste a block with `mcpServers`, or one entry of it")
    return {"servers": list(map(_render_server, servers))}


def _discover_servers(call: ApiCall) -> dict[str, Any]:
    """Return the servers in the files of the user's clients, without those that are configured already."""
    found = discover_servers(HostSystem.detect(), all_projects=True)
    configured = call.router.hub.config.servers
    new = {server.name: server for server in found.servers if server.name not in configured}
    return {
        "servers": [
            {**_render_server(server), "client": server.source.title}
            for server in list(new.values())[:MAX_PASTED_SERVERS]
        ],
        "problems": list(found.errors),
    }


def _find_entries(text: str, name: str) -> tuple[bool, Mapping[str, Any]]:
    """Return whether a text is TOML, and its servers by name."""
    is_toml = text.startswith("[") and not text.startswith(("[{", "[\n", '["'))
    # A member without the braces around it is a common way to copy an entry.
    wrapped = f"{{{text.rstrip(',')}}}" if text.startswith('"') else text
    value: Any = parse_toml("pasted text", text) if is_toml else parse_jsonc("pasted text", wrapped).value
    if not isinstance(value, Mapping):
        raise InvalidConfig("the pasted text must be an object")
    for section in _SECTIONS:
        found: Any = value
        for step in section:
            found = found.get(step) if isinstance(found, Mapping) else None
        if isinstance(found, Mapping):
            return is_toml, found
    if "command" in value or "openapi" in value or any(key.lower().endswith("url") for key in value):
        return is_toml, {name or str(value.get("name") or "server"): {k: v for k, v in value.items() if k != "name"}}
    return is_toml, {key: entry for key, entry in value.items() if isinstance(entry, Mapping)}


def _render_server(server: DiscoveredServer) -> dict[str, Any]:
    return {"name": server.name, "entry": server.entry, "notes": list(server.notes), "error": server.error}


def _require_edits(call: ApiCall) -> None:
    """Raise an error if servers cannot be edited over HTTP. A server is a program on the gateway's machine."""
    http = call.router.hub.config.http
    is_local = is_loopback(http.host.strip("[]").lower())
    if http.server_edits == "off" or (http.server_edits == "local" and not is_local):
        message = "servers can be tested and edited only on the machine of the gateway, because they are programs on it"
        raise RequestFailed(
            f'{message}; to allow it to keys with full access, set "http": {{"serverEdits": "on"}}', 403
        )


async def _test_server(call: ApiCall) -> dict[str, Any]:
    """Start a server that is not configured yet, list its tools and stop it. Nothing is stored."""
    _require_edits(call)
    name, entry = _read_entry(call)
    notes: list[str] = []
    try:
        server = read_server(name, ConfigSection.from_value({**entry, "enabled": True}, (name,), os.environ), notes)
    except InvalidSetting as error:
        raise InvalidConfig(f"{name}: {error.reason}") from None
    config = GatewayConfig(servers={name: server}, safety=call.router.hub.config.safety)
    (report,) = await check_servers(config, {}, lambda started: None)
    return {
        "running": report.is_running,
        "protocol": report.protocol,
        "tools": report.tools,
        "tokens": report.tokens,
        "notes": notes,
        "findings": [
            {"severity": finding.severity, "problem": finding.problem, "fix": finding.fix}
            for finding in report.findings
        ],
    }


def _read_entry(call: ApiCall) -> tuple[str, Mapping[str, Any]]:
    name, entry = call.body.get("name"), call.body.get("entry")
    if not isinstance(name, str) or not name.strip() or not isinstance(entry, dict):
        raise InvalidQuery("`name` must be text and `entry` an object")
    return name.strip(), entry


def _read_entries(call: ApiCall) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the servers to add: one as `name` and `entry`, or several as `entries`."""
    entries = call.body.get("entries")
    if entries is None:
        return [_read_entry(call)]
    is_valid = isinstance(entries, dict) and all(isinstance(entry, dict) for entry in entries.values())
    if not is_valid or not 0 < len(entries) <= MAX_PASTED_SERVERS:
        raise InvalidQuery(f"`entries` must be an object with 1 to {MAX_PASTED_SERVERS} servers by name")
    return list(entries.items())


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    """The content of the configuration file before and after an edit."""

    path: Path
    before: bytes | None
    after: bytes
    old_text: str
    new_text: str

    @property
    def revision(self) -> str:
        """A digest of the file before the edit."""
        return hashlib.sha256(self.before or b"").hexdigest()[:16]

    def render_diff(self) -> str:
        """Return the edit as a unified diff without secrets."""
        texts = (self.old_text or "{}", self.new_text)
        documents = [parse_jsonc(str(self.path), text).value for text in texts]
        secrets = {secret for document in documents for secret in collect_document_secrets(document)}
        lines = difflib.unified_diff(
            self.old_text.splitlines(), self.new_text.splitlines(), self.path.name, self.path.name, lineterm=""
        )
        diff = "\n".join(lines)
        for secret in sorted(secrets, key=len, reverse=True):
            # In quotes, so that a short secret does not hide parts of other words.
            diff = diff.replace(json.dumps(secret, ensure_ascii=False), f'"{HIDDEN_SECRET}"')
        return diff


def _edit_servers(call: ApiCall) -> dict[str, Any]:
    """Return what an edit would change, or with `apply` and the previewed `revision` make it."""
    _require_edits(call)
    hub = call.router.hub
    if call.body.get("action") not in _ACTIONS:
        raise InvalidQuery(f"`action` must be one of {', '.join(_ACTIONS)}")
    path = hub.config.path or user_config_path(os.environ)
    edit = plan_edit(path, partial(_change_servers, call, path))
    is_applied = call.body.get("apply") is True
    if is_applied:
        if call.body.get("revision") != edit.revision:
            raise RequestFailed("the file has changed since the preview; look at the changes again", 409)
        replace_file(edit.path, edit.after, edit.before)
        if hub.config.path is None:
            # From now on the gateway watches the file.
            hub.config = replace(hub.config, path=edit.path)
        change = {"change": str(call.body["action"]), "file": str(edit.path)}
        names = call.body.get("entries") or [call.body.get("name") or ""]
        call.record_change("config", change, server=", ".join(map(str, names))[:MAX_RECORDED_CHARS])
    return {"path": str(edit.path), "diff": edit.render_diff(), "revision": edit.revision, "applied": is_applied}


def plan_edit(path: Path, change: Callable[[str, Mapping[str, Any]], str]) -> ConfigEdit:
    """Return what a change would do to a configuration file; `change` gets its text and its content."""
    before = path.read_bytes() if path.is_file() else None
    text = _EMPTY_CONFIG if before is None else read_json_file(path, InvalidConfig, EXPECTED_CONTENT).text
    edited = change(text, parse_jsonc(str(path), text).value)
    parse_document(parse_jsonc(str(path), edited), path, os.environ)
    return ConfigEdit(path, before, encode_like(before, edited), "" if before is None else text, edited)


def _change_servers(call: ApiCall, path: Path, text: str, content: Mapping[str, Any]) -> str:
    """Return the text of the configuration file with the servers that a request adds, changes or removes."""
    action = call.body.get("action")
    key = VSCODE_SERVERS_KEY if VSCODE_SERVERS_KEY in content else SERVERS_KEY
    servers = content.get(key, {})
    if action == "add":
        for name, entry in _read_entries(call):
            if name in servers and call.body.get("replace") is not True:
                raise RequestFailed(f"there is already a server {name!r:.200}; choose another name", 409)
            text = set_member(text, (key,), name, dict(entry))
        return text
    name = str(call.body.get("name") or "")
    if name not in servers:
        raise RequestFailed(f"there is no server {name!r:.200} in {path}", 404)
    if action == "remove":
        return remove_members(text, (key,), [name])
    text = remove_members(text, (key, name), ["enabled", "disabled"])
    return set_member(text, (key, name), "enabled", False) if action == "disable" else text
