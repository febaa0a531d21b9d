"""One upstream server and the task that supervises it.

The task starts the server, lists its tools, watches the connection, restarts it with exponential
backoff and without a retry limit, and stops a lazy server that is idle. A server that crashes or
hangs does not affect the others.
"""

from __future__ import annotations

import logging
import math
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import anyio
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND

from toolcrib.config.server_settings import ServerConfig
from toolcrib.core import prompts
from toolcrib.errors import ServerUnavailable, ToolcribError
from toolcrib.gateway.logs import Redactor
from toolcrib.gateway.mcp.upstream import connection as connections
from toolcrib.gateway.mcp.upstream.connection import (
    UpstreamConnection,
    describe_error,
    describe_exit,
    hide_folders,
    open_connection,
)
from toolcrib.gateway.mcp.upstream.health import HealthMonitor
from toolcrib.gateway.mcp.upstream.in_flight import InFlightCall, InFlightCaller, InFlightCalls
from toolcrib.gateway.mcp.upstream.messages import TOO_LARGE, describe_unreadable, repair_tool_result, shorten_error
from toolcrib.gateway.mcp.upstream.oauth_tokens import OpenToken
from toolcrib.gateway.mcp.upstream.sdk import HTTP_ERRORS
from toolcrib.gateway.mcp.upstream.stdio import ServerLogFile, StderrTail
from toolcrib.gateway.mcp.upstream.subscriptions import (
    MAX_RETRY_SECONDS,
    MIN_RETRY_SECONDS,
    Subscriptions,
    SubscriptionSync,
)
from toolcrib.gateway.secrets import collect_environment_secrets, collect_server_secrets
from toolcrib.hub.directory import MAX_DEFINITION_BYTES, exceeds_size, format_tool_count

UpstreamState = Literal["configured", "known", "started", "in use"]

HEALTH_CHECK_SECONDS: Final = 30.0
# How long a call waits for the start of a server that failed before; the call ends the pause.
HASTENED_START_SECONDS: Final = 5.0
STDERR_TAIL_SECONDS: Final = 5.0
RELIST_DELAY_SECONDS: Final = 0.2
# A start that takes longer waits for something else than the CPU, so other servers may start.
START_SLOT_SECONDS: Final = 5.0
MAX_IN_FLIGHT_CALLS: Final = 1_000

# Notifications that are forwarded to clients.
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
    """The tools and the description that a server returned."""

    tools: tuple[Any, ...]
    instructions: str
    protocol: str
    info: Mapping[str, Any]


OnListed = Callable[[ServerConfig, ServerListing], Awaitable[None]]
OnNotification = Callable[[str, str, Mapping[str, Any] | None], Awaitable[None]]


@dataclass(eq=False)
class UpstreamServer:
    """One server, its connection and its in-flight calls."""

    config: ServerConfig
    on_listed: OnListed
    on_notification: OnNotification
    # Limits how many servers start at the same time.
    start_limiter: anyio.CapacityLimiter
    subscriptions: Subscriptions
    # Opens the OAuth token of a server.
    open_token: OpenToken | None = None
    # The folder with the files of the servers' standard error.
    log_folder: Path | None = None
    # Whether the tools of the server are known, from this run or an earlier one.
    is_listed: bool = False
    # The other replica on which the server runs, if it runs on one replica only.
    lease_holder: str = ""
    error: str = ""
    failures: int = 0
    call_count: int = 0
    connection: UpstreamConnection | None = None
    stderr_tail: StderrTail = field(init=False)

    def __post_init__(self) -> None:
        self._server_log = logging.getLogger(f"{__name__}.{self.config.name}")
        self._log_file = ServerLogFile(self.log_folder, self.config.name) if self.log_folder else None
        # Error messages reach clients, and a server may print its secrets.
        self._redact = Redactor([*collect_server_secrets(self.config), *collect_environment_secrets(os.environ)])
        self.stderr_tail = StderrTail(self._log_stderr)
        self.in_flight = InFlightCalls()
        self._last_used = time.monotonic()
        self._use_handshake = self.config.protocol == "legacy"
        self._was_connected = False
        self._attempt_started = self._connected_at = math.inf
        # Determines the backoff. Unlike `failures`, it also counts connections that ended soon.
        self.recent_failures = 0
        # Whether this is a lazy server that was not needed since it last ran.
        self.is_stopped = False
        # Whether a person has stopped the server. It does not start until a person starts it.
        self.is_halted = False
        # When the server last connected, in seconds since 1970, and how often it has.
        self.started_at = 0.0
        self.start_count = 0
        self._tool_count = 0
        # Whether it waits before the next attempt to start.
        self._is_paused = False
        # The number of calls that wait for the connection.
        self.waiting_calls = 0
        self._health = HealthMonitor()
        self._start_requested = anyio.Event()
        self._relist_requested = anyio.Event()
        self._attempt_finished = anyio.Event()

    @property
    def name(self) -> str:
        """The name of the server in the configuration."""
        return self.config.name

    @property
    def state(self) -> UpstreamState:
        """The state of the server."""
        if self.connection is not None:
            return "in use" if self.in_flight else "started"
        return "known" if self.is_listed else "configured"

    @property
    def public_error(self) -> str:
        """The error for clients, who must not learn the folders of this machine."""
        return hide_folders(self.error)

    @property
    def is_lazy(self) -> bool:
        """Whether the server starts on demand. Its tools must be listed once before that."""
        return self.config.start == "lazy" and self.is_listed and not self.config.problem

    @property
    def is_start_finished(self) -> bool:
        """Whether the server is connected, has failed, or starts on demand."""
        return self.connection is not None or bool(self.failures or self.lease_holder) or self.is_lazy

    def _log_stderr(self, line: str) -> None:
        line = self._redact(line)
        if self._log_file is not None:
            self._log_file.write_line(line)
        self._server_log.debug("%s", line)

    async def run(self) -> None:
        """Supervise the server until cancelled."""
        if self.config.problem:
            self._record_failure(ServerUnavailable(self.config.problem))
            await anyio.sleep_forever()
        while True:
            if self.is_lazy and not self._start_requested.is_set():
                self.is_stopped = True
                await self._start_requested.wait()
                self.is_stopped = False
            try:
                await self._connect()
                self.failures = 0
            except Exception as error:
                if self._fall_back_to_handshake():
                    continue
                self._record_failure(error)
                await self._back_off()

    async def request(
        self, method: str, params: Mapping[str, Any] | None, caller: InFlightCaller, *, may_retry: bool = False
    ) -> dict[str, Any]:
        """Send a request on behalf of a client and return the result.

        Raises the error of the server unchanged, or `ServerUnavailable`. With `may_retry`, a request
        is sent once more if the connection is lost.
        """
        if len(self.in_flight) >= MAX_IN_FLIGHT_CALLS:
            raise ServerUnavailable(f"{self.name} already has {MAX_IN_FLIGHT_CALLS:,} calls in flight; try again later")
        for is_last in (not may_retry, True):
            is_retry = is_last and may_retry
            connection = await self.wait_connected(tolerated_failures=1 if is_retry else 0)
            self.call_count += 1
            try:
                with self.in_flight.track_call(caller, self.config.call_seconds) as call:
                    result = await connection.session.raw_request(
                        method,
                        params,
                        capabilities=caller.capabilities,
                        on_progress=self.in_flight.drop_when_busy(caller.report_progress, call),
                        on_response=partial(self._mark_answered, call),
                    )
                await call.wait_for_notifications()
                self._check_result(method, result)
                return result
            except TimeoutError:
                self._health.record_timeout()
                raise ServerUnavailable(
                    f"{self.name} did not answer within {self.config.call_seconds:g} seconds; "
                    "raise its `callSeconds` if it is slow"
                ) from None
            except MCPError as error:
                await self._check_connection_lost(connection, error)
                if self.connection is connection:
                    self.connection = None
                if is_last:
                    raise ServerUnavailable(
                        f"{self.name} lost its connection during the call and is being restarted; "
                        "it is unknown whether the call had an effect"
                    ) from None
            finally:
                self._last_used = time.monotonic()
        raise AssertionError("the last attempt returns or raises")

    def _mark_answered(self, call: InFlightCall) -> None:
        self._health.record_answer()
        call.mark_answered()

    def _check_result(self, method: str, result: dict[str, Any]) -> None:
        if exceeds_size(result, self.config.max_result_bytes):
            raise self._too_large_error()
        if method == "tools/call":
            try:
                repair_tool_result(result)
            except ValueError as error:
                raise ServerUnavailable(f"{self.name} sent an answer that cannot be read: {error}") from None

    def _too_large_error(self) -> ServerUnavailable:
        return ServerUnavailable(prompts.RESULT_TOO_LARGE.format(name=self.name, limit=self.config.max_result_bytes))

    async def wait_connected(self, tolerated_failures: int = 0) -> UpstreamConnection:
        """Return the connection, waiting for it if the server is starting.

        Raises `ServerUnavailable` after more than `tolerated_failures` failed attempts in a row.
        """
        # The failures of a stopped server are from an earlier run. A loss becomes a failure a bit later.
        is_lost = self.connection is None and self._was_connected and not self.is_stopped
        is_waiting = self.is_stopped or self._is_paused or is_lost
        allowed = max(self.failures, tolerated_failures, int(is_lost)) if is_waiting else tolerated_failures
        limit = HASTENED_START_SECONDS if self._is_paused or is_lost else math.inf
        if self.connection is None:
            self._start_requested.set()
        self.waiting_calls += 1
        try:
            with anyio.move_on_after(min(self.config.connect_seconds, limit)):
                while self.connection is None and self.failures <= allowed:
                    await self._attempt_finished.wait()
        finally:
            self.waiting_calls -= 1
        if self.connection is None:
            raise ServerUnavailable(f"{self.name} is not reachable: {self.public_error or 'it is still starting'}")
        return self.connection

    def relist(self) -> None:
        """List the tools soon; a stopped server is started for it."""
        (self._start_requested if self.connection is None else self._relist_requested).set()

    def read_log(self) -> list[str]:
        """Return the last lines on stderr, without the secrets of the server."""
        return list(map(self._redact, self.stderr_tail.lines))

    async def wait_until_listed(self) -> None:
        """Wait until the tools are known or a start has failed."""
        while not (self.is_listed or self.failures):
            await self._attempt_finished.wait()

    async def _connect(self) -> None:
        """Run one connection until it ends or becomes idle."""
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
        if not self.is_lazy and not self.should_reconnect():
            raise ServerUnavailable("its connection ended")

    async def _run_connection(self, scope: anyio.CancelScope) -> None:
        async with open_connection(
            self.config,
            use_handshake=self._use_handshake,
            on_request=self._handle_request,
            on_notify=self._handle_notification,
            stderr_tail=self.stderr_tail,
            open_token=self.open_token,
        ) as connection:
            await self._fetch_tools(connection)
            scope.deadline = math.inf
            self._release_start_slot()
            self._mark_connected(connection)
            try:
                await self._supervise(connection)
            finally:
                # Before closing, which takes a while, so that no new call uses the connection.
                self.connection = None

    async def _release_slot_later(self) -> None:
        await anyio.sleep(START_SLOT_SECONDS)
        self._release_start_slot()

    def _release_start_slot(self) -> None:
        with suppress(RuntimeError):
            self.start_limiter.release_on_behalf_of(self)

    def _fall_back_to_handshake(self) -> bool:
        """Return whether to retry immediately with a handshake; some servers fail without it."""
        falls_back = not (self._was_connected or self._use_handshake)
        falls_back = falls_back and self.config.protocol == "auto"
        self._use_handshake = (
            falls_back or (self._was_connected and self._use_handshake) or self.config.protocol == "legacy"
        )
        return falls_back

    def _mark_connected(self, connection: UpstreamConnection) -> None:
        self.connection, self.error, self.failures = connection, "", 0
        self.started_at, self.start_count = time.time(), self.start_count + 1
        self._was_connected = True
        self._health = HealthMonitor()
        self._last_used = self._connected_at = time.monotonic()
        self._start_requested = anyio.Event()
        self.in_flight.reset(is_stateless=connection.session.is_stateless)
        self._notify_waiters()
        _log.info("%s is started: %s, protocol %s", self.name, format_tool_count(self._tool_count), connection.protocol)

    def _record_failure(self, error: BaseException) -> None:
        self.failures += 1
        was_stable = self._was_connected and time.monotonic() - self._connected_at > MAX_RETRY_SECONDS
        self.recent_failures = 1 if was_stable else self.recent_failures + 1
        exit_code = self.stderr_tail.exit_code
        reason = describe_error(error) if exit_code is None else describe_exit(exit_code)
        # Older lines on stderr are unrelated to the failure.
        since = self._attempt_started
        if self._was_connected:
            since = time.monotonic() - STDERR_TAIL_SECONDS
        message = self._redact("; last line on stderr: ".join([reason, *self.stderr_tail.last_line_since(since)]))
        is_new, self.error = message != self.error, message
        self._start_requested = anyio.Event()
        self._notify_waiters()
        if is_new:
            _log.warning("%s is not reachable: %s", self.name, self.error)

    def _notify_waiters(self) -> None:
        finished, self._attempt_finished = self._attempt_finished, anyio.Event()
        finished.set()

    async def _back_off(self) -> None:
        # With jitter, so that servers that failed together do not restart together.
        seconds = min(MIN_RETRY_SECONDS * 2 ** min(self.recent_failures - 1, 16), MAX_RETRY_SECONDS)
        self._is_paused = True
        try:
            await anyio.sleep(MIN_RETRY_SECONDS * random.uniform(0.8, 1.2))
            with anyio.move_on_after((seconds - MIN_RETRY_SECONDS) * random.uniform(0.8, 1.2)):
                await self._start_requested.wait()
        finally:
            self._is_paused = False

    async def _check_connection_lost(self, connection: UpstreamConnection, error: MCPError) -> None:
        """Return if the error means that the connection was lost; otherwise raise the error."""
        if hint := connection.login_hint():
            raise ServerUnavailable(f"{self.name} is not reachable: {hint}") from None
        if reason := describe_unreadable(error):
            if reason == TOO_LARGE:
                raise self._too_large_error() from None
            raise ServerUnavailable(f"{self.name} sent an answer that cannot be read: {reason}") from None
        if (error.error.code, error.error.message) in HTTP_ERRORS and (status := connection.error_status()):
            raise ServerUnavailable(f"{self.name} is not reachable: it answered with HTTP {status}") from None
        if error.error.code == CONNECTION_CLOSED:
            with anyio.move_on_after(1):
                await connection.closed.wait()
        if not connection.closed.is_set():
            raise shorten_error(error)

    async def _fetch_tools(self, connection: UpstreamConnection) -> None:
        tools = await connection.request_list("tools/list", "tools", self.config.connect_seconds)
        if len(tools) >= connections.MAX_LIST_ENTRIES:
            _log.warning("%s lists %s tools or more; any further ones are not used", self.name, f"{len(tools):,}")
        if connection.session.is_stateless and self.config.transport == "http":
            usable = (tool for tool in tools if not exceeds_size(tool, MAX_DEFINITION_BYTES))
            connection.session.set_header_arguments(usable)
        listing = ServerListing(tuple(tools), connection.instructions, connection.protocol, connection.server_info)
        await self.on_listed(self.config, listing)
        self._tool_count = len(tools)
        self.is_listed = True

    async def _supervise(self, connection: UpstreamConnection) -> None:
        """Watch a connection until it ends or becomes idle."""
        interval = HEALTH_CHECK_SECONDS
        if self.is_lazy:
            interval = min(interval, self.config.idle_seconds)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_list_changes, connection)
            tasks.start_soon(self._relist_on_change, connection)
            sync = SubscriptionSync(connection, self.config, self.subscriptions, self._handle_notification)
            tasks.start_soon(sync.run)
            closed = connection.closed
            while not (closed.is_set() or self._is_idle() or self.should_reconnect()):
                await self._health.wait(closed, interval)
                if not closed.is_set() and not await self._health.is_responsive(connection, bool(self.in_flight)):
                    raise ServerUnavailable("it no longer answers")
            tasks.cancel_scope.cancel()
        if self._is_idle() and not closed.is_set():
            _log.info("%s is stopped: it was idle", self.name)

    def _is_idle(self) -> bool:
        is_expired = time.monotonic() - self._last_used >= self.config.idle_seconds
        return self.is_lazy and is_expired and not self.in_flight

    def should_reconnect(self) -> bool:
        """Return whether an idle connection has to be replaced, to forget abandoned calls."""
        return self.in_flight.needs_reconnect and not self.in_flight

    async def _watch_list_changes(self, connection: UpstreamConnection) -> None:
        """Forward list changes of a stateless server; relist after a lost subscription."""
        pause = MIN_RETRY_SECONDS
        while not connection.closed.is_set():
            try:
                if not await connection.watch_list_changes(self._handle_notification):
                    return
            except MCPError as error:
                if error.error.code == METHOD_NOT_FOUND:
                    return
            except SubscriptionLost:
                pass
            await anyio.sleep(pause)
            pause = min(pause * 2, MAX_RETRY_SECONDS)
            self._relist_requested.set()

    async def _relist_on_change(self, connection: UpstreamConnection) -> None:
        """List the tools after a change. Frequent changes are combined with growing delays."""
        pause = RELIST_DELAY_SECONDS
        while True:
            with anyio.move_on_after(max(MIN_RETRY_SECONDS, 4 * pause)) as quiet_period:
                await self._relist_requested.wait()
            if quiet_period.cancelled_caught:
                pause = RELIST_DELAY_SECONDS
                continue
            await anyio.sleep(pause)
            pause = min(pause * 2, MAX_RETRY_SECONDS)
            self._relist_requested = anyio.Event()
            try:
                await self._fetch_tools(connection)
            except (MCPError, ToolcribError) as error:
                _log.warning("%s: listing tools failed: %s", self.name, describe_error(error))

    async def _handle_notification(self, method: str, params: Mapping[str, Any] | None) -> None:
        if method == "notifications/tools/list_changed":
            self._relist_requested.set()
        elif method == "notifications/message" and await self.in_flight.forward_log(method, params):
            # It belongs to a call, so other clients must not see it.
            return
        elif method in _FORWARDED_NOTIFICATIONS:
            forward = self.in_flight.drop_when_busy(self.on_notification)
            await forward(self.name, method, params)

    async def _handle_request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        return await self.in_flight.forward_request(method, params, self.config.answer_seconds)
