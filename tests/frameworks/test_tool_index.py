from __future__ import annotations

import json

import pytest

from tests.frameworks.script import build_lexical_engine
from toolcrib.core.calls import ToolCall
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import DuplicateTool, InvalidConfig
from toolcrib.frameworks import tool_index as module
from toolcrib.frameworks.tool_index import FrameworkToolIndex
from toolcrib.search.engine import SearchEngine
from toolcrib.session.disclosure import Activation, Disclosure

ALWAYS = Disclosure(Activation(tools=0))
MAIL = Tool("send_mail", "Send an e-mail.")
RAIN = Tool("get_weather", "Weather forecast.")
REFUND = Tool("refund", "Give money back.")


class EngineCounter:
    """Counts how many engines were built from scratch."""

    def __init__(self) -> None:
        self.catalogs: list[Catalog] = []

    def __call__(self, catalog: Catalog) -> SearchEngine:
        self.catalogs.append(catalog)
        return build_lexical_engine(catalog)


def _build_index(counter: EngineCounter | None = None) -> FrameworkToolIndex:
    return FrameworkToolIndex(disclosure=ALWAYS, engine=counter or build_lexical_engine)


def test_alternating_users_do_not_rebuild_the_engine() -> None:
    counter = EngineCounter()
    index = _build_index(counter)
    for _ in range(3):
        ada = index.build_turn_handler([MAIL, RAIN])
        alan = index.build_turn_handler([MAIL, REFUND])
        assert ada.search("money back", 5).hits == ()
        assert [hit.tool for hit in alan.search("money back", 5)] == [REFUND]
        assert ada.find_tool("refund") is None
    assert len(counter.catalogs) == 1
    assert ada.engine is alan.engine


def test_user_with_few_tools_sees_all_of_them() -> None:
    index = FrameworkToolIndex(disclosure=Disclosure(Activation(tools=3)), engine=build_lexical_engine)
    assert index.build_turn_handler([MAIL, RAIN, REFUND]).plan.is_active
    assert not index.build_turn_handler([MAIL]).plan.is_active


def test_changed_tool_is_found_in_its_new_form() -> None:
    index = _build_index()
    before = index.build_turn_handler([MAIL])
    changed = Tool("send_mail", "Post a letter.")
    assert [hit.tool for hit in index.build_turn_handler([changed]).search("letter", 5)] == [changed]
    assert [hit.tool for hit in before.search("e-mail", 5)] == [MAIL]


@pytest.mark.parametrize("name", ["2fa_code", "-code", "files.read", "a" * 80])
def test_names_are_those_the_framework_sends(name: str) -> None:
    handler = _build_index().build_turn_handler([Tool(name, "A code for the second factor."), RAIN])
    call = ToolCall("1", handler.search_name, {"query": "second factor"})
    (answer,) = handler.handle_calls(handler.start_session(None), [call]).replies
    assert [item["name"] for item in json.loads(answer.text)["found"]] == [name]


@pytest.mark.parametrize("allowed", [{"send_mail"}, "send_mail", lambda tool: tool.name == "send_mail"])
def test_rights_and_listed_tools_both_apply(allowed: object) -> None:
    handler = _build_index().build_turn_handler([MAIL, RAIN], allowed)  # type: ignore[arg-type]
    assert handler.find_tool("send_mail") == MAIL
    assert handler.find_tool("get_weather") is None
    assert not handler.search("weather", 5).hits
    assert handler.plan.deferred_tools == (MAIL,)


def test_unlisted_tools_are_dropped_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_INDEXED_TOOLS", 3)
    counter = EngineCounter()
    index = _build_index(counter)
    for number in range(6):
        handler = index.build_turn_handler([MAIL, Tool(f"t{number}")])
        assert handler.find_tool(f"t{number}")
    assert len(handler.engine.catalog) <= 3
    assert len(counter.catalogs) == 3


def test_duplicate_names_are_rejected() -> None:
    with pytest.raises(DuplicateTool, match="two tools are called 'send_mail'; rename one"):
        _build_index().build_turn_handler([MAIL, Tool("send_mail", "Another.")])


def test_invalid_budget_is_rejected() -> None:
    with pytest.raises(InvalidConfig, match="from 1, not 0"):
        FrameworkToolIndex(budget=0)
