"""Calls by sync and async callers of sync and async functions, and their errors."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

from toolcrib.core.calls import CallResult
from toolcrib.core.tool import Tool
from toolcrib.errors import CallRefused, CallTimeout, InvalidArguments, ToolFailed, UnknownTool
from toolcrib.registry.registry import Registry

Caller = Callable[[Registry, str, Mapping[str, Any]], CallResult]


def in_sync(registry: Registry, name: str, arguments: Mapping[str, Any]) -> CallResult:
    return registry.call(name, arguments)


def in_async(registry: Registry, name: str, arguments: Mapping[str, Any]) -> CallResult:
    return asyncio.run(registry.call_async(name, arguments))


def sync_in_async(registry: Registry, name: str, arguments: Mapping[str, Any]) -> CallResult:
    async def main() -> CallResult:
        return registry.call(name, arguments)

    return asyncio.run(main())


every_caller = pytest.mark.parametrize("call", [in_sync, in_async, sync_in_async])


def build_registry(function: Callable[..., Any], **options: Any) -> Registry:
    return Registry(**options).register(Tool("tool"), function)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Block a function until the test ends."""
    event = threading.Event()
    yield event
    event.set()


# ------------------------------------------------------------------------------ sync and async


def double(n: int) -> int:
    return 2 * n


async def double_async(n: int) -> int:
    await asyncio.sleep(0)
    return 2 * n


def hidden_async(n: int) -> Any:
    return double_async(n)


@every_caller
@pytest.mark.parametrize("function", [double, double_async, hidden_async])
def test_every_caller_can_call_every_function(call: Caller, function: Callable[..., Any]) -> None:
    registry = build_registry(function)
    assert call(registry, "tool", {"n": 21}) == CallResult("42")
    assert registry.usage("tool").successes == 1


def test_async_functions_of_sync_callers_share_a_loop() -> None:
    async def loop_id() -> int:
        return id(asyncio.get_running_loop())

    registry = build_registry(loop_id)
    assert registry.execute("tool", {}) == registry.execute("tool", {})


def test_async_functions_of_async_callers_run_in_their_loop() -> None:
    async def loop_id() -> int:
        return id(asyncio.get_running_loop())

    async def main() -> bool:
        here = id(asyncio.get_running_loop())
        return bool(await build_registry(loop_id).execute_async("tool", {}) == here)

    assert asyncio.run(main())


request: ContextVar[str] = ContextVar("request", default="none")


@every_caller
@pytest.mark.parametrize("is_async", [True, False])
def test_context_variables_reach_the_function(call: Caller, is_async: bool) -> None:
    async def read_async() -> str:
        return request.get()

    def read() -> str:
        return request.get()

    token = request.set("r-17")
    try:
        assert call(build_registry(read_async if is_async else read), "tool", {}).text == "r-17"
    finally:
        request.reset(token)


def test_tool_may_call_another() -> None:
    registry = Registry()
    registry.register(Tool("inner"), double)
    registry.register(Tool("outer"), lambda n: registry.execute("inner", {"n": n}))
    assert registry.execute("outer", {"n": 4}) == 8

    async def outer_async(n: int) -> Any:
        return await registry.execute_async("inner", {"n": n})

    registry.register(Tool("outer_async"), outer_async)
    assert registry.execute("outer_async", {"n": 4}) == 8


def test_blocking_call_inside_an_async_tool_is_refused() -> None:
    registry = Registry()
    registry.register(Tool("inner"), double)

    async def outer(n: int) -> Any:
        return registry.execute("inner", {"n": n})

    registry.register(Tool("outer"), outer)
    assert "use call_async" in registry.call("outer", {"n": 4}).text


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_forked_process_has_its_own_loop() -> None:
    registry = build_registry(double)
    assert registry.execute("tool", {"n": 1}) == 2
    child = os.fork()
    if child == 0:  # pragma: no cover  another process
        os._exit(registry.execute("tool", {"n": 21}))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42


# ---------------------------------------------------------------------------------------- results


class StreetAddress(BaseModel):
    street: str


@dataclass
class WeighedParcel:
    grams: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain text stays", "plain text stays"),
        ({"größe": "zwölf"}, '{"größe":"zwölf"}'),
        (None, "null"),
        ([1, True, None], "[1,true,null]"),
        (StreetAddress(street="High"), '{"street":"High"}'),
        ([WeighedParcel(5)], '[{"grams":5}]'),
        (date(2026, 1, 2), '"2026-01-02"'),
        ([float("nan")], '["NaN"]'),
        (threading.Lock, '"<built-in function allocate_lock>"'),
    ],
)
def test_results_are_rendered_as_text(value: Any, text: str) -> None:
    assert build_registry(lambda: value).call("tool", {}) == CallResult(text)


def test_result_that_cannot_be_json_is_an_error() -> None:
    loop: list[Any] = []
    loop.append(loop)
    result = build_registry(lambda: loop).call("tool", {})
    assert result.is_error
    assert result.text.startswith("tool ran, but its result cannot be converted to JSON")


def test_large_result_is_truncated_with_a_note() -> None:
    result = build_registry(lambda: "x" * 1_000, max_result_chars=10).call("tool", {})
    assert result.text == ("xxxxxxxxxx\n\n(These are the first 10 characters of 1,000. Ask for less.)")
    assert not result.is_error


# ----------------------------------------------------------------------------------------- errors


def raising(error: BaseException, is_async: bool) -> Callable[[], Any]:
    async def fail_async() -> Any:
        raise error

    def fail() -> Any:
        raise error

    return fail_async if is_async else fail


@every_caller
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no gas"), "ValueError: no gas"),
        (KeyError("tool"), "KeyError: 'tool'"),
        (UnknownTool("no tool 'x'"), "UnknownTool: no tool 'x'"),
        (InvalidArguments("not yours"), "InvalidArguments: not yours"),
        (SystemExit(3), "SystemExit: 3"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_exception_of_the_function_is_not_reported_as_invalid_call(
    call: Caller, is_async: bool, error: BaseException, text: str
) -> None:
    registry = build_registry(raising(error, is_async))
    result = call(registry, "tool", {})
    assert result == CallResult(f"tool accepted the call and failed: {text}", is_error=True)
    with pytest.raises(ToolFailed) as caught:
        registry.execute("tool", {})
    assert caught.value.__cause__ is error


@every_caller
def test_stray_stop_iteration_does_not_hang(call: Caller) -> None:
    assert "StopIteration" in call(build_registry(raising(StopIteration(), False)), "tool", {}).text


@every_caller
def test_exception_without_a_text_does_not_hang(call: Caller) -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    result = call(build_registry(raising(BrokenError(), False)), "tool", {})
    assert result == CallResult("tool accepted the call and failed: BrokenError", is_error=True)


def test_long_error_is_truncated() -> None:
    result = build_registry(raising(ValueError("x" * 10_000), False)).call("tool", {})
    assert len(result.text) < 2_100
    assert result.text.endswith("…")


@every_caller
def test_function_that_cancels_itself_has_failed(call: Caller) -> None:
    result = call(build_registry(raising(asyncio.CancelledError(), True)), "tool", {})
    assert (result.text, result.is_error) == ("tool stopped itself; try again, or use another tool", True)


@every_caller
def test_arguments_are_validated_against_the_whole_schema(call: Caller) -> None:
    schema = {
        "type": "object",
        "properties": {"size": {"enum": ["s", "m"]}, "count": {"type": "integer", "minimum": 1}},
        "required": ["size"],
    }
    ran: list[Any] = []
    registry = Registry().register(Tool("order", "", schema), lambda **kwargs: ran.append(kwargs))
    result = call(registry, "order", {"count": 0})
    assert result.is_error
    assert result.text.startswith("the arguments do not fit order: ")
    assert "size" in result.text and "count" in result.text
    assert call(registry, "order", ["s"]).is_error  # type: ignore[arg-type]
    assert ran == []


# ------------------------------------------------------------------------ time and cancellation


@every_caller
def test_blocking_function_is_abandoned_after_its_timeout(call: Caller, gate: threading.Event) -> None:
    registry = Registry().register(Tool("tool"), gate.wait, timeout_seconds=0.01)
    result = call(registry, "tool", {})
    assert result.is_error
    assert result.text.startswith("tool took longer than 0.01 seconds and was abandoned")
    assert registry.usage("tool").failures == 1


@every_caller
def test_async_function_is_cancelled_at_its_timeout(call: Caller) -> None:
    ended = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    registry = build_registry(wait, timeout_seconds=0.01)
    assert "abandoned" in call(registry, "tool", {}).text
    assert ended.wait(5)


def test_function_that_ignores_cancellation_does_not_block_the_caller() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("no") from None

    with pytest.raises(CallTimeout):
        build_registry(stubborn, timeout_seconds=0.01).execute("tool", {})


def test_cancelling_the_caller_cancels_the_function() -> None:
    async def main() -> tuple[bool, int]:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        registry = build_registry(wait)
        task = asyncio.create_task(registry.call_async("tool", {}))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended.wait()
        return ended.is_set(), registry.usage("tool").failures

    assert asyncio.run(main()) == (True, 1)


def test_endless_functions_are_limited_in_number(gate: threading.Event) -> None:
    registry = build_registry(gate.wait, timeout_seconds=0.01, max_threads=2)
    for _ in range(2):
        with pytest.raises(CallTimeout):
            registry.execute("tool", {})
    with pytest.raises(CallRefused, match="2 calls are still running"):
        registry.execute("tool", {})


# -------------------------------------------------------------------------------------- threads


def test_usage_is_correct_with_many_threads() -> None:
    registry = build_registry(double)

    def work(number: int) -> None:
        registry.call("tool", {"n": number})
        registry.register(Tool(f"tool_{number}"), double)
        registry.call(f"tool_{number}", {"n": 1})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))
    assert registry.usage("tool").successes == 40
    assert len(registry) == len(registry.catalog) == 41
    assert all(registry.usage(f"tool_{number}").successes == 1 for number in range(40))
