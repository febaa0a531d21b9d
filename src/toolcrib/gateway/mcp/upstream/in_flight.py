"""In-flight calls of one upstream server; maps its requests and log messages back to clients.

A server does not say to which call a request or a log message belongs. It is forwarded only if a
single client has calls in flight; otherwise one client could see the data of another. An abandoned
call may still run on the server, so it counts until the server has answered it.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST, METHOD_NOT_FOUND, REQUEST_TIMEOUT

MAX_ABANDONED_CALLS: Final = 1_000
MAX_SERVER_REQUESTS_PER_CALL: Final = 100
# More notifications are dropped while clients are slow.
MAX_FORWARDED_NOTIFICATIONS: Final = 256
# A response waits this long for the notifications before it, which a slow client has not received yet.
NOTIFICATION_SECONDS: Final = 2.0
# On the stateless protocol a cancelled call sends no more messages. A server has this long to stop.
ABANDONED_CALL_SECONDS: Final = 30.0

NO_CALL_IN_FLIGHT: Final = "no client has a call in flight on this server"
# The client capability that each request of a server requires.
REQUIRED_CAPABILITIES: Final[Mapping[str, str]] = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}


class InFlightCaller(Protocol):
    """The client on whose behalf a call is made."""

    @property
    def key(self) -> object:
        """Identifies the client. It outlives the client, so it should be small."""

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities of the client."""

    async def send_request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Send a request of the server to the client and return the result."""

    async def notify(self, method: str, params: Mapping[str, Any] | None) -> None:
        """Send a notification about the client's call."""

    async def report_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Report the progress of the client's call."""


async def send_with_timeout(
    caller: InFlightCaller, method: str, params: Mapping[str, Any] | None, timeout_seconds: float
) -> dict[str, Any]:
    """Send a request of a server to a client and return the result; raise an error if it is late."""
    try:
        with anyio.fail_after(timeout_seconds):
            return await caller.send_request(method, params)
    except TimeoutError:
        raise MCPError(REQUEST_TIMEOUT, f"the client did not respond to {method} in time") from None


@dataclass(eq=False)
class _AbandonedCalls:
    """The calls of one connection that have no caller any more but may still run."""

    # The expiry time and the caller's key of each call.
    calls: dict[object, tuple[float, object]] = field(default_factory=dict)
    expire_seconds: float = math.inf

    def active_keys(self) -> set[object]:
        now = anyio.current_time()
        return {key for expires, key in self.calls.values() if expires > now}

    def add(self, call: InFlightCall) -> None:
        now = anyio.current_time()
        self.calls = {old: entry for old, entry in self.calls.items() if entry[0] > now}
        # When the table is full, one entry without a client represents all further calls.
        is_full = len(self.calls) >= MAX_ABANDONED_CALLS
        owner, key = (self, self) if is_full else (call, call.caller.key)
        self.calls[owner] = (now + self.expire_seconds, key)


@dataclass(eq=False)
class InFlightCall:
    """A call with a timeout that is paused while the server waits for the client."""

    caller: InFlightCaller
    remaining_seconds: float
    abandoned: _AbandonedCalls
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    is_answered: bool = False
    server_requests: int = 0
    _open_requests: int = 0
    _forwarding: int = 0
    _forwarded: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self.scope.deadline = anyio.current_time() + self.remaining_seconds

    def mark_answered(self) -> None:
        """Record that the server answered, even if the caller has given up."""
        self.is_answered = True
        self.abandoned.calls.pop(self, None)

    @contextmanager
    def forward_notification(self) -> Iterator[None]:
        """Count a notification that is being sent to the client."""
        self._forwarding += 1
        try:
            yield
        finally:
            self._forwarding -= 1
            self._forwarded.set()

    async def wait_for_notifications(self) -> None:
        """Wait until the notifications so far are sent, because a client reads nothing after the response."""
        with anyio.move_on_after(NOTIFICATION_SECONDS):
            while self._forwarding:
                self._forwarded = anyio.Event()
                await self._forwarded.wait()

    @contextmanager
    def pause_deadline(self) -> Iterator[None]:
        """Pause the timeout while the client handles a request of the server."""
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
    """The calls in flight on the current connection of one server."""

    def __init__(self) -> None:
        self._calls: dict[InFlightCall, None] = {}
        self._abandoned = _AbandonedCalls()
        self.forwarding_count = 0
        # Set when an abandoned call of another client prevents forwarding a request.
        self.needs_reconnect = False

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def abandoned_count(self) -> int:
        """The number of tracked abandoned calls."""
        return len(self._abandoned.calls)

    def reset(self, *, is_stateless: bool) -> None:
        """Forget the abandoned calls of the previous connection."""
        expire_seconds = ABANDONED_CALL_SECONDS if is_stateless else math.inf
        self._abandoned = _AbandonedCalls(expire_seconds=expire_seconds)
        self.needs_reconnect = False

    @contextmanager
    def track_call(self, caller: InFlightCaller, timeout_seconds: float) -> Iterator[InFlightCall]:
        """Track a call while it is in flight; raise TimeoutError when its time is up."""
        call = InFlightCall(caller, timeout_seconds, self._abandoned)
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
        """Forward a log message to its client, if that is certain.

        Returns False if no call is in flight, so that the message belongs to no client.
        """
        belongs_to_call = bool(self._calls or self._abandoned.active_keys())
        if calls := self._find_addressed_calls():
            await self.drop_when_busy(calls[0].caller.notify, calls[0])(method, params)
        return belongs_to_call

    async def forward_request(
        self, method: str, params: Mapping[str, Any] | None, timeout_seconds: float
    ) -> dict[str, Any]:
        """Forward a request of the server to its client and return the result."""
        calls = self._find_addressed_calls()
        if not calls:
            raise MCPError(INVALID_REQUEST, self._explain_no_caller())
        caller = calls[0].caller
        if REQUIRED_CAPABILITIES.get(method) not in caller.capabilities:
            raise MCPError(METHOD_NOT_FOUND, f"the client does not support {method}")
        if max(call.server_requests for call in calls) >= MAX_SERVER_REQUESTS_PER_CALL:
            reason = f"a call allows at most {MAX_SERVER_REQUESTS_PER_CALL} requests to the client"
            raise MCPError(INVALID_REQUEST, reason)
        with ExitStack() as paused:
            for call in calls:
                paused.enter_context(call.pause_deadline())
            return await send_with_timeout(caller, method, params, timeout_seconds)

    def drop_when_busy(self, send: Callable[..., Awaitable[None]], call: InFlightCall | None = None) -> Any:
        """Return a function that sends a notification, of a call or not, or does nothing while many are pending."""

        async def send_or_drop(*args: Any) -> None:
            if self.forwarding_count >= MAX_FORWARDED_NOTIFICATIONS:
                return
            self.forwarding_count += 1
            try:
                with call.forward_notification() if call else nullcontext():
                    await send(*args)
            finally:
                self.forwarding_count -= 1

        return send_or_drop

    def _find_addressed_calls(self) -> list[InFlightCall]:
        """Return the calls of the only client, or nothing if several clients are possible."""
        keys = {call.caller.key for call in self._calls} | self._abandoned.active_keys()
        return list(self._calls) if len(keys) == 1 else []

    def _explain_no_caller(self) -> str:
        if not self._calls:
            return NO_CALL_IN_FLIGHT
        if len({call.caller.key for call in self._calls}) > 1:
            return "several clients have calls in flight on this server; the addressee is ambiguous"
        self.needs_reconnect = True
        return (
            "an abandoned call of another client may have sent this request; the gateway reconnects "
            "to the server when it is idle. Try again then"
        )
