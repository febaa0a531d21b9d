"""Parsing of configurations, and the errors for invalid ones."""

from __future__ import annotations

import hashlib

import pytest

from toolcrib.config.fields import InvalidSetting
from toolcrib.config.parser import parse_config
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import (
    MIB,
    AccessProfile,
    ApiKey,
    AuthConfig,
    GatewayConfig,
    HttpConfig,
    LlmGatewayConfig,
    LlmUpstreamConfig,
    SafetyConfig,
    ToolSearchConfig,
)
from toolcrib.errors import InvalidConfig
from toolcrib.session.disclosure import ALPHABETICAL, RANDOM, SERVER_PRIORITY

TOKEN = {"oauthTokenUrl": "https://a.example/t", "oauthClientId": "me", "oauthClientSecret": "${HOME}"}


def _parse(document: object, **environment: str) -> GatewayConfig:
    return parse_config(document, environment)


def _parse_error(document: object, **environment: str) -> InvalidSetting:
    with pytest.raises(InvalidConfig) as caught:
        parse_config(document, environment)
    assert isinstance(caught.value, InvalidSetting)
    return caught.value


def test_empty_document_gives_the_defaults() -> None:
    assert _parse({}) == GatewayConfig()
    assert GatewayConfig().tool_search == ToolSearchConfig()
    assert GatewayConfig().http.host == "127.0.0.1"


def test_every_section_is_parsed() -> None:
    config = _parse(
        {
            "$schema": "./toolcrib.schema.json",
            "mcpServers": {
                "github": {
                    "command": "npx",
                    "args": ["-y", "@modelcontextprotocol/server-github"],
                    "env": {"TOKEN": "${GITHUB_TOKEN}", "PORT": 3000, "QUIET": True},
                    "cwd": "/srv",
                    "alias": "gh",
                    "deferTools": "never",
                    "start": "lazy",
                    "idleSeconds": 60,
                    "connectSeconds": 5,
                    "callSeconds": 7.5,
                    "maxResultBytes": 2048,
                    "era": "legacy",
                    "toolsAllowed": ["get_*"],
                    "toolsBlocked": ["*_delete"],
                    "enabled": False,
                },
                "remote": {"url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
                "old": {"url": "http://localhost:1234/sse", "type": "sse"},
            },
            "toolSearch": {
                "maxToolsLimit": 10,
                "searchThreshold": 0.5,
                "toolSelectionOrder": ["alphabetical", "random"],
                "alwaysExpose": ["github___create_issue"],
                "mode": "dynamic",
                "onSearch": "extend",
                "debug": True,
                "detail": "schema",
                "maxResultChars": 1000,
                "validateArguments": False,
                "maxNameChars": 60,
            },
            "profiles": {
                "writer": {
                    "servers": ["github"],
                    "tools": ["github___*"],
                    "alwaysExpose": ["github___x"],
                    "mode": "search",
                },
                "all": {},
            },
            "models": {
                "anthropic": {"key": "${KEY}"},
                "openai": {"url": "https://proxy.example/v1/", "models": ["gpt-*"]},
                "local": {"api": "openai", "url": "http://localhost:11434/v1", "retries": 0},
                "other": {"url": "http://localhost:8000"},
            },
            "modelGateway": {"thresholdTools": 5, "maxRounds": 3},
            "store": "sqlite:////var/${KEY}.db",
            "auth": {
                "keys": [
                    "a long secret",
                    {"key": "${KEY} and more", "profile": "writer", "name": "ci"},
                    {"hash": "sha256:" + "AB" * 32, "profile": None},
                ]
            },
            "safety": {"changed": "warn", "scan": "off"},
            "http": {"port": 0, "allowedHosts": ["crib.local"], "requestsPerMinute": 60},
        },
        TOKEN="t",
        KEY="k",
    )
    assert list(config.servers) == ["github", "remote", "old"]
    assert config.servers["github"] == ServerConfig(
        name="github",
        command="npx",
        args=("-y", "@modelcontextprotocol/server-github"),
        # It is disabled, so its variable may be unset.
        env={"TOKEN": "", "PORT": "3000", "QUIET": "true"},
        cwd="/srv",
        enabled=False,
        alias="gh",
        defer_tools="never",
        start="lazy",
        idle_seconds=60.0,
        connect_seconds=5.0,
        call_seconds=7.5,
        max_result_bytes=2048,
        protocol="legacy",
        tools_allowed=("get_*",),
        tools_blocked=("*_delete",),
    )
    assert config.servers["remote"] == ServerConfig(
        name="remote", url="https://example.com/mcp", headers={"Authorization": "Bearer t"}, transport="http"
    )
    assert config.servers["old"].transport == "sse"
    assert config.tool_search == ToolSearchConfig(
        max_tools_limit=10,
        search_threshold=0.5,
        tool_selection_order=("alphabetical", "random"),
        always_expose=("github___create_issue",),
        mode="dynamic",
        on_search="extend",
        debug=True,
        detail="schema",
        max_result_chars=1000,
        validate_arguments=False,
        max_name_chars=60,
    )
    assert config.profiles == {
        "writer": AccessProfile("writer", ("github",), ("github___*",), ("github___x",), "search"),
        "all": AccessProfile("all"),
    }
    assert config.llm_gateway == LlmGatewayConfig(
        upstreams=(
            LlmUpstreamConfig("anthropic", "messages", "https://api.anthropic.com", "k"),
            LlmUpstreamConfig("openai", "openai", "https://proxy.example", models=("gpt-*",)),
            LlmUpstreamConfig("local", "openai", "http://localhost:11434", retries=0),
            LlmUpstreamConfig("other", "messages", "http://localhost:8000"),
        ),
        threshold_tools=5,
        max_rounds=3,
    )
    assert config.store == "sqlite:////var/k.db"
    assert config.auth == AuthConfig(
        (
            ApiKey(hashlib.sha256(b"a long secret").hexdigest(), None, "key 0"),
            ApiKey.from_secret("k and more", "writer", "ci"),
            ApiKey("ab" * 32, None, "key 2"),
        )
    )
    assert config.safety == SafetyConfig("warn", "off")
    assert config.http == HttpConfig(port=0, allowed_hosts=("crib.local",), requests_per_minute=60)
    assert config.notes == ()


def test_api_key_may_override_tool_search() -> None:
    keys: list[dict[str, str | None]] = [
        {"key": "a long secret", "toolSearch": "off"},
        {"hash": "ab" * 32, "name": "ci", "toolSearch": "native"},
        {"key": "another secret", "toolSearch": None},
    ]
    read_keys = parse_config({"auth": {"keys": keys}}, {}).auth.keys
    assert [key.tool_search for key in read_keys] == ["off", "native", None]
    with pytest.raises(InvalidConfig, match=r"auth\.keys\[0\]\.toolSearch.*did you mean \"on\""):
        parse_config({"auth": {"keys": [{"key": "a long secret", "toolSearch": "One"}]}}, {})
    twins = [{**one, "name": "ci"} for one in keys[:2]]
    with pytest.raises(InvalidConfig, match="its own name"):
        parse_config({"auth": {"keys": twins}}, {})


def test_documented_size_limits() -> None:
    assert ServerConfig("x").max_result_bytes == 8 * MIB
    assert HttpConfig().max_body_bytes == 32 * MIB


def test_selection_orders_equal_those_of_the_session() -> None:
    orders = [SERVER_PRIORITY, ALPHABETICAL, RANDOM]
    config = _parse({"toolSearch": {"toolSelectionOrder": orders}})
    assert config.tool_search.tool_selection_order == tuple(orders)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "must be an object, not a list"),
        ("x", "must be an object, not a string"),
        ({"mcpServer": {}}, 'mcpServer: unknown key; did you mean "mcpServers"?'),
        ({"tool_search": {}}, 'tool_search: unknown key; did you mean "toolSearch"?'),
        ({"toolSearch": {"maxToolLimit": 5}}, 'toolSearch.maxToolLimit: unknown key; did you mean "maxToolsLimit"?'),
        ({"safety": {"xyzzy": 5}}, "safety.xyzzy: unknown key; known: ask, changed, inheritEnv, new, scan"),
        ({"models": {"openai": {}, "fast": "opena/gpt-5"}}, 'models.fast: unknown upstream; did you mean "openai"?'),
        (
            {"models": {"openai": {}, "fast": ["openai/a", "gpt-5"]}},
            "models.fast[1]: is not an upstream (an object) or an alias; "
            'for an alias, write "upstream/model", or a list of these',
        ),
        (
            {"models": {"openai": {}, "fast": []}},
            'models.fast: must name 1 to 10 models; write "upstream/model", or a list of these',
        ),
        ({"models": {"openai": {"key": "a", "keys": ["b"]}}}, 'models.openai.keys: repeats "key"; keep one of the two'),
        (
            {"models": {"openai": {"keys": [""]}}},
            "models.openai.keys: one of the keys is empty; set its variable, or remove it",
        ),
        (
            {"toolSearch": {"learn": False}},
            "toolSearch.learn: unknown key; learning from use was removed in version 0.2; delete this key",
        ),
        (
            {"toolSearch": {"maxToolsLimit": "many"}},
            "toolSearch.maxToolsLimit: must be an integer from 0 to 1,000,000, not a string",
        ),
        (
            {"toolSearch": {"maxToolsLimit": True}},
            "toolSearch.maxToolsLimit: must be an integer from 0 to 1,000,000, not true",
        ),
        (
            {"toolSearch": {"maxToolsLimit": 1.5}},
            "toolSearch.maxToolsLimit: must be an integer from 0 to 1,000,000, not a number",
        ),
        ({"toolSearch": {"searchThreshold": 1.5}}, "toolSearch.searchThreshold: must be a number from 0 to 1"),
        ({"toolSearch": {"searchThreshold": float("nan")}}, "toolSearch.searchThreshold: must be a number from 0 to 1"),
        (
            {"toolSearch": {"mode": "dynamik"}},
            'toolSearch.mode: must be one of "auto", "direct", "search", "dynamic"; did you mean "dynamic"?',
        ),
        (
            {"toolSearch": {"mode": None}},
            'toolSearch.mode: must be one of "auto", "direct", "search", "dynamic", not null',
        ),
        (
            {"toolSearch": {"toolSelectionOrder": ["usage"]}},
            'toolSearch.toolSelectionOrder[0]: must be a list of "server_priority", "alphabetical", "random"',
        ),
        (
            {"toolSearch": {"toolSelectionOrder": "random"}},
            "toolSearch.toolSelectionOrder: must be a list of "
            '"server_priority", "alphabetical", "random", not a string',
        ),
        ({"toolSearch": {"debug": "yes"}}, "toolSearch.debug: must be true or false, not a string"),
        ({"toolSearch": {"alwaysExpose": "x"}}, "toolSearch.alwaysExpose: must be a list of strings, not a string"),
        ({"http": {"requestsPerMinute": 0}}, "http.requestsPerMinute: must be an integer from 1 to 1,000,000, or null"),
        ({"http": {"host": 1}}, "http.host: must be a string, not a number"),
        ({"http": []}, "http: must be an object, not a list"),
        ({"mcpServers": {"x": None}}, "mcpServers.x: must be an object, not null"),
        ({"mcpServers": {"x": {}}}, 'mcpServers.x: has neither "command" nor "url"; add one of the two, or "openapi"'),
        (
            {"mcpServers": {"x": {"command": "a", "url": "https://b"}}},
            'mcpServers.x: has both "command" and "url"; keep one of the two',
        ),
        (
            {"mcpServers": {"x": {"command": "a", "type": "http"}}},
            'mcpServers.x.type: a server with a "command" has the type "stdio"',
        ),
        (
            {"mcpServers": {"x": {"url": "https://b", "type": "stdio"}}},
            'mcpServers.x.type: a server with a "url" has the type "http" or "sse"',
        ),
        (
            {"mcpServers": {"x": {"url": "ftp://user:secret@b"}}},
            "mcpServers.x.url: must be a URL such as https://example.com/mcp",
        ),
        (
            {"mcpServers": {"x": {"url": "https://[b"}}},
            "mcpServers.x.url: must be a URL such as https://example.com/mcp",
        ),
        *(
            ({"mcpServers": {"x": {"openapi": "x.json", **token, **more}}}, f"mcpServers.x.oauthTokenUrl: {problem}")
            for token, more, problem in (
                (TOKEN | {"oauthTokenUrl": "auth"}, {}, "must be a URL such as https://auth.example.com/token"),
                (
                    TOKEN | {"oauthTokenUrl": "http://a.example/t"},
                    {},
                    "must be an https URL, because credentials are sent to it",
                ),
                ({"oauthTokenUrl": "https://a.example/t"}, {}, "needs `oauthClientId` and `oauthClientSecret`"),
                (TOKEN, {"basicAuth": "a:b"}, "excludes `basicAuth` and a header `Authorization`; keep one"),
                (
                    TOKEN,
                    {"headers": {"authorization": "x"}},
                    "excludes `basicAuth` and a header `Authorization`; keep one",
                ),
            )
        ),
        ({"mcpServers": {"x": {"comand": "a"}}}, 'mcpServers.x.comand: unknown key; did you mean "command"?'),
        (
            {"mcpServers": {"x": {"command": "a", "args": ["b", 1]}}},
            "mcpServers.x.args[1]: must be a string, not a number",
        ),
        (
            {"mcpServers": {"x": {"command": "a", "env": {"A": ["secret"]}}}},
            "mcpServers.x.env.A: must be a string, not a list",
        ),
        (
            {"mcpServers": {"x": {"command": "a", "env": "secret"}}},
            "mcpServers.x.env: must be an object of strings, not a string",
        ),
        (
            {"mcpServers": {"a.b": {"command": "a", "alias": "a b"}}},
            "mcpServers['a.b'].alias: must be 1 to 32 letters, digits, underscores, dots or hyphens",
        ),
        (
            {"mcpServers": {"a\nb": {"command": "a"}}},
            "mcpServers['a\\nb']: the name of a server must be a line of text; rename it",
        ),
        (
            {"mcpServers": {"a\ud83d": {"command": "a"}}},
            "mcpServers['a\\ud83d']: the name of a server must be a line of text; rename it",
        ),
        (
            {"mcpServers": {"a": {"command": "a"}, "b": {"command": "a", "alias": "a"}}},
            'mcpServers.b.alias: the tools of this server and of "a" would have the same prefix "a"; '
            "give one of them another alias",
        ),
        (
            {"profiles": {"p": {"servers": ["githup"]}}, "mcpServers": {"github": {"command": "a"}}},
            'profiles.p.servers[0]: unknown server; did you mean "github"?',
        ),
        ({"profiles": {"p": {"servers": ["githup"]}}}, "profiles.p.servers[0]: unknown server; none are defined"),
        (
            {"profiles": {"a/b": {}}},
            "profiles['a/b']: the name of a profile is part of a URL: use at most 64 letters, "
            "digits, underscores, dots and hyphens",
        ),
        ({"auth": {"key": []}}, 'auth.key: unknown key; did you mean "keys"?'),
        ({"auth": {"keys": "secret"}}, "auth.keys: must be a list of keys"),
        ({"auth": {"keys": ["short"]}}, "auth.keys[0]: a key must have at least 8 characters"),
        ({"auth": {"keys": [{}]}}, 'auth.keys[0]: must have either "key" or "hash"'),
        (
            {"auth": {"keys": [{"hash": "secret"}]}},
            "auth.keys[0].hash: must be the SHA-256 of a key, 64 hexadecimal digits",
        ),
        (
            {"auth": {"keys": [{"key": "a secret key", "profil": "x"}]}},
            'auth.keys[0].profil: unknown key; did you mean "profile"?',
        ),
        (
            {"auth": {"keys": [{"key": "a secret key", "profile": "x"}]}},
            "auth.keys[0].profile: unknown profile; none are defined",
        ),
        ({"auth": {"keys": ["a secret key", "a secret key"]}}, "auth.keys[1]: is the same as another key; remove one"),
        ({"models": {"mine": {"api": "openai"}}}, "models.mine.url: must be a URL such as https://api.openai.com"),
        ({"store": "foo.db"}, "store: is not a URL; use sqlite:///toolcrib.db or postgresql://user@host/database"),
        (
            {"store": "mysql://hush@x"},
            "store: 'mysql' is not supported; use sqlite:///toolcrib.db or postgresql://user@host/database",
        ),
        (
            {"http": {"host": ""}},
            "http.host: is empty; use 127.0.0.1 for this machine only, or 0.0.0.0 for all interfaces",
        ),
        (
            {"http": {"allowedHosts": ["a.example", "https://tools.example.com"]}},
            "http.allowedHosts[1]: must be a host name such as tools.example.com, without https:// or a path",
        ),
        (
            {"http": {"allowedOrigins": ["example.com"]}},
            "http.allowedOrigins[0]: must be an origin such as https://example.com, without a path",
        ),
        (
            {"mcpServers": {}, "servers": {}},
            'servers: defines servers in addition to "mcpServers"; keep one of the two',
        ),
        (
            {"safety": {"new": "hold", "changed": "off"}},
            'safety.new: new tools are recognized by comparing definitions; set "changed" to "block" or "warn"',
        ),
        ({"http": {}, "httpServer": {}}, 'httpServer: repeats "http"; keep one of the two'),
    ],
)
def test_error_names_the_path_and_the_fix(document: object, message: str) -> None:
    error = _parse_error(document)
    assert str(error) == message
    assert "secret" not in str(error)


def test_too_many_entries_are_rejected() -> None:
    servers = {f"s{number}": {"command": "a"} for number in range(1001)}
    assert str(_parse_error({"mcpServers": servers})) == "mcpServers: at most 1,000 servers are allowed"
    keys = [f"a secret key {number}" for number in range(10_001)]
    assert str(_parse_error({"auth": {"keys": keys}})) == "auth.keys: at most 10,000 keys are allowed"
    long = {"x" * 129: {"command": "a"}}
    assert "at most 128 characters" in str(_parse_error({"mcpServers": long}))


def test_missing_variable_is_named_with_its_path_and_all_others() -> None:
    document = {
        "mcpServers": {
            "a": {"command": "x", "env": {"T": "${FIRST}"}, "args": ["${SECOND}"]},
            "b": {"command": "x", "enabled": False, "env": {"T": "${FOURTH:-}"}},
        },
        "auth": {"keys": ["${THIRD}"]},
    }
    assert str(_parse_error(document)) == (
        "auth.keys[0]: the environment variable THIRD is not set; set it, or add a "
        "default: ${THIRD:-…}; also not set: FIRST, SECOND"
    )
    assert _parse_error(document).path == ("auth", "keys", 0)
    assert str(_parse_error(document, FIRST="1", SECOND="2")) == (
        "auth.keys[0]: the environment variable THIRD is not set; set it, or add a default: ${THIRD:-…}"
    )


def test_variable_may_hold_a_number_or_a_boolean() -> None:
    document = {
        "http": {"port": "${PORT}", "sessionIdleSeconds": "${IDLE:-2.5}"},
        "toolSearch": {"debug": "${DEBUG}", "mode": "${MODE}"},
    }
    config = _parse(document, PORT="99", DEBUG="TRUE", MODE="search")
    assert config.http.port == 99
    assert config.http.session_idle_seconds == 2.5
    assert config.tool_search.debug is True
    assert config.tool_search.mode == "search"
    error = _parse_error(document, PORT="secret", DEBUG="false", MODE="auto")
    assert str(error) == "http.port: must be an integer from 0 to 65,535, not a string"
    error = _parse_error(document, PORT="99999", DEBUG="false", MODE="auto")
    assert str(error) == "http.port: must be an integer from 0 to 65,535"
    assert "toolSearch.debug" in str(_parse_error(document, PORT="1", DEBUG="1", MODE=""))


def test_host_and_origin_patterns_are_accepted() -> None:
    hosts = ["*", "*.example.com", "tools:8787", "[::1]:80", "10.0.0.1"]
    origins = ["*", "null", "https://a.example:8443/", "vscode-webview://0abc"]
    http = _parse({"http": {"allowedHosts": hosts, "allowedOrigins": origins}}).http
    assert (list(http.allowed_hosts), list(http.allowed_origins)) == (hosts, origins)


def test_integer_may_be_written_with_a_decimal_point() -> None:
    assert _parse({"http": {"port": 80.0}}).http.port == 80


def test_secrets_are_left_out_of_repr() -> None:
    config = _parse(
        {
            "mcpServers": {
                "a": {"command": "x", "args": ["--key=hush"], "env": {"A": "hush"}},
                "b": {"url": "https://hush@example.com", "headers": {"A": "hush"}},
            },
            "models": {"openai": {"key": "hush", "url": "https://hush", "headers": {"a": "hush"}}},
            "auth": {"keys": ["hush hush hush"]},
            "store": "sqlite:///hush.db",
        }
    )
    assert "hush" not in repr(config)
    assert ApiKey.from_secret("hush hush hush").hash not in repr(config)


def test_server_with_an_unset_variable_has_a_problem() -> None:
    document = {
        "mcpServers": {
            "a": {"command": "x", "env": {"T": "${UNSET}"}, "alias": "y"},
            "b": {"command": "x", "env": {"T": "${SET}"}},
        }
    }
    config = parse_config(document, {"SET": "1"})
    problems = ["the environment variable UNSET is not set", ""]
    assert [server.problem for server in config.servers.values()] == problems
    assert config.servers["a"].alias == "y"
    with pytest.raises(InvalidConfig, match="KEY is not set"):
        parse_config({**document, "auth": {"keys": ["${KEY}"]}}, {"SET": "1"})
