"""Server entries with the keys of other clients."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.config.parser import parse_config
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig
from toolcrib.errors import InvalidConfig


def _read(document: object) -> GatewayConfig:
    return parse_config(document, {})


def _server(entry: dict[str, Any]) -> ServerConfig:
    return _read({"mcpServers": {"one": entry}}).servers["one"]


def _parse_error(document: object) -> str:
    with pytest.raises(InvalidConfig) as caught:
        _read(document)
    return str(caught.value)


@pytest.mark.parametrize(
    ("entry", "transport"),
    [
        ({"url": "https://a/mcp"}, "http"),
        ({"httpUrl": "https://a/mcp"}, "http"),
        ({"serverUrl": "https://a/mcp"}, "http"),
        ({"type": "streamable-http", "url": "https://a/mcp"}, "http"),
        ({"type": "streamableHttp", "url": "https://a/mcp"}, "http"),
        ({"transport": "sse", "url": "https://a/mcp"}, "sse"),
        ({"type": "remote", "url": "https://a/mcp"}, "http"),
        ({"type": "local", "command": "a"}, "stdio"),
        ({"command": "a"}, "stdio"),
    ],
)
def test_spellings_of_other_clients_are_read(entry: dict[str, Any], transport: str) -> None:
    assert _server(entry).transport == transport


def test_settings_of_other_clients_are_converted() -> None:
    server = _server(
        {
            "url": "https://a/mcp",
            "disabled": True,
            "timeout": 5000,
            "authorizationToken": "abc",
            "includeTools": ["a"],
            "excludeTools": ["b"],
            "trust": True,
            "description": "…",
        }
    )
    assert not server.enabled
    assert server.call_seconds == 5
    assert server.headers == {"Authorization": "Bearer abc"}
    assert (server.tools_allowed, server.tools_blocked) == (("a",), ("b",))
    kept = _server({"url": "https://a", "authorizationToken": "bearer x", "headers": {"B": "c"}})
    assert kept.headers == {"Authorization": "bearer x", "B": "c"}
    assert _server({"url": "https://a", "authorizationToken": ""}).headers == {}


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"httpUrl": "https://b"}, 'httpUrl: repeats "url"; keep one of the two'),
        ({"disabled": "no"}, "disabled: must be true or false"),
        ({"timeout": "1s"}, "timeout: must be a number of milliseconds"),
        ({"timeout": 60}, "timeout: must be from 100 to 86,400,000 milliseconds; for seconds, use callSeconds"),
        ({"authorizationToken": 1}, "authorizationToken: must be a string"),
        ({"authorizationToken": "x", "headers": []}, "headers: must be an object of strings"),
    ],
)
def test_invalid_settings_of_other_clients_are_rejected(extra: dict[str, Any], message: str) -> None:
    document = {"mcpServers": {"a": {"url": "https://a", **extra}}}
    assert _parse_error(document) == f"mcpServers.a.{message}"


def test_unsupported_client_keys_are_noted() -> None:
    config = _read({"mcpServers": {"a": {"command": "x", "envFile": ".env", "oauth": {}}}})
    assert config.notes == (
        "server a: envFile is not read here; put its variables into env",
        "server a: oauth is not used here; run `toolcrib login SERVER`, or put a token into headers",
    )


def test_disabled_server_needs_no_variables() -> None:
    entry = {
        "url": "${NO_URL}",
        "headers": {"Authorization": "Bearer ${NO_TOKEN}"},
        "callSeconds": "${NO_SECONDS}",
        "enabled": False,
    }
    server = _server(entry)
    assert (server.transport, server.enabled, server.call_seconds) == ("http", False, 120)
    assert _server({"command": "${NO_COMMAND}", "disabled": True}).transport == "stdio"


def test_all_unset_variables_of_a_server_are_named() -> None:
    entry = {"command": "x", "env": {"A": "${FIRST}", "B": "${SET}", "C": "${SECOND}"}}
    config = parse_config({"mcpServers": {"a": entry}}, {"SET": "1"})
    assert config.servers["a"].problem == "the environment variables FIRST, SECOND are not set"
