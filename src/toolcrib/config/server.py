"""Reading one server of `mcpServers`, in the spellings of the clients it may come from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from toolcrib.config.expansion import needed
from toolcrib.config.problems import Fault, Steps
from toolcrib.config.section import Section
from toolcrib.config.settings import Server

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
_CONVERTED = ("disabled", "timeout", "authorizationToken")
# Other programs' keys: some that change nothing here, and some that a server may well need.
_PASSED_OVER = (
    *("autoApprove", "alwaysAllow", "alwaysLoad", "trust", "description", "displayName"),
    *("gallery", "version", "icon", "dev", "required"),
)
_NOTED = {
    "envFile": "is not read here; put what it sets into env",
    "oauth": "is not used here; put a token into headers",
    "auth": "is not used here; put a token into headers",
    "authProviderType": "is not used here; put a token into headers",
    "headersHelper": "is not used here; put a token into headers",
    "sandbox": "is not used here; the server runs with your rights",
    "sandboxEnabled": "is not used here; the server runs with your rights",
}
OTHER_KEYS = (*_SPELLINGS, *_CONVERTED, *_PASSED_OVER, *_NOTED)


def read_server(name: str, section: Section, notes: list[str]) -> Server:
    """The server an entry tells of; what it tells that has no effect is noted."""
    _check_name(name, section.steps)
    if section.members.get("enabled") is False or section.members.get("disabled") is True:
        # One that is switched off needs no secrets.
        unset = dict.fromkeys(needed(section.members), "")
        section = Section(section.steps, section.members, {**unset, **section.environment})
    for key, what in _NOTED.items():
        if key in section.members:
            notes.append(f"server {name}: {key} {what}")
    spelled = own_spelling(section.members, section.steps)
    own = Section(section.steps, spelled, section.environment)
    found = own.read(Server)
    return _checked(Server(name, **found), own.steps, set(found))


def own_spelling(members: Mapping[str, Any], steps: Steps) -> dict[str, Any]:
    """The entry in our own spelling, without what others tell that has no effect here."""
    own: dict[str, Any] = {}
    for key, value in members.items():
        if key in (*_PASSED_OVER, *_NOTED, *_CONVERTED):
            continue
        ours = _SPELLINGS.get(key, key)
        if ours in own:
            raise Fault((*steps, key), f'tells "{ours}" a second time; keep one of them')
        own[ours] = value
    if isinstance(own.get("type"), str):
        own["type"] = _TRANSPORTS.get(own["type"], own["type"])
    own.update(_converted(members, own, steps))
    return own


def _converted(
    members: Mapping[str, Any], own: Mapping[str, Any], steps: Steps
) -> Iterator[tuple[str, Any]]:
    """What others tell in another way: a switch the other way round, milliseconds, a token."""
    if "disabled" in members:
        if not isinstance(members["disabled"], bool):
            raise Fault((*steps, "disabled"), "should be true or false")
        yield "enabled", own.get("enabled", True) and not members["disabled"]
    if "timeout" in members and "callSeconds" not in own:
        milliseconds = members["timeout"]
        if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
            raise Fault((*steps, "timeout"), "should be a number of milliseconds")
        if not 100 <= milliseconds <= 86_400_000:
            message = "should be from 100 to 86,400,000 milliseconds; for seconds, use callSeconds"
            raise Fault((*steps, "timeout"), message)
        yield "callSeconds", milliseconds / 1000
    if "authorizationToken" in members:
        token = members["authorizationToken"]
        if not isinstance(token, str):
            raise Fault((*steps, "authorizationToken"), "should be a text")
        if token:
            value = token if token[:7].lower() == "bearer " else f"Bearer {token}"
            headers = own.get("headers", {})
            if not isinstance(headers, Mapping):
                raise Fault((*steps, "headers"), "should be an object of texts")
            yield "headers", {"Authorization": value, **headers}


def _checked(server: Server, steps: Steps, told: set[str]) -> Server:
    """The server, if it can be reached as it says."""
    if not server.enabled:
        # It is not used, and may well be off because something is not known yet.
        is_remote = "url" in told and "transport" not in told
        return replace(server, transport="http") if is_remote else server
    if server.command and server.url:
        raise Fault(steps, 'has both "command" and "url"; keep the one that is meant')
    if not server.command and not server.url:
        raise Fault(steps, 'has neither "command" nor "url"; say how to start or where to reach it')
    if server.alias and not _ALIAS.fullmatch(server.alias):
        raise Fault(
            (*steps, "alias"), "should be 1 to 32 letters, digits, underscores, dots or hyphens"
        )
    if server.command:
        if server.transport != "stdio":
            raise Fault((*steps, "type"), 'a server with a "command" is of type "stdio"')
        return server
    if "transport" in told and server.transport == "stdio":
        raise Fault((*steps, "type"), 'a server with a "url" is of type "http" or "sse"')
    check_url(server.url, (*steps, "url"))
    return server if "transport" in told else replace(server, transport="http")


def check_url(url: str, steps: Steps, example: str = "https://example.com/mcp") -> None:
    """Refuse what is no address of a web server. The address may hold a secret: it is not told."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname)
        valid = valid and parts.port != 0
    except ValueError:
        valid = False
    if not valid or _CONTROL.search(url) or " " in url:
        raise Fault(steps, f"should be an address such as {example}")


def _check_name(name: str, steps: Steps) -> None:
    if not name.strip() or _CONTROL.search(name):
        raise Fault(steps, "a server's name should be a line of text; rename it")
    if len(name) > MAX_NAME_CHARS:
        raise Fault(steps, f"a server's name has at most {MAX_NAME_CHARS} characters; shorten it")
