"""The configuration as a JSON Schema, made from the settings, so that editors can complete it."""

from __future__ import annotations

from typing import Any, get_args

from toolcrib.config.kind import Told, settings_of
from toolcrib.config.server import OTHER_KEYS
from toolcrib.config.settings import (
    Config,
    Embedding,
    Http,
    ModelGateway,
    ModelUpstream,
    Profile,
    Safety,
    SearchForModel,
    Server,
    ToolSearch,
)

_DIALECT = "http://json-schema.org/draft-07/schema#"
_VARIABLE = {"type": "string", "pattern": r"\$\{"}
_TYPES = {"text": "string", "flag": "boolean", "whole": "integer", "number": "number"}


def config_schema() -> dict[str, Any]:
    """The JSON Schema of a configuration file."""
    server = _part(Server)
    # Other systems' shapes and spellings are named, so that an editor does not call them unknown;
    # they are not described, because ours are the ones to write.
    server["properties"].update(dict.fromkeys(OTHER_KEYS, True))
    server["properties"]["type"] = {"type": "string", **_told_by(_of(Server, "type"))}
    servers = _map("MCP servers to draw tools from, by name, the most important first.", server)
    text = {"type": "string"}
    key = {
        "type": "object",
        "properties": {
            "key": text,
            "hash": text,
            "profile": _nullable(text),
            "name": text,
            "toolSearch": _nullable({"enum": list(get_args(SearchForModel))}),
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
            "toolSearch": _part(ToolSearch),
            "profiles": _map("What some clients may see, by name.", _part(Profile)),
            "models": _map("Model APIs to pass requests on to, by name.", _part(ModelUpstream)),
            "modelGateway": _part(ModelGateway),
            "store": _value(_of(Config, "store")),
            "auth": auth,
            "safety": _part(Safety),
            "http": _part(Http),
            "embedding": _part(Embedding),
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
        "properties": {one.setting.key: _value(one) for one in settings_of(part)},
        "additionalProperties": False,
    }


def _map(description: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "description": description, "additionalProperties": value}


def _of(part: type, key: str) -> Told:
    return next(one for one in settings_of(part) if one.setting.key == key)


def _value(one: Told) -> dict[str, Any]:
    """The schema of one setting. Where a number or a flag stands, a variable may stand too."""
    form, choices = one.kind.form, one.kind.choices
    if form == "map":
        member = {"type": ["string", "number", "boolean"]}
        schema: dict[str, Any] = {"type": "object", "additionalProperties": member}
    elif form in ("texts", "choices"):
        schema = {"type": "array", "items": _choice(choices)}
    elif form in ("text", "choice"):
        schema = _choice(choices)
    else:
        schema = {"anyOf": [{"type": _TYPES[form], **_range(one)}, _VARIABLE]}
    if one.kind.nullable:
        schema = _nullable(schema)
    return {**schema, **_told_by(one)}


def _told_by(one: Told) -> dict[str, Any]:
    default = list(one.default) if isinstance(one.default, tuple) else one.default
    return {"description": one.setting.meaning, "default": default}


def _choice(choices: tuple[str, ...]) -> dict[str, Any]:
    if not choices:
        return {"type": "string"}
    return {"anyOf": [{"enum": list(choices)}, _VARIABLE]}


def _range(one: Told) -> dict[str, float]:
    limits = {"minimum": one.setting.least, "maximum": one.setting.most}
    return {name: limit for name, limit in limits.items() if limit is not None}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
