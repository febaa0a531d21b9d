"""Every section of the configuration as a frozen dataclass, with defaults, ranges and descriptions.

The parser, the JSON Schema and the tables of the reference page are derived from these
declarations. Times are in seconds. Fields that may hold a secret are left out of `repr`, so that a
configuration can be logged.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from toolcrib.config.fields import list_settings, setting
from toolcrib.config.server_settings import ServerConfig

MIB: Final = 1024 * 1024
_GIB: Final = 1024 * MIB
_DAY: Final = 86_400.0
_MILLION: Final = 1_000_000

# A host name or address with an optional port, as in a `Host` header.
HOST_PATTERN: Final = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,255})(?::([0-9]{1,5}))?")

ExposureMode = Literal["auto", "direct", "search", "dynamic"]
OnSearch = Literal["replace", "extend"]
Detail = Literal["summary", "names", "schema"]
SelectionOrder = Literal["server_priority", "alphabetical", "random"]
ChangedAction = Literal["block", "warn", "off"]
NewToolAction = Literal["auto", "hold", "trust"]
ScanAction = Literal["flag", "block", "off"]
EditSwitch = Literal["local", "on", "off"]
CallTools = Literal["single", "by_risk"]
AskBefore = Literal["never", "destructive", "write"]
LlmApi = Literal["messages", "openai", "chat", "gemini"]
LlmSearchSwitch = Literal["auto", "on", "off", "native"]
LlmSearchRanking = Literal["default", "exact", "hybrid"]
LlmSearchStyle = Literal["auto", "dispatch", "reveal"]
LlmTier = Literal["hidden", "stub"]


@dataclass(frozen=True, slots=True)
class ToolSearchConfig:
    """Which tools an MCP client sees, and how it searches the others."""

    max_tools_limit: int = setting(50, "The maximum number of tools listed before a search; 0 lists all.", 0, _MILLION)
    search_threshold: float = setting(0.1, "Leave out results with a lower score.", 0, 1)
    confident_from: float = setting(0.5, "A search with a lower confidence reports that no tool fits.", 0, 1)
    tool_selection_order: tuple[SelectionOrder, ...] = setting(
        ("server_priority",), "Which tools to list first; later entries break ties of earlier ones."
    )
    always_expose: tuple[str, ...] = setting((), "Tools to list always: `server___tool`, or a pattern.")
    mode: ExposureMode = setting(
        "auto",
        "`direct` lists all tools, `search` lists a search tool and a few others, `dynamic` lists "
        "the tools that searches found, and `auto` chooses by client and number of tools.",
    )
    on_search: OnSearch = setting(
        "replace", "In `dynamic` mode, whether results replace or extend the list of the session."
    )
    debug: bool = setting(False, "Log how each search was ranked.")
    detail: Detail = setting(
        "summary", "What a search result shows: a line with the signature, the name, or the schema."
    )
    max_result_chars: int = setting(20_000, "The maximum length of a search response.", 500, _MILLION)
    validate_arguments: bool = setting(True, "Validate the arguments of a call before forwarding.")
    call_tools: CallTools = setting(
        "single",
        "In `search` mode, list one `call_tool`, or one each for reading, writing and destructive tools, so that a "
        "client can allow them separately.",
    )
    prefix: bool = setting(True, "Prefix tool names with the server: `server___tool`.")
    max_name_chars: int = setting(64, "Shorten longer tool names to this length.", 20, 256)


@dataclass(frozen=True, slots=True)
class AccessProfile:
    """What some clients may use, selected by the path `/mcp/p/<name>` or by an API key."""

    name: str
    servers: tuple[str, ...] | None = setting(None, "Allow only these servers; null for all.")
    tools: tuple[str, ...] | None = setting(
        None, "Allow only tools that match one of these `server___tool` patterns; null for all."
    )
    always_expose: tuple[str, ...] = setting((), "Tools to list always, in addition to those of `toolSearch`.")
    mode: ExposureMode | None = setting(None, "The mode; null for the mode of `toolSearch`.")
    confident_from: float | None = setting(None, "The confidence threshold; null for that of `toolSearch`.", 0, 1)
    ask: AskBefore | None = setting(None, "Before which calls the user is asked; null for `ask` of `safety`.")
    overrides: Mapping[str, ToolOverride] = setting(
        {}, "Overrides for this profile, in addition to the shared ones and with priority; without `name`."
    )
    pins: Mapping[str, str] = setting(
        {},
        "Fingerprints of definitions by `server___tool`. If a tool has another definition, the profile cannot use it, "
        "even if it is approved for the others.",
    )
    record_content: bool | None = setting(
        None, "Whether the audit log has the arguments and results of calls; null for the setting of `audit`."
    )
    calls_per_minute: int | None = setting(
        None, "Calls per minute of all clients together; null for no limit.", 1, 10**9
    )
    searches_per_minute: int | None = setting(
        None, "Searches per minute of all clients together; null for no limit.", 1, 10**9
    )
    max_concurrent_calls: int | None = setting(
        None, "Calls of all clients together that run at the same time; null for no limit.", 1, _MILLION
    )
    result_bytes_per_minute: int | None = setting(
        None,
        "Bytes of results per minute of all clients together; null for no limit. The result that exceeds it is still "
        "delivered, and later calls are refused.",
        1024,
        10**12,
    )


@dataclass(frozen=True, slots=True)
class ApiKeyEntry:
    """An API key as the file defines it: the key or its hash, and the rights of its owner."""

    key: str = setting("", "The key.", secret=True)
    hash: str = setting("", "The SHA-256 of the key, in place of the key.", secret=True)
    profile: str | None = setting(None, "The access profile of the key; null for full access.")
    name: str | None = setting(None, "A name for logs and the audit.")
    tool_search: LlmSearchSwitch | None = setting(None, "Overrides `toolSearch` of the LLM upstream; null leaves it.")
    style: LlmSearchStyle | None = setting(None, "Overrides `style` of the LLM upstream; null leaves it.")
    tier: LlmTier | None = setting(None, "Overrides `tier` of the LLM upstream; null leaves it.")
    always_expose: tuple[str, ...] = setting((), "Added to `alwaysExpose` of the LLM upstream.")
    threshold_tools: int | None = setting(
        None, "Overrides `thresholdTools` of the LLM upstream; null leaves it.", 0, _MILLION
    )
    threshold_tokens: int | None = setting(
        None, "Overrides `thresholdTokens` of the LLM upstream; null leaves it.", 0, 100 * _MILLION
    )
    tokens_per_day: int | None = setting(
        None, "LLM tokens, in and out, that the key may use on a day in UTC; null for no limit.", 0, 10**12
    )
    requests_per_day: int | None = setting(
        None, "LLM requests that the key may send on a day in UTC; null for no limit.", 0, 10**12
    )


@dataclass(frozen=True, slots=True)
class LlmKeyExposure:
    """What an API key overrides of the settings of an LLM upstream; None leaves a setting."""

    style: LlmSearchStyle | None = None
    tier: LlmTier | None = None
    always_expose: tuple[str, ...] = ()
    threshold_tools: int | None = None
    threshold_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key that gives access to the gateway. Only its SHA-256 in hexadecimal is kept."""

    hash: str = field(repr=False)
    profile: str | None = None
    name: str = ""
    tool_search: LlmSearchSwitch | None = None
    exposure: LlmKeyExposure = LlmKeyExposure()
    tokens_per_day: int | None = None
    requests_per_day: int | None = None

    @classmethod
    def from_secret(
        cls, secret: str, profile: str | None = None, name: str = "", tool_search: LlmSearchSwitch | None = None
    ) -> ApiKey:
        """Return the key for a secret."""
        digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
        return cls(digest, profile, name, tool_search)


@dataclass(frozen=True, slots=True)
class AuthConfig:
    """Who may use the gateway. Without keys, everyone who can reach it."""

    keys: tuple[ApiKey, ...] = ()


@dataclass(frozen=True, slots=True)
class SafetyConfig:
    """How to treat tools whose definition changed or looks malicious."""

    changed: ChangedAction = setting(
        "block",
        "What to do when the definition of a tool differs from the approved one: quarantine the tool until you approve "
        "it, use it and warn, or do not compare definitions.",
    )
    scan: ScanAction = setting(
        "flag", "What to do when a definition contains hidden text or instructions to the model."
    )
    ask: AskBefore = setting(
        "never", "Before which calls the user is asked: none, destructive ones, or all that write."
    )
    new: NewToolAction = setting(
        "auto",
        "What to do with a new tool of a server whose tools are known: `hold` quarantines it until you approve it, and "
        "`trust` uses it. `auto` quarantines it if its definition looks hostile, or if its name is similar to that of a "
        "quarantined tool.",
    )
    inherit_env: tuple[str, ...] | None = setting(
        None,
        "Names or patterns of the environment variables that servers inherit from the gateway, besides `PATH`, `HOME` "
        "and a few others; null for all except `TOOLCRIB_*`.",
    )


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """The audit log: which searches, calls and changes are recorded, and for how long."""

    enabled: bool = setting(
        True, "Whether to record searches and calls. Approvals, keys and logins are always recorded."
    )
    record_content: bool = setting(
        False, "Record the arguments and results of calls, with secrets removed. A profile can override it."
    )
    retention_days: float = setting(30.0, "Delete older rows.", 0.01, 3_650)
    max_rows: int = setting(1_000_000, "Delete the oldest rows over this number.", 1_000, 100 * _MILLION)
    export: str = setting("", "A file to which each row is also appended as a line of JSON; `-` for standard output.")


@dataclass(frozen=True, slots=True)
class ToolOverride:
    """Your own texts and parameters for a tool, or for all tools that match a pattern."""

    pattern: str
    name: str = setting("", "Another name of the tool, without the prefix; not for a pattern.")
    title: str | None = setting(None, "The title; null for that of the server.")
    description: str | None = setting(None, "The description; null for that of the server.")
    hint: str | None = setting(None, "Further words by which the tool is found. The model does not see them.")
    tags: tuple[str, ...] | None = setting(None, "Tags by which the tool is found and filtered.")
    hidden_parameters: tuple[str, ...] = setting((), "Parameters that the model does not see and cannot set.")
    fixed_parameters: Mapping[str, Any] = setting(
        {}, "Values that every call gets. The model does not see and cannot set these parameters."
    )
    annotations: Mapping[str, Any] = setting(
        {}, "Annotations such as `readOnlyHint`, in addition to those of the server."
    )
    result_budget_tokens: int | None = setting(
        None, "`budgetTokens` of `results` for this tool; null for that of the server.", 0, _MILLION
    )

    @property
    def removed_parameters(self) -> frozenset[str]:
        """The parameters that the model does not see."""
        return frozenset((*self.hidden_parameters, *self.fixed_parameters))

    @property
    def changed_fields(self) -> tuple[str, ...]:
        """The keys that the override sets."""
        return tuple(one.key for one in list_settings(ToolOverride) if getattr(self, one.name) != one.default)

    def prepare_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call without hidden parameters and with the fixed ones."""
        visible = {name: value for name, value in arguments.items() if name not in self.hidden_parameters}
        return {**visible, **self.fixed_parameters}


@dataclass(frozen=True, slots=True)
class CodeModeConfig:
    """The tool `run_code`, with which a model calls tools in a Python script."""

    enabled: bool = setting(False, "Whether to list `run_code`. It needs the extra `code`.")
    max_seconds: float = setting(10.0, "The computing time of a script, without the calls.", 0.1, 600)
    total_seconds: float = setting(300.0, "The time of a script with its calls, without approvals.", 1, 3600)
    max_memory_bytes: int = setting(128 * MIB, "The memory of a script.", MIB, 4 * _GIB)
    max_calls: int = setting(100, "The maximum number of calls of a script.", 1, 10_000)


@dataclass(frozen=True, slots=True)
class ResultsConfig:
    """How large results of tools are shown: above the budget, a preview, and the rest on request."""

    budget_tokens: int = setting(
        10_000, "A result with more tokens is stored, and the model gets a preview; 0 for no limit.", 0, _MILLION
    )
    preview_tokens: int = setting(1_500, "The maximum number of tokens of a preview.", 200, 100_000)
    read_tokens: int = setting(2_000, "The maximum number of tokens that `read_result` returns.", 200, 100_000)
    keep_seconds: float = setting(_DAY, "Delete a stored result after this time.", 60, 30 * _DAY)
    max_stored_bytes: int = setting(
        256 * MIB, "The maximum size of all stored results, compressed; the oldest are deleted.", MIB, 100 * _GIB
    )


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """The HTTP server of the gateway."""

    host: str = setting("127.0.0.1", "The address to listen on.")
    port: int = setting(8787, "The port to listen on; 0 for any free port.", 0, 65_535)
    allowed_hosts: tuple[str, ...] = setting(
        (), "Host names to accept requests for, in addition to those of this machine."
    )
    allowed_origins: tuple[str, ...] = setting(
        (), "Web origins to accept requests from, such as `https://example.com`."
    )
    max_body_bytes: int = setting(32 * MIB, "A larger request is rejected.", 1024, _GIB)
    requests_per_minute: int | None = setting(None, "The rate limit of each API key; null for no limit.", 1, _MILLION)
    max_sessions: int = setting(10_000, "The maximum number of open MCP sessions.", 1, _MILLION)
    session_idle_seconds: float = setting(1800.0, "Close an MCP session after this idle time.", 1, _DAY)
    drain_seconds: float = setting(
        0.0, "After SIGTERM, report for this time that the gateway is not ready, but accept requests.", 0, 600
    )
    shutdown_seconds: float = setting(20.0, "When the gateway stops, the time to finish its requests.", 0, 3600)
    server_edits: EditSwitch = setting(
        "local",
        "Whether the console and `/api` may test and edit servers, which are programs on this machine: `local` only if "
        "the gateway listens on this machine only, `on` always for keys with full access, `off` never.",
    )


@dataclass(frozen=True, slots=True)
class LlmUpstreamConfig:
    """An LLM API that requests are forwarded to."""

    name: str
    api: LlmApi = setting(
        "messages",
        "`messages` for Anthropic's API, `openai` for OpenAI's two, `chat` for a server that has only Chat "
        "Completions, `gemini` for Google's. The default for an upstream named `openai` or `gemini` is that name.",
    )
    url: str = setting("", "The base URL, without the path of the API; a trailing `/v1` is removed.", secret=True)
    key: str = setting("", "The API key; empty forwards the key of the client.", secret=True)
    keys: tuple[str, ...] = setting(
        (), "Several API keys. The next one is used while one is refused or over its rate limit.", secret=True
    )
    models: tuple[str, ...] = setting(
        ("*",), "Patterns of model names. The first upstream with a matching pattern is used."
    )
    headers: Mapping[str, str] = setting({}, "HTTP headers to send with every request.", secret=True)
    tool_search: LlmSearchSwitch = setting(
        "auto",
        "Search tools in the gateway when there are many, always, or never; `native` leaves the search to the API.",
    )
    search: LlmSearchRanking = setting(
        "default",
        "How to rank tools: `exact` like the API's own search, or `hybrid`; `default` is `exact` "
        "for patterns and `hybrid` for natural language.",
    )
    style: LlmSearchStyle = setting(
        "auto",
        "How a model gets deferred tools: `dispatch` calls them through `call_tool` and keeps the prompt cache, "
        "`reveal` adds them to the list of tools, and `auto` chooses by model, price and size.",
    )
    tier: LlmTier = setting(
        "hidden", "What a model sees of deferred tools before a search: nothing, or with `stub` name and description."
    )
    always_expose: tuple[str, ...] = setting((), "Patterns of the names of tools that are never deferred.")
    threshold_tools: int | None = setting(
        None, "Overrides `thresholdTools` of `modelGateway`; null leaves it.", 0, _MILLION
    )
    threshold_tokens: int | None = setting(
        None, "Overrides `thresholdTokens` of `modelGateway`; null leaves it.", 0, 100 * _MILLION
    )
    prefetch: bool = setting(
        True,
        "In `dispatch`, search with each short message of the user, and add the definitions that fit with high "
        "confidence to it.",
    )
    cached_price: float | None = setting(
        None,
        "The price of a cached input token as a share of that of an uncached one; null for that of the model.",
        0,
        1,
    )
    connect_seconds: float = setting(10.0, "Timeout for connecting.", 0.1, 600)
    read_seconds: float = setting(600.0, "Timeout while no data arrives.", 0.1, _DAY)
    retries: int = setting(2, "How often to retry a request that got no response.", 0, 10)
    max_response_bytes: int = setting(64 * MIB, "A larger response is cut off with an error.", 1024, _GIB)

    @property
    def api_keys(self) -> tuple[str, ...]:
        """The configured API keys, in the order in which they are used."""
        return (self.key,) if self.key else self.keys


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """The target of an alias: the name of an upstream, and the name of a model there."""

    upstream: str
    model: str


@dataclass(frozen=True, slots=True)
class LlmGatewayConfig:
    """Tool search in front of LLM APIs. Upstreams are tried in the order of the file."""

    upstreams: tuple[LlmUpstreamConfig, ...] = ()
    # Further names of models. The targets after the first are fallbacks.
    aliases: Mapping[str, tuple[ModelTarget, ...]] = field(default_factory=dict)
    threshold_tools: int = setting(31, "Search if a request has at least this number of tools.", 0, _MILLION)
    threshold_tokens: int = setting(
        10_000, "Search if the tool definitions have at least this number of tokens.", 0, 100 * _MILLION
    )
    max_rounds: int = setting(10, "The maximum number of searches in a row in a request.", 1, 100)
    max_tools: int = setting(10_000, "A request with more tools is rejected.", 1, _MILLION)
    max_conversations: int = setting(4096, "The maximum number of conversations to remember.", 1, _MILLION)
    engine_cache: int = setting(64, "The number of tool indexes to cache.", 1, 10_000)


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """Your own embedder for the searches of MCP clients; the built-in encoder is the fallback."""

    url: str = setting(
        "",
        "The URL of an OpenAI-compatible embeddings API, such as `http://localhost:11434/v1`; empty "
        "for the built-in encoder.",
        secret=True,
    )
    model: str = setting("", "The name of the embedding model.")
    key: str = setting("", "The API key, sent as a bearer token.", secret=True)
    dimensions: int | None = setting(
        None, "The number of dimensions to request; null for the default of the model.", 1, 100_000
    )
    query_prefix: str = setting("", "A prefix for queries.")
    tool_prefix: str = setting("", "A prefix for the texts of tools.")
    timeout_seconds: float = setting(5.0, "Timeout of a request.", 0.1, 600)
    threshold: float = setting(
        0.3, "The similarity from which a tool matches; it depends on the model.", 0, 1, key="floor"
    )


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """The complete configuration; `path` is the file it was read from."""

    servers: Mapping[str, ServerConfig] = field(default_factory=dict)
    tool_search: ToolSearchConfig = ToolSearchConfig()
    profiles: Mapping[str, AccessProfile] = field(default_factory=dict)
    llm_gateway: LlmGatewayConfig = LlmGatewayConfig()
    store: str = setting(
        "sqlite:///toolcrib.db", "The URL of the database: `sqlite:///…` or `postgresql://…`.", secret=True
    )
    journal: str = setting(
        "",
        "The folder in which a gateway keeps what it has recorded until it is in the database, so that a killed gateway "
        "loses nothing. By default it is next to the SQLite file or this file.",
    )
    token_keys: tuple[str, ...] = setting(
        (),
        "Keys that encrypt the OAuth tokens of servers in the store. The first encrypts, all decrypt. Without keys, "
        "tokens are in files next to a SQLite store.",
        secret=True,
    )
    auth: AuthConfig = AuthConfig()
    safety: SafetyConfig = SafetyConfig()
    http: HttpConfig = HttpConfig()
    embedding: EmbeddingConfig = EmbeddingConfig()
    audit: AuditConfig = AuditConfig()
    results: ResultsConfig = ResultsConfig()
    code_mode: CodeModeConfig = CodeModeConfig()
    overrides: Mapping[str, ToolOverride] = field(default_factory=dict)
    path: Path | None = None
    # Messages about settings in the file that have no effect.
    notes: tuple[str, ...] = field(default=(), compare=False)
