"""Parse a JSON document and an environment into one frozen `GatewayConfig`. Does no I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from toolcrib.config import settings
from toolcrib.config.fields import (
    ConfigSection,
    InvalidSetting,
    MissingVariable,
    collect_required_variables,
    unknown_name,
)
from toolcrib.config.llm_models import read_llm_gateway
from toolcrib.config.other_systems import http_from_mcproxy, search_from_everruns, search_from_mcproxy
from toolcrib.config.server_entry import check_url, read_server
from toolcrib.config.server_settings import ServerConfig
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import JsonPath
from toolcrib.files.store_url import check_store_url

MAX_SERVERS = 1000
MAX_PROFILES = 1000
MAX_KEYS = 10_000
MAX_OVERRIDES = 10_000
MIN_KEY_CHARS = 8
_SURROGATE = re.compile("[\ud800-\udfff]")

SERVERS_KEY = "mcpServers"
VSCODE_SERVERS_KEY = "servers"
KNOWN_KEYS = (
    *(SERVERS_KEY, "toolSearch", "profiles", "models", "modelGateway", "store", "journal", "tokenKeys"),
    *("auth", "safety", "http", "embedding", "audit", "results", "overrides", "codeMode"),
)
# Keys of other programs, and the reference to the schema that editors use.
FOREIGN_KEYS = ("$schema", VSCODE_SERVERS_KEY, "inputs", "httpServer", "middleware", "capabilities")

# Editors and apps define custom URL schemes.
_TOKEN_KEY = re.compile(r"[A-Za-z0-9_-]{43}=")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,60}://[^/\s]{1,300}/?")
_FINGERPRINT = re.compile("[0-9a-f]{32}")
_PROFILE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_PROFILE_NAME_RULE = (
    "the name of a profile is part of a URL: use at most 64 letters, digits, underscores, dots and hyphens"
)
_KEY_HASH = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")
_MAX_LISTED_VARIABLES = 8


def parse_config(document: object, environment: Mapping[str, str], path: Path | None = None) -> settings.GatewayConfig:
    """Return the configuration in a JSON document; raise `InvalidConfig` if it cannot be used.

    A server with an unset variable has a `problem`, so that the others can be used.
    """
    root = ConfigSection.from_value(document, (), environment)
    try:
        return _read_config(root, path)
    except MissingVariable as error:
        required = collect_required_variables(root.members)
        others = [name for name in required if name not in environment and name != error.name]
        if not others:
            raise
        names = ", ".join(others[:_MAX_LISTED_VARIABLES])
        more = ", …" if len(others) > _MAX_LISTED_VARIABLES else ""
        raise InvalidSetting(error.path, f"{error.reason}; also not set: {names}{more}") from error


def _read_config(root: ConfigSection, path: Path | None) -> settings.GatewayConfig:
    notes: list[str] = []
    for key in root.members:
        if key not in (*KNOWN_KEYS, *FOREIGN_KEYS):
            raise unknown_name((key,), "key", key, KNOWN_KEYS)
    safety = _read_safety(root.child("safety"))
    servers = _read_servers(root, safety, notes)
    profiles = _read_profiles(root.child("profiles"), servers)
    auth = _read_auth(root.child("auth"), profiles)
    return settings.GatewayConfig(
        servers=servers,
        tool_search=_read_tool_search(root, notes),
        profiles=profiles,
        llm_gateway=read_llm_gateway(root),
        auth=auth,
        safety=safety,
        http=_read_http(root, notes),
        embedding=_read_embedding(root.child("embedding")),
        audit=settings.AuditConfig(**root.child("audit").read_settings(settings.AuditConfig)),
        results=settings.ResultsConfig(**root.child("results").read_settings(settings.ResultsConfig)),
        overrides=_read_overrides(root.child("overrides")),
        code_mode=settings.CodeModeConfig(**root.child("codeMode").read_settings(settings.CodeModeConfig)),
        path=path,
        notes=tuple(notes),
        **_read_store(root),
    )


def _read_servers(root: ConfigSection, safety: settings.SafetyConfig, notes: list[str]) -> dict[str, ServerConfig]:
    if SERVERS_KEY in root.members and VSCODE_SERVERS_KEY in root.members:
        reason = f'defines servers in addition to "{SERVERS_KEY}"; keep one of the two'
        raise InvalidSetting((VSCODE_SERVERS_KEY,), reason)
    key = VSCODE_SERVERS_KEY if VSCODE_SERVERS_KEY in root.members else SERVERS_KEY
    section = root.child(key)
    _check_count(section, MAX_SERVERS, "servers")
    servers: dict[str, ServerConfig] = {}
    for name in section.members:
        server = read_server(name, section.child(name), notes)
        if server.inherit_env is None:
            server = replace(server, inherit_env=safety.inherit_env)
        servers[name] = server
    owners: dict[str, str] = {}
    for name, server in servers.items():
        if server.id in owners:
            raise InvalidSetting(
                (*section.path, name, "alias"),
                f'the tools of this server and of "{owners[server.id]}" would have the same prefix '
                f'"{server.id}"; give one of them another alias',
            )
        owners[server.id] = name
    return servers


def _read_tool_search(root: ConfigSection, notes: list[str]) -> settings.ToolSearchConfig:
    """Return the settings of `toolSearch`, or of the section another system has in its place."""
    sources: dict[str, dict[str, Any] | None] = {}
    if "toolSearch" in root.members:
        sources["toolSearch"] = root.child("toolSearch").read_settings(settings.ToolSearchConfig)
    for key, parent in (("middleware", root), ("httpServer.middleware", root.child("httpServer"))):
        if "middleware" in parent.members:
            sources[key] = search_from_mcproxy(parent, notes)
    if "capabilities" in root.members:
        capabilities = root.members["capabilities"]
        sources["capabilities"] = search_from_everruns(capabilities, ("capabilities",), notes)
    found = {key: settings for key, settings in sources.items() if settings is not None}
    if len(found) > 1:
        reason = f"tool search is configured by {' and by '.join(found)}; keep one of them"
        raise InvalidSetting((), reason)
    return settings.ToolSearchConfig(**next(iter(found.values()), {}))


def _read_profiles(section: ConfigSection, servers: Mapping[str, ServerConfig]) -> dict[str, settings.AccessProfile]:
    _check_count(section, MAX_PROFILES, "profiles")
    profiles: dict[str, settings.AccessProfile] = {}
    for name in section.members:
        entry = section.child(name)
        if not _PROFILE_NAME.fullmatch(name):
            raise InvalidSetting(entry.path, _PROFILE_NAME_RULE)
        profile = _read_profile_settings(name, entry)
        for number, server in enumerate(profile.servers or ()):
            if server not in servers:
                raise unknown_name((*entry.path, "servers", number), "server", server, servers)
        profiles[name] = profile
    return profiles


def read_profile(name: str, settings: Mapping[str, Any]) -> settings.AccessProfile:
    """Return an access profile that was created at run time; raise `InvalidConfig` if it cannot be used."""
    if not _PROFILE_NAME.fullmatch(name):
        raise InvalidSetting(("name",), _PROFILE_NAME_RULE)
    return _read_profile_settings(name, ConfigSection((), settings, {}))


def _read_profile_settings(name: str, section: ConfigSection) -> settings.AccessProfile:
    values = section.read_settings(settings.AccessProfile)
    overrides = _read_overrides(section.child("overrides"))
    for pattern, override in overrides.items():
        if override.name:
            path = (*section.path, "overrides", pattern, "name")
            raise InvalidSetting(path, "a tool has one name for all profiles; rename it in `overrides` of the file")
    pins = section.child("pins")
    _check_count(pins, MAX_OVERRIDES, "pins")
    for tool, fingerprint in pins.members.items():
        if not isinstance(fingerprint, str) or not _FINGERPRINT.fullmatch(fingerprint):
            raise InvalidSetting(
                (*pins.path, tool), "must be a fingerprint of 32 hexadecimal digits, as /api/tools shows it"
            )
    return settings.AccessProfile(name, **{**values, "overrides": overrides})


def _read_auth(section: ConfigSection, profiles: Mapping[str, settings.AccessProfile]) -> settings.AuthConfig:
    for key in section.members:
        if key != "keys":
            raise unknown_name((*section.path, key), "key", key, ["keys"])
    path: JsonPath = (*section.path, "keys")
    entries = section.members.get("keys", [])
    if not isinstance(entries, list):
        raise InvalidSetting(path, "must be a list of keys")
    if len(entries) > MAX_KEYS:
        raise InvalidSetting(path, f"at most {MAX_KEYS:,} keys are allowed")
    keys: list[settings.ApiKey] = []
    hashes: set[str] = set()
    llm_settings: dict[str, object] = {}
    for number, entry in enumerate(entries):
        api_key = _read_api_key(section, entry, (*path, number), profiles)
        if api_key.hash in hashes:
            raise InvalidSetting((*path, number), "is the same as another key; remove one")
        hashes.add(api_key.hash)
        # The LLM gateway knows a caller only by the name of the key.
        own = (api_key.tool_search, api_key.exposure, api_key.tokens_per_day, api_key.requests_per_day)
        if llm_settings.setdefault(api_key.name, own) != own:
            reason = "has the name of another key but other settings for LLMs; give it its own name"
            raise InvalidSetting((*path, number), reason)
        keys.append(api_key)
    return settings.AuthConfig(tuple(keys))


def _read_api_key(
    auth: ConfigSection, value: object, path: JsonPath, profiles: Mapping[str, settings.AccessProfile]
) -> settings.ApiKey:
    """Return a key that is written as a string or as an object with the key or its hash."""
    name = f"key {path[-1]}"
    if isinstance(value, str):
        return settings.ApiKey.from_secret(_check_key(auth.read_string(value, path), path), name=name)
    section = ConfigSection.from_value(value, path, auth.environment)
    entry = settings.ApiKeyEntry(**section.read_settings(settings.ApiKeyEntry))
    if ("key" in section.members) == ("hash" in section.members):
        raise InvalidSetting(path, 'must have either "key" or "hash"')
    if entry.profile is not None and entry.profile not in profiles:
        raise unknown_name((*path, "profile"), "profile", entry.profile, profiles)
    name = name if entry.name is None else entry.name
    exposure = settings.LlmKeyExposure(
        **{field.name: getattr(entry, field.name) for field in fields(settings.LlmKeyExposure)}
    )
    if "key" in section.members:
        secret = _check_key(entry.key, (*path, "key"))
        api_key = settings.ApiKey.from_secret(secret, entry.profile, name, entry.tool_search)
    else:
        match = _KEY_HASH.fullmatch(entry.hash)
        if match is None:
            reason = "must be the SHA-256 of a key, 64 hexadecimal digits"
            raise InvalidSetting((*path, "hash"), reason)
        api_key = settings.ApiKey(match[1].lower(), entry.profile, name, entry.tool_search)
    return replace(
        api_key, exposure=exposure, tokens_per_day=entry.tokens_per_day, requests_per_day=entry.requests_per_day
    )


def _check_key(secret: str, path: JsonPath) -> str:
    """Return the key, unless it is too short. An empty variable gives an empty key."""
    if len(secret) < MIN_KEY_CHARS:
        raise InvalidSetting(path, f"a key must have at least {MIN_KEY_CHARS} characters")
    return secret


def _read_safety(section: ConfigSection) -> settings.SafetyConfig:
    safety = settings.SafetyConfig(**section.read_settings(settings.SafetyConfig))
    if safety.new == "hold" and safety.changed == "off":
        reason = 'new tools are recognized by comparing definitions; set "changed" to "block" or "warn"'
        raise InvalidSetting((*section.path, "new"), reason)
    return safety


def _read_store(root: ConfigSection) -> dict[str, Any]:
    members = {key: value for key, value in root.members.items() if key in ("store", "journal", "tokenKeys")}
    values = ConfigSection((), members, root.environment).read_settings(settings.GatewayConfig)
    if "store" in values:
        try:
            check_store_url(values["store"])
        except InvalidConfig as error:
            raise InvalidSetting(("store",), str(error)) from error
    for number, key in enumerate(values.get("token_keys", ())):
        if not _TOKEN_KEY.fullmatch(key):
            reason = "must be 32 random bytes in Base64 for URLs; make one with: openssl rand -base64 32 | tr '+/' '-_'"
            raise InvalidSetting(("tokenKeys", number), reason)
    return values


def _read_http(root: ConfigSection, notes: list[str]) -> settings.HttpConfig:
    section = root.child("http")
    if "httpServer" in root.members:
        if "http" in root.members:
            raise InvalidSetting(("httpServer",), 'repeats "http"; keep one of the two')
        section = http_from_mcproxy(root.child("httpServer"), notes)
    http = settings.HttpConfig(**section.read_settings(settings.HttpConfig))
    if not http.host.strip():
        reason = "is empty; use 127.0.0.1 for this machine only, or 0.0.0.0 for all interfaces"
        raise InvalidSetting((*section.path, "host"), reason)
    for number, host in enumerate(http.allowed_hosts):
        if host != "*" and not settings.HOST_PATTERN.fullmatch(host.removeprefix("*.")):
            reason = "must be a host name such as tools.example.com, without https:// or a path"
            raise InvalidSetting((*section.path, "allowedHosts", number), reason)
    for number, origin in enumerate(http.allowed_origins):
        if origin not in ("*", "null") and not _ORIGIN.fullmatch(origin):
            reason = "must be an origin such as https://example.com, without a path"
            raise InvalidSetting((*section.path, "allowedOrigins", number), reason)
    return http


def _read_overrides(section: ConfigSection) -> dict[str, settings.ToolOverride]:
    _check_count(section, MAX_OVERRIDES, "overrides")
    overrides: dict[str, settings.ToolOverride] = {}
    for pattern in section.members:
        entry = section.child(pattern)
        override = settings.ToolOverride(pattern, **entry.read_settings(settings.ToolOverride))
        if _SURROGATE.search(json.dumps(dict(entry.members), ensure_ascii=False)):
            # A client could read no list with this tool.
            raise InvalidSetting(entry.path, "has half of a surrogate pair; write the whole character")
        if override.name and set(pattern) & set("*?["):
            raise InvalidSetting(
                (*entry.path, "name"), "a pattern can match several tools; rename each by its own name"
            )
        overrides[pattern] = override
    return overrides


def _read_embedding(section: ConfigSection) -> settings.EmbeddingConfig:
    embedding = settings.EmbeddingConfig(**section.read_settings(settings.EmbeddingConfig))
    if embedding.url:
        check_url(embedding.url, (*section.path, "url"), "http://localhost:11434/v1")
    if bool(embedding.url) != bool(embedding.model):
        missing = "model" if embedding.url else "url"
        reason = "is missing: an embedder needs a url and a model"
        raise InvalidSetting((*section.path, missing), reason)
    return embedding


def _check_count(section: ConfigSection, maximum: int, what: str) -> None:
    if len(section.members) > maximum:
        raise InvalidSetting(section.path, f"at most {maximum:,} {what} are allowed")
