"""What a client has been shown, and what has to be known of it to show it tools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from toolcrib.gateway.mcp.upstream.log_levels import LOG_LEVELS
from toolcrib.session.session import Session

# Clients that read the list of tools once and never again, by the beginning of their names.
SINGLE_LIST_CLIENTS: Final = ("claude-code", "cursor", "windsurf", "codex")


@dataclass
class SessionState:
    """What a client that began with a handshake has been shown, as long as its connection lasts."""

    tool_session: Session | None = None
    # The resources it follows, and the servers that may have each.
    subscriptions: dict[str, list[str]] = field(default_factory=dict)
    # The level of the log it has asked for; without one it hears all that comes.
    log_level: str | None = None
    profile: str | None = None
    # Whether it began with a handshake, and so will be there to be told something.
    has_handshake: bool = False
    # Stands for the client where it has to be told from others, also after it has left.
    key: object = field(default_factory=object)
    # How much it is being told at the moment, and has not taken yet.
    pending_notifications: int = 0

    def wants_notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Whether it has asked to be told this."""
        about = params or {}
        if method == "notifications/resources/updated":
            return about.get("uri") in self.subscriptions
        if method == "notifications/message":
            return log_level_rank(about.get("level")) >= log_level_rank(self.min_log_level)
        return True

    @property
    def min_log_level(self) -> str:
        """From which level on it is told of the log."""
        return self.log_level or LOG_LEVELS[0]


class ClientSession(Protocol):
    """A client as far as the counter has to know it."""

    @property
    def profile(self) -> str | None:
        """Whose tools it is shown."""

    @property
    def is_stateless(self) -> bool:
        """Whether it speaks the protocol without a handshake."""

    @property
    def reads_list_once(self) -> bool:
        """Whether it is known to read the list of tools only once."""

    @property
    def state(self) -> SessionState:
        """What it has been shown."""

    @property
    def lasts(self) -> bool:
        """Whether its connection outlasts the request."""

    @property
    def caller(self) -> str:
        """Whose key it came with; nobody's where no keys are asked for."""

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Tell it something about the request it waits for."""


def is_single_list_client(client: str) -> bool:
    """Whether a client of this name is known to read the list of tools only once."""
    return client.lower().startswith(SINGLE_LIST_CLIENTS)


def log_level_rank(level: object) -> int:
    """How grave a level of the log is."""
    return LOG_LEVELS.index(level) if level in LOG_LEVELS else len(LOG_LEVELS)
