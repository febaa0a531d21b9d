"""Reading one server of `mcpServers`, in the spellings of the clients it may come from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from toolcrib.config.expansion import collect_required_variables
from toolcrib.config.problems import InvalidSetting, JsonPath
from toolcrib.config.section import ConfigSection
from toolcrib.config.settings import ServerConfig

MAX_NAME_CHARS = 128

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_ALIAS = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_TRANSPORTS = {
    "local": "stdio",
    "remote": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "streamablehttp": "http",
}
# What other programs call our keys. A key and its other spelling together are a fault.
_SPELLINGS = {
    "transport": "type",
    "serverUrl": "url",
    "httpUrl": "url",
    "includeTools": "toolsAllowed",
    "excludeTools": "toolsBlocked",
    "disabledTools": "toolsBlocked",
}
_CONVERTED_KEYS = ("disabled", "timeout", "authorizationToken")
# Other programs' keys: some that change nothing here, and some that a server may well need.
_IGNORED_KEYS = (
    *("autoApprove", "alwaysAllow", "alwaysLoad", "trust", "description", "displayName"),
    *("gallery", "version", "icon", "dev", "required"),
)
_NOTED_KEYS = {
    "envFile": "is not read here; put what it sets into env",
    "oauth": "is not used here; put a token into headers",
    "auth": "is not used here; put a token into headers",
    "authProviderType": "is not used here; put a token into headers",
    "headersHelper": "is not used here; put a token into headers",
    "sandbox": "is not used here; the server runs with your rights",
    "sandboxEnabled": "is not used here; the server runs with your rights",
}
FOREIGN_SERVER_KEYS = (*_SPELLINGS, *_CONVERTED_KEYS, *_IGNORED_KEYS, *_NOTED_KEYS)


def read_server(name: str, section: ConfigSection, notes: list[str]) -> ServerConfig:
    """The server an entry tells of; what it tells that has no effect is noted."""
    _check_name(name, section.path)
    if section.members.get("enabled") is False or section.members.get("disabled") is True:
        # One that is switched off needs no secrets.
        unset = dict.fromkeys(collect_required_variables(section.members), "")
        section = ConfigSection(section.path, section.members, {**unset, **section.environment})
    for key, what in _NOTED_KEYS.items():
        if key in section.members:
            notes.append(f"server {name}: {key} {what}")
    spelled = normalize_entry(section.members, section.path)
    own = ConfigSection(section.path, spelled, section.environment)
    found = own.read_settings(ServerConfig)
    return _check_server(ServerConfig(name, **found), own.path, set(found))


def normalize_entry(members: Mapping[str, Any], path: JsonPath) -> dict[str, Any]:
    """The entry in our own spelling, without what others tell that has no effect here."""
    own: dict[str, Any] = {}
    for key, value in members.items():
        if key in (*_IGNORED_KEYS, *_NOTED_KEYS, *_CONVERTED_KEYS):
            continue
        ours = _SPELLINGS.get(key, key)
        if ours in own:
            raise InvalidSetting((*path, key), f'tells "{ours}" a second time; keep one of them')
        own[ours] = value
    if isinstance(own.get("type"), str):
        own["type"] = _TRANSPORTS.get(own["type"], own["type"])
    own.update(_convert_values(members, own, path))
    return own


def _convert_values(
    members: Mapping[str, Any], own: Mapping[str, Any], steps: JsonPath
) -> Iterator[tuple[str, Any]]:
    """What others tell in another way: a switch the other way round, milliseconds, a token."""
    if "disabled" in members:
        if not isinstance(members["disabled"], bool):
            raise InvalidSetting((*steps, "disabled"), "should be true or false")
        yield "enabled", own.get("enabled", True) and not members["disabled"]
    if "timeout" in members and "callSeconds" not in own:
        milliseconds = members["timeout"]
        if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
            raise InvalidSetting((*steps, "timeout"), "should be a number of milliseconds")
        if not 100 <= milliseconds <= 86_400_000:
            message = "should be from 100 to 86,400,000 milliseconds; for seconds, use callSeconds"
            raise InvalidSetting((*steps, "timeout"), message)
        yield "callSeconds", milliseconds / 1000
    if "authorizationToken" in members:
        token = members["authorizationToken"]
        if not isinstance(token, str):
            raise InvalidSetting((*steps, "authorizationToken"), "should be a text")
        if token:
            value = token if token[:7].lower() == "bearer " else f"Bearer {token}"
            headers = own.get("headers", {})
            if not isinstance(headers, Mapping):
                raise InvalidSetting((*steps, "headers"), "should be an object of texts")
            yield "headers", {"Authorization": value, **headers}


def _check_server(server: ServerConfig, steps: JsonPath, told: set[str]) -> ServerConfig:
    """The server, if it can be reached as it says."""
    if not server.enabled:
        # It is not used, and may well be off because something is not known yet.
        is_remote = "url" in told and "transport" not in told
        return replace(server, transport="http") if is_remote else server
    if server.command and server.url:
        raise InvalidSetting(steps, 'has both "command" and "url"; keep the one that is meant')
    if not server.command and not server.url:
        raise InvalidSetting(
            steps, 'has neither "command" nor "url"; say how to start or where to reach it'
        )
    if server.alias and not _ALIAS.fullmatch(server.alias):
        raise InvalidSetting(
            (*steps, "alias"), "should be 1 to 32 letters, digits, underscores, dots or hyphens"
        )
    if server.command:
        if server.transport != "stdio":
            raise InvalidSetting((*steps, "type"), 'a server with a "command" is of type "stdio"')
        return server
    if "transport" in told and server.transport == "stdio":
        raise InvalidSetting((*steps, "type"), 'a server with a "url" is of type "http" or "sse"')
    check_url(server.url, (*steps, "url"))
    return server if "transport" in told else replace(server, transport="http")


def check_url(url: str, path: JsonPath, example: str = "https://example.com/mcp") -> None:
    """Refuse what is no address of a web server. The address may hold a secret: it is not told."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname)
        valid = valid and parts.port != 0
    except ValueError:
        valid = False
    if not valid or _CONTROL.search(url) or " " in url:
        raise InvalidSetting(path, f"should be an address such as {example}")


def _check_name(name: str, steps: JsonPath) -> None:
    if not name.strip() or _CONTROL.search(name):
        raise InvalidSetting(steps, "a server's name should be a line of text; rename it")
    if len(name) > MAX_NAME_CHARS:
        raise InvalidSetting(
            steps, f"a server's name has at most {MAX_NAME_CHARS} characters; shorten it"
        )
