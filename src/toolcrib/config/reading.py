"""Reading a configuration: a JSON object and an environment in, one frozen `Config` out. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast, get_args

from toolcrib.config.address import is_host, is_origin
from toolcrib.config.expansion import MissingVariable, needed
from toolcrib.config.other_systems import http_of_mcproxy, search_of_everruns, search_of_mcproxy
from toolcrib.config.problems import Fault, Steps, unknown
from toolcrib.config.section import Section
from toolcrib.config.server import check_url, read_server
from toolcrib.config.settings import (
    Auth,
    Config,
    Embedding,
    Http,
    Key,
    ModelGateway,
    ModelUpstream,
    Profile,
    Safety,
    SearchForModel,
    Server,
    ToolSearch,
)
from toolcrib.errors import InvalidConfig
from toolcrib.files.sqlite_file import path_of

MAX_SERVERS = 1000
MAX_PROFILES = 1000
MAX_KEYS = 10_000
MAX_UPSTREAMS = 100
MIN_KEY_CHARS = 8

SERVERS = "mcpServers"
SERVERS_OF_VSCODE = "servers"
KEYS = (
    SERVERS,
    "toolSearch",
    "profiles",
    "models",
    "modelGateway",
    "store",
    "auth",
    "safety",
    "http",
    "embedding",
)
KEY_MEMBERS = ("key", "hash", "profile", "name", "toolSearch")
# Other programs' keys, and the address of the schema that editors look for.
FOREIGN_KEYS = ("$schema", SERVERS_OF_VSCODE, "inputs", "httpServer", "middleware", "capabilities")

_PROFILE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HASH = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")
_APIS = {"anthropic": "messages", "openai": "openai"}
_URLS = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com"}
_MAX_MISSING_TOLD = 8


def read(
    document: object,
    environment: Mapping[str, str],
    path: Path | None = None,
    *,
    tolerant: bool = False,
) -> Config:
    """The configuration a JSON value tells; `InvalidConfig` says where it cannot be used and why.

    Where it is `tolerant`, a server whose variables are not set is switched off and noted, so that
    the others can be used.
    """
    root = Section.of(document, (), environment)
    try:
        return _config(root, path, tolerant)
    except MissingVariable as fault:
        others = [
            name for name in needed(root.members) if name not in environment and name != fault.name
        ]
        if not others:
            raise
        names = ", ".join(others[:_MAX_MISSING_TOLD])
        more = ", …" if len(others) > _MAX_MISSING_TOLD else ""
        raise Fault(fault.steps, f"{fault.cause}; not set either: {names}{more}") from fault


def _config(root: Section, path: Path | None, tolerant: bool) -> Config:
    notes: list[str] = []
    for key in root.members:
        if key not in (*KEYS, *FOREIGN_KEYS):
            raise unknown((key,), "key", key, KEYS)
    servers = _servers(root, notes, tolerant)
    profiles = _profiles(root.inner("profiles"), servers)
    auth = _auth(root.inner("auth"), profiles)
    return Config(
        servers=servers,
        tool_search=_tool_search(root, notes),
        profiles=profiles,
        models=_models(root),
        auth=auth,
        safety=Safety(**root.inner("safety").read(Safety)),
        http=_http(root, notes),
        embedding=_embedding(root.inner("embedding")),
        path=path,
        notes=tuple(notes),
        **_store(root),
    )


def _servers(root: Section, notes: list[str], tolerant: bool) -> dict[str, Server]:
    if SERVERS in root.members and SERVERS_OF_VSCODE in root.members:
        raise Fault((SERVERS_OF_VSCODE,), f'tells servers besides "{SERVERS}"; put all into one')
    key = SERVERS_OF_VSCODE if SERVERS_OF_VSCODE in root.members else SERVERS
    section = root.inner(key)
    _check_count(section, MAX_SERVERS, "servers")
    servers: dict[str, Server] = {}
    for name in section.members:
        entry = section.inner(name)
        try:
            servers[name] = read_server(name, entry, notes)
        except MissingVariable as fault:
            if not tolerant:
                raise
            off = Section(entry.steps, {**entry.members, "enabled": False}, entry.environment)
            servers[name] = read_server(name, off, [])
            notes.append(
                f"server {name} is switched off: the environment variable {fault.name} is not set"
            )
    owners: dict[str, str] = {}
    for name, server in servers.items():
        known = server.alias or name
        if known in owners:
            raise Fault(
                (*section.steps, name, "alias"),
                f'tools of this server and of "{owners[known]}" would share the prefix '
                f'"{known}"; give one another alias',
            )
        owners[known] = name
    return servers


def _tool_search(root: Section, notes: list[str]) -> ToolSearch:
    """From `toolSearch`, or from what another system says in its place: one of them only."""
    told: dict[str, dict[str, Any]] = {}
    if "toolSearch" in root.members:
        told["toolSearch"] = root.inner("toolSearch").read(ToolSearch)
    for key, within in (("middleware", root), ("httpServer.middleware", root.inner("httpServer"))):
        if "middleware" in within.members:
            found = search_of_mcproxy(within.members["middleware"], within, notes)
            if found is not None:
                told[key] = found
    if "capabilities" in root.members:
        found = search_of_everruns(root.members["capabilities"], ("capabilities",), notes)
        if found is not None:
            told["capabilities"] = found
    if len(told) > 1:
        raise Fault((), f"tool search is configured by {' and by '.join(told)}; keep one of them")
    return ToolSearch(**next(iter(told.values()), {}))


def _profiles(section: Section, servers: Mapping[str, Server]) -> dict[str, Profile]:
    _check_count(section, MAX_PROFILES, "profiles")
    profiles: dict[str, Profile] = {}
    for name in section.members:
        one = section.inner(name)
        if not _PROFILE.fullmatch(name):
            raise Fault(
                one.steps,
                "a profile's name is part of an address: use at most 64 letters, digits, "
                "underscores, dots and hyphens",
            )
        profile = Profile(name, **one.read(Profile))
        for number, server in enumerate(profile.servers or ()):
            if server not in servers:
                raise unknown((*one.steps, "servers", number), "server", server, servers)
        profiles[name] = profile
    return profiles


def _auth(section: Section, profiles: Mapping[str, Profile]) -> Auth:
    for key in section.members:
        if key != "keys":
            raise unknown((*section.steps, key), "key", key, ["keys"])
    steps: Steps = (*section.steps, "keys")
    listed = section.members.get("keys", [])
    if not isinstance(listed, list):
        raise Fault(steps, "should be a list of keys")
    if len(listed) > MAX_KEYS:
        raise Fault(steps, f"at most {MAX_KEYS:,} keys are read")
    keys = [_key(section, told, (*steps, number), profiles) for number, told in enumerate(listed)]
    seen: set[str] = set()
    for number, one in enumerate(keys):
        if one.hash in seen:
            raise Fault((*steps, number), "is the same key as another; remove one")
        seen.add(one.hash)
    switches: dict[str, SearchForModel | None] = {}
    for number, one in enumerate(keys):
        # A door knows who asks by the name alone.
        if switches.setdefault(one.name, one.tool_search) != one.tool_search:
            why = "has the name of another key but not its toolSearch; give it a name of its own"
            raise Fault((*steps, number), why)
    return Auth(tuple(keys))


def _key(section: Section, value: object, steps: Steps, profiles: Mapping[str, Profile]) -> Key:
    """A key as its text, or as an object with the key or its hash, and what comes with it."""
    if isinstance(value, str):
        return Key.of(_secret(section.text(value, steps), steps), name=f"key {steps[-1]}")
    entry = Section.of(value, steps, section.environment)
    for name in entry.members:
        if name not in KEY_MEMBERS:
            raise unknown((*steps, name), "key", name, KEY_MEMBERS)
    if ("key" in entry.members) == ("hash" in entry.members):
        raise Fault(steps, 'should have either "key" or "hash"')
    told = {
        key: entry.text(entry.members[key], (*steps, key))
        for key in entry.members
        if entry.members[key] is not None or key in ("key", "hash")
    }
    profile = told.get("profile")
    if profile is not None and profile not in profiles:
        raise unknown((*steps, "profile"), "profile", profile, profiles)
    name = told.get("name", f"key {steps[-1]}")
    switch = told.get("toolSearch")
    known = get_args(SearchForModel)
    if switch is not None and switch not in known:
        raise unknown((*steps, "toolSearch"), "value", switch, known)
    searches = cast(SearchForModel | None, switch)
    if "key" in told:
        return Key.of(_secret(told["key"], (*steps, "key")), profile, name, searches)
    hashed = _HASH.fullmatch(told["hash"])
    if hashed is None:
        raise Fault((*steps, "hash"), "should be the SHA-256 of a key, 64 hexadecimal digits")
    return Key(hashed[1].lower(), profile, name, searches)


def _secret(text: str, steps: Steps) -> str:
    """A key that is not too easy to guess; above all not the empty one of an empty variable."""
    if len(text) < MIN_KEY_CHARS:
        raise Fault(steps, f"a key should have at least {MIN_KEY_CHARS} characters")
    return text


def _store(root: Section) -> dict[str, Any]:
    told = Section((), {k: v for k, v in root.members.items() if k == "store"}, root.environment)
    found = told.read(Config)
    if "store" in found:
        try:
            path_of(found["store"])
        except InvalidConfig as fault:
            raise Fault(("store",), str(fault)) from fault
    return found


def _http(root: Section, notes: list[str]) -> Http:
    if "http" in root.members and "httpServer" in root.members:
        raise Fault(("httpServer",), 'tells what "http" tells already; keep one of them')
    if "httpServer" in root.members:
        server = root.inner("httpServer")
        own = http_of_mcproxy(server, notes)
        return _checked_http(Section(server.steps, own, root.environment))
    return _checked_http(root.inner("http"))


def _checked_http(section: Section) -> Http:
    """How the gateway listens; a name or an origin that nothing would ever match is a fault."""
    http = Http(**section.read(Http))
    if not http.host.strip():
        cure = "write 127.0.0.1 for this machine alone, or 0.0.0.0 for all that reach it"
        raise Fault((*section.steps, "host"), f"is empty; {cure}")
    for number, host in enumerate(http.allowed_hosts):
        if not is_host(host):
            why = "should be a name such as tools.example.com, without https:// and without a path"
            raise Fault((*section.steps, "allowedHosts", number), why)
    for number, origin in enumerate(http.allowed_origins):
        if not is_origin(origin):
            why = "should be the start of an address such as https://example.com, without a path"
            raise Fault((*section.steps, "allowedOrigins", number), why)
    return http


def _embedding(section: Section) -> Embedding:
    found = Embedding(**section.read(Embedding))
    if found.url:
        check_url(found.url, (*section.steps, "url"), "http://localhost:11434/v1")
    if bool(found.url) != bool(found.model):
        missing = "model" if found.url else "url"
        raise Fault((*section.steps, missing), "should be told: an embedder has a url and a model")
    return found


def _models(root: Section) -> ModelGateway:
    section = root.inner("models")
    _check_count(section, MAX_UPSTREAMS, "models")
    upstreams = tuple(_upstream(name, section.inner(name)) for name in section.members)
    return ModelGateway(upstreams, **root.inner("modelGateway").read(ModelGateway))


def _upstream(name: str, section: Section) -> ModelUpstream:
    found = section.read(ModelUpstream)
    if name in _APIS and found.setdefault("api", _APIS[name]) == _APIS[name]:
        found.setdefault("url", _URLS[name])
    example = _URLS["openai" if found.get("api") == "openai" else "anthropic"]
    check_url(found.get("url", ""), (*section.steps, "url"), example)
    # OpenAI's own programs want it at the end of the address, Anthropic's do not.
    url = found["url"].rstrip("/").removesuffix("/v1")
    return ModelUpstream(name, **{**found, "url": url})


def _check_count(section: Section, most: int, what: str) -> None:
    if len(section.members) > most:
        raise Fault(section.steps, f"at most {most:,} {what} are read")
