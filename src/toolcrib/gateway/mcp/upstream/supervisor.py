"""A server we draw tools from, kept in order by one task of its own.

It is started, listed, watched, started again when it fails, for ever and ever more slowly, and
stopped when nobody needs it. Whatever it does, it delays and breaks nobody else.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import anyio
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND, REQUEST_TIMEOUT

from toolcrib.config.settings import ServerConfig
from toolcrib.errors import ServerUnavailable, ToolcribError
from toolcrib.gateway.logs import Redactor
from toolcrib.gateway.mcp.upstream.connection import (
    UpstreamConnection,
    describe_error,
    describe_exit,
    open_connection,
)
from toolcrib.gateway.mcp.upstream.in_flight import InFlightCaller, InFlightCalls
from toolcrib.gateway.mcp.upstream.sdk import HTTP_ERROR_MESSAGE
from toolcrib.gateway.mcp.upstream.stdio import StderrTail
from toolcrib.gateway.mcp.upstream.subscriptions import Subscriptions, sync_subscriptions
from toolcrib.gateway.secrets import collect_server_secrets
from toolcrib.hub.definitions import MAX_DEFINITION_BYTES, exceeds_size

UpstreamState = Literal["configured", "known", "started", "in use"]

MIN_RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 60.0
HEALTH_CHECK_SECONDS: Final = 30.0
STDERR_TAIL_SECONDS: Final = 5.0
RELIST_DELAY_SECONDS: Final = 0.2
# The costly part of a start; one that takes longer is waiting for something, and lets others start.
START_SLOT_SECONDS: Final = 5.0
MAX_IN_FLIGHT_CALLS: Final = 1_000

# What a server may tell clients. Anything else it says is between it and us.
_FORWARDED_NOTIFICATIONS: Final = frozenset(
    {
        "notifications/message",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/elicitation/complete",
    }
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerListing:
    """What a server says it has."""

    tools: tuple[Any, ...]
    instructions: str
    protocol: str
    info: Mapping[str, Any]


OnListed = Callable[[ServerConfig, ServerListing], Awaitable[None]]
OnNotification = Callable[[str, str, Mapping[str, Any] | None], Awaitable[None]]


@dataclass(eq=False)
class UpstreamServer:
    """One server, its connection, and those who wait for its answers."""

    config: ServerConfig
    on_listed: OnListed
    on_notification: OnNotification
    # Starting is what costs; only so many servers start at the same time.
    start_limiter: anyio.CapacityLimiter
    subscriptions: Subscriptions
    # The folder with the tokens of servers that a person has logged in to.
    token_folder: Path | None = None
    is_listed: bool = False
    error: str = ""
    failures: int = 0
    call_count: int = 0
    connection: UpstreamConnection | None = None
    stderr_tail: StderrTail = field(init=False)

    def __post_init__(self) -> None:
        told = logging.getLogger(f"{__name__}.{self.config.name}")
        # Why it failed is told to clients too, and it may have said what it was given in confidence.
        self._redact = Redactor(collect_server_secrets(self.config))
        self.stderr_tail = StderrTail(lambda line: told.info("%s", self._redact(line)))
        self.in_flight = InFlightCalls()
        self._last_used = time.monotonic()
        self._use_handshake = self.config.protocol == "legacy"
        self._was_connected = False
        self._attempt_started = self._connected_at = math.inf
        # Failures of late, also of connections that stood for a while; so are the pauses.
        self._recent_failures = 0
        # A lazy server that nobody has asked for since it was last up.
        self._is_stopped = False
        self._start_requested = anyio.Event()
        self._relist_requested = anyio.Event()
        self._attempt_finished = anyio.Event()

    @property
    def name(self) -> str:
        """What the configuration calls it."""
        return self.config.name

    @property
    def state(self) -> UpstreamState:
        """How far it has come."""
        if self.connection is not None:
            return "in use" if self.in_flight else "started"
        return "known" if self.is_listed else "configured"

    @property
    def is_lazy(self) -> bool:
        """Whether it is left alone until it is needed. One never seen has to be seen once."""
        return self.config.start == "lazy" and self.is_listed

    async def run(self) -> None:
        """Look after the server until cancelled."""
        while True:
            if self.is_lazy and not self._start_requested.is_set():
                self._is_stopped = True
                await self._start_requested.wait()
                self._is_stopped = False
            try:
                await self._connect()
                self.failures = 0
            except Exception as fault:
                if self._fall_back_to_handshake():
                    continue
                self._record_failure(fault)
                await self._back_off()

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        caller: InFlightCaller,
        *,
        may_retry: bool = False,
    ) -> dict[str, Any]:
        """Ask the server on behalf of a client. An error of the server's own is raised as it is."""
        if len(self.in_flight) >= MAX_IN_FLIGHT_CALLS:
            raise ServerUnavailable(
                f"{self.name} has {MAX_IN_FLIGHT_CALLS:,} calls to answer already; try again later"
            )
        for last in (not may_retry, True):
            link = await self.wait_connected(tolerated_failures=1 if last and may_retry else 0)
            self.call_count += 1
            try:
                with self.in_flight.track_call(caller, self.config.call_seconds) as call:
                    return await link.session.raw_request(
                        method,
                        params,
                        capabilities=caller.capabilities,
                        on_progress=self.in_flight.drop_when_busy(caller.report_progress),
                        on_response=call.mark_answered,
                    )
            except TimeoutError:
                raise ServerUnavailable(
                    f"{self.name} did not answer within {self.config.call_seconds:g} seconds; "
                    "raise its `callSeconds` if it is only slow"
                ) from None
            except MCPError as fault:
                if refusal := link.login_hint():
                    raise ServerUnavailable(f"{self.name} is not reachable: {refusal}") from None
                if fault.error.message == HTTP_ERROR_MESSAGE:
                    raise ServerUnavailable(
                        f"{self.name} is not reachable: it answered with an HTTP error"
                    ) from None
                if not await self._is_connection_lost(link, fault):
                    raise
                if self.connection is link:
                    self.connection = None
                if last:
                    raise ServerUnavailable(
                        f"{self.name} went away before it answered; it is being started again. "
                        "Whether the call had an effect is not known"
                    ) from None
            finally:
                self._last_used = time.monotonic()
        raise AssertionError("the last attempt returns or raises")

    async def wait_connected(self, tolerated_failures: int = 0) -> UpstreamConnection:
        """The connection, once it stands. If it failed just now, that is said at once.

        `patience` is how many failures in a row are waited out.
        """
        allowed = max(self.failures, tolerated_failures) if self._is_stopped else tolerated_failures
        if self.connection is None:
            self._start_requested.set()
        with anyio.move_on_after(self.config.connect_seconds):
            while self.connection is None and self.failures <= allowed:
                await self._attempt_finished.wait()
        if self.connection is None:
            raise ServerUnavailable(
                f"{self.name} is not reachable: {self.error or 'it is still starting'}"
            )
        return self.connection

    def relist(self) -> None:
        """Have it listed soon; one that rests is started for that."""
        (self._start_requested if self.connection is None else self._relist_requested).set()

    async def wait_until_listed(self) -> None:
        """Wait until its tools have been listed, now or earlier, or until it has failed."""
        while not (self.is_listed or self.failures):
            await self._attempt_finished.wait()

    async def _connect(self) -> None:
        """One connection, from its start until it ends or is no longer needed."""
        self._was_connected = False
        self._attempt_started = time.monotonic()
        await self.start_limiter.acquire_on_behalf_of(self)
        with anyio.CancelScope() as scope:
            scope.deadline = anyio.current_time() + self.config.connect_seconds
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._release_slot_later)
                    await self._run_connection(scope)
                    tasks.cancel_scope.cancel()
            finally:
                self._release_start_slot()
                self.connection = None
        if scope.cancelled_caught:
            raise TimeoutError
        if not self.is_lazy and not self._should_reconnect():
            raise ServerUnavailable("its connection ended")

    async def _run_connection(self, scope: anyio.CancelScope) -> None:
        opened = open_connection(
            self.config,
            use_handshake=self._use_handshake,
            on_request=self._handle_request,
            on_notify=self._handle_notification,
            stderr_tail=self.stderr_tail,
            token_folder=self.token_folder,
        )
        async with opened as link:
            await self._fetch_tools(link)
            scope.deadline = math.inf
            self._release_start_slot()
            self._mark_connected(link)
            try:
                await self._supervise(link)
            finally:
                # Before it is taken down, which takes its time: nobody is to be sent there now.
                self.connection = None

    async def _release_slot_later(self) -> None:
        await anyio.sleep(START_SLOT_SECONDS)
        self._release_start_slot()

    def _fall_back_to_handshake(self) -> bool:
        """Whether to start over with the handshake: its absence is too much for some servers."""
        tries = not (self._was_connected or self._use_handshake) and self.config.protocol == "auto"
        self._use_handshake = (
            tries
            or (self._was_connected and self._use_handshake)
            or self.config.protocol == "legacy"
        )
        return tries

    def _release_start_slot(self) -> None:
        with suppress(RuntimeError):
            self.start_limiter.release_on_behalf_of(self)

    def _mark_connected(self, link: UpstreamConnection) -> None:
        self.connection, self.error, self.failures, self._was_connected = link, "", 0, True
        self._last_used = self._connected_at = time.monotonic()
        self._start_requested = anyio.Event()
        self.in_flight.reset(is_stateless=link.session.is_stateless)
        self._notify_waiters()
        _log.info("%s is started (%s)", self.name, link.protocol)

    def _record_failure(self, fault: BaseException) -> None:
        self.failures += 1
        has_proved = (
            self._was_connected and time.monotonic() - self._connected_at > MAX_RETRY_SECONDS
        )
        self._recent_failures = 1 if has_proved else self._recent_failures + 1
        code = self.stderr_tail.exit_code
        # What it said long before has nothing to do with its end.
        since = (
            time.monotonic() - STDERR_TAIL_SECONDS if self._was_connected else self._attempt_started
        )
        said = self.stderr_tail.lines_since(since)[-1:]
        reason = describe_error(fault) if code is None else describe_exit(code)
        why = self._redact("; it said: ".join([reason, *said]))
        before, self.error = self.error, why
        self._start_requested = anyio.Event()
        self._notify_waiters()
        if self.error != before:
            _log.warning("%s is not reachable: %s", self.name, self.error)

    def _notify_waiters(self) -> None:
        """Wake those who wait to hear whether it stands."""
        settled, self._attempt_finished = self._attempt_finished, anyio.Event()
        settled.set()

    async def _back_off(self) -> None:
        # Not in step: servers that failed together should not all come back together.
        longest = min(
            MIN_RETRY_SECONDS * 2 ** min(self._recent_failures - 1, 16), MAX_RETRY_SECONDS
        )
        await anyio.sleep(longest * random.uniform(0.8, 1.2))

    async def _is_connection_lost(self, link: UpstreamConnection, fault: MCPError) -> bool:
        if fault.error.code == CONNECTION_CLOSED:
            with anyio.move_on_after(1):
                await link.closed.wait()
        return link.closed.is_set()

    async def _fetch_tools(self, link: UpstreamConnection) -> None:
        tools = await link.request_list("tools/list", "tools", self.config.connect_seconds)
        if link.session.is_stateless and self.config.transport == "http":
            usable = (tool for tool in tools if not exceeds_size(tool, MAX_DEFINITION_BYTES))
            link.session.set_header_arguments(usable)
        await self.on_listed(
            self.config,
            ServerListing(tuple(tools), link.instructions, link.protocol, link.server_info),
        )
        self.is_listed = True

    async def _supervise(self, link: UpstreamConnection) -> None:
        """Watch over a standing connection until it ends or is no longer needed."""
        pause = (
            min(HEALTH_CHECK_SECONDS, self.config.idle_seconds)
            if self.is_lazy
            else HEALTH_CHECK_SECONDS
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_list_changes, link)
            tasks.start_soon(self._relist_on_change, link)
            tasks.start_soon(
                sync_subscriptions, link, self.config, self.subscriptions, self._handle_notification
            )
            while not (link.closed.is_set() or self._is_idle() or self._should_reconnect()):
                with anyio.move_on_after(pause):
                    await link.closed.wait()
                if not link.closed.is_set() and not self.in_flight and not await _is_healthy(link):
                    raise ServerUnavailable("it no longer answers")
            tasks.cancel_scope.cancel()
        if self._is_idle() and not link.closed.is_set():
            _log.info("%s is stopped: nobody needs it", self.name)

    def _is_idle(self) -> bool:
        idle = time.monotonic() - self._last_used >= self.config.idle_seconds
        return self.is_lazy and idle and not self.in_flight

    def _should_reconnect(self) -> bool:
        """Whether only a new connection tells whose its questions are, and nobody uses this one."""
        return self.in_flight.needs_reconnect and not self.in_flight

    async def _watch_list_changes(self, link: UpstreamConnection) -> None:
        """Hear of changes. When the hearing is lost, some may have been missed, so it lists anew."""
        pause = MIN_RETRY_SECONDS
        while not link.closed.is_set():
            try:
                if not await link.watch_list_changes(self._handle_notification):
                    return
            except MCPError as fault:
                if fault.error.code == METHOD_NOT_FOUND:
                    return
            except SubscriptionLost:
                pass
            await anyio.sleep(pause)
            pause = min(pause * 2, MAX_RETRY_SECONDS)
            self._relist_requested.set()

    async def _relist_on_change(self, link: UpstreamConnection) -> None:
        """List anew after a change; many changes at once are one, and one that never ends is slow."""
        pause = RELIST_DELAY_SECONDS
        while True:
            with anyio.move_on_after(max(MIN_RETRY_SECONDS, 4 * pause)) as quiet:
                await self._relist_requested.wait()
            if quiet.cancelled_caught:
                pause = RELIST_DELAY_SECONDS
                continue
            await anyio.sleep(pause)
            pause = min(pause * 2, MAX_RETRY_SECONDS)
            self._relist_requested = anyio.Event()
            try:
                await self._fetch_tools(link)
            except (MCPError, ToolcribError) as fault:
                _log.warning("%s could not be listed anew: %s", self.name, describe_error(fault))

    async def _handle_notification(self, method: str, params: Mapping[str, Any] | None) -> None:
        if method == "notifications/tools/list_changed":
            self._relist_requested.set()
        elif method == "notifications/message" and await self.in_flight.forward_log(method, params):
            # It is about a call, and no affair of anybody else's.
            return
        elif method in _FORWARDED_NOTIFICATIONS:
            await self.in_flight.drop_when_busy(self.on_notification)(self.name, method, params)

    async def _handle_request(
        self, method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        return await self.in_flight.forward_request(method, params, self.config.answer_seconds)


async def _is_healthy(link: UpstreamConnection) -> bool:
    method = "server/discover" if link.session.is_stateless else "ping"
    try:
        await link.session.raw_request(method, None, timeout=HEALTH_CHECK_SECONDS)
    except MCPError as fault:
        # Some servers know no ping. An answer is an answer.
        return fault.error.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT)
    return True
