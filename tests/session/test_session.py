from __future__ import annotations

from typing import Any

import pytest

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig
from toolcrib.session.session import ModelAction, Session, SessionTable

A, B, C, D = (Tool(name, "does a thing " * 3) for name in "abcd")
ALL = Catalog([A, B, C, D])


def _ten(text: str) -> int:
    return 10


def _ids(session: Session) -> list[str]:
    return [one.id for one in session.revealed]


def test_what_is_revealed_is_appended_and_stays_where_it_is() -> None:
    session = Session().pin([D]).reveal([B]).reveal([A, B])
    assert session.visible_tools(ALL) == (D, B, A)


def test_a_budget_sends_the_longest_unused_away_and_says_so() -> None:
    session = Session(budget_tokens=20).pin([D], _ten).reveal([A], _ten).reveal([B], _ten)
    session = session.reveal([A], _ten).reveal([C], _ten)
    assert (_ids(session), session.evicted) == (["d", "a", "c"], ("b",))
    assert session.reveal([C], _ten).evicted == ()


def test_what_one_search_found_does_not_push_itself_out() -> None:
    session = Session(budget_tokens=10).reveal([A, B, C], _ten)
    assert (_ids(session), session.evicted) == (["a", "b", "c"], ())
    assert _ids(session.reveal([D], _ten)) == ["d"]


def test_pins_are_never_sent_away_and_a_revealed_tool_can_become_one() -> None:
    session = Session(budget_tokens=10).reveal([A], _ten).pin([A], _ten).reveal([B], _ten)
    assert _ids(session.reveal([C], _ten)) == ["a", "c"]


def test_a_changed_tool_is_no_longer_shown_and_comes_back_at_the_end() -> None:
    session = Session().reveal([A, B])
    changed = ALL.with_tools([A.replace(description="other")])
    assert session.visible_tools(changed) == (B,)
    later = session.drop_stale(changed).reveal([changed["a"]])
    assert [tool.id for tool in later.visible_tools(changed)] == ["b", "a"]
    assert session.reveal([changed["a"]]).visible_tools(changed)[-1].description == "other"


def test_a_lost_right_and_a_removed_tool_are_no_longer_shown() -> None:
    session = Session().reveal([A, B])
    assert session.visible_tools(ALL, lambda tool: tool.id != "a") == (B,)
    assert session.visible_tools(ALL.without("b")) == (A,)
    assert session.drop_stale(ALL) is session


def test_a_saved_session_is_the_same_when_it_is_restored() -> None:
    session = Session(budget_tokens=99).pin([D]).reveal([A]).end_turn(only_searched=True)
    assert Session.from_dict(session.to_dict()) == session


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"version": 7},
        {"version": 1, "shown": [{"x": 1}]},
        Session().to_dict() | {"clock": "noon"},
        Session().reveal([A]).to_dict() | {"budget_tokens": "all"},
        Session().to_dict() | {"shown": [{"id": 7, "fingerprint": "x", "tokens": 1, "used": 1}]},
    ],
)
def test_what_is_no_saved_session_is_refused(stored: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="begin anew"):
        Session.from_dict(stored)


def test_a_history_is_followed_act_by_act_and_what_it_lost_is_lost() -> None:
    turns = [
        [ModelAction("search", ("b", "gone"))],
        [ModelAction("use", ("a",)), ModelAction("search")],
        [ModelAction("search")],
    ]
    session = Session.from_history(turns, ALL.get)
    assert session == Session().reveal([B]).end_turn(True).reveal([A]).end_turn(False).end_turn(
        True
    )
    assert Session.from_history([], ALL.get, start=Session(budget_tokens=5)).budget_tokens == 5
    assert Session.from_history([[ModelAction("search")], []], ALL.get).consecutive_searches == 0


def test_a_table_forgets_the_session_that_was_unused_for_longest() -> None:
    table: SessionTable[int] = SessionTable(2)
    table.put("a", 1)
    table.put("b", 2)
    assert table.get("a") == 1
    table.put("c", 3)
    assert (table.get("b"), table.get("a"), len(table)) == (None, 1, 2)


def test_a_table_can_forget_the_session_that_began_first_instead() -> None:
    table: SessionTable[int] = SessionTable(2, forgets="begun")
    for key in ("a", "b", "a", "c"):
        table.put(key, len(key))
        table.get("a")
    assert (table.get("a"), table.get("b"), table.get("c")) == (None, 1, 1)
    with pytest.raises(InvalidConfig):
        SessionTable[int](0)
