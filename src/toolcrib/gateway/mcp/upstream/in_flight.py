"""Those who wait for the answers of one server, and which of them it means when it speaks by itself.

Servers do not say whose call a question or a line of the log is about. It is passed on only where
there is no doubt: to ask or tell the wrong one would show one client's affairs to another. A call
that was given up goes on at the server for all we know, so it counts until it has been answered.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, METHOD_NOT_FOUND, REQUEST_TIMEOUT

MAX_ABANDONED_CALLS: Final = 1_000
MAX_SERVER_REQUESTS_PER_CALL: Final = 100
# What is told while clients are slow to listen is dropped beyond this.
MAX_FORWARDED_NOTIFICATIONS: Final = 256
# On the protocol without a handshake a server that was told to stop may say no more about a call.
# So long it may take to hear of that.
ABANDONED_CALL_SECONDS: Final = 30.0

# What a server may ask of a client, and what the client has to be able to do for that.
REQUIRED_CAPABILITIES: Final[Mapping[str, str]] = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}


class InFlightCaller(Protocol):
    """The client on whose behalf a server is asked something."""

    @property
    def key(self) -> object:
        """Which client it is. It is kept for longer than the client, so it should be small."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What the client can do when a server asks it."""

    async def send_request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Ask the client what the server wants to know."""

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Tell the client something about the request it waits for."""

    async def report_progress(
        self, progress: float, total: float | None, message: str | None
    ) -> None:
        """Tell the client how far its request has come."""


@dataclass(eq=False)
class _AbandonedCalls:
    """The calls of one connection that nobody waits for any more, and that may still go on."""

    # Until when each counts, and whose it was.
    calls: dict[object, tuple[float, object]] = field(default_factory=dict)
    expire_seconds: float = math.inf

    def active_keys(self) -> set[object]:
        now = anyio.current_time()
        return {key for until, key in self.calls.values() if until > now}

    def add(self, call: InFlightCall) -> None:
        now = anyio.current_time()
        for one in [one for one, (until, _) in self.calls.items() if until <= now]:
            del self.calls[one]
        # Where there are too many, the last place is nobody's, and stays taken.
        is_full = len(self.calls) >= MAX_ABANDONED_CALLS
        whose = (self, self) if is_full else (call, call.caller.key)
        self.calls[whose[0]] = (now + self.expire_seconds, whose[1])


@dataclass(eq=False)
class InFlightCall:
    """A call under way. Its time does not run while its server waits for an answer of a client."""

    caller: InFlightCaller
    remaining_seconds: float
    abandoned: _AbandonedCalls
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    is_answered: bool = False
    server_requests: int = 0
    _open_requests: int = 0

    def __post_init__(self) -> None:
        self.scope.deadline = anyio.current_time() + self.remaining_seconds

    def mark_answered(self) -> None:
        """The server has answered, be it that nobody waits for it any more."""
        self.is_answered = True
        self.abandoned.calls.pop(self, None)

    @contextmanager
    def pause_deadline(self) -> Iterator[None]:
        """While this is open, the client is being asked something."""
        self.server_requests += 1
        if not self._open_requests:
            self.remaining_seconds = self.scope.deadline - anyio.current_time()
            self.scope.deadline = math.inf
        self._open_requests += 1
        try:
            yield
        finally:
            self._open_requests -= 1
            if not self._open_requests:
                self.scope.deadline = anyio.current_time() + self.remaining_seconds


class InFlightCalls:
    """The calls that one server has to answer, on the connection of the moment."""

    def __init__(self) -> None:
        self._calls: dict[InFlightCall, None] = {}
        self._abandoned = _AbandonedCalls()
        self._forwarding = 0
        # Set where a client could not be asked because of a call that was given up.
        self.needs_reconnect = False

    def __len__(self) -> int:
        return len(self._calls)

    def reset(self, *, is_stateless: bool) -> None:
        """There is a new connection: what was given up on the one before is over."""
        self._abandoned = _AbandonedCalls(
            expire_seconds=ABANDONED_CALL_SECONDS if is_stateless else math.inf
        )
        self.needs_reconnect = False

    @contextmanager
    def track_call(self, caller: InFlightCaller, seconds: float) -> Iterator[InFlightCall]:
        """A call while it is under way; raises TimeoutError when its time is up."""
        call = InFlightCall(caller, seconds, self._abandoned)
        self._calls[call] = None
        try:
            with call.scope:
                yield call
        finally:
            del self._calls[call]
            if not call.is_answered:
                call.abandoned.add(call)
        if call.scope.cancelled_caught:
            raise TimeoutError

    async def forward_log(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Tell a line of the log to whose it is, if that is known; False where it is nobody's."""
        is_about_a_call = bool(self._calls or self._abandoned.active_keys())
        if meant := self._find_addressed_calls():
            await self.drop_when_busy(meant[0].caller.notify)(method, params)
        return is_about_a_call

    async def forward_request(
        self, method: str, params: Mapping[str, Any] | None, seconds: float
    ) -> dict[str, Any]:
        """Ask the client that the server means. It may take so long to answer."""
        meant = self._find_addressed_calls()
        if not meant:
            raise MCPError(INVALID_REQUEST, self._explain_no_caller())
        caller = meant[0].caller
        if REQUIRED_CAPABILITIES.get(method) not in caller.capabilities:
            raise MCPError(METHOD_NOT_FOUND, f"the client cannot do {method}")
        if max(call.server_requests for call in meant) >= MAX_SERVER_REQUESTS_PER_CALL:
            raise MCPError(
                INVALID_REQUEST,
                f"no more than {MAX_SERVER_REQUESTS_PER_CALL} questions in one call",
            )
        try:
            with ExitStack() as stopped:
                for call in meant:
                    stopped.enter_context(call.pause_deadline())
                with anyio.fail_after(seconds):
                    return await caller.send_request(method, params)
        except TimeoutError:
            raise MCPError(REQUEST_TIMEOUT, f"the client did not answer {method} in time") from None

    def drop_when_busy(self, tell: Callable[..., Awaitable[None]]) -> Any:
        """The same, but nothing is told where too much is being told already."""

        async def told(*about: Any) -> None:
            if self._forwarding >= MAX_FORWARDED_NOTIFICATIONS:
                return
            self._forwarding += 1
            try:
                await tell(*about)
            finally:
                self._forwarding -= 1

        return told

    def _find_addressed_calls(self) -> list[InFlightCall]:
        """The calls of the one client that waits; none where others may be meant as well."""
        keys = {call.caller.key for call in self._calls} | self._abandoned.active_keys()
        return list(self._calls) if len(keys) == 1 else []

    def _explain_no_caller(self) -> str:
        if not self._calls:
            return "no client is waiting for this server"
        if len({call.caller.key for call in self._calls}) > 1:
            return "several clients are waiting for this server; which one is meant cannot be told"
        self.needs_reconnect = True
        return (
            "a call of another client was given up and may still be the one that asks; this server "
            "is connected to anew when nobody uses it. Try again then"
        )
