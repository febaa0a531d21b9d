from __future__ import annotations

from typing import Any

import pytest

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig
from toolcrib.session.session import ModelAction, Session, SessionTable

A, B, C, D = (Tool(name, "does a thing " * 3) for name in "abcd")
ALL = Catalog([A, B, C, D])


def _ten_tokens(tool: Tool) -> int:
    return 10


def _ids(session: Session) -> list[str]:
    return [one.id for one in session.revealed]


def test_revealed_tools_are_appended_and_keep_their_place() -> None:
    session = Session().pin([D]).reveal([B]).reveal([A, B])
    assert session.visible_tools(ALL) == (D, B, A)


def test_budget_evicts_the_least_recently_used_tools() -> None:
    session = Session(budget_tokens=30).pin([D], _ten_tokens).reveal([A], _ten_tokens).reveal([B], _ten_tokens)
    session = session.reveal([A], _ten_tokens).reveal([C], _ten_tokens)
    assert (_ids(session), session.evicted) == (["d", "a", "c"], ("b",))
    assert session.reveal([C], _ten_tokens).evicted == ()


def test_only_tools_that_fit_into_the_budget_are_revealed() -> None:
    session = Session(budget_tokens=29, reserved_tokens=5).reveal([A, B, C], _ten_tokens)
    assert (_ids(session), session.evicted) == (["a", "b"], ())
    later = session.reveal([D, A, B], _ten_tokens)
    assert (_ids(later), later.evicted) == (["a", "d"], ("b",))
    assert Session(budget_tokens=9).reveal([A], _ten_tokens) == Session(budget_tokens=9)


def test_pinned_tools_count_once() -> None:
    session = Session(budget_tokens=20).pin([A], _ten_tokens)
    assert session.fixed_tokens == 10
    assert session.select_fitting([A, B, C], _ten_tokens) == [A, B]
    assert session.reveal([A, B], _ten_tokens).unpinned_tokens == 10


def test_counting_again_evicts_what_no_longer_fits() -> None:
    session = Session(budget_tokens=40).pin([D], _ten_tokens).reveal([A], _ten_tokens).reveal([B], _ten_tokens)
    later = session.refit([D, A, B], {"d"}, lambda tool: 20)
    assert (_ids(later), later.evicted, later.fixed_tokens) == (["d", "b"], ("a",), 20)
    assert _ids(session.refit([A, B], {"b"}, lambda tool: 20)) == ["a", "b"]


def test_pinned_tools_are_never_evicted() -> None:
    session = Session(budget_tokens=20).reveal([A], _ten_tokens).pin([A], _ten_tokens).reveal([B], _ten_tokens)
    assert _ids(session.reveal([C], _ten_tokens)) == ["a", "c"]


def test_changed_tool_is_dropped_and_appended_again() -> None:
    session = Session().reveal([A, B])
    changed = ALL.with_tools([A.replace(description="other")])
    assert session.visible_tools(changed) == (B,)
    later = session.drop_stale(changed).reveal([changed["a"]])
    assert [tool.id for tool in later.visible_tools(changed)] == ["b", "a"]
    assert session.reveal([changed["a"]]).visible_tools(changed)[-1].description == "other"


def test_removed_and_disallowed_tools_are_dropped() -> None:
    session = Session().reveal([A, B])
    assert session.visible_tools(ALL, lambda tool: tool.id != "a") == (B,)
    assert session.visible_tools(ALL.without("b")) == (A,)
    assert session.drop_stale(ALL) is session


def test_stored_session_is_restored_unchanged() -> None:
    session = Session(budget_tokens=99).pin([D]).reveal([A]).end_turn(only_searched=True)
    assert Session.from_dict(session.to_dict()) == session


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"version": 7},
        {"version": 1, "shown": [{"x": 1}]},
        Session().to_dict() | {"shown": ["a"]},
        Session().to_dict() | {"clock": "noon"},
        Session().reveal([A]).to_dict() | {"budget_tokens": "all"},
        Session().to_dict() | {"shown": [{"id": 7, "fingerprint": "x", "tokens": 1, "used": 1}]},
    ],
)
def test_invalid_stored_session_is_rejected(stored: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig, match="start a new session"):
        Session.from_dict(stored)


@pytest.mark.parametrize("stored", [None, "{}", {"version": 1}])
def test_what_save_did_not_return_is_named(stored: Any) -> None:
    with pytest.raises(InvalidConfig, match="not the dictionary that `save` returned"):
        Session.from_dict(stored)


def test_history_is_replayed_action_by_action() -> None:
    turns = [
        [ModelAction("search", ("b", "gone"))],
        [ModelAction("use", ("a",)), ModelAction("search")],
        [ModelAction("search")],
    ]
    session = Session.from_history(turns, ALL.get)
    assert session == Session().reveal([B]).end_turn(True).reveal([A]).end_turn(False).end_turn(True)
    assert Session.from_history([], ALL.get, start=Session(budget_tokens=5)).budget_tokens == 5
    assert Session.from_history([[ModelAction("search")], []], ALL.get).consecutive_searches == 0


def test_session_table_evicts_the_least_recently_used() -> None:
    table: SessionTable[int] = SessionTable(2)
    table.put("a", 1)
    table.put("b", 2)
    assert table.get("a") == 1
    table.put("c", 3)
    assert (table.get("b"), table.get("a"), len(table)) == (None, 1, 2)


def test_session_table_can_evict_the_oldest() -> None:
    table: SessionTable[int] = SessionTable(2, evicts="oldest")
    for key in ("a", "b", "a", "c"):
        table.put(key, len(key))
        table.get("a")
    assert (table.get("a"), table.get("b"), table.get("c")) == (None, 1, 1)
    with pytest.raises(InvalidConfig):
        SessionTable[int](0)
