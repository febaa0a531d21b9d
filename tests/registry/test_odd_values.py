"""Values that a new user passes by mistake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from toolcrib import Registry, Tool, Toolcrib
from toolcrib.errors import InvalidMessage
from toolcrib.registry.execution import MAX_YIELDED_VALUES


def count(limit: int) -> Iterator[int]:
    """Count from 0."""
    yield from range(limit)


def count_for_ever() -> Iterator[int]:
    """Count without an end."""
    number = 0
    while True:
        yield number
        number += 1


def fail_while_counting() -> Iterator[int]:
    """Count once."""
    yield 1
    raise KeyError("two")


async def count_async() -> AsyncIterator[int]:
    """Count in an event loop."""
    yield 1


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    for function in (count, count_for_ever, fail_while_counting, count_async):
        registry.add(function)
    return registry


def test_values_of_a_generator_are_a_list(registry: Registry) -> None:
    assert registry.call("count", {"limit": 3}).text == "[0,1,2]"
    assert not registry.call("count", {"limit": MAX_YIELDED_VALUES}).is_error


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("count_for_ever", "it yields more than 10,000 values; return fewer"),
        ("fail_while_counting", "KeyError: 'two'"),
        ("count_async", "it is an async generator, which can't be read here; return a list"),
    ],
)
def test_generator_that_is_no_list_is_an_error_for_the_model(registry: Registry, name: str, message: str) -> None:
    for result in (registry.call(name, {}), asyncio.run(registry.call_async(name, {}))):
        assert result.is_error
        assert result.text.endswith(message)


def test_endless_result_of_a_pending_call_is_rejected() -> None:
    session = Toolcrib([Tool("read", "Read a file.")]).session()
    call = {"type": "tool_use", "id": "1", "name": "read", "input": {}}
    session.handle("anthropic", {"role": "assistant", "content": [call]})
    with pytest.raises(InvalidMessage, match="yields more than 10,000 values"):
        session.answer("anthropic", {"1": count_for_ever()})
    assert session.answer("anthropic", {"1": "text"})


def test_repr_has_the_number_of_tools(registry: Registry) -> None:
    assert repr(registry) == "Registry(4 tools)"
