"""The JSON Schema of the configuration accepts what the parser accepts."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jsonschema_rs
import pytest

from toolcrib.cli.gateway.config import build_config_schema
from toolcrib.config.fields import list_settings
from toolcrib.config.parser import FOREIGN_KEYS, KNOWN_KEYS, parse_config
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import (
    AccessProfile,
    AuditConfig,
    CodeModeConfig,
    HttpConfig,
    LlmGatewayConfig,
    LlmUpstreamConfig,
    ResultsConfig,
    SafetyConfig,
    ToolOverride,
    ToolSearchConfig,
)
from toolcrib.errors import InvalidConfig

_VALIDATOR = jsonschema_rs.validator_for(build_config_schema())
_PARTS: dict[type, tuple[str | int, ...]] = {
    ServerConfig: ("mcpServers", "additionalProperties"),
    ToolSearchConfig: ("toolSearch",),
    AccessProfile: ("profiles", "additionalProperties"),
    LlmUpstreamConfig: ("models", "additionalProperties", "anyOf", 0),
    LlmGatewayConfig: ("modelGateway",),
    SafetyConfig: ("safety",),
    HttpConfig: ("http",),
    AuditConfig: ("audit",),
    ResultsConfig: ("results",),
    CodeModeConfig: ("codeMode",),
    ToolOverride: ("overrides", "additionalProperties"),
}


def test_shipped_schema_equals_the_settings() -> None:
    shipped = files("toolcrib.config") / "toolcrib.schema.json"
    assert json.loads(shipped.read_text(encoding="utf-8")) == build_config_schema(), (
        "update it: toolcrib config schema > src/toolcrib/config/toolcrib.schema.json"
    )


def test_schema_has_every_key() -> None:
    assert set(build_config_schema()["properties"]) == {*KNOWN_KEYS, *FOREIGN_KEYS}


@pytest.mark.parametrize("part", _PARTS, ids=lambda part: part.__name__)
def test_schema_describes_every_setting_with_its_default(part: type) -> None:
    schema: Any = build_config_schema()["properties"]
    for step in _PARTS[part]:
        schema = schema[step]
    for one in list_settings(part):
        described = schema["properties"][one.key]
        assert described["description"] == one.description
        default = list(one.default) if isinstance(one.default, tuple) else one.default
        assert described["default"] == default


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"$schema": "x", "mcpServers": {"a": {"command": "x", "env": {"A": 1}, "enabled": False}}},
        {"servers": {"a": {"type": "http", "url": "https://a"}}, "inputs": []},
        {"mcpServers": {"a": {"serverUrl": "https://a", "disabled": True, "timeout": 500}}},
        {"toolSearch": {"mode": "search", "maxToolsLimit": "${LIMIT:-4}", "debug": "${D:-true}"}},
        {"toolSearch": {"toolSelectionOrder": ["random"], "searchThreshold": 0.2}},
        {"profiles": {"p": {"servers": None, "tools": ["a"], "mode": None}}},
        {"models": {"openai": {"key": "x", "models": ["*"], "search": "exact"}}},
        {"models": {"openai": {"keys": ["a", "b"]}, "fast": "openai/gpt-5", "safe": ["openai/gpt-5", "openai/a/b"]}},
        {"auth": {"keys": ["12345678", {"key": "123456789", "profile": None, "name": "x"}]}},
        {"http": {"requestsPerMinute": None, "port": 0}},
        {"capabilities": ["tool_search"]},
        {"httpServer": {"port": 1, "middleware": {"proxy": []}}},
    ],
)
def test_parsed_document_is_valid(document: Any) -> None:
    parse_config(document, {})
    assert _VALIDATOR.is_valid(document), list(_VALIDATOR.iter_errors(document))


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"mcpServer": {}},
        {"mcpServers": {"a": {"comand": "x"}}},
        {"mcpServers": {"a": {"command": 1}}},
        {"mcpServers": {"a": {"command": "x", "args": "y"}}},
        {"mcpServers": {"a": {"command": "x", "env": {"A": []}}}},
        {"mcpServers": {"a": {"command": "x", "idleSeconds": 0}}},
        {"toolSearch": {"mode": "x"}},
        {"toolSearch": {"maxToolsLimit": 1.5}},
        {"toolSearch": {"maxToolsLimit": "5"}},
        {"toolSearch": {"searchThreshold": 2}},
        {"toolSearch": {"toolSelectionOrder": ["x"]}},
        {"toolSearch": {"mode": None}},
        {"http": {"port": 70_000}},
        {"http": {"requestsPerMinute": 0}},
        {"auth": {"key": []}},
        {"auth": {"keys": [{"keys": "x"}]}},
        {"models": {"fast": 1}},
        {"models": {"openai": {}, "fast": [1]}},
        {"store": 1},
    ],
)
def test_rejected_document_is_invalid(document: Any) -> None:
    with pytest.raises(InvalidConfig):
        parse_config(document, {})
    assert not _VALIDATOR.is_valid(document)
