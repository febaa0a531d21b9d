"""What can be configured: one frozen value for each part, every setting with its default and limit.

A setting is told once, here: its JSON key, what it means, its default and its range. The reader,
the JSON Schema and the reference page follow. Times are in seconds. What may hold a secret is left
out of `repr`, so that a configuration can be logged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from toolcrib.config.setting import mapping, setting

MIB: Final = 1024 * 1024
_GIB: Final = 1024 * MIB
_DAY: Final = 86_400.0
_MANY: Final = 1_000_000

Transport = Literal["stdio", "http", "sse"]
DeferTools = Literal["auto", "always", "never"]
StartPolicy = Literal["eager", "lazy"]
ProtocolChoice = Literal["auto", "legacy", "2026-07-28"]
ExposureMode = Literal["auto", "direct", "search", "dynamic"]
OnSearch = Literal["replace", "extend"]
Detail = Literal["summary", "names", "schema"]
SelectionOrder = Literal["server_priority", "alphabetical", "random"]
ChangedAction = Literal["block", "warn", "off"]
ScanAction = Literal["flag", "block", "off"]
LlmApi = Literal["messages", "openai"]
LlmSearchSwitch = Literal["auto", "on", "off", "native"]
LlmSearchRanking = Literal["default", "exact", "hybrid"]


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """An MCP server to draw tools from. The order of the servers in the file is their priority."""

    name: str
    command: str = setting("command", "", "The program to start, for a server on standard input.")
    args: tuple[str, ...] = setting("args", (), "The program's arguments.", secret=True)
    env: Mapping[str, str] = mapping("env", "Environment variables for the program.")
    cwd: str | None = setting("cwd", None, "The folder to start the program in.")
    url: str = setting("url", "", "The address of a server on HTTP.", secret=True)
    headers: Mapping[str, str] = mapping("headers", "HTTP headers to send with every request.")
    oauth_client_id: str = setting(
        "oauthClientId", "", "For `toolcrib login`, where a server lets nobody register by itself."
    )
    oauth_client_secret: str = setting(
        "oauthClientSecret", "", "The secret that belongs to `oauthClientId`.", secret=True
    )
    transport: Transport = setting(
        "type", "stdio", "How to reach it. With a `url`, `http` unless told otherwise."
    )
    enabled: bool = setting("enabled", True, "Whether the server is used at all.")
    alias: str = setting("alias", "", "A short id to use in tool names in place of its name.")
    defer_tools: DeferTools = setting(
        "deferTools",
        "auto",
        "Whether its tools wait to be searched for: by the mode's rule, always, or never.",
    )
    start: StartPolicy = setting(
        "start", "eager", "Start it with the gateway, or on the first call of one of its tools."
    )
    idle_seconds: float = setting(
        "idleSeconds", 300.0, "A lazy server is stopped when it is unused for so long.", 1, _DAY
    )
    connect_seconds: float = setting(
        "connectSeconds", 30.0, "How long starting and connecting may take.", 0.1, 3600
    )
    call_seconds: float = setting("callSeconds", 120.0, "How long one call may take.", 0.1, _DAY)
    answer_seconds: float = setting(
        "answerSeconds",
        600.0,
        "How long a client may take to answer what the server asks it during a call; this does not "
        "count as time of the call.",
        0.1,
        _DAY,
    )
    max_result_bytes: int = setting(
        "maxResultBytes", 8 * MIB, "A larger answer is refused.", 1024, _GIB
    )
    protocol: ProtocolChoice = setting("era", "auto", "Which protocol to speak; `auto` finds out.")
    tools_allowed: tuple[str, ...] = setting(
        "toolsAllowed", (), "Only tools whose names fit one of these patterns; empty for all."
    )
    tools_blocked: tuple[str, ...] = setting(
        "toolsBlocked", (), "No tools whose names fit one of these patterns."
    )


@dataclass(frozen=True, slots=True)
class ToolSearchConfig:
    """What an MCP client is shown, and how searches are answered."""

    max_tools_limit: int = setting(
        "maxToolsLimit", 50, "Show at most so many tools before a search; 0 shows all.", 0, _MANY
    )
    search_threshold: float = setting(
        "searchThreshold", 0.1, "Finds that score below this are left out.", 0, 1
    )
    confident_from: float = setting(
        "confidentFrom", 0.5, "A search that is less sure than this says that nothing fits.", 0, 1
    )
    tool_selection_order: tuple[SelectionOrder, ...] = setting(
        "toolSelectionOrder",
        ("server_priority",),
        "Which tools are shown first; the later ones decide ties of the earlier.",
    )
    always_expose: tuple[str, ...] = setting(
        "alwaysExpose", (), "Tools that are always shown: `server___tool`, or a pattern."
    )
    mode: ExposureMode = setting(
        "mode",
        "auto",
        "`direct` shows all tools, `search` a constant few with a search tool, `dynamic` a list "
        "that searches change; `auto` decides by client and number of tools.",
    )
    on_search: OnSearch = setting(
        "onSearch", "replace", "In `dynamic` mode, what finds do to the list of the session."
    )
    debug: bool = setting("debug", False, "Log how each search came about.")
    detail: Detail = setting(
        "detail", "summary", "What a find tells: one line with its signature, its name, or all."
    )
    max_result_chars: int = setting(
        "maxResultChars", 20_000, "How long the answer of a search may be.", 500, _MANY
    )
    validate_arguments: bool = setting(
        "validateArguments", True, "Check the arguments of a call before it is passed on."
    )
    prefix: bool = setting(
        "prefix", True, "Put the server before the tool's own name: `server___tool`."
    )
    max_name_chars: int = setting(
        "maxNameChars", 64, "Longer tool names are shortened to this.", 20, 256
    )


@dataclass(frozen=True, slots=True)
class AccessProfile:
    """What some clients may see: chosen by the address `/mcp/p/<name>` or by an API key."""

    name: str
    servers: tuple[str, ...] | None = setting("servers", None, "Only these servers; null for all.")
    tools: tuple[str, ...] | None = setting(
        "tools", None, "Only tools that fit one of these patterns of `server___tool`; null for all."
    )
    always_expose: tuple[str, ...] = setting(
        "alwaysExpose", (), "Tools that are always shown, besides those of `toolSearch`."
    )
    mode: ExposureMode | None = setting("mode", None, "The mode; null for that of `toolSearch`.")
    confident_from: float | None = setting(
        "confidentFrom", None, "How sure a search must be; null for that of `toolSearch`.", 0, 1
    )


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key that opens the gateway, kept as its SHA-256 in hexadecimal only."""

    hash: str = field(repr=False)
    profile: str | None = None
    name: str = ""
    # How tool search is switched on the model gateway; None leaves it to the upstream's setting.
    tool_search: LlmSearchSwitch | None = None

    @classmethod
    def from_secret(
        cls,
        secret: str,
        profile: str | None = None,
        name: str = "",
        tool_search: LlmSearchSwitch | None = None,
    ) -> ApiKey:
        """The key that is this secret."""
        digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
        return cls(digest, profile, name, tool_search)


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """Who may use the gateway; without keys, whoever reaches it."""

    keys: tuple[ApiKey, ...] = ()


@dataclass(frozen=True, slots=True)
class SafetyConfig:
    """What to do about tools that are not what they were, or that look hostile."""

    changed: ChangedAction = setting(
        "changed", "block", "When the definition of a tool is not the one that was approved."
    )
    scan: ScanAction = setting("scan", "flag", "When a definition has hidden text or gives orders.")


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """How the gateway listens."""

    host: str = setting("host", "127.0.0.1", "The address to listen on.")
    port: int = setting("port", 8787, "The port to listen on; 0 for any that is free.", 0, 65_535)
    allowed_hosts: tuple[str, ...] = setting(
        "allowedHosts", (), "Names it may be called by, besides those of this machine."
    )
    allowed_origins: tuple[str, ...] = setting(
        "allowedOrigins", (), "Web pages that may call it, such as `https://example.com`."
    )
    max_body_bytes: int = setting(
        "maxBodyBytes", 16 * MIB, "A larger request is refused.", 1024, _GIB
    )
    requests_per_minute: int | None = setting(
        "requestsPerMinute", None, "For each API key; null for no limit.", 1, _MANY
    )
    max_sessions: int = setting(
        "maxSessions", 10_000, "How many MCP sessions may be open at once.", 1, _MANY
    )
    session_idle_seconds: float = setting(
        "sessionIdleSeconds", 1800.0, "An MCP session is closed when unused for so long.", 1, _DAY
    )


@dataclass(frozen=True, slots=True)
class LlmUpstreamConfig:
    """A model API that requests are passed on to."""

    name: str
    api: LlmApi = setting(
        "api",
        "messages",
        "Anthropic's Messages API, or OpenAI's two; one that is named `openai` has the latter.",
    )
    url: str = setting(
        "url",
        "",
        "The base address, without the path of the API; a `/v1` at its end is left out.",
        secret=True,
    )
    key: str = setting(
        "key", "", "The API key to use; empty passes on the one of the client.", secret=True
    )
    models: tuple[str, ...] = setting(
        "models", ("*",), "Patterns of model names that go here; the first upstream that fits."
    )
    headers: Mapping[str, str] = mapping("headers", "HTTP headers to send with every request.")
    tool_search: LlmSearchSwitch = setting(
        "toolSearch",
        "auto",
        "Search here when tools are many, always, or never; `native` leaves it to the API.",
    )
    search: LlmSearchRanking = setting(
        "search",
        "default",
        "How tools are found: as the API's own search does, or by words and meaning; `default` is "
        "`exact` for patterns and `hybrid` for plain language.",
    )
    connect_seconds: float = setting(
        "connectSeconds", 10.0, "How long connecting may take.", 0.1, 600
    )
    read_seconds: float = setting(
        "readSeconds", 600.0, "How long the API may be silent.", 0.1, _DAY
    )
    retries: int = setting(
        "retries", 2, "How often a request is sent again when nothing came back.", 0, 10
    )
    max_response_bytes: int = setting(
        "maxResponseBytes", 64 * MIB, "A larger answer is cut off with an error.", 1024, _GIB
    )


@dataclass(frozen=True, slots=True)
class LlmGatewayConfig:
    """Tool search in front of model APIs. The order of the upstreams is the order of the file."""

    upstreams: tuple[LlmUpstreamConfig, ...] = ()
    threshold_tools: int = setting(
        "thresholdTools", 31, "Search when a request has at least so many tools.", 0, _MANY
    )
    threshold_tokens: int = setting(
        "thresholdTokens", 10_000, "Or when its tools take at least so many tokens.", 0, 100 * _MANY
    )
    max_rounds: int = setting(
        "maxRounds", 10, "How many searches in a row one request may make.", 1, 100
    )
    max_tools: int = setting("maxTools", 10_000, "A request with more tools is refused.", 1, _MANY)
    max_conversations: int = setting(
        "maxConversations", 4096, "How many conversations are remembered.", 1, _MANY
    )
    engine_cache: int = setting(
        "engineCache", 64, "How many sets of tools are kept ready to search.", 1, 10_000
    )


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """An embedder of your own for what MCP clients search; ours answers while it is down."""

    url: str = setting(
        "url",
        "",
        "The address of an embeddings API like OpenAI's, such as `http://localhost:11434/v1`; empty "
        "for the encoder that comes with Toolcrib.",
        secret=True,
    )
    model: str = setting("model", "", "The model's name, as the server knows it.")
    key: str = setting("key", "", "The API key, sent as a bearer token.", secret=True)
    dimensions: int | None = setting(
        "dimensions", None, "Ask for shorter vectors; null for the model's own.", 1, 100_000
    )
    query_prefix: str = setting("queryPrefix", "", "Put before what is searched for.")
    tool_prefix: str = setting("toolPrefix", "", "Put before what tools say of themselves.")
    timeout_seconds: float = setting(
        "timeoutSeconds", 5.0, "How long one request may take.", 0.1, 600
    )
    threshold: float = setting(
        "floor", 0.3, "The likeness from which on a tool fits; every model has its own.", 0, 1
    )


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Everything a gateway is told, read from one file; `path` is that file."""

    servers: Mapping[str, ServerConfig] = field(default_factory=dict)
    tool_search: ToolSearchConfig = ToolSearchConfig()
    profiles: Mapping[str, AccessProfile] = field(default_factory=dict)
    llm_gateway: LlmGatewayConfig = LlmGatewayConfig()
    store: str = setting(
        "store", "sqlite:///toolcrib.db", "Where what must last is kept.", secret=True
    )
    auth: AuthConfig = AuthConfig()
    safety: SafetyConfig = SafetyConfig()
    http: HttpConfig = HttpConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    path: Path | None = None
    # What stands in the file but has no effect here, in words, for people to be told.
    notes: tuple[str, ...] = field(default=(), compare=False)
