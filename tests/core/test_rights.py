from __future__ import annotations

import asyncio
from typing import Any

import pytest

from toolcrib import Tool
from toolcrib.core.rights import allow_all, build_rights, check_callback_result, resolve_callback_result
from toolcrib.core.worker_thread import run_in_thread
from toolcrib.errors import InvalidConfig, InvalidQuery

TOOL = Tool("send_email")


def test_none_allows_every_tool() -> None:
    rights = build_rights(None)
    assert rights.is_allowed(TOOL)
    assert rights.ids is None


@pytest.mark.parametrize("ids", [{"send_email"}, ["send_email"], "send_email", iter(["send_email"])])
def test_ids_allow_exactly_these_tools(ids: Any) -> None:
    rights = build_rights(ids)
    assert rights.is_allowed(TOOL)
    assert not rights.is_allowed(Tool("read_email"))
    assert rights.ids == {"send_email"}


def test_function_decides() -> None:
    rights = build_rights(lambda tool: tool.name.startswith("send"))
    assert rights.is_allowed(TOOL)
    assert not rights.is_allowed(Tool("read_email"))


async def _allow_later(tool: Tool) -> bool:
    return True


def _fail(tool: Tool) -> bool:
    raise KeyError("no such user")


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        (lambda tool: _allow_later(tool), "returned coroutine"),
        (_fail, "raised KeyError"),
        (lambda tool: 1, "returned int"),
        (lambda tool: "yes", "returned str"),
        (lambda tool: None, "returned NoneType"),
    ],
)
def test_check_that_does_not_return_a_bool_denies(check: Any, problem: str) -> None:
    with pytest.warns(RuntimeWarning, match=f"send_email is denied, .* {problem}"):
        assert not build_rights(check).is_allowed(TOOL)


def test_rights_of_another_type_are_rejected() -> None:
    with pytest.raises(InvalidQuery, match=r"must be the ids of tools, or a function .*, not int"):
        build_rights(7)  # type: ignore[arg-type]


def test_mapping_to_booleans_is_not_read_as_the_ids_of_its_keys() -> None:
    with pytest.raises(InvalidQuery, match=r"must be the ids of tools, .*, not dict"):
        build_rights({"send_email": False})
    assert build_rights({"send_email": True}.keys()).is_allowed(TOOL)


def test_async_check_is_an_error_for_a_sync_caller() -> None:
    with pytest.raises(InvalidConfig, match="use `async_search` of an engine"):
        build_rights(_allow_later)


def test_callback_of_a_framework_must_return_rights() -> None:
    assert check_callback_result({"send_email"}) == {"send_email"}
    with pytest.raises(InvalidConfig, match="returned None; return the names"):
        check_callback_result(None)
    with pytest.raises(InvalidConfig, match="use its async methods"):
        check_callback_result(_return_later({"send_email"}))


async def _return_later(allowed: Any) -> Any:
    return allowed


async def _fail_later(tool: Tool) -> bool:
    raise KeyError("no such user")


async def _allow_oddly(tool: Tool) -> Any:
    return "yes"


def test_async_caller_awaits_the_callback_and_its_checks() -> None:
    def resolve(result: Any) -> Any:
        return asyncio.run(resolve_callback_result(result, [TOOL]))

    assert resolve(_return_later({"send_email"})) == {"send_email"}
    assert resolve(_return_later(_allow_later)) == {"send_email"}
    assert resolve(allow_all) is allow_all
    for check, problem in ((_fail_later, "raised KeyError"), (_allow_oddly, "returned str")):
        with pytest.warns(RuntimeWarning, match=problem):
            assert resolve(check) == frozenset()
    with pytest.raises(InvalidConfig, match="returned None"):
        resolve(_return_later(None))


def test_rights_of_an_async_caller_are_an_error_for_a_sync_one() -> None:
    rights = asyncio.run(run_in_thread(build_rights, _allow_later))
    assert asyncio.run(run_in_thread(rights.is_allowed, TOOL))
    with pytest.raises(InvalidConfig, match="async caller"):
        rights.is_allowed(TOOL)
