"""One server of the configuration as a frozen dataclass, with defaults, ranges and descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from toolcrib.config.fields import setting

_MIB: Final = 1024 * 1024
_GIB: Final = 1024 * _MIB
_DAY: Final = 86_400.0
_MILLION: Final = 1_000_000

Transport = Literal["stdio", "http", "sse", "openapi"]
DeferTools = Literal["auto", "always", "never"]
StartPolicy = Literal["eager", "lazy"]
Instances = Literal["shared", "user", "session"]
ReplicaChoice = Literal["each", "one"]
ProtocolChoice = Literal["auto", "legacy", "2026-07-28"]


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """An MCP server whose tools are offered. Servers that come first in the file have priority."""

    name: str
    command: str = setting("", "The program to start, for a server on standard input and output.")
    args: tuple[str, ...] = setting((), "The arguments of the program.", secret=True)
    env: Mapping[str, str] = setting({}, "Environment variables for the program.", secret=True)
    inherit_env: tuple[str, ...] | None = setting(
        None,
        "Names or patterns of the variables that the program inherits from the gateway, besides `PATH`, `HOME` and a "
        "few others; null for `inheritEnv` of `safety`.",
    )
    cwd: str | None = setting(None, "The working directory of the program.")
    url: str = setting("", "The URL of a server on HTTP.", secret=True)
    headers: Mapping[str, str] = setting({}, "HTTP headers to send with every request.", secret=True)
    openapi: str = setting(
        "", "An OpenAPI document, as a file or a URL. Its operations become tools, which call the API.", secret=True
    )
    base_url: str = setting("", "The URL of the API, instead of the one in the document.", secret=True)
    query: Mapping[str, str] = setting({}, "Query parameters to send with every request to the API.", secret=True)
    basic_auth: str = setting("", "`user:password` for the API.", secret=True)
    refresh_seconds: float = setting(
        600.0, "The interval at which the OpenAPI document is read again; 0 to read it only at the start.", 0, _DAY
    )
    oauth_client_id: str = setting(
        "", "The client id for `toolcrib login`, if the server does not allow registration, or for `oauthTokenUrl`."
    )
    oauth_client_secret: str = setting("", "The secret of `oauthClientId`.", secret=True)
    oauth_token_url: str = setting(
        "", "Where an API issues access tokens for `oauthClientId` and its secret (the client credentials grant)."
    )
    oauth_scope: str = setting("", "The scopes of these access tokens, separated by spaces.")
    transport: Transport = setting(
        "stdio", "The transport. The default with a `url` is `http`, and with `openapi` it is `openapi`.", key="type"
    )
    enabled: bool = setting(True, "Whether to use the server.")
    alias: str = setting("", "A short name that replaces the server's name in tool names.")
    defer_tools: DeferTools = setting(
        "auto", "Whether to defer its tools until a search: as the mode does, always, or never."
    )
    start: StartPolicy = setting(
        "eager", "Start the server with the gateway, or on the first call to one of its tools."
    )
    idle_seconds: float = setting(300.0, "Stop a lazy server after this idle time.", 1, _DAY)
    instances: Instances = setting(
        "shared",
        "Whether all clients share one instance of the server, or each user or each client session gets its own. An "
        "instance starts with its first call and stops after `idleSeconds`.",
    )
    replicas: ReplicaChoice = setting(
        "each",
        "Where the server runs if the gateway has several replicas: on `each` of them, or on `one`, which another one "
        "replaces within seconds.",
    )
    max_instances: int = setting(
        20, "The maximum number of instances; the one that was idle for longest is stopped.", 1, 1_000
    )
    connect_seconds: float = setting(30.0, "Timeout for starting and connecting.", 0.1, 3600)
    call_seconds: float = setting(120.0, "Timeout of a call.", 0.1, _DAY)
    answer_seconds: float = setting(
        600.0,
        "Timeout for a client to answer a request of the server during a call. The timeout of the "
        "call does not run during this time.",
        0.1,
        _DAY,
    )
    max_result_bytes: int = setting(8 * _MIB, "A larger result is rejected.", 1024, _GIB)
    result_budget_tokens: int | None = setting(
        None, "`budgetTokens` of `results` for the tools of this server; null for the general one.", 0, _MILLION
    )
    protocol: ProtocolChoice = setting("auto", "The protocol revision to use; `auto` negotiates it.", key="era")
    tools_allowed: tuple[str, ...] = setting(
        (), "Offer only the tools that match one of these patterns; empty for all."
    )
    tools_blocked: tuple[str, ...] = setting((), "Do not offer the tools that match one of these patterns.")
    imported_from: str = setting("", "The client and the file from which `toolcrib import` copied the server.")
    # Why the server cannot be started, for example because of an unset variable.
    problem: str = ""

    @property
    def id(self) -> str:
        """What the public names of its tools start with: its alias, or else its name."""
        return self.alias or self.name
