"""Registry: tools that are Python functions, found by name and version, validated and run."""

from __future__ import annotations

import difflib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from types import UnionType
from typing import Any, Final, TypeVar, overload

from pydantic_core import to_json

from toolcrib.adapters.format_detection import tools_from_any
from toolcrib.adapters.toolcrib_json import TOOL_FIELDS
from toolcrib.core.calls import CallResult
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import MAX_NAME_CHARS, Tool
from toolcrib.core.validation import check_schema, find_problems
from toolcrib.errors import (
    CallRefused,
    DuplicateTool,
    InvalidArguments,
    InvalidConfig,
    InvalidSchema,
    InvalidTool,
    ToolcribError,
    ToolDisabled,
    UnknownTool,
)
from toolcrib.registry.entries import (
    FIRST_VERSION,
    VERSION_SEPARATOR,
    Invocation,
    InvocationOutcome,
    RegistryEntry,
    RegistryUsage,
    VersionNumbers,
    parse_version,
    split_reference,
)
from toolcrib.registry.execution import Executor, describe_exception
from toolcrib.registry.function import Function, FunctionSignature

DEFAULT_TIMEOUT_SECONDS: Final = 60.0
MAX_RESULT_CHARS: Final = 100_000
MAX_THREADS: Final = 64
_MAX_SUGGESTIONS: Final = 3
_MAX_QUOTED_NAME_CHARS: Final = 80
_MAX_COMPARED_NAMES: Final = 10_000

_log = logging.getLogger(__name__)

DecoratedFunction = TypeVar("DecoratedFunction", bound=Function)
BeforeHook = Callable[[Invocation], None]
AfterHook = Callable[[InvocationOutcome], None]


class Registry:
    """Tools that are Python functions.

    `catalog` is what there is to search. `execute` gives what a function returns, or raises;
    `call` gives a text for a model, whatever happens. All of it may be used from any thread.

    A tool may live in several versions. Its name means the newest one that is not deprecated;
    `name@2` means that version and no other.
    """

    def __init__(
        self,
        *,
        timeout_seconds: float | None = DEFAULT_TIMEOUT_SECONDS,
        max_result_chars: int = MAX_RESULT_CHARS,
        max_threads: int = MAX_THREADS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        _check_timeout("timeout_seconds", timeout_seconds)
        _check_positive("max_result_chars", max_result_chars, int)
        _check_positive("max_threads", max_threads, int)
        self._timeout_seconds = timeout_seconds
        self._max_result_chars = max_result_chars
        self._executor = Executor(max_threads)
        self._now = now
        self._lock = threading.RLock()
        self._versions: dict[str, dict[VersionNumbers, RegistryEntry]] = {}
        self._usage: dict[str, RegistryUsage] = {}
        self._catalog = Catalog()
        self._before: list[BeforeHook] = []
        self._after: list[AfterHook] = []

    # -------------------------------------------------------------------------- what there is

    @property
    def catalog(self) -> Catalog:
        """The tools to be offered: of each the current version, if enabled and not deprecated."""
        return self._catalog

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of the catalog, as anything that offers tools has them."""
        return tuple(self._catalog)

    def __getitem__(self, name: str) -> RegistryEntry:
        """The entry that a name, or a name with a version, means; `UnknownTool` if there is none."""
        with self._lock:
            return self._get_entry(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.has_tool(name)

    def __iter__(self) -> Iterator[RegistryEntry]:
        with self._lock:
            entries = [entry for one in self._versions.values() for entry in one.values()]
        return iter(entries)

    def __len__(self) -> int:
        return len(self._versions)

    def has_tool(self, name: str) -> bool:
        """Whether a call of this name would be ours to answer."""
        try:
            self[name]
        except UnknownTool:
            return False
        return True

    def versions(self, name: str) -> tuple[str, ...]:
        """The live versions of a tool, oldest first."""
        with self._lock:
            versions = self._versions[self._get_entry(name).tool.id]
            return tuple(versions[number].tool.version for number in sorted(versions))

    def categories(self) -> dict[str, int]:
        """How many of the offered tools each category has."""
        return dict(Counter(tool.category for tool in self._catalog if tool.category))

    def tags(self) -> dict[str, int]:
        """How many of the offered tools each tag has."""
        return dict(Counter(tag for tool in self._catalog for tag in dict.fromkeys(tool.tags)))

    def usage(self, name: str) -> RegistryUsage:
        """How a tool has been used, all its versions together; or one version, if it is named."""
        with self._lock:
            entry = self._get_entry(name)
            if VERSION_SEPARATOR in name:
                return self._entry_usage(entry)
            return sum(map(self._entry_usage, self._versions[name].values()), RegistryUsage())

    def most_used(self, limit: int = 10) -> list[tuple[str, RegistryUsage]]:
        """The tools that have done the most work, with how they were used."""
        with self._lock:
            used = [(name, self.usage(name)) for name in self._versions]
        used.sort(key=lambda one: -one[1].successes)
        return [one for one in used if one[1].successes][: max(0, limit)]

    # --------------------------------------------------------------------- what comes and goes

    @overload
    def tool(self, function: DecoratedFunction, /) -> DecoratedFunction: ...

    @overload
    def tool(self, /, **options: Any) -> Callable[[DecoratedFunction], DecoratedFunction]: ...

    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Register a function as a tool; as a decorator, with or without options.

        Options are `name`, `timeout_seconds`, `replace`, and the fields of a `Tool`.
        """
        if function is None:
            return partial(self.tool, **options)
        self.add(function, **options)
        return function

    def add(
        self,
        function: Function,
        *,
        name: str = "",
        timeout_seconds: float | None = None,
        replace: bool = False,
        **fields: Any,
    ) -> Tool:
        """Register a function, and give the tool that it is. `tool` is the same as a decorator."""
        signature = FunctionSignature(function, name)
        return self._store(signature.tool, signature.bind, timeout_seconds, replace, fields)

    def register(
        self,
        definition: Tool | Mapping[str, Any],
        function: Function,
        *,
        timeout_seconds: float | None = None,
        replace: bool = False,
        **fields: Any,
    ) -> Registry:
        """Register a function under a definition: a tool in any known wire format.

        `fields` are those of a `Tool` (category, tags, version and so on) and win over the
        definition's. A version that is there already is only put aside with `replace=True`; its
        usage stays.
        """
        tool = (
            definition if isinstance(definition, Tool) else _single_tool(tools_from_any(definition))
        )
        if not callable(function):
            raise InvalidTool(f"tool {tool.name!r}: {function!r} cannot be called; pass a function")
        self._store(
            tool, lambda given: partial(function, **given), timeout_seconds, replace, fields
        )
        return self

    def unregister(self, name: str) -> None:
        """Take a tool away with all its versions; or one version, if it is named."""
        with self._lock:
            entry = self._get_entry(name)
            versions = self._versions[entry.tool.id]
            gone = [entry] if VERSION_SEPARATOR in name else [*versions.values()]
            for one in gone:
                del versions[one.version_numbers]
                self._usage.pop(one.reference, None)
            if not versions:
                del self._versions[entry.tool.id]
            self._update_catalog(entry.tool.id)

    def enable(self, name: str) -> None:
        """Let a tool be offered and called again."""
        self._update_entry(name, enabled=True)

    def disable(self, name: str) -> None:
        """Neither offer nor run a tool, but keep it. Other versions do not take its place."""
        self._update_entry(name, enabled=False)

    def deprecate(self, name: str, successor: str) -> None:
        """Offer a version no more. It still runs, and each result says what to use instead."""
        with self._lock:
            if self._get_entry(successor) == self._get_entry(name):
                raise InvalidTool(f"{name!r} cannot be its own successor; name another")
            self._update_entry(name, successor=successor)

    def before(self, hook: BeforeHook) -> BeforeHook:
        """Have this called before each run. It may raise `CallRefused`, which the model is told.

        Whatever else it raises refuses the call too.
        """
        self._before.append(hook)
        return hook

    def after(self, hook: AfterHook) -> AfterHook:
        """Have this called after each run, however it ended. What it raises is logged."""
        self._after.append(hook)
        return hook

    # ------------------------------------------------------------------------------- running

    def execute(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """What a tool's function returns. Raises `UnknownTool`, or a `CallError`."""
        with self._start_run(name, arguments) as run:
            run.value = self._executor.run_blocking(name, run.work, run.entry.timeout_seconds)
        return run.value

    async def execute_async(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """The same in an event loop. Cancelling it cancels the function, if that is async."""
        with self._start_run(name, arguments) as run:
            run.value = await self._executor.run(name, run.work, run.entry.timeout_seconds)
        return run.value

    def call(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        """What to tell the model that called a tool: its result, or what went wrong and the cure."""
        try:
            return self._render_call_result(name, self.execute(name, arguments))
        except ToolcribError as fault:
            return CallResult(str(fault), is_error=True)

    async def call_async(self, name: str, arguments: Mapping[str, Any]) -> CallResult:
        """The same in an event loop."""
        try:
            return self._render_call_result(name, await self.execute_async(name, arguments))
        except ToolcribError as fault:
            return CallResult(str(fault), is_error=True)

    @contextmanager
    def _start_run(self, name: str, arguments: Mapping[str, Any]) -> Iterator[_RegistryRun]:
        """A call from the moment its tool is known until it has ended, one way or the other."""
        entry = self[name]
        run = _RegistryRun(entry, Invocation(entry.tool, arguments))
        started = time.monotonic()
        fault: BaseException | None = None
        try:
            self._check_call(name, run)
            yield run
        except BaseException as raised:
            fault = raised
            raise
        finally:
            self._count_call(entry, failed=fault is not None)
            outcome = InvocationOutcome(
                run.invocation, run.value, fault, time.monotonic() - started
            )
            self._run_after_hooks(outcome)

    def _check_call(self, name: str, run: _RegistryRun) -> None:
        arguments = run.invocation.arguments
        if not run.entry.enabled:
            raise ToolDisabled(f"{name} is switched off at present; use another tool")
        if not isinstance(arguments, Mapping):
            raise InvalidArguments(f"the arguments of {name} have to be an object; call again so")
        if faults := find_problems(run.entry.tool.input_schema, arguments):
            raise InvalidArguments(
                f"the arguments do not fit {name}: {'; '.join(faults)}; call again with that put right"
            )
        run.work = run.entry.bind(arguments)
        for hook in self._before:
            try:
                hook(run.invocation)
            except ToolcribError:
                raise
            except Exception as fault:
                raise CallRefused(
                    f"{name} was not run, as a check before it failed: {describe_exception(fault)}; "
                    "try again, or use another tool"
                ) from fault

    def _run_after_hooks(self, outcome: InvocationOutcome) -> None:
        for hook in self._after:
            try:
                hook(outcome)
            except Exception:
                # The run is over, and its result no worse for it.
                tool = outcome.invocation.tool.id
                _log.exception("a hook after %s failed; the result stays as it is", tool)

    def _render_call_result(self, name: str, value: Any) -> CallResult:
        try:
            text = render_value(value)
        except (ValueError, RecursionError) as fault:
            return CallResult(f"{name} ran, but its result is no JSON: {fault}", is_error=True)
        if len(text) > self._max_result_chars:
            text = (
                f"{text[: self._max_result_chars]}\n\n(These are the first "
                f"{self._max_result_chars:,} characters of {len(text):,}. Ask for less.)"
            )
        entry = self._find_entry(name)
        if entry and entry.successor:
            text += f"\n\n({name} is deprecated. From now on use {entry.successor}.)"
        return CallResult(text, is_error=False)

    # -------------------------------------------------------------------------------- keeping

    def _store(
        self,
        tool: Tool,
        bound: Callable[[Mapping[str, Any]], Callable[[], Any]],
        timeout_seconds: float | None,
        replace: bool,
        fields: dict[str, Any],
    ) -> Tool:
        _check_timeout(f"tool {tool.id!r}: timeout_seconds", timeout_seconds)
        tool = tool.replace(
            **{"version": tool.version or FIRST_VERSION, **_check_fields(tool, fields)}
        )
        if VERSION_SEPARATOR in tool.id:
            raise InvalidTool(
                f"tool {tool.id!r}: {VERSION_SEPARATOR} stands between a name and a version; "
                "use another character"
            )
        try:
            check_schema(tool.input_schema)
        except InvalidSchema as fault:
            raise InvalidSchema(f"tool {tool.id!r}: {fault}") from None
        entry = RegistryEntry(tool, bound, timeout_seconds or self._timeout_seconds)
        number = entry.version_numbers
        with self._lock:
            versions = self._versions.setdefault(tool.id, {})
            if number in versions and not replace:
                raise DuplicateTool(
                    f"{entry.reference} is registered already; give another version, or replace=True"
                )
            versions[number] = entry
            self._update_catalog(tool.id)
        return tool

    def _update_entry(self, name: str, **changes: Any) -> None:
        with self._lock:
            entry = self._get_entry(name)
            self._versions[entry.tool.id][entry.version_numbers] = replace(entry, **changes)
            self._update_catalog(entry.tool.id)

    def _update_catalog(self, name: str) -> None:
        """Bring the catalog in line with what is kept under a name."""
        entry = self._current_entry(name) if name in self._versions else None
        if entry and entry.enabled and not entry.successor:
            self._catalog = self._catalog.with_tools([entry.tool])
        elif name in self._catalog:
            self._catalog = self._catalog.without([name])

    def _current_entry(self, name: str) -> RegistryEntry:
        versions = self._versions[name]
        return versions[max(versions, key=lambda one: (not versions[one].successor, one))]

    def _find_entry(self, reference: str) -> RegistryEntry | None:
        name, version = split_reference(reference)
        versions = self._versions.get(name)
        if versions is None:
            return None
        return versions.get(parse_version(version)) if version else self._current_entry(name)

    def _get_entry(self, reference: str) -> RegistryEntry:
        if not isinstance(reference, str):
            raise UnknownTool(f"there is no tool {_quote_name(repr(reference))}; a name is text")
        try:
            entry = self._find_entry(reference)
        except InvalidTool as fault:
            raise UnknownTool(f"there is no tool {_quote_name(reference)}: {fault}") from None
        if entry is None:
            raise UnknownTool(self._unknown_tool_message(reference))
        return entry

    def _unknown_tool_message(self, reference: str) -> str:
        name, _ = split_reference(reference)
        if name in self._versions:
            live = ", ".join(one.reference for one in self._versions[name].values())
            return f"there is no tool {_quote_name(reference)}; there is {live}"
        near = difflib.get_close_matches(
            name[:MAX_NAME_CHARS], self._comparable_ids(), _MAX_SUGGESTIONS
        )
        hint = (
            f"the nearest names are {', '.join(near)}" if near else "search for what it should do"
        )
        return f"there is no tool {_quote_name(name)}; {hint}"

    def _comparable_ids(self) -> list[str]:
        return [tool.id for tool in islice(self._catalog, _MAX_COMPARED_NAMES)]

    def _entry_usage(self, entry: RegistryEntry) -> RegistryUsage:
        return self._usage.get(entry.reference, RegistryUsage())

    def _count_call(self, entry: RegistryEntry, failed: bool) -> None:
        with self._lock:
            if self._find_entry(entry.reference):
                used = RegistryUsage(not failed, failed, self._now())
                self._usage[entry.reference] = self._entry_usage(entry) + used


@dataclass(slots=True)
class _RegistryRun:
    entry: RegistryEntry
    invocation: Invocation
    work: Callable[[], Any] = lambda: None
    value: Any = None


def _check_timeout(name: str, seconds: float | None) -> None:
    if seconds is not None:
        _check_positive(name, seconds, int | float)


def _check_positive(name: str, value: float, kind: type | UnionType) -> None:
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    if not is_number or not value > 0:
        whole = "whole " if kind is int else ""
        raise InvalidConfig(f"{name} has to be a {whole}number of more than 0, not {value!r}")


def _check_fields(tool: Tool, fields: dict[str, Any]) -> dict[str, Any]:
    for field in fields:
        if field not in TOOL_FIELDS:
            raise InvalidTool(
                f"tool {tool.name!r}: unknown field {field!r}; use {', '.join(TOOL_FIELDS)}"
            )
    return fields


def _quote_name(name: str) -> str:
    """A name that a model made up, which may be of any length and hold any character."""
    return repr(
        name if len(name) <= _MAX_QUOTED_NAME_CHARS else f"{name[:_MAX_QUOTED_NAME_CHARS]}…"
    )


def render_value(value: object) -> str:
    """What a tool gave back, as a model reads it: text as it is, everything else as JSON."""
    if isinstance(value, str):
        return value
    return to_json(value, fallback=str, inf_nan_mode="strings").decode()


def _single_tool(tools: list[Tool]) -> Tool:
    if len(tools) != 1:
        raise InvalidTool(f"a definition lists {len(tools)} tools; register them one by one")
    return tools[0]
