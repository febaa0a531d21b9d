"""Test changes of registries, the ownership of ids, and the validation of calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.scripted import openai_chat_reply
from toolcrib import Registry, Tool, Toolcrib
from toolcrib.core.calls import ToolCall
from toolcrib.session.disclosure import Activation, Disclosure
from toolcrib.session.turn import Style, ToolTask
from toolcrib.toolcrib import ToolcribSession

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "Weather forecast for a city.", "input_schema": CITY}
DEFERRED = Disclosure(Activation(tools=0))


def _names(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["function"]["name"] for entry in entries]


def _registry(said: str = "", *names: str) -> Registry:
    """Return a registry of functions that all return the same text."""
    registry = Registry()
    for name in names:
        registry.register(Tool(name, f"{said} {name}"), lambda: said)
    return registry


def _call(session: ToolcribSession, name: str) -> Any:
    return session.handle("openai_chat", openai_chat_reply([("1", name, {})]))[-1]["content"]


def test_session_follows_changes_of_a_registry() -> None:
    registry = Registry()

    @registry.tool
    def sing(song: str) -> str:
        """Sing a song."""
        return f"la la {song}"

    toolcrib = Toolcrib([[registry], WEATHER], disclosure=DEFERRED)
    session = toolcrib.session()
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
    assert toolcrib.catalog["get_weather"].description == WEATHER["description"]
    session.handle("openai_chat", openai_chat_reply([("3", "get_weather", {"city": "Rome"})]))
    assert [task.tool.id for task in session.pending] == ["get_weather"]
    registry.disable("sing")
    assert _names(session.tools("openai_chat")) == ["search_tools", "dance", "get_weather"]
    before = toolcrib.engine
    session.tools("openai_chat")
    assert toolcrib.engine is before


def test_id_belongs_to_the_first_registry() -> None:
    first, second = _registry("first", "x"), _registry()
    session = Toolcrib([first, second]).session()
    second.register(Tool("x", "Another."), lambda: "second")
    assert _call(session, "x") == "first"
    first.register(Tool("x", "Newer."), lambda: "newer", replace=True)
    assert _call(session, "x") == "newer"
    first.unregister("x")
    assert _call(session, "x") == "second"
    first.register(Tool("x", "Back again."), lambda: "back")
    assert _call(session, "x") == "second"
    second.unregister("x")
    assert _call(session, "x") == "back"
    assert _names(session.tools("openai_chat")) == ["x"]


def test_id_dropped_and_added_again_is_available() -> None:
    registry = _registry("one", "x")
    session = Toolcrib([registry, _registry()]).session()
    registry.unregister("x")
    assert session.tools("openai_chat") == []
    registry.register(Tool("x"), lambda: "again")
    assert _names(session.tools("openai_chat")) == ["x"]
    assert _call(session, "x") == "again"


def test_entry_without_a_runner_is_not_run_by_a_registry_with_its_id() -> None:
    registry = _registry()
    toolcrib = Toolcrib([Tool("x"), registry])
    session = toolcrib.session()
    registry.register(Tool("x", "Mine."), lambda: "mine")
    registry.register(Tool("y"), lambda: "y")
    registry.disable("x")
    session.handle("openai_chat", openai_chat_reply([("1", "x", {})]))
    assert [task.tool.id for task in session.pending] == ["x"]
    assert toolcrib.catalog["x"].description == ""


def test_removed_tool_returns_only_if_its_registry_changes_it() -> None:
    registry = _registry("one", "x", "y")
    toolcrib = Toolcrib([registry])
    toolcrib.update(toolcrib.catalog.without(["x"]))
    registry.register(Tool("z"), lambda: "z")
    toolcrib.sync_registries()
    assert [tool.id for tool in toolcrib.catalog] == ["y", "z"]
    registry.unregister("x")
    registry.register(Tool("x"), lambda: "x")
    toolcrib.sync_registries()
    assert [tool.id for tool in toolcrib.catalog] == ["y", "z", "x"]


@pytest.mark.parametrize("runs", ["run", "run_async"])
def test_tool_dropped_by_its_registry_is_reported_as_not_run(runs: str) -> None:
    registry = _registry("one", "x")
    toolcrib = Toolcrib([registry])
    task = ToolTask(ToolCall("1", "x", {}), toolcrib.catalog["x"], {})
    registry.unregister("x")
    toolcrib.sync_registries()
    answer = toolcrib.run(task) if runs == "run" else asyncio.run(toolcrib.run_async(task))
    assert (answer.text, answer.is_error) == ("x was not run.", True)


class CountingArguments(dict[str, Any]):
    """Arguments that count their validations: each validation iterates the values once."""

    validations = 0

    def values(self) -> Any:
        self.validations += 1
        return super().values()


@pytest.mark.parametrize("method", ["run", "run_async"])
@pytest.mark.parametrize("style", ["reveal", "dispatch"])
def test_arguments_are_validated_once_per_call(method: str, style: Style) -> None:
    registry = Registry()

    @registry.tool
    def boil(minutes: int) -> str:
        """Boil an egg."""
        return f"{minutes} minutes"

    direct = CountingArguments(minutes=3)
    assert registry.call("boil", direct).text == "3 minutes"
    assert direct.validations == 1
    toolcrib = Toolcrib([registry], disclosure=DEFERRED)
    handler = toolcrib.build_turn_handler(style, None)
    arguments = CountingArguments(minutes=4)
    turn = handler.handle_calls(handler.start_session(), [ToolCall("1", "boil", arguments)])
    (task,) = turn.tasks
    reply = toolcrib.run(task) if method == "run" else asyncio.run(toolcrib.run_async(task))
    assert reply.text == "4 minutes"
    assert arguments.validations == 1


def test_arguments_are_validated_again_if_the_definition_was_replaced() -> None:
    registry = Registry()
    registry.register(Tool("boil", "Boil.", {"type": "object"}), lambda **given: str(given))
    toolcrib = Toolcrib([registry])
    handler = toolcrib.build_turn_handler("reveal", None)
    call = ToolCall("1", "boil", {"minutes": "three"})
    (task,) = handler.handle_calls(handler.start_session(), [call]).tasks
    stricter = {"type": "object", "properties": {"minutes": {"type": "integer"}}}
    registry.register(Tool("boil", "Boil.", stricter), lambda minutes: str(minutes), replace=True)
    reply = toolcrib.run(task)
    assert reply.is_error
    assert "minutes" in reply.text
