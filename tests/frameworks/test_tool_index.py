from __future__ import annotations

import json

import pytest

from tests.frameworks.script import words
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


class Making:
    """Counts the engines that were made from nothing."""

    def __init__(self) -> None:
        self.catalogs: list[Catalog] = []

    def __call__(self, catalog: Catalog) -> SearchEngine:
        self.catalogs.append(catalog)
        return words(catalog)


def _shelf(making: Making | None = None) -> FrameworkToolIndex:
    return FrameworkToolIndex(disclosure=ALWAYS, engine=making or words)


def test_users_who_see_different_tools_take_turns_without_anything_being_made_anew() -> None:
    making = Making()
    shelf = _shelf(making)
    for _ in range(3):
        ada = shelf.build_turn_handler([MAIL, RAIN])
        alan = shelf.build_turn_handler([MAIL, REFUND])
        assert ada.search("money back", 5).hits == ()
        assert [hit.tool for hit in alan.search("money back", 5)] == [REFUND]
        assert ada.find_tool("refund") is None
    assert len(making.catalogs) == 1
    assert ada.engine is alan.engine


def test_who_has_few_tools_need_not_search_because_others_have_many() -> None:
    shelf = FrameworkToolIndex(disclosure=Disclosure(Activation(tools=3)), engine=words)
    assert shelf.build_turn_handler([MAIL, RAIN, REFUND]).plan.is_active
    assert not shelf.build_turn_handler([MAIL]).plan.is_active


def test_a_tool_that_changed_is_found_as_it_is_now() -> None:
    shelf = _shelf()
    before = shelf.build_turn_handler([MAIL])
    changed = Tool("send_mail", "Post a letter.")
    assert [hit.tool for hit in shelf.build_turn_handler([changed]).search("letter", 5)] == [
        changed
    ]
    assert [hit.tool for hit in before.search("e-mail", 5)] == [MAIL]


@pytest.mark.parametrize("name", ["2fa_code", "-code", "files.read", "a" * 80])
def test_the_model_is_told_the_name_that_a_framework_sends(name: str) -> None:
    talk = _shelf().build_turn_handler([Tool(name, "A code for the second factor."), RAIN])
    call = ToolCall("1", talk.search_name, {"query": "second factor"})
    (answer,) = talk.handle_calls(talk.start_session(None), [call]).answers
    assert [one["name"] for one in json.loads(answer.text)["found"]] == [name]


@pytest.mark.parametrize(
    "allowed", [{"send_mail"}, "send_mail", lambda tool: tool.name == "send_mail"]
)
def test_rights_and_listing_both_count(allowed: object) -> None:
    talk = _shelf().build_turn_handler([MAIL, RAIN], allowed)  # type: ignore[arg-type]
    assert talk.find_tool("send_mail") == MAIL
    assert talk.find_tool("get_weather") is None
    assert not talk.search("weather", 5).hits
    assert talk.plan.deferred_tools == (MAIL,)


def test_what_nobody_lists_any_more_is_forgotten_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_INDEXED_TOOLS", 3)
    making = Making()
    shelf = _shelf(making)
    for number in range(6):
        talk = shelf.build_turn_handler([MAIL, Tool(f"t{number}")])
        assert talk.find_tool(f"t{number}")
    assert len(talk.engine.catalog) <= 3
    assert len(making.catalogs) == 3


def test_two_tools_of_one_name_are_a_mistake_that_is_named() -> None:
    with pytest.raises(DuplicateTool, match="two tools are called 'send_mail'; rename one"):
        _shelf().build_turn_handler([MAIL, Tool("send_mail", "Another.")])


def test_a_budget_is_a_number_of_tokens() -> None:
    with pytest.raises(InvalidConfig, match="from 1, not 0"):
        FrameworkToolIndex(budget=0)
