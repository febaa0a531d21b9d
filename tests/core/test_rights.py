from __future__ import annotations

from typing import Any

import pytest

from toolcrib import Tool
from toolcrib.core.rights import build_rights
from toolcrib.errors import InvalidQuery

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
        (_allow_later, "returned coroutine"),
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
