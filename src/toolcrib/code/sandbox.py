"""Run scripts in `pydantic-monty`, a sandboxed Python interpreter in a separate process.

A script has no files, no network, no environment and no packages. It has `tools`, `search_tools` and
`call_tool`, and limits of time, memory and calls.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final

from toolcrib.adapters.plain_json import repair_surrogates
from toolcrib.code.script import ScriptRun
from toolcrib.errors import InvalidArguments, ScriptFailed

MAX_SCRIPT_CHARS: Final = 100_000
MAX_PRINTED_BYTES: Final = 64 * 1024
MAX_PRINTED_CHARS: Final = 4_000
MAX_WORKERS: Final = 4
SEARCH_LIMIT: Final = 5
_MISSING: Final = "code mode needs the package pydantic-monty; install toolcrib[code]"
_UNAWAITED: Final = "<coroutine "
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """The limits of one script. `seconds` is computing time, `total_seconds` includes the calls."""

    seconds: float = 10.0
    total_seconds: float = 300.0
    memory_bytes: int = 128 * 1024 * 1024
    calls: int = 100


@dataclass(frozen=True, slots=True)
class ScriptOutcome:
    """The final value of a script and the text that it printed."""

    value: Any
    printed: str

    def render(self) -> str:
        """Return the final value as text, or the printed text; raise `ScriptFailed` for a value without a text."""
        if self.value is None and self.printed:
            is_long = len(self.printed) > MAX_PRINTED_CHARS
            return f"{self.printed[:MAX_PRINTED_CHARS]}…" if is_long else self.printed
        if isinstance(self.value, str):
            return self.value
        # A dictionary whose keys are tuples is not JSON.
        for encode in (_ENCODER.encode, repr):
            with suppress(TypeError, ValueError, RecursionError):
                return encode(self.value)
        raise ScriptFailed("its value has no text: it is nested too deeply, or a number is too long")


class CodeSandbox:
    """A pool of interpreter processes, started with the first script. Use it in one event loop."""

    def __init__(self) -> None:
        self._stack: AsyncExitStack | None = None
        self._pool: Any = None
        self._lock = asyncio.Lock()

    async def run(self, code: str, run: ScriptRun, limits: ScriptLimits) -> ScriptOutcome:
        """Run a script and return its outcome; raise `ScriptFailed` with the reason."""
        if len(code) > MAX_SCRIPT_CHARS:
            raise ScriptFailed(f"the script has more than {MAX_SCRIPT_CHARS:,} characters; shorten it")
        try:
            import pydantic_monty as monty
        except ImportError:
            raise ScriptFailed(_MISSING) from None
        pool = await self._get_pool(monty)
        printed = monty.CollectString(max_bytes=MAX_PRINTED_BYTES)
        run.start()
        resources = {
            "max_feed_duration_secs": limits.seconds,
            "max_memory": limits.memory_bytes,
            "max_suspensions": 20 * limits.calls + 1_000,
        }
        try:
            async with asyncio.timeout(limits.total_seconds), pool.checkout(limits=resources) as session:
                inputs = {"tools": _build_namespace(monty, run)}
                value = await session.feed_run(
                    code, inputs=inputs, external_lookup=_build_functions(run), print_callback=printed
                )
        except TimeoutError:
            raise ScriptFailed(f"the script did not finish within {limits.total_seconds:g} seconds") from None
        except monty.MontyError as error:
            display = getattr(error, "display", None)
            text = str(display() if display else error)
            if "feed time limit exceeded" in text:
                text = f"the script computed for more than {limits.seconds:g} seconds; do less in one script"
            elif f"> {MAX_PRINTED_BYTES} bytes" in text:
                text = f"the script printed more than {MAX_PRINTED_BYTES:,} bytes; end it with a value instead"
            raise ScriptFailed(text) from None
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
        if any(isinstance(item, str) and item.startswith(_UNAWAITED) for item in items):
            raise ScriptFailed("a call was not awaited; write `await tools.server.tool(…)`")
        return ScriptOutcome(value, printed.output)

    async def close(self) -> None:
        """Stop the interpreter processes."""
        stack, self._stack, self._pool = self._stack, None, None
        if stack is not None:
            await stack.aclose()

    async def _get_pool(self, monty: Any) -> Any:
        async with self._lock:
            if self._pool is None:
                stack = AsyncExitStack()
                try:
                    self._pool = await stack.enter_async_context(
                        monty.AsyncMonty(min_processes=1, max_processes=MAX_WORKERS)
                    )
                except FileNotFoundError:
                    raise ScriptFailed(_MISSING) from None
                self._stack = stack
            return self._pool


def _build_namespace(monty: Any, run: ScriptRun) -> Any:
    """Return the object `tools`, which has an attribute for each server."""

    class ToolsOfServer(monty.ClassInstance):  # type: ignore[misc]
        def __init__(self, server: str) -> None:
            super().__init__(object(), allowed_methods="all")
            self.server = server

        def call_method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return _call_by_path(run, self.server, name, args, kwargs)

    class Tools(monty.ClassInstance):  # type: ignore[misc]
        def lookup_lazy_attrs(self, name: str) -> Any:
            return ToolsOfServer(name)

        def call_method(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            raise AttributeError(f"write tools.<server>.{name}(…)")

    return Tools(object(), lazy_attrs="all", allowed_methods="all")


async def _call_by_path(run: ScriptRun, server: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tool = run.host.find_tool(server, name)
    if args and not (len(args) == 1 and isinstance(args[0], dict)):
        raise InvalidArguments(f"{tool.id} takes keyword arguments: {name}(argument=value)")
    return await run.call(tool, {**(args[0] if args else {}), **kwargs})


def _build_functions(run: ScriptRun) -> dict[str, Callable[..., Any]]:
    async def search_tools(query: str, limit: int = SEARCH_LIMIT) -> list[dict[str, Any]]:
        return await run.host.search(query, limit)

    async def call_tool(name: str, arguments: dict[str, Any] | None = None) -> Any:
        return await run.call(run.host.find_tool_by_name(name), arguments or {})

    return {"search_tools": search_tools, "call_tool": call_tool}


def parse_text_result(text: str) -> Any:
    """Return the JSON value of a text, or the text itself."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(repair_surrogates(text))
        except (ValueError, RecursionError):
            pass
    return text
