"""Configurations of MCProxy, everruns and VS Code, in their own shapes."""

from __future__ import annotations

import pytest

from toolcrib.config.parser import parse_config
from toolcrib.config.settings import GatewayConfig, HttpConfig, ToolSearchConfig
from toolcrib.errors import InvalidConfig
from toolcrib.profiles import everruns, mcproxy


def _read(document: object) -> GatewayConfig:
    return parse_config(document, {})


def _mcproxy(*entries: object) -> dict[str, object]:
    return {"httpServer": {"middleware": {"proxy": list(entries)}}}


def test_mcproxy_file_is_read() -> None:
    config = _read(
        {
            "mcpServers": {
                "git": {"command": "uvx", "args": ["mcp-git-ingest"]},
                "github": {"url": "https://example.com/mcp/", "authorizationToken": "Bearer x"},
            },
            "httpServer": {
                "host": "0.0.0.0",
                "port": 8080,
                "corsEnabled": True,
                "corsOrigins": ["https://a.example"],
                "shutdownTimeout": 5,
                "middleware": {
                    "proxy": [
                        {"type": "description_enricher", "enabled": True, "config": {}},
                        {
                            "type": "tool_search",
                            "enabled": True,
                            "config": {
                                "enabled": True,
                                "maxToolsLimit": 20,
                                "searchThreshold": 0.3,
                                "toolSelectionOrder": ["server_priority", "alphabetical"],
                            },
                        },
                    ],
                    "client": {
                        "default": [{"type": "logging", "enabled": True}],
                        "servers": {"git": [{"type": "tool_filter", "enabled": False}]},
                    },
                },
            },
        }
    )
    assert config.tool_search == ToolSearchConfig(
        max_tools_limit=20, search_threshold=0.3, tool_selection_order=("server_priority", "alphabetical")
    )
    assert config.http == HttpConfig(host="0.0.0.0", port=8080, allowed_origins=("https://a.example",))
    assert config.servers["github"].headers == {"Authorization": "Bearer x"}
    assert config.notes == (
        "the middleware description_enricher has no effect here",
        "the middleware logging has no effect here",
        "httpServer.shutdownTimeout has no effect here",
    )


def test_mcproxy_defaults_equal_ours() -> None:
    theirs, ours = mcproxy.McproxyConfig.from_json(None), ToolSearchConfig()
    for config in (
        _read({"middleware": [{"type": "tool_search"}]}),
        _read(_mcproxy({"type": "tool_search", "config": None})),
    ):
        assert config.tool_search == ours
    assert ours.max_tools_limit == theirs.max_tools
    assert ours.search_threshold == theirs.threshold
    assert ours.tool_selection_order == theirs.selection_order
    assert ours.debug == theirs.debug


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "tool_search", "enabled": False, "config": {"maxToolsLimit": 3}},
        {"type": "tool_search", "config": {"enabled": False}},
    ],
)
def test_disabled_mcproxy_search_lists_all_tools(entry: object) -> None:
    assert _read(_mcproxy(entry)).tool_search.mode == "direct"


def test_mcproxy_file_without_search_has_the_defaults() -> None:
    document = {"httpServer": {"corsEnabled": False, "corsOrigins": ["*"], "middleware": {}}}
    assert _read(document).tool_search == ToolSearchConfig()
    assert _read(document).http == HttpConfig()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            _mcproxy({"type": "tool_filter", "config": {"allow": "x"}}),
            "httpServer.middleware.proxy[0]: the middleware 'tool_filter' is not supported; "
            'use "toolsAllowed" and "toolsBlocked" of the server',
        ),
        (
            _mcproxy({"type": "magic"}),
            "httpServer.middleware.proxy[0]: the middleware 'magic' is not supported; remove it",
        ),
        (
            _mcproxy({"type": "tool_search", "conf": {}}),
            "httpServer.middleware.proxy[0].conf: unknown key; a middleware has: type, enabled, config",
        ),
        (
            _mcproxy({"type": "tool_search", "config": {"maxTools": 1}}),
            'httpServer.middleware.proxy[0].config.maxTools: unknown key; did you mean "maxToolsLimit"?',
        ),
        (
            _mcproxy({"type": "tool_search", "config": {"maxToolsLimit": "1"}}),
            "httpServer.middleware.proxy[0].config.maxToolsLimit: must be an integer from 0 to 1,000,000, not a string",
        ),
        (_mcproxy({}), "httpServer.middleware.proxy[0].type: must be a string, not null"),
        ({"middleware": "x"}, "middleware: must be a list of middleware"),
        (
            {"httpServer": {"hots": "x"}},
            "httpServer.hots: unknown key; known: host, port, corsEnabled, corsOrigins, shutdownTimeout, middleware",
        ),
        (
            {"toolSearch": {}, "middleware": [{"type": "tool_search"}]},
            "tool search is configured by toolSearch and by middleware; keep one of them",
        ),
        ({"capabilities": "tool_search"}, "capabilities: must be a list or an object of capabilities"),
        ({"capabilities": [{"config": {}}]}, 'capabilities[0]: must be a name, or an object with a "ref"'),
    ],
)
def test_errors_name_the_path_in_the_foreign_format(document: object, message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        _read(document)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "capabilities",
    [
        ["tool_search"],
        {"tool_search": {}},
        {"tool_search": None},
        [{"ref": "tool_search", "config": {}}],
        {"tool_search": {"threshold": -1, "never_defer": "x"}},
        {"tool_search": {"threshold": True, "never_defer": [1]}},
    ],
)
def test_everruns_formats_are_read(capabilities: object) -> None:
    search = _read({"capabilities": capabilities}).tool_search
    # everruns defers from its threshold on, Toolcrib above its limit.
    assert search == ToolSearchConfig(max_tools_limit=everruns.THRESHOLD - 1)


def test_everruns_settings_are_read() -> None:
    config = _read(
        {
            "capabilities": {
                "tool_search": {"threshold": 20, "never_defer": ["bash", "github___merge", 5]},
                "web_fetch": {},
            }
        }
    )
    assert config.tool_search == ToolSearchConfig(max_tools_limit=19, always_expose=("*___bash", "github___merge"))
    assert config.notes == ("the capability 'web_fetch' has no effect here",)


@pytest.mark.parametrize("threshold", [0, 1])
def test_threshold_below_two_selects_search_mode(threshold: int) -> None:
    config = _read({"capabilities": {"tool_search": {"threshold": threshold}}})
    assert config.tool_search.mode == "search"


def test_vscode_file_is_read() -> None:
    config = _read(
        {
            "inputs": [{"type": "promptString", "id": "key", "password": True}],
            "servers": {
                "memory": {
                    "type": "stdio",
                    "command": "npx",
                    "args": ["-y", "server-memory"],
                    "dev": {"watch": "src/**"},
                },
                "github": {"type": "http", "url": "https://example.com/mcp"},
                "old": {"type": "sse", "url": "https://example.com/sse", "gallery": True},
            },
        }
    )
    assert [server.transport for server in config.servers.values()] == ["stdio", "http", "sse"]
    with pytest.raises(InvalidConfig, match=r"^servers\.x: has neither"):
        _read({"servers": {"x": {}}})
