"""What comes and goes in the registries of a crib, and whose an id is that several have."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.scripted import openai_chat_reply
from toolcrib import Registry, Tool, Toolcrib
from toolcrib.core.calls import ToolCall
from toolcrib.session.disclosure import Activation, Disclosure
from toolcrib.session.turn import ToolTask
from toolcrib.toolcrib import ToolcribSession

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {
    "name": "get_weather",
    "description": "Weather forecast for a city.",
    "input_schema": CITY,
}
HELD = Disclosure(Activation(tools=0))


def _names(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["function"]["name"] for entry in entries]


def _registry(said: str = "", *names: str) -> Registry:
    """Functions of these names, all of which say the same."""
    registry = Registry()
    for name in names:
        registry.register(Tool(name, f"{said} {name}"), lambda: said)
    return registry


def _said(session: ToolcribSession, name: str) -> Any:
    return session.handle("openai_chat", openai_chat_reply([("1", name, {})]))[-1]["content"]


def test_what_comes_and_goes_in_a_registry_is_followed() -> None:
    registry = Registry()

    @registry.tool
    def sing(song: str) -> str:
        """Sing a song."""
        return f"la la {song}"

    crib = Toolcrib([[registry], WEATHER], disclosure=HELD)
    session = crib.session()
    call = openai_chat_reply([("1", "sing", {"song": "one"})])
    assert session.handle("openai_chat", call)[-1]["content"] == "la la one"

    @registry.tool
    def dance(steps: int) -> str:
        """Dance some steps."""
        return f"{steps} steps"

    registry.register({"name": "get_weather", "input_schema": {}}, lambda: "mine")
    search = openai_chat_reply([("2", "search_tools", {"query": "dance", "limit": 1})])
    assert '"dance"' in session.handle("openai_chat", search)[-1]["content"]
    assert _names(session.tools("openai_chat")) == ["search_tools", "sing", "dance"]
    assert crib.catalog["get_weather"].description == WEATHER["description"]
    session.handle("openai_chat", openai_chat_reply([("3", "get_weather", {"city": "Rome"})]))
    assert [task.tool.id for task in session.pending] == ["get_weather"]
    registry.disable("sing")
    assert _names(session.tools("openai_chat")) == ["search_tools", "dance", "get_weather"]
    before = crib.engine
    session.tools("openai_chat")
    assert crib.engine is before


def test_a_tool_stays_with_the_registry_that_was_first() -> None:
    first, second = _registry("first", "x"), _registry()
    session = Toolcrib([first, second]).session()
    second.register(Tool("x", "Another."), lambda: "second")
    assert _said(session, "x") == "first"
    first.register(Tool("x", "Newer."), lambda: "newer", replace=True)
    assert _said(session, "x") == "newer"
    first.unregister("x")
    assert _said(session, "x") == "second"
    first.register(Tool("x", "Back again."), lambda: "back")
    assert _said(session, "x") == "second"
    second.unregister("x")
    assert _said(session, "x") == "back"
    assert _names(session.tools("openai_chat")) == ["x"]


def test_an_id_that_a_registry_drops_and_takes_again_is_offered_again() -> None:
    registry = _registry("one", "x")
    session = Toolcrib([registry, _registry()]).session()
    registry.unregister("x")
    assert session.tools("openai_chat") == []
    registry.register(Tool("x"), lambda: "again")
    assert _names(session.tools("openai_chat")) == ["x"]
    assert _said(session, "x") == "again"


def test_an_entry_that_nobody_runs_is_not_run_by_a_registry_that_has_its_id_too() -> None:
    registry = _registry()
    crib = Toolcrib([Tool("x"), registry])
    session = crib.session()
    registry.register(Tool("x", "Mine."), lambda: "mine")
    registry.register(Tool("y"), lambda: "y")
    registry.disable("x")
    session.handle("openai_chat", openai_chat_reply([("1", "x", {})]))
    assert [task.tool.id for task in session.pending] == ["x"]
    assert crib.catalog["x"].description == ""


def test_what_was_taken_out_by_hand_comes_back_only_when_its_registry_changes_it() -> None:
    registry = _registry("one", "x", "y")
    crib = Toolcrib([registry])
    crib.update(crib.catalog.without(["x"]))
    registry.register(Tool("z"), lambda: "z")
    crib.sync_registries()
    assert [tool.id for tool in crib.catalog] == ["y", "z"]
    registry.unregister("x")
    registry.register(Tool("x"), lambda: "x")
    crib.sync_registries()
    assert [tool.id for tool in crib.catalog] == ["y", "z", "x"]


@pytest.mark.parametrize("runs", ["run", "run_async"])
def test_a_tool_whose_registry_has_dropped_it_meanwhile_is_told_as_not_run(runs: str) -> None:
    registry = _registry("one", "x")
    crib = Toolcrib([registry])
    task = ToolTask(ToolCall("1", "x", {}), crib.catalog["x"], {})
    registry.unregister("x")
    crib.sync_registries()
    answer = crib.run(task) if runs == "run" else asyncio.run(crib.run_async(task))
    assert (answer.text, answer.is_error) == ("x was not run.", True)
