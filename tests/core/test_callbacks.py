from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from toolcrib.core.callbacks import is_async, name_callback, returns_true


async def _later() -> bool:
    return True


class AsyncCallable:
    """A callable object whose call is async."""

    async def __call__(self) -> bool:
        return True


def _fail() -> bool:
    raise KeyError("x")


def test_async_functions_are_recognized_in_every_form() -> None:
    functions: list[Any] = [_later, partial(_later), AsyncCallable()]
    assert all(map(is_async, functions))
    assert not is_async(_fail)


@pytest.mark.parametrize("check", [_later, _fail, lambda: 1, lambda: None, lambda: False])
def test_only_true_is_true(check: Any) -> None:
    assert not returns_true(check)
    assert returns_true(lambda: True)


def test_callback_has_a_name() -> None:
    assert name_callback(_later) == "_later"
    assert name_callback(AsyncCallable()) == "AsyncCallable"
