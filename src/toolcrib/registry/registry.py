"""Registry: Python functions as tools, found by name and version, validated and run."""

from __future__ import annotations

import difflib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from inspect import isawaitable
from itertools import islice
from typing import Any, Final, TypeVar, overload

from toolcrib.adapters.format_detection import tools_from_any
from toolcrib.adapters.toolcrib_json import TOOL_FIELDS
from toolcrib.core.calls import CallResult
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import MAX_NAME_CHARS, Tool
from toolcrib.core.validation import find_problems, find_schema_problem
from toolcrib.errors import (
    DuplicateTool,
    InvalidArguments,
    InvalidSchema,
    InvalidTool,
    ToolcribError,
    ToolDisabled,
    UnknownTool,
)
from toolcrib.registry import execution
from toolcrib.registry.execution import (
    AfterHook,
    BeforeHook,
    check_verdict,
    discard_result,
    log_errors,
    refuse_async_hooks,
    refuse_on_error,
)
from toolcrib.registry.function import Function, FunctionSignature

DEFAULT_TIMEOUT_SECONDS: Final = 60.0
MAX_RESULT_CHARS: Final = 100_000
MAX_THREADS: Final = 64
_MAX_SUGGESTIONS: Final = 3
_MAX_QUOTED_NAME_CHARS: Final = 80
_MAX_COMPARED_NAMES: Final = 10_000

DecoratedFunction = TypeVar("DecoratedFunction", bound=Function)


class Registry:
    """Python functions as tools.

    `catalog` has the tools to search. `execute` returns what a function returns, or raises; `call`
    always returns text for a model. All methods are safe to call from any thread.

    A tool may have several versions. Its name refers to the newest version that is not deprecated;
    `name@2` refers to that version only.
    """

    def __init__(
        self,
        *,
        timeout_seconds: float | None = DEFAULT_TIMEOUT_SECONDS,
        max_result_chars: int = MAX_RESULT_CHARS,
        max_threads: int = MAX_THREADS,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        execution.check_timeout("timeout_seconds", timeout_seconds)
        execution.check_positive("max_result_chars", max_result_chars, int)
        execution.check_positive("max_threads", max_threads, int)
        self._timeout_seconds = timeout_seconds
        self._max_result_chars = max_result_chars
        self._executor = execution.Executor(max_threads)
        self._now = now
        self._lock = threading.RLock()
        self._versions: dict[str, dict[execution.VersionKey, execution.RegistryEntry]] = {}
        self._usage: dict[str, execution.RegistryUsage] = {}
        self._catalog = Catalog()
        self._before: list[BeforeHook] = []
        self._after: list[AfterHook] = []

    def __repr__(self) -> str:
        return f"Registry({len(self._catalog)} tools)"

    @property
    def catalog(self) -> Catalog:
        """The current version of each tool, if it is enabled and not deprecated."""
        return self._catalog

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of the catalog."""
        return tuple(self._catalog)

    def __getitem__(self, name: str) -> execution.RegistryEntry:
        """Return the entry of a name or `name@version`; raise `UnknownTool` if it is not registered."""
        with self._lock:
            return self._get_entry(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.has_tool(name)

    def __iter__(self) -> Iterator[execution.RegistryEntry]:
        with self._lock:
            entries = [entry for versions in self._versions.values() for entry in versions.values()]
        return iter(entries)

    def __len__(self) -> int:
        return len(self._versions)

    def has_tool(self, name: str) -> bool:
        """Return whether the registry has a tool with this name or `name@version`."""
        try:
            self[name]
        except UnknownTool:
            return False
        return True

    def versions(self, name: str) -> tuple[str, ...]:
        """Return the registered versions of a tool, oldest first."""
        with self._lock:
            versions = self._versions[self._get_entry(name).tool.id]
            return tuple(versions[number].tool.version for number in sorted(versions))

    def categories(self) -> dict[str, int]:
        """Return the number of tools of the catalog in each category."""
        return dict(Counter(tool.category for tool in self._catalog if tool.category))

    def tags(self) -> dict[str, int]:
        """Return the number of tools of the catalog with each tag."""
        return dict(Counter(tag for tool in self._catalog for tag in dict.fromkeys(tool.tags)))

    def usage(self, name: str) -> execution.RegistryUsage:
        """Return the usage of one version if the name has one, else of all versions together."""
        with self._lock:
            entry = self._get_entry(name)
            if execution.VERSION_SEPARATOR in name:
                return self._entry_usage(entry)
            return sum(map(self._entry_usage, self._versions[name].values()), execution.RegistryUsage())

    def most_used(self, limit: int = 10) -> list[tuple[str, execution.RegistryUsage]]:
        """Return the tools with the most successful calls, with their usage."""
        with self._lock:
            rows = [(name, self.usage(name)) for name in self._versions]
        rows = [row for row in rows if row[1].successes]
        return sorted(rows, key=lambda row: -row[1].successes)[: max(0, limit)]

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
        """Register a function and return its tool."""
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
        """Register a function under a definition: a `Tool`, or a tool in any known wire format.

        `fields` are fields of `Tool` and override those of the definition. Replacing a version that
        is already registered requires `replace=True`; its usage is kept.
        """
        tool = definition if isinstance(definition, Tool) else _read_definition(definition)
        if not callable(function):
            raise InvalidTool(f"tool {tool.name!r}: {function!r} cannot be called; pass a function")

        def bind(arguments: Mapping[str, Any]) -> Callable[[], Any]:
            return partial(function, **arguments)

        self._store(tool, bind, timeout_seconds, replace, fields)
        return self

    def unregister(self, name: str) -> None:
        """Remove one version if the name has one, else the tool with all its versions."""
        with self._lock:
            entry = self._get_entry(name)
            versions = self._versions[entry.tool.id]
            removed = [entry] if execution.VERSION_SEPARATOR in name else [*versions.values()]
            for version in removed:
                del versions[version.version_key]
                self._usage.pop(version.reference, None)
            if not versions:
                del self._versions[entry.tool.id]
            self._update_catalog(entry.tool.id)

    def enable(self, name: str) -> None:
        """Add a disabled tool to the catalog again and allow calls of it."""
        self._update_entry(name, enabled=True)

    def disable(self, name: str) -> None:
        """Remove a tool from the catalog and refuse calls of it; no other version replaces it."""
        self._update_entry(name, enabled=False)

    def deprecate(self, name: str, successor: str) -> None:
        """Remove a version from the catalog. It still runs; each result names the successor."""
        with self._lock:
            if self._get_entry(successor) == self._get_entry(name):
                raise InvalidTool(f"{name!r} cannot be its own successor; name another")
            self._update_entry(name, successor=successor)

    def before(self, hook: BeforeHook) -> BeforeHook:
        """Call this hook before each run.

        The tool runs if the hook returns None or True. The hook may raise `CallRefused` with a text
        for the model; other exceptions and other values refuse the call too. An async hook is
        awaited by `execute_async` and `call_async`; a sync call is refused.
        """
        self._before.append(hook)
        return hook

    def after(self, hook: AfterHook) -> AfterHook:
        """Call this hook after each run, successful or not. An exception of the hook is logged.

        An async hook is awaited by `execute_async` and `call_async`; a sync call is refused.
        """
        self._after.append(hook)
        return hook

    def execute(self, name: str, arguments: Mapping[str, Any], *, validated_for: Tool | None = None) -> Any:
        """Return what a tool's function returns; raise `UnknownTool` or a `CallError`.

        `validated_for` is the definition that the arguments were validated against before the call.
        They are not validated again unless the registered definition is another one.
        """
        run = self._create_run(name, arguments)
        try:
            with self._record_call(run):
                refuse_async_hooks(run, (*self._before, *self._after))
                self._check_call(run, validated_for)
                for hook in self._before:
                    with refuse_on_error(run):
                        check_verdict(run, hook(run.invocation))
                run.value = self._executor.run_blocking(name, run.work, run.entry.timeout_seconds)
        finally:
            for after in self._after:
                with log_errors(run):
                    discard_result(after(run.outcome))
        return run.value

    async def execute_async(self, name: str, arguments: Mapping[str, Any], *, validated_for: Tool | None = None) -> Any:
        """Do the same as `execute` in an event loop. Cancelling this cancels an async function."""
        run = self._create_run(name, arguments)
        try:
            with self._record_call(run):
                self._check_call(run, validated_for)
                for hook in self._before:
                    with refuse_on_error(run):
                        verdict = hook(run.invocation)
                        check_verdict(run, await verdict if isawaitable(verdict) else verdict)
                run.value = await self._executor.run(name, run.work, run.entry.timeout_seconds)
        finally:
            for after in self._after:
                with log_errors(run):
                    if isawaitable(logged := after(run.outcome)):
                        await logged
        return run.value

    def call(self, name: str, arguments: Mapping[str, Any], *, validated_for: Tool | None = None) -> CallResult:
        """Return the text for the model that called a tool: its result, or an error with advice."""
        try:
            value = self.execute(name, arguments, validated_for=validated_for)
            return self._render_call_result(name, value)
        except ToolcribError as error:
            return CallResult(str(error), is_error=True)

    async def call_async(
        self, name: str, arguments: Mapping[str, Any], *, validated_for: Tool | None = None
    ) -> CallResult:
        """Do the same as `call` in an event loop."""
        try:
            value = await self.execute_async(name, arguments, validated_for=validated_for)
            return self._render_call_result(name, value)
        except ToolcribError as error:
            return CallResult(str(error), is_error=True)

    def _create_run(self, name: str, arguments: Mapping[str, Any]) -> execution.RegistryRun:
        entry = self[name]
        return execution.RegistryRun(name, entry, execution.Invocation(entry.tool, arguments))

    @contextmanager
    def _record_call(self, run: execution.RegistryRun) -> Iterator[None]:
        """Measure and count a call."""
        started = time.monotonic()
        try:
            yield
        except BaseException as exception:
            run.error = exception
            raise
        finally:
            run.seconds = time.monotonic() - started
            self._count_call(run.entry, failed=run.error is not None)

    def _check_call(self, run: execution.RegistryRun, validated_for: Tool | None) -> None:
        name, arguments = run.name, run.invocation.arguments
        if not run.entry.enabled:
            raise ToolDisabled(f"{name} is disabled; use another tool")
        if not isinstance(arguments, Mapping):
            raise InvalidArguments(f"the arguments of {name} must be an object; call again with one")
        is_validated = validated_for is run.entry.tool
        if not is_validated and (problems := find_problems(run.entry.tool.input_schema, arguments)):
            raise InvalidArguments(
                f"the arguments do not fit {name}: {'; '.join(problems)}; correct them and call again"
            )
        run.work = run.entry.bind(arguments)

    def _render_call_result(self, name: str, value: Any) -> CallResult:
        try:
            text = execution.render_value(value)
        except (ValueError, RecursionError) as error:
            text = f"{name} ran, but its result cannot be converted to JSON: {error}"
            return CallResult(text, is_error=True)
        if len(text) > self._max_result_chars:
            text = (
                f"{text[: self._max_result_chars]}\n\n(These are the first "
                f"{self._max_result_chars:,} characters of {len(text):,}. Ask for less.)"
            )
        entry = self._find_entry(name)
        if entry and entry.successor:
            text += f"\n\n({name} is deprecated. From now on use {entry.successor}.)"
        return CallResult(text, is_error=False)

    def _store(
        self,
        tool: Tool,
        bind: Callable[[Mapping[str, Any]], Callable[[], Any]],
        timeout_seconds: float | None,
        replace: bool,
        fields: dict[str, Any],
    ) -> Tool:
        execution.check_timeout(f"tool {tool.id!r}: timeout_seconds", timeout_seconds)
        _check_fields(tool, fields)
        tool = tool.replace(**{"version": tool.version or execution.FIRST_VERSION, **fields})
        if execution.VERSION_SEPARATOR in tool.id:
            raise InvalidTool(
                f"tool {tool.id!r}: {execution.VERSION_SEPARATOR} separates a name from a version; use another character"
            )
        if problem := find_schema_problem(tool.input_schema):
            raise InvalidSchema(f"tool {tool.id!r}: {problem}")
        entry = execution.RegistryEntry(tool, bind, timeout_seconds or self._timeout_seconds)
        number = entry.version_key
        with self._lock:
            versions = self._versions.setdefault(tool.id, {})
            if number in versions and not replace:
                raise DuplicateTool(f"{entry.reference} is already registered; pass another version or replace=True")
            versions[number] = entry
            self._update_catalog(tool.id)
        return tool

    def _update_entry(self, name: str, **changes: Any) -> None:
        with self._lock:
            entry = self._get_entry(name)
            self._versions[entry.tool.id][entry.version_key] = replace(entry, **changes)
            self._update_catalog(entry.tool.id)

    def _update_catalog(self, name: str) -> None:
        """Update the catalog after a change of the versions of a name."""
        entry = self._current_entry(name) if name in self._versions else None
        if entry and entry.enabled and not entry.successor:
            self._catalog = self._catalog.with_tools([entry.tool])
        elif name in self._catalog:
            self._catalog = self._catalog.without([name])

    def _current_entry(self, name: str) -> execution.RegistryEntry:
        versions = self._versions[name]
        return versions[max(versions, key=lambda version: (not versions[version].successor, version))]

    def _find_entry(self, reference: str) -> execution.RegistryEntry | None:
        name, version = execution.split_reference(reference)
        versions = self._versions.get(name)
        if versions is None:
            return None
        return versions.get(execution.parse_version(version)) if version else self._current_entry(name)

    def _get_entry(self, reference: str) -> execution.RegistryEntry:
        if not isinstance(reference, str):
            raise UnknownTool(f"there is no tool {_quote_name(repr(reference))}; pass a string")
        try:
            entry = self._find_entry(reference)
        except InvalidTool as error:
            raise UnknownTool(f"there is no tool {_quote_name(reference)}: {error}") from None
        if entry is None:
            raise UnknownTool(self._unknown_tool_message(reference))
        return entry

    def _unknown_tool_message(self, reference: str) -> str:
        name, _ = execution.split_reference(reference)
        if name in self._versions:
            versions = ", ".join(entry.reference for entry in self._versions[name].values())
            return f"there is no tool {_quote_name(reference)}; there is {versions}"
        ids = [tool.id for tool in islice(self._catalog, _MAX_COMPARED_NAMES)]
        hint = "search for what it should do"
        if nearest := difflib.get_close_matches(name[:MAX_NAME_CHARS], ids, _MAX_SUGGESTIONS):
            hint = f"the nearest names are {', '.join(nearest)}"
        return f"there is no tool {_quote_name(name)}; {hint}"

    def _entry_usage(self, entry: execution.RegistryEntry) -> execution.RegistryUsage:
        return self._usage.get(entry.reference, execution.RegistryUsage())

    def _count_call(self, entry: execution.RegistryEntry, failed: bool) -> None:
        with self._lock:
            if self._find_entry(entry.reference):
                usage = execution.RegistryUsage(not failed, failed, self._now())
                self._usage[entry.reference] = self._entry_usage(entry) + usage


def _check_fields(tool: Tool, fields: dict[str, Any]) -> None:
    for field in fields:
        if field not in TOOL_FIELDS:
            raise InvalidTool(f"tool {tool.name!r}: unknown field {field!r}; use {', '.join(TOOL_FIELDS)}")


def _quote_name(name: str) -> str:
    """Return a name in quotes, shortened: a model may send a name of any length."""
    limit = _MAX_QUOTED_NAME_CHARS
    return repr(name if len(name) <= limit else f"{name[:limit]}…")


def _read_definition(definition: Mapping[str, Any]) -> Tool:
    tools = tools_from_any(definition)
    if len(tools) != 1:
        raise InvalidTool(f"a definition lists {len(tools)} tools; register them one by one")
    return tools[0]
