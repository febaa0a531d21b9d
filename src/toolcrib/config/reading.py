"""Reading a configuration: a JSON object and an environment in, one frozen `Config` out. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast, get_args

from toolcrib.config.address import is_host, is_origin
from toolcrib.config.expansion import MissingVariable, collect_required_variables
from toolcrib.config.other_systems import (
    http_from_mcproxy,
    search_from_everruns,
    search_from_mcproxy,
)
from toolcrib.config.problems import InvalidSetting, JsonPath, unknown_name
from toolcrib.config.section import ConfigSection
from toolcrib.config.server import check_url, read_server
from toolcrib.config.settings import (
    AccessProfile,
    ApiKey,
    AuthConfig,
    EmbeddingConfig,
    GatewayConfig,
    HttpConfig,
    LlmGatewayConfig,
    LlmSearchSwitch,
    LlmUpstreamConfig,
    SafetyConfig,
    ServerConfig,
    ToolSearchConfig,
)
from toolcrib.errors import InvalidConfig
from toolcrib.files.sqlite_file import path_from_url

MAX_SERVERS = 1000
MAX_PROFILES = 1000
MAX_KEYS = 10_000
MAX_UPSTREAMS = 100
MIN_KEY_CHARS = 8

SERVERS_KEY = "mcpServers"
VSCODE_SERVERS_KEY = "servers"
KNOWN_KEYS = (
    SERVERS_KEY,
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
API_KEY_MEMBERS = ("key", "hash", "profile", "name", "toolSearch")
# Other programs' keys, and the address of the schema that editors look for.
FOREIGN_KEYS = ("$schema", VSCODE_SERVERS_KEY, "inputs", "httpServer", "middleware", "capabilities")

_PROFILE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_KEY_HASH = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")
_DEFAULT_APIS = {"anthropic": "messages", "openai": "openai"}
_DEFAULT_URLS = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com"}
_MAX_LISTED_VARIABLES = 8


def parse_config(
    document: object,
    environment: Mapping[str, str],
    path: Path | None = None,
    *,
    allow_unset_variables: bool = False,
) -> GatewayConfig:
    """The configuration a JSON value tells; `InvalidConfig` says where it cannot be used and why.

    Where it is `tolerant`, a server whose variables are not set is switched off and noted, so that
    the others can be used.
    """
    root = ConfigSection.from_value(document, (), environment)
    try:
        return _config(root, path, allow_unset_variables)
    except MissingVariable as fault:
        others = [
            name
            for name in collect_required_variables(root.members)
            if name not in environment and name != fault.name
        ]
        if not others:
            raise
        names = ", ".join(others[:_MAX_LISTED_VARIABLES])
        more = ", …" if len(others) > _MAX_LISTED_VARIABLES else ""
        raise InvalidSetting(
            fault.path, f"{fault.reason}; not set either: {names}{more}"
        ) from fault


def _config(root: ConfigSection, path: Path | None, tolerant: bool) -> GatewayConfig:
    notes: list[str] = []
    for key in root.members:
        if key not in (*KNOWN_KEYS, *FOREIGN_KEYS):
            raise unknown_name((key,), "key", key, KNOWN_KEYS)
    servers = _servers(root, notes, tolerant)
    profiles = _profiles(root.child("profiles"), servers)
    auth = _auth(root.child("auth"), profiles)
    return GatewayConfig(
        servers=servers,
        tool_search=_tool_search(root, notes),
        profiles=profiles,
        llm_gateway=_models(root),
        auth=auth,
        safety=SafetyConfig(**root.child("safety").read_settings(SafetyConfig)),
        http=_http(root, notes),
        embedding=_embedding(root.child("embedding")),
        path=path,
        notes=tuple(notes),
        **_store(root),
    )


def _servers(root: ConfigSection, notes: list[str], tolerant: bool) -> dict[str, ServerConfig]:
    if SERVERS_KEY in root.members and VSCODE_SERVERS_KEY in root.members:
        raise InvalidSetting(
            (VSCODE_SERVERS_KEY,), f'tells servers besides "{SERVERS_KEY}"; put all into one'
        )
    key = VSCODE_SERVERS_KEY if VSCODE_SERVERS_KEY in root.members else SERVERS_KEY
    section = root.child(key)
    _check_count(section, MAX_SERVERS, "servers")
    servers: dict[str, ServerConfig] = {}
    for name in section.members:
        entry = section.child(name)
        try:
            servers[name] = read_server(name, entry, notes)
        except MissingVariable as fault:
            if not tolerant:
                raise
            off = ConfigSection(entry.path, {**entry.members, "enabled": False}, entry.environment)
            servers[name] = read_server(name, off, [])
            notes.append(
                f"server {name} is switched off: the environment variable {fault.name} is not set"
            )
    owners: dict[str, str] = {}
    for name, server in servers.items():
        known = server.alias or name
        if known in owners:
            raise InvalidSetting(
                (*section.path, name, "alias"),
                f'tools of this server and of "{owners[known]}" would share the prefix '
                f'"{known}"; give one another alias',
            )
        owners[known] = name
    return servers


def _tool_search(root: ConfigSection, notes: list[str]) -> ToolSearchConfig:
    """From `toolSearch`, or from what another system says in its place: one of them only."""
    told: dict[str, dict[str, Any]] = {}
    if "toolSearch" in root.members:
        told["toolSearch"] = root.child("toolSearch").read_settings(ToolSearchConfig)
    for key, within in (("middleware", root), ("httpServer.middleware", root.child("httpServer"))):
        if "middleware" in within.members:
            found = search_from_mcproxy(within.members["middleware"], within, notes)
            if found is not None:
                told[key] = found
    if "capabilities" in root.members:
        found = search_from_everruns(root.members["capabilities"], ("capabilities",), notes)
        if found is not None:
            told["capabilities"] = found
    if len(told) > 1:
        raise InvalidSetting(
            (), f"tool search is configured by {' and by '.join(told)}; keep one of them"
        )
    return ToolSearchConfig(**next(iter(told.values()), {}))


def _profiles(
    section: ConfigSection, servers: Mapping[str, ServerConfig]
) -> dict[str, AccessProfile]:
    _check_count(section, MAX_PROFILES, "profiles")
    profiles: dict[str, AccessProfile] = {}
    for name in section.members:
        one = section.child(name)
        if not _PROFILE_NAME.fullmatch(name):
            raise InvalidSetting(
                one.path,
                "a profile's name is part of an address: use at most 64 letters, digits, "
                "underscores, dots and hyphens",
            )
        profile = AccessProfile(name, **one.read_settings(AccessProfile))
        for number, server in enumerate(profile.servers or ()):
            if server not in servers:
                raise unknown_name((*one.path, "servers", number), "server", server, servers)
        profiles[name] = profile
    return profiles


def _auth(section: ConfigSection, profiles: Mapping[str, AccessProfile]) -> AuthConfig:
    for key in section.members:
        if key != "keys":
            raise unknown_name((*section.path, key), "key", key, ["keys"])
    steps: JsonPath = (*section.path, "keys")
    listed = section.members.get("keys", [])
    if not isinstance(listed, list):
        raise InvalidSetting(steps, "should be a list of keys")
    if len(listed) > MAX_KEYS:
        raise InvalidSetting(steps, f"at most {MAX_KEYS:,} keys are read")
    keys = [_key(section, told, (*steps, number), profiles) for number, told in enumerate(listed)]
    seen: set[str] = set()
    for number, one in enumerate(keys):
        if one.hash in seen:
            raise InvalidSetting((*steps, number), "is the same key as another; remove one")
        seen.add(one.hash)
    switches: dict[str, LlmSearchSwitch | None] = {}
    for number, one in enumerate(keys):
        # A door knows who asks by the name alone.
        if switches.setdefault(one.name, one.tool_search) != one.tool_search:
            why = "has the name of another key but not its toolSearch; give it a name of its own"
            raise InvalidSetting((*steps, number), why)
    return AuthConfig(tuple(keys))


def _key(
    section: ConfigSection, value: object, steps: JsonPath, profiles: Mapping[str, AccessProfile]
) -> ApiKey:
    """A key as its text, or as an object with the key or its hash, and what comes with it."""
    if isinstance(value, str):
        return ApiKey.from_secret(
            _secret(section.read_text(value, steps), steps), name=f"key {steps[-1]}"
        )
    entry = ConfigSection.from_value(value, steps, section.environment)
    for name in entry.members:
        if name not in API_KEY_MEMBERS:
            raise unknown_name((*steps, name), "key", name, API_KEY_MEMBERS)
    if ("key" in entry.members) == ("hash" in entry.members):
        raise InvalidSetting(steps, 'should have either "key" or "hash"')
    told = {
        key: entry.read_text(entry.members[key], (*steps, key))
        for key in entry.members
        if entry.members[key] is not None or key in ("key", "hash")
    }
    profile = told.get("profile")
    if profile is not None and profile not in profiles:
        raise unknown_name((*steps, "profile"), "profile", profile, profiles)
    name = told.get("name", f"key {steps[-1]}")
    switch = told.get("toolSearch")
    known = get_args(LlmSearchSwitch)
    if switch is not None and switch not in known:
        raise unknown_name((*steps, "toolSearch"), "value", switch, known)
    searches = cast(LlmSearchSwitch | None, switch)
    if "key" in told:
        return ApiKey.from_secret(_secret(told["key"], (*steps, "key")), profile, name, searches)
    hashed = _KEY_HASH.fullmatch(told["hash"])
    if hashed is None:
        raise InvalidSetting(
            (*steps, "hash"), "should be the SHA-256 of a key, 64 hexadecimal digits"
        )
    return ApiKey(hashed[1].lower(), profile, name, searches)


def _secret(text: str, steps: JsonPath) -> str:
    """A key that is not too easy to guess; above all not the empty one of an empty variable."""
    if len(text) < MIN_KEY_CHARS:
        raise InvalidSetting(steps, f"a key should have at least {MIN_KEY_CHARS} characters")
    return text


def _store(root: ConfigSection) -> dict[str, Any]:
    told = ConfigSection(
        (), {k: v for k, v in root.members.items() if k == "store"}, root.environment
    )
    found = told.read_settings(GatewayConfig)
    if "store" in found:
        try:
            path_from_url(found["store"])
        except InvalidConfig as fault:
            raise InvalidSetting(("store",), str(fault)) from fault
    return found


def _http(root: ConfigSection, notes: list[str]) -> HttpConfig:
    if "http" in root.members and "httpServer" in root.members:
        raise InvalidSetting(("httpServer",), 'tells what "http" tells already; keep one of them')
    if "httpServer" in root.members:
        server = root.child("httpServer")
        own = http_from_mcproxy(server, notes)
        return _checked_http(ConfigSection(server.path, own, root.environment))
    return _checked_http(root.child("http"))


def _checked_http(section: ConfigSection) -> HttpConfig:
    """How the gateway listens; a name or an origin that nothing would ever match is a fault."""
    http = HttpConfig(**section.read_settings(HttpConfig))
    if not http.host.strip():
        cure = "write 127.0.0.1 for this machine alone, or 0.0.0.0 for all that reach it"
        raise InvalidSetting((*section.path, "host"), f"is empty; {cure}")
    for number, host in enumerate(http.allowed_hosts):
        if not is_host(host):
            why = "should be a name such as tools.example.com, without https:// and without a path"
            raise InvalidSetting((*section.path, "allowedHosts", number), why)
    for number, origin in enumerate(http.allowed_origins):
        if not is_origin(origin):
            why = "should be the start of an address such as https://example.com, without a path"
            raise InvalidSetting((*section.path, "allowedOrigins", number), why)
    return http


def _embedding(section: ConfigSection) -> EmbeddingConfig:
    found = EmbeddingConfig(**section.read_settings(EmbeddingConfig))
    if found.url:
        check_url(found.url, (*section.path, "url"), "http://localhost:11434/v1")
    if bool(found.url) != bool(found.model):
        missing = "model" if found.url else "url"
        raise InvalidSetting(
            (*section.path, missing), "should be told: an embedder has a url and a model"
        )
    return found


def _models(root: ConfigSection) -> LlmGatewayConfig:
    section = root.child("models")
    _check_count(section, MAX_UPSTREAMS, "models")
    upstreams = tuple(_upstream(name, section.child(name)) for name in section.members)
    return LlmGatewayConfig(upstreams, **root.child("modelGateway").read_settings(LlmGatewayConfig))


def _upstream(name: str, section: ConfigSection) -> LlmUpstreamConfig:
    found = section.read_settings(LlmUpstreamConfig)
    if (
        name in _DEFAULT_APIS
        and found.setdefault("api", _DEFAULT_APIS[name]) == _DEFAULT_APIS[name]
    ):
        found.setdefault("url", _DEFAULT_URLS[name])
    example = _DEFAULT_URLS["openai" if found.get("api") == "openai" else "anthropic"]
    check_url(found.get("url", ""), (*section.path, "url"), example)
    # OpenAI's own programs want it at the end of the address, Anthropic's do not.
    url = found["url"].rstrip("/").removesuffix("/v1")
    return LlmUpstreamConfig(name, **{**found, "url": url})


def _check_count(section: ConfigSection, most: int, what: str) -> None:
    if len(section.members) > most:
        raise InvalidSetting(section.path, f"at most {most:,} {what} are read")
