"""The configuration as a JSON Schema, made from the settings, so that editors can complete it."""

from __future__ import annotations

from typing import Any, get_args

from toolcrib.config.kind import SettingField, list_settings
from toolcrib.config.server import FOREIGN_SERVER_KEYS
from toolcrib.config.settings import (
    AccessProfile,
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

_DIALECT = "http://json-schema.org/draft-07/schema#"
_VARIABLE = {"type": "string", "pattern": r"\$\{"}
_TYPES = {"text": "string", "flag": "boolean", "whole": "integer", "number": "number"}


def build_config_schema() -> dict[str, Any]:
    """The JSON Schema of a configuration file."""
    server = _part(ServerConfig)
    # Other systems' shapes and spellings are named, so that an editor does not call them unknown;
    # they are not described, because ours are the ones to write.
    server["properties"].update(dict.fromkeys(FOREIGN_SERVER_KEYS, True))
    server["properties"]["type"] = {"type": "string", **_told_by(_of(ServerConfig, "type"))}
    servers = _map("MCP servers to draw tools from, by name, the most important first.", server)
    text = {"type": "string"}
    key = {
        "type": "object",
        "properties": {
            "key": text,
            "hash": text,
            "profile": _nullable(text),
            "name": text,
            "toolSearch": _nullable({"enum": list(get_args(LlmSearchSwitch))}),
        },
        "additionalProperties": False,
    }
    auth = {
        "type": "object",
        "description": "Who may use the gateway; without keys, whoever reaches it.",
        "properties": {"keys": {"type": "array", "items": {"anyOf": [text, key]}}},
        "additionalProperties": False,
    }
    return {
        "$schema": _DIALECT,
        "title": "Toolcrib configuration",
        "type": "object",
        "properties": {
            "$schema": text,
            "mcpServers": servers,
            "servers": {**servers, "description": "VS Code's name for mcpServers."},
            "inputs": True,
            "toolSearch": _part(ToolSearchConfig),
            "profiles": _map("What some clients may see, by name.", _part(AccessProfile)),
            "models": _map("Model APIs to pass requests on to, by name.", _part(LlmUpstreamConfig)),
            "modelGateway": _part(LlmGatewayConfig),
            "store": _value(_of(GatewayConfig, "store")),
            "auth": auth,
            "safety": _part(SafetyConfig),
            "http": _part(HttpConfig),
            "embedding": _part(EmbeddingConfig),
            "httpServer": True,
            "middleware": True,
            "capabilities": True,
        },
        "additionalProperties": False,
    }


def _part(part: type) -> dict[str, Any]:
    """The schema of an object that tells one part."""
    return {
        "type": "object",
        "description": (part.__doc__ or "").strip(),
        "properties": {one.setting.key: _value(one) for one in list_settings(part)},
        "additionalProperties": False,
    }


def _map(description: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "description": description, "additionalProperties": value}


def _of(part: type, key: str) -> SettingField:
    return next(one for one in list_settings(part) if one.setting.key == key)


def _value(one: SettingField) -> dict[str, Any]:
    """The schema of one setting. Where a number or a flag stands, a variable may stand too."""
    form, choices = one.type.form, one.type.choices
    if form == "map":
        member = {"type": ["string", "number", "boolean"]}
        schema: dict[str, Any] = {"type": "object", "additionalProperties": member}
    elif form in ("texts", "choices"):
        schema = {"type": "array", "items": _choice(choices)}
    elif form in ("text", "choice"):
        schema = _choice(choices)
    else:
        schema = {"anyOf": [{"type": _TYPES[form], **_range(one)}, _VARIABLE]}
    if one.type.nullable:
        schema = _nullable(schema)
    return {**schema, **_told_by(one)}


def _told_by(one: SettingField) -> dict[str, Any]:
    default = list(one.default) if isinstance(one.default, tuple) else one.default
    return {"description": one.setting.description, "default": default}


def _choice(choices: tuple[str, ...]) -> dict[str, Any]:
    if not choices:
        return {"type": "string"}
    return {"anyOf": [{"enum": list(choices)}, _VARIABLE]}


def _range(one: SettingField) -> dict[str, float]:
    limits = {"minimum": one.setting.minimum, "maximum": one.setting.maximum}
    return {name: limit for name, limit in limits.items() if limit is not None}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
