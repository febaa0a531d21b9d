"""`toolcrib config`: find and check the configuration, and print its schema."""

from __future__ import annotations

from typing import Any

import click

from toolcrib.cli.gateway.launch import config_option
from toolcrib.cli.printing import format_count, json_option, print_json, sanitize, wrap
from toolcrib.config import settings
from toolcrib.config.fields import SettingField, list_settings
from toolcrib.config.loader import CONFIG_VARIABLE, list_config_paths, load_config, require_config_path
from toolcrib.config.server_entry import FOREIGN_SERVER_KEYS
from toolcrib.config.server_settings import ServerConfig
from toolcrib.errors import InvalidConfig

_DIALECT = "http://json-schema.org/draft-07/schema#"
_STRING = {"type": "string"}
_ALIAS = {"type": "string", "description": "The model of an upstream: `upstream/model`."}
_VARIABLE = {"type": "string", "pattern": r"\$\{"}


@click.group("config")
def command() -> None:
    """Find, check and describe toolcrib.json."""


@command.command("path")
@config_option
@json_option
def path(config_file: str | None, as_json: bool) -> None:
    """Print the possible configuration files, and which one is used."""
    candidates = list_config_paths(config_file)
    used = next((candidate for candidate in candidates if candidate.is_file()), None)
    if as_json:
        document = {
            "used": str(used.absolute()) if used else None,
            "places": [str(candidate.absolute()) for candidate in candidates],
            "variable": CONFIG_VARIABLE,
        }
        print_json(document)
        return
    for candidate in candidates:
        state = "used" if candidate == used else "exists" if candidate.is_file() else "missing"
        click.echo(f"{state:<10}{sanitize(str(candidate.absolute()))}")


@command.command("check")
@config_option
@json_option
def check(config_file: str | None, as_json: bool) -> None:
    """Check the configuration and print a summary."""
    used = require_config_path(config_file)
    config = load_config(used)
    broken = {name: server.problem for name, server in config.servers.items() if server.problem}
    if as_json:
        document = {
            "file": str(used.absolute()),
            "servers": {
                name: {"transport": server.transport, "enabled": server.enabled, "problem": server.problem}
                for name, server in config.servers.items()
            },
            "profiles": list(config.profiles),
            "models": [upstream.name for upstream in config.llm_gateway.upstreams],
            "keys": len(config.auth.keys),
            "notes": list(config.notes),
        }
        print_json(document)
        raise SystemExit(1 if broken else 0)
    disabled = sum(not server.enabled for server in config.servers.values())
    counts = (
        f"{format_count(len(config.servers), 'server')} ({disabled} disabled), "
        f"{format_count(len(config.profiles), 'profile')}, "
        f"{format_count(len(config.llm_gateway.upstreams), 'model')}, "
        f"{format_count(len(config.auth.keys), 'key')}"
    )
    click.echo(wrap(f"{sanitize(str(used))} is valid: {counts}."))
    for text in config.notes:
        click.echo(wrap(sanitize(text), "  "))
    if broken:
        raise InvalidConfig("\n".join(f"{name} cannot be started: {problem}" for name, problem in broken.items()))


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema, which editors use to complete and check the file."""
    print_json(build_config_schema())


def build_config_schema() -> dict[str, Any]:
    """Return the JSON Schema of a configuration file."""
    server = _section_schema(ServerConfig)
    # Keys of other systems are listed without a description: they are valid but not recommended.
    server["properties"].update(dict.fromkeys(FOREIGN_SERVER_KEYS, True))
    # Clients write the type in many ways, so it is not restricted to our choices.
    del server["properties"]["type"]["anyOf"]
    server["properties"]["type"].update(_STRING)
    servers = _map_schema("MCP servers by name, in the order of their priority.", server)
    keys = {"type": "array", "items": {"anyOf": [_STRING, _section_schema(settings.ApiKeyEntry)]}}
    return {
        "$schema": _DIALECT,
        "title": "Toolcrib configuration",
        "type": "object",
        "properties": {
            "$schema": _STRING,
            "mcpServers": servers,
            "servers": {**servers, "description": "VS Code's name for mcpServers."},
            "inputs": True,
            "toolSearch": _section_schema(settings.ToolSearchConfig),
            "profiles": _map_schema("Access profiles by name.", _section_schema(settings.AccessProfile)),
            "models": _map_schema(
                "LLM APIs by name, and aliases of their models.",
                {"anyOf": [_section_schema(settings.LlmUpstreamConfig), _ALIAS, {"type": "array", "items": _ALIAS}]},
            ),
            "modelGateway": _section_schema(settings.LlmGatewayConfig),
            **_section_schema(settings.GatewayConfig)["properties"],
            "auth": {**_section_schema(settings.AuthConfig), "properties": {"keys": keys}},
            "safety": _section_schema(settings.SafetyConfig),
            "http": _section_schema(settings.HttpConfig),
            "embedding": _section_schema(settings.EmbeddingConfig),
            "audit": _section_schema(settings.AuditConfig),
            "results": _section_schema(settings.ResultsConfig),
            "codeMode": _section_schema(settings.CodeModeConfig),
            "overrides": _map_schema("Overrides by tool name or pattern.", _section_schema(settings.ToolOverride)),
            "httpServer": True,
            "middleware": True,
            "capabilities": True,
        },
        "additionalProperties": False,
    }


def _section_schema(section_type: type) -> dict[str, Any]:
    return {
        "type": "object",
        "description": (section_type.__doc__ or "").strip(),
        "properties": {setting.key: _value_schema(setting) for setting in list_settings(section_type)},
        "additionalProperties": False,
    }


def _map_schema(description: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "description": description, "additionalProperties": value}


def _value_schema(setting: SettingField) -> dict[str, Any]:
    """Return the schema of a setting. A variable may replace a number, a boolean or a choice."""
    schema: dict[str, Any] = dict(_STRING)
    if setting.choices:
        schema = {"anyOf": [{"enum": list(setting.choices)}, _VARIABLE]}
    elif setting.type == "object":
        schema = {"type": "object"}
    elif setting.type == "map":
        member = {"type": ["string", "number", "boolean"]}
        schema = {"type": "object", "additionalProperties": member}
    elif setting.type != "string":
        limits = {"minimum": setting.minimum, "maximum": setting.maximum}
        limits = {name: limit for name, limit in limits.items() if limit is not None}
        schema = {"anyOf": [{"type": setting.type, **limits}, _VARIABLE]}
    if setting.is_list:
        schema = {"type": "array", "items": schema}
    if setting.is_nullable:
        schema = {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}
    default = list(setting.default) if isinstance(setting.default, tuple) else setting.default
    return {**schema, "description": setting.description, "default": default}
