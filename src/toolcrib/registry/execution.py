"""Run functions for sync and async callers, with a time limit, and the hooks around each run.

Every function runs on an event loop; one that may block runs in a thread, awaited by the loop. A
caller without an event loop uses the loop of a background thread.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, takewhile
from types import UnionType
from typing import Any, Final

from pydantic_core import to_json

from toolcrib.core.callbacks import discard_awaitable, is_async, name_callback
from toolcrib.core.tool import Tool
from toolcrib.errors import CallRefused, CallTimeout, InvalidConfig, InvalidTool, ToolcribError, ToolFailed

FIRST_VERSION = "1"
VERSION_SEPARATOR = "@"

_MAX_VERSION_CHARS: Final = 64
_VERSION_PART_PATTERN = re.compile(r"[0-9]+|[^0-9.\-_+]+")

# A part of a version: its kind, its number, its text.
VersionPart = tuple[int, int, str]
VersionKey = tuple[VersionPart, ...]
_TEXT, _END, _NUMBER = 0, 1, 2
_ZERO: Final = (_NUMBER, 0, "")

Work = Callable[[], Any]

MAX_ERROR_CHARS: Final = 2_000
# A generator may be endless.
MAX_YIELDED_VALUES: Final = 10_000

_lock = threading.Lock()
# One loop per process: after a fork, the child has this table but not the thread.
_loops: dict[int, asyncio.AbstractEventLoop] = {}
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RegistryUsage:
    """How often a tool succeeded and failed, and when it last ran."""

    successes: int = 0
    failures: int = 0
    last_used: datetime | None = None

    def __add__(self, other: RegistryUsage) -> RegistryUsage:
        dates = [date for date in (self.last_used, other.last_used) if date]
        return RegistryUsage(self.successes + other.successes, self.failures + other.failures, max(dates, default=None))


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """One version of a tool, and the function behind it.

    `bind` turns JSON arguments into a callable without parameters. `successor` names the tool to
    use instead if this version is deprecated.
    """

    tool: Tool
    bind: Callable[[Mapping[str, Any]], Callable[[], Any]]
    timeout_seconds: float | None
    enabled: bool = True
    successor: str = ""

    @property
    def reference(self) -> str:
        """The name that refers to this version only."""
        return f"{self.tool.id}{VERSION_SEPARATOR}{self.tool.version}"

    @property
    def version_key(self) -> VersionKey:
        """The version in a form that can be compared."""
        return parse_version(self.tool.version)


@dataclass(frozen=True, slots=True)
class Invocation:
    """A tool that is about to run, and its arguments."""

    tool: Tool
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class InvocationOutcome:
    """The result of a run: a value, or an error."""

    invocation: Invocation
    value: Any
    error: BaseException | None
    seconds: float


@dataclass(slots=True)
class RegistryRun:
    """A call in progress: `work` runs the function, `value` is its result."""

    name: str
    entry: RegistryEntry
    invocation: Invocation
    work: Callable[[], Any] = lambda: None
    value: Any = None
    error: BaseException | None = None
    seconds: float = 0.0

    @property
    def outcome(self) -> InvocationOutcome:
        """What the hooks after the run get."""
        return InvocationOutcome(self.invocation, self.value, self.error, self.seconds)


def parse_version(version: str) -> VersionKey:
    """Return a key that sorts versions: 1.10 after 1.9, 2.0 after 2.0-beta, and 1.0 equals 1.

    Parts are separated by dots, hyphens, underscores and plus signs.
    """
    if not version.strip() or VERSION_SEPARATOR in version or len(version) > _MAX_VERSION_CHARS:
        raise InvalidTool(
            f"version {version[:40]!r} is not valid; use 1 to {_MAX_VERSION_CHARS} characters without "
            f"{VERSION_SEPARATOR}, such as 1.4 or 2.0-beta"
        )
    texts = _VERSION_PART_PATTERN.findall(version.casefold().removeprefix("v"))
    parts = [(_NUMBER, int(text), "") if text.isdecimal() else (_TEXT, 0, text) for text in texts]
    release = list(takewhile(lambda part: part[0] == _NUMBER, parts))
    rest = parts[len(release) :]
    while len(release) > 1 and release[-1] == _ZERO:
        release.pop()
    # The end sorts after text and before numbers, so 2.0-beta < 2.0 < 2.0.1.
    return (*release, *rest, (_END, 0, ""))


def split_reference(reference: str) -> tuple[str, str]:
    """Return the name and the version in `name@version`; an empty version if it has none."""
    name, _, version = reference.partition(VERSION_SEPARATOR)
    return name, version


class Executor:
    """Runs functions, with a limit on the number of threads."""

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._free_threads = threading.BoundedSemaphore(max_threads)

    async def run(self, name: str, work: Work, timeout_seconds: float | None) -> Any:
        """Return the result of the function. Cancelling this cancels an async function."""
        task = asyncio.ensure_future(self._execute(name, work))
        task.add_done_callback(_retrieve_exception)
        try:
            finished, _ = await asyncio.wait({task}, timeout=timeout_seconds)
        finally:
            task.cancel()
        if not finished:
            raise CallTimeout(
                f"{name} took longer than {timeout_seconds:g} seconds and was abandoned; "
                "ask for less, or try again later"
            )
        if task.cancelled():
            raise ToolFailed(f"{name} stopped itself; try again, or use another tool")
        return task.result()

    def run_blocking(self, name: str, work: Work, timeout_seconds: float | None) -> Any:
        """Return the result of the function, for a caller without an event loop."""
        return _run_on_background_loop(self.run(name, work, timeout_seconds))

    async def _execute(self, name: str, work: Work) -> Any:
        if is_async(work):
            return await _await_result(name, work)
        value = await asyncio.wrap_future(self._start_thread(name, work))
        # A sync wrapper around an async function returns an awaitable.
        return await _await_result(name, lambda: value) if inspect.isawaitable(value) else value

    def _start_thread(self, name: str, work: Work) -> Future[Any]:
        # A thread cannot be stopped: an abandoned one counts towards the limit until it ends.
        if not self._free_threads.acquire(blocking=False):
            raise CallRefused(f"{self._max_threads} calls are still running, which is the limit; try again later")
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        context = copy_context()

        def target() -> None:
            try:
                value = context.run(work)
            except BaseException as exception:
                error = _tool_failed_error(name, exception)
                error.__cause__ = exception
                future.set_exception(error)
            else:
                future.set_result(value)
            finally:
                self._free_threads.release()

        threading.Thread(target=target, name="toolcrib-call", daemon=True).start()
        return future


def check_timeout(name: str, seconds: float | None) -> None:
    """Raise `InvalidConfig` unless a timeout is None or positive."""
    if seconds is not None:
        check_positive(name, seconds, int | float)


def check_positive(name: str, value: float, number_type: type | UnionType) -> None:
    """Raise `InvalidConfig` unless a value is a positive number of this type."""
    is_number = isinstance(value, number_type) and not isinstance(value, bool)
    if not is_number or not value > 0:
        whole = "whole " if number_type is int else ""
        raise InvalidConfig(f"{name} must be a {whole}number greater than 0, not {value!r}")


async def _await_result(name: str, work: Work) -> Any:
    try:
        return await work()
    except (Exception, SystemExit) as exception:
        raise _tool_failed_error(name, exception) from exception


def describe_exception(exception: BaseException) -> str:
    """Return an exception as text for a model, shortened to `MAX_ERROR_CHARS`."""
    name, text = type(exception).__name__, ""
    # The text comes from the class of the exception, which may fail too.
    with suppress(Exception):
        text = str(exception)
    text = f"{name}: {text}" if text else name
    return text if len(text) <= MAX_ERROR_CHARS else f"{text[:MAX_ERROR_CHARS]}…"


def render_value(value: object) -> str:
    """Return the value of a tool as text for a model: a string unchanged, other values as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, AsyncIterator):
        raise ValueError("it is an async generator, which can't be read here; return a list")
    if isinstance(value, Iterator):
        value = _read_values(value)
    return to_json(value, fallback=str, inf_nan_mode="strings").decode()


def _read_values(values: Iterator[object]) -> list[object]:
    try:
        read = list(islice(values, MAX_YIELDED_VALUES + 1))
    except Exception as error:
        raise ValueError(describe_exception(error)) from error
    if len(read) > MAX_YIELDED_VALUES:
        raise ValueError(f"it yields more than {MAX_YIELDED_VALUES:,} values; return fewer")
    return read


def _tool_failed_error(name: str, exception: BaseException) -> ToolFailed:
    return ToolFailed(f"{name} accepted the call and failed: {describe_exception(exception)}")


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of an abandoned task, so that asyncio does not log it as lost."""
    if not task.cancelled():
        task.exception()


def _background_loop() -> asyncio.AbstractEventLoop:
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="toolcrib-loop", daemon=True).start()
        return loop


def _run_on_background_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    loop = _background_loop()
    if asyncio._get_running_loop() is loop:
        coroutine.close()
        raise CallRefused("a blocking call inside an async function would wait for itself; use call_async")
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


BeforeHook = Callable[[Invocation], bool | Awaitable[bool | None] | None]
AfterHook = Callable[[InvocationOutcome], Awaitable[None] | None]


def refuse_async_hooks(run: RegistryRun, hooks: Iterable[Callable[..., Any]]) -> None:
    """Refuse a sync call if one of the hooks is async."""
    for hook in hooks:
        if is_async(hook):
            raise CallRefused(
                f"{run.name} was not run because the hook {name_callback(hook)} is async and the call is not; "
                "call the tool with execute_async or call_async"
            )


@contextmanager
def refuse_on_error(run: RegistryRun) -> Iterator[None]:
    """Refuse a call if a hook raises an exception."""
    try:
        yield
    except ToolcribError:
        raise
    except Exception as error:
        raise CallRefused(
            f"{run.name} was not run because a check failed: {describe_exception(error)}; "
            "try again, or use another tool"
        ) from error


def check_verdict(run: RegistryRun, verdict: object) -> None:
    """Refuse a call unless a hook before it returned None or True."""
    if verdict is None or verdict is True:
        return
    discard_awaitable(verdict)
    reason = "a check refused it" if verdict is False else f"a check returned {type(verdict).__name__}, not True"
    raise CallRefused(f"{run.name} was not run because {reason}; use another tool")


@contextmanager
def log_errors(run: RegistryRun) -> Iterator[None]:
    """Log an exception of a hook after a call."""
    try:
        yield
    except Exception:
        _log.exception("a hook after %s failed; the result is unaffected", run.entry.tool.id)


def discard_result(value: object) -> None:
    """Raise an error if a hook after a sync call returned an awaitable, as it has not run."""
    if discard_awaitable(value):
        raise TypeError("the hook returned an awaitable, which only execute_async and call_async await")
