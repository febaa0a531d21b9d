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

from toolcrib.config.settings import Server
from toolcrib.errors import ServerUnavailable, ToolcribError
from toolcrib.gateway.logs import Redactor
from toolcrib.gateway.mcp.upstream.connection import Link, end_of, open_link, reason_of
from toolcrib.gateway.mcp.upstream.in_flight import Caller, Waiting
from toolcrib.gateway.mcp.upstream.sdk import HTTP_FAILED
from toolcrib.gateway.mcp.upstream.stdio import Complaints
from toolcrib.gateway.mcp.upstream.subscriptions import Wishes, keep_asking
from toolcrib.gateway.secrets import secrets_of
from toolcrib.hub.definitions import MAX_DEFINITION_BYTES, outweighs

State = Literal["configured", "known", "started", "in use"]

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
HEALTH_SECONDS: Final = 30.0
LAST_WORDS_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 0.2
# The costly part of a start; one that takes longer is waiting for something, and lets others start.
START_SECONDS: Final = 5.0
MAX_IN_FLIGHT: Final = 1_000

# What a server may tell clients. Anything else it says is between it and us.
_NEWS: Final = frozenset(
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
class Listing:
    """What a server says it has."""

    tools: tuple[Any, ...]
    instructions: str
    protocol: str
    info: Mapping[str, Any]


OnListed = Callable[[Server, Listing], Awaitable[None]]
OnNews = Callable[[str, str, Mapping[str, Any] | None], Awaitable[None]]


@dataclass(eq=False)
class Upstream:
    """One server, its connection, and those who wait for its answers."""

    server: Server
    on_listed: OnListed
    on_news: OnNews
    # Starting is what costs; only so many servers start at the same time.
    starting: anyio.CapacityLimiter
    wishes: Wishes
    # The folder with the tokens of servers that a person has logged in to.
    tokens: Path | None = None
    known: bool = False
    trouble: str = ""
    failures: int = 0
    calls: int = 0
    link: Link | None = None
    complaints: Complaints = field(init=False)

    def __post_init__(self) -> None:
        told = logging.getLogger(f"{__name__}.{self.server.name}")
        # Why it failed is told to clients too, and it may have said what it was given in confidence.
        self._redact = Redactor(secrets_of(self.server))
        self.complaints = Complaints(lambda line: told.info("%s", self._redact(line)))
        self.waiting = Waiting()
        self._used = time.monotonic()
        self._legacy = self.server.era == "legacy"
        self._stood = False
        self._tried = self._begun = math.inf
        # Failures of late, also of connections that stood for a while; so are the pauses.
        self._streak = 0
        # A lazy server that nobody has asked for since it was last up.
        self._resting = False
        self._wanted = anyio.Event()
        self._changed = anyio.Event()
        self._settled = anyio.Event()

    @property
    def name(self) -> str:
        """What the configuration calls it."""
        return self.server.name

    @property
    def state(self) -> State:
        """How far it has come."""
        if self.link is not None:
            return "in use" if self.waiting else "started"
        return "known" if self.known else "configured"

    @property
    def is_lazy(self) -> bool:
        """Whether it is left alone until it is needed. One never seen has to be seen once."""
        return self.server.start == "lazy" and self.known

    async def run(self) -> None:
        """Look after the server until cancelled."""
        while True:
            if self.is_lazy and not self._wanted.is_set():
                self._resting = True
                await self._wanted.wait()
                self._resting = False
            try:
                await self._connect()
                self.failures = 0
            except Exception as fault:
                if self._tries_legacy():
                    continue
                self._failed(fault)
                await self._pause()

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        caller: Caller,
        *,
        may_repeat: bool = False,
    ) -> dict[str, Any]:
        """Ask the server on behalf of a client. An error of the server's own is raised as it is."""
        if len(self.waiting) >= MAX_IN_FLIGHT:
            raise ServerUnavailable(
                f"{self.name} has {MAX_IN_FLIGHT:,} calls to answer already; try again later"
            )
        for last in (not may_repeat, True):
            link = await self.linked(patience=1 if last and may_repeat else 0)
            self.calls += 1
            try:
                with self.waiting.call(caller, self.server.call_seconds) as call:
                    return await link.session.raw_request(
                        method,
                        params,
                        capabilities=caller.capabilities,
                        on_progress=self.waiting.unhurried(caller.progress),
                        on_answered=call.answered,
                    )
            except TimeoutError:
                raise ServerUnavailable(
                    f"{self.name} did not answer within {self.server.call_seconds:g} seconds; "
                    "raise its `callSeconds` if it is only slow"
                ) from None
            except MCPError as fault:
                if refusal := link.refusal():
                    raise ServerUnavailable(f"{self.name} is not reachable: {refusal}") from None
                if fault.error.message == HTTP_FAILED:
                    raise ServerUnavailable(
                        f"{self.name} is not reachable: it answered with an HTTP error"
                    ) from None
                if not await self._has_ended(link, fault):
                    raise
                if self.link is link:
                    self.link = None
                if last:
                    raise ServerUnavailable(
                        f"{self.name} went away before it answered; it is being started again. "
                        "Whether the call had an effect is not known"
                    ) from None
            finally:
                self._used = time.monotonic()
        raise AssertionError("the last attempt returns or raises")

    async def linked(self, patience: int = 0) -> Link:
        """The connection, once it stands. If it failed just now, that is said at once.

        `patience` is how many failures in a row are waited out.
        """
        allowed = max(self.failures, patience) if self._resting else patience
        if self.link is None:
            self._wanted.set()
        with anyio.move_on_after(self.server.connect_seconds):
            while self.link is None and self.failures <= allowed:
                await self._settled.wait()
        if self.link is None:
            raise ServerUnavailable(
                f"{self.name} is not reachable: {self.trouble or 'it is still starting'}"
            )
        return self.link

    def list_anew(self) -> None:
        """Have it listed soon; one that rests is started for that."""
        (self._wanted if self.link is None else self._changed).set()

    async def seen(self) -> None:
        """Wait until its tools have been listed, now or earlier, or until it has failed."""
        while not (self.known or self.failures):
            await self._settled.wait()

    async def _connect(self) -> None:
        """One connection, from its start until it ends or is no longer needed."""
        self._stood = False
        self._tried = time.monotonic()
        await self.starting.acquire_on_behalf_of(self)
        with anyio.CancelScope() as scope:
            scope.deadline = anyio.current_time() + self.server.connect_seconds
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._let_others_start)
                    await self._stand(scope)
                    tasks.cancel_scope.cancel()
            finally:
                self._release()
                self.link = None
        if scope.cancelled_caught:
            raise TimeoutError
        if not self.is_lazy and not self._is_confused():
            raise ServerUnavailable("its connection ended")

    async def _stand(self, scope: anyio.CancelScope) -> None:
        opened = open_link(
            self.server,
            legacy=self._legacy,
            on_request=self._asked,
            on_notify=self._told,
            complaints=self.complaints,
            tokens=self.tokens,
        )
        async with opened as link:
            await self._list(link)
            scope.deadline = math.inf
            self._release()
            self._stands(link)
            try:
                await self._tend(link)
            finally:
                # Before it is taken down, which takes its time: nobody is to be sent there now.
                self.link = None

    async def _let_others_start(self) -> None:
        await anyio.sleep(START_SECONDS)
        self._release()

    def _tries_legacy(self) -> bool:
        """Whether to start over with the handshake: its absence is too much for some servers."""
        tries = not (self._stood or self._legacy) and self.server.era == "auto"
        self._legacy = tries or (self._stood and self._legacy) or self.server.era == "legacy"
        return tries

    def _release(self) -> None:
        with suppress(RuntimeError):
            self.starting.release_on_behalf_of(self)

    def _stands(self, link: Link) -> None:
        self.link, self.trouble, self.failures, self._stood = link, "", 0, True
        self._used = self._begun = time.monotonic()
        self._wanted = anyio.Event()
        self.waiting.begin_anew(is_modern=link.session.is_modern)
        self._settle()
        _log.info("%s is started (%s)", self.name, link.protocol)

    def _failed(self, fault: BaseException) -> None:
        self.failures += 1
        has_proved = self._stood and time.monotonic() - self._begun > LONGEST_PAUSE
        self._streak = 1 if has_proved else self._streak + 1
        code = self.complaints.exit_code
        # What it said long before has nothing to do with its end.
        since = time.monotonic() - LAST_WORDS_SECONDS if self._stood else self._tried
        said = self.complaints.since(since)[-1:]
        reason = reason_of(fault) if code is None else end_of(code)
        why = self._redact("; it said: ".join([reason, *said]))
        before, self.trouble = self.trouble, why
        self._wanted = anyio.Event()
        self._settle()
        if self.trouble != before:
            _log.warning("%s is not reachable: %s", self.name, self.trouble)

    def _settle(self) -> None:
        """Wake those who wait to hear whether it stands."""
        settled, self._settled = self._settled, anyio.Event()
        settled.set()

    async def _pause(self) -> None:
        # Not in step: servers that failed together should not all come back together.
        longest = min(FIRST_PAUSE * 2 ** min(self._streak - 1, 16), LONGEST_PAUSE)
        await anyio.sleep(longest * random.uniform(0.8, 1.2))

    async def _has_ended(self, link: Link, fault: MCPError) -> bool:
        if fault.error.code == CONNECTION_CLOSED:
            with anyio.move_on_after(1):
                await link.closed.wait()
        return link.closed.is_set()

    async def _list(self, link: Link) -> None:
        tools = await link.pages("tools/list", "tools", self.server.connect_seconds)
        if link.session.is_modern and self.server.transport == "http":
            usable = (tool for tool in tools if not outweighs(tool, MAX_DEFINITION_BYTES))
            link.session.mirror_headers(usable)
        await self.on_listed(
            self.server, Listing(tuple(tools), link.instructions, link.protocol, link.info)
        )
        self.known = True

    async def _tend(self, link: Link) -> None:
        """Watch over a standing connection until it ends or is no longer needed."""
        pause = min(HEALTH_SECONDS, self.server.idle_seconds) if self.is_lazy else HEALTH_SECONDS
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, link)
            tasks.start_soon(self._keep_listed, link)
            tasks.start_soon(keep_asking, link, self.server, self.wishes, self._told)
            while not (link.closed.is_set() or self._is_idle() or self._is_confused()):
                with anyio.move_on_after(pause):
                    await link.closed.wait()
                if not link.closed.is_set() and not self.waiting and not await _is_well(link):
                    raise ServerUnavailable("it no longer answers")
            tasks.cancel_scope.cancel()
        if self._is_idle() and not link.closed.is_set():
            _log.info("%s is stopped: nobody needs it", self.name)

    def _is_idle(self) -> bool:
        idle = time.monotonic() - self._used >= self.server.idle_seconds
        return self.is_lazy and idle and not self.waiting

    def _is_confused(self) -> bool:
        """Whether only a new connection tells whose its questions are, and nobody uses this one."""
        return self.waiting.is_confused and not self.waiting

    async def _watch(self, link: Link) -> None:
        """Hear of changes. When the hearing is lost, some may have been missed, so it lists anew."""
        pause = FIRST_PAUSE
        while not link.closed.is_set():
            try:
                if not await link.watch(self._told):
                    return
            except MCPError as fault:
                if fault.error.code == METHOD_NOT_FOUND:
                    return
            except SubscriptionLost:
                pass
            await anyio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            self._changed.set()

    async def _keep_listed(self, link: Link) -> None:
        """List anew after a change; many changes at once are one, and one that never ends is slow."""
        pause = SETTLE_SECONDS
        while True:
            with anyio.move_on_after(max(FIRST_PAUSE, 4 * pause)) as quiet:
                await self._changed.wait()
            if quiet.cancelled_caught:
                pause = SETTLE_SECONDS
                continue
            await anyio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            self._changed = anyio.Event()
            try:
                await self._list(link)
            except (MCPError, ToolcribError) as fault:
                _log.warning("%s could not be listed anew: %s", self.name, reason_of(fault))

    async def _told(self, method: str, params: Mapping[str, Any] | None) -> None:
        if method == "notifications/tools/list_changed":
            self._changed.set()
        elif method == "notifications/message" and await self.waiting.tell(method, params):
            # It is about a call, and no affair of anybody else's.
            return
        elif method in _NEWS:
            await self.waiting.unhurried(self.on_news)(self.name, method, params)

    async def _asked(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        return await self.waiting.ask(method, params, self.server.answer_seconds)


async def _is_well(link: Link) -> bool:
    method = "server/discover" if link.session.is_modern else "ping"
    try:
        await link.session.raw_request(method, None, timeout=HEALTH_SECONDS)
    except MCPError as fault:
        # Some servers know no ping. An answer is an answer.
        return fault.error.code not in (CONNECTION_CLOSED, REQUEST_TIMEOUT)
    return True
