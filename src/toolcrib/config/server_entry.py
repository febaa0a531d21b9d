"""Read one entry of `mcpServers`, with the keys and spellings of many MCP clients."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from toolcrib.config.fields import (
    ConfigSection,
    InvalidSetting,
    MissingVariable,
    collect_required_variables,
    list_settings,
)
from toolcrib.config.server_settings import ServerConfig
from toolcrib.files.json_file import JsonPath

MAX_NAME_CHARS = 128

# What a server must have, for a server that is not started.
_TARGETS = ("command", "url", "openapi")
_PLACEHOLDERS = {
    "command": "unset",
    "url": "https://unset.invalid",
    "openapi": "unset",
    "baseUrl": "https://unset.invalid",
    "basicAuth": "unset:unset",
    "oauthTokenUrl": "https://unset.invalid",
    "oauthClientId": "unset",
    "oauthClientSecret": "unset",
}
_CHOICE_KEYS = frozenset(setting.key for setting in list_settings(ServerConfig) if setting.choices)
# Control characters, line breaks, and halves of surrogate pairs.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ALIAS = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_TRANSPORTS = {
    "local": "stdio",
    "remote": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "streamablehttp": "http",
}
# Other names of our keys. A key must not appear under two names.
_SPELLINGS = {
    "transport": "type",
    "transportType": "type",
    "serverUrl": "url",
    "httpUrl": "url",
    "includeTools": "toolsAllowed",
    "excludeTools": "toolsBlocked",
    "disabledTools": "toolsBlocked",
}
_CONVERTED_KEYS = ("disabled", "timeout", "authorizationToken")
_IGNORED_KEYS = (
    *("autoApprove", "alwaysAllow", "alwaysLoad", "trust", "description", "displayName"),
    *("gallery", "version", "icon", "dev", "required", "metadata"),
)
# Keys that have no effect here although the server may depend on them.
NOTED_KEYS = {
    "envFile": "is not read here; put its variables into env",
    "oauth": "is not used here; run `toolcrib login SERVER`, or put a token into headers",
    "auth": "is not used here; run `toolcrib login SERVER`, or put a token into headers",
    "authProviderType": "is not used here; put a token into headers",
    "headersHelper": "is not used here; put a token into headers",
    "sandbox": "is not used here; the server runs with your permissions",
    "sandboxEnabled": "is not used here; the server runs with your permissions",
}
FOREIGN_SERVER_KEYS = (*_SPELLINGS, *_CONVERTED_KEYS, *_IGNORED_KEYS, *NOTED_KEYS)


def read_server(name: str, section: ConfigSection, notes: list[str]) -> ServerConfig:
    """Return the server that an entry defines; add a note for each key without effect.

    A server with an unset variable has a `problem`.
    """
    _check_name(name, section.path)
    for key, effect in NOTED_KEYS.items():
        if key in section.members:
            notes.append(f"server {name}: {key} {effect}")
    members = normalize_entry(section.members, section.path)
    try:
        return _read_members(name, members, section)
    except MissingVariable as error:
        unset = [name for name in collect_required_variables(members) if name not in section.environment]
        subject = f"variables {', '.join(unset)} are" if len(unset) > 1 else f"variable {error.name} is"
        problem = "" if members.get("enabled") is False else f"the environment {subject} not set"
        server = _read_members(name, *_replace_unset_variables(members, section))
        return replace(server, problem=problem)


def _replace_unset_variables(
    members: Mapping[str, Any], section: ConfigSection
) -> tuple[dict[str, Any], ConfigSection]:
    """Return an entry that can be read, for a server that is not started."""
    unset = {name: "" for name in collect_required_variables(members) if name not in section.environment}
    readable: dict[str, Any] = {}
    for key, value in members.items():
        is_complete = unset.keys().isdisjoint(collect_required_variables(value))
        if is_complete or key in _PLACEHOLDERS:
            readable[key] = value if is_complete else _PLACEHOLDERS[key]
        elif key not in _CHOICE_KEYS:
            readable[key] = value
    return readable, ConfigSection(section.path, members, {**unset, **section.environment})


def _read_members(name: str, members: Mapping[str, Any], section: ConfigSection) -> ServerConfig:
    settings = ConfigSection(section.path, members, section.environment).read_settings(ServerConfig)
    return _check_server(ServerConfig(name, **settings), section.path, set(settings))


def normalize_entry(members: Mapping[str, Any], path: JsonPath) -> dict[str, Any]:
    """Return the entry with our own keys, without the keys that have no effect here."""
    entry: dict[str, Any] = {}
    for key, value in members.items():
        if key in (*_IGNORED_KEYS, *NOTED_KEYS, *_CONVERTED_KEYS):
            continue
        own_key = _SPELLINGS.get(key, key)
        if own_key in entry:
            raise InvalidSetting((*path, key), f'repeats "{own_key}"; keep one of the two')
        entry[own_key] = value
    if isinstance(entry.get("type"), str):
        entry["type"] = _TRANSPORTS.get(entry["type"], entry["type"])
    entry.update(_convert_values(members, entry, path))
    return entry


def _convert_values(members: Mapping[str, Any], entry: Mapping[str, Any], path: JsonPath) -> Iterator[tuple[str, Any]]:
    """Yield our settings for keys that other clients define differently."""
    if "disabled" in members:
        if not isinstance(members["disabled"], bool):
            raise InvalidSetting((*path, "disabled"), "must be true or false")
        yield "enabled", entry.get("enabled", True) and not members["disabled"]
    if "timeout" in members and "callSeconds" not in entry:
        milliseconds = members["timeout"]
        if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
            raise InvalidSetting((*path, "timeout"), "must be a number of milliseconds")
        if not 100 <= milliseconds <= 86_400_000:
            reason = "must be from 100 to 86,400,000 milliseconds; for seconds, use callSeconds"
            raise InvalidSetting((*path, "timeout"), reason)
        yield "callSeconds", milliseconds / 1000
    if "authorizationToken" in members:
        token = members["authorizationToken"]
        if not isinstance(token, str):
            raise InvalidSetting((*path, "authorizationToken"), "must be a string")
        if token:
            value = token if token[:7].lower() == "bearer " else f"Bearer {token}"
            headers = entry.get("headers", {})
            if not isinstance(headers, Mapping):
                raise InvalidSetting((*path, "headers"), "must be an object of strings")
            yield "headers", {"Authorization": value, **headers}


def _check_server(server: ServerConfig, path: JsonPath, defined: set[str]) -> ServerConfig:
    """Return the server with its transport; raise `InvalidSetting` if it cannot be reached."""
    has_transport = "transport" in defined
    if not server.enabled:
        # A disabled server may be incomplete.
        is_remote = "url" in defined and not has_transport
        return replace(server, transport="http") if is_remote else server
    targets = [key for key in _TARGETS if getattr(server, key)]
    if len(targets) > 1:
        raise InvalidSetting(path, f'has both "{targets[0]}" and "{targets[1]}"; keep one of the two')
    if not targets:
        raise InvalidSetting(path, 'has neither "command" nor "url"; add one of the two, or "openapi"')
    if server.alias and not _ALIAS.fullmatch(server.alias):
        reason = "must be 1 to 32 letters, digits, underscores, dots or hyphens"
        raise InvalidSetting((*path, "alias"), reason)
    if server.command:
        if server.transport != "stdio":
            reason = 'a server with a "command" has the type "stdio"'
            raise InvalidSetting((*path, "type"), reason)
        return server
    if server.openapi:
        return _check_api(server, path, has_transport=has_transport)
    if has_transport and server.transport not in ("http", "sse"):
        raise InvalidSetting((*path, "type"), 'a server with a "url" has the type "http" or "sse"')
    check_url(server.url, (*path, "url"))
    return server if has_transport else replace(server, transport="http")


def _check_api(server: ServerConfig, path: JsonPath, *, has_transport: bool) -> ServerConfig:
    if has_transport and server.transport != "openapi":
        raise InvalidSetting((*path, "type"), 'a server with an "openapi" document has the type "openapi"')
    if "://" in server.openapi:
        check_url(server.openapi, (*path, "openapi"), "https://example.com/openapi.json")
    if server.base_url:
        check_url(server.base_url, (*path, "baseUrl"), "https://api.example.com/v1")
    if server.basic_auth and ":" not in server.basic_auth:
        raise InvalidSetting(
            (*path, "basicAuth"), 'must be a user and a password, such as "${API_USER}:${API_PASSWORD}"'
        )
    if server.oauth_token_url:
        _check_token_url(server, path)
    return replace(server, transport="openapi")


def _check_token_url(server: ServerConfig, path: JsonPath) -> None:
    check_url(server.oauth_token_url, (*path, "oauthTokenUrl"), "https://auth.example.com/token")
    parts = urlsplit(server.oauth_token_url)
    if parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise InvalidSetting((*path, "oauthTokenUrl"), "must be an https URL, because credentials are sent to it")
    if not server.oauth_client_id or not server.oauth_client_secret:
        raise InvalidSetting((*path, "oauthTokenUrl"), "needs `oauthClientId` and `oauthClientSecret`")
    if server.basic_auth or any(name.lower() == "authorization" for name in server.headers):
        raise InvalidSetting((*path, "oauthTokenUrl"), "excludes `basicAuth` and a header `Authorization`; keep one")


def check_url(url: str, path: JsonPath, example: str = "https://example.com/mcp") -> None:
    """Raise `InvalidSetting` for an invalid HTTP URL. It may hold a secret, so it is not quoted."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or _CONTROL.search(url) or " " in url:
        raise InvalidSetting(path, f"must be a URL such as {example}")


def _check_name(name: str, path: JsonPath) -> None:
    if not name.strip() or _CONTROL.search(name):
        raise InvalidSetting(path, "the name of a server must be a line of text; rename it")
    if len(name) > MAX_NAME_CHARS:
        reason = f"the name of a server has at most {MAX_NAME_CHARS} characters; shorten it"
        raise InvalidSetting(path, reason)
