"""Test the results of calls that the program runs itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scripted import REPLIES, ScriptedCall
from toolcrib import Registry, Tool, Toolcrib
from toolcrib.core.calls import CallResult
from toolcrib.errors import InvalidMessage
from toolcrib.session.disclosure import Activation, Disclosure
from toolcrib.toolcrib import ToolcribSession


def _session_with_calls(*names: str) -> ToolcribSession:
    """Return a session with pending calls of these tools."""
    session = Toolcrib([Tool(name) for name in dict.fromkeys(names)]).session()
    calls: list[ScriptedCall] = [(f"{number}", name, {}) for number, name in enumerate(names, 1)]
    session.handle("anthropic", REPLIES["anthropic"](calls))
    return session


def _results(messages: list[Any]) -> list[tuple[str, str]]:
    return [(block["tool_use_id"], block["content"]) for block in messages[0]["content"]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"1": "ok", "wrong": "x"}, "no call 'wrong' is pending; the pending ones are 1, 2"),
        ({"1": "ok", 2: "x"}, "no call 2 is pending"),
        ({"1": "ok", "2": b"\xff"}, "the result of call '2' cannot be written as JSON: .*; pass it as text"),
        ([("1", "ok")], "results are given by call id; write {task.call.id: result}"),
    ],
)
def test_rejected_results_change_nothing(wrong: Any, message: str) -> None:
    session = _session_with_calls("a", "b")
    with pytest.raises(InvalidMessage, match=message):
        session.answer("anthropic", wrong)
    assert [task.call.id for task in session.pending] == ["1", "2"]
    assert _results(session.answer("anthropic", {"1": "ok", "2": "x"})) == [("1", "ok"), ("2", "x")]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("warm", "warm"),
        ({"temp": 3}, '{"temp":3}'),
        ([1, "zwölf"], '[1,"zwölf"]'),
        (None, "null"),
        (CallResult("warm"), "warm"),
    ],
)
def test_result_is_rendered_like_that_of_a_registry(result: object, text: str) -> None:
    assert _results(_session_with_calls("a").answer("anthropic", {"1": result})) == [("1", text)]
    if not isinstance(result, CallResult):
        registry = Registry().register(Tool("a"), lambda: result)
        assert registry.call("a", {}).text == text


def test_calls_without_an_id_get_a_local_one() -> None:
    session = Toolcrib([Tool("a"), Tool("b")]).session()
    parts = [{"functionCall": {"name": name, "args": {"n": n}}} for n, name in enumerate("aab")]
    session.handle("gemini", {"candidates": [{"content": {"role": "model", "parts": parts}}]})
    assert len({task.call.id for task in session.pending}) == 3
    results = {task.call.id: f"{task.arguments['n']}" for task in session.pending}
    (content,) = session.answer("gemini", results)
    assert [part["functionResponse"] for part in content["parts"]] == [
        {"name": name, "response": {"output": f"{n}"}} for n, name in enumerate("aab")
    ]


def test_calls_with_the_same_id_are_answered_separately() -> None:
    session = Toolcrib([Tool("a")]).session()
    calls: list[ScriptedCall] = [(id, "a", {"n": n}) for n, id in enumerate(["x", "x", "x 2"])]
    session.handle("openai_chat", REPLIES["openai_chat"](calls))
    results = {task.call.id: task.arguments["n"] for task in session.pending}
    told = session.answer("openai_chat", results)
    assert [(one["tool_call_id"], one["content"]) for one in told] == [
        ("x", "0"), ("x", "1"), ("x 2", "2"),
    ]  # fmt: skip


def test_result_of_any_runner_names_evicted_tools() -> None:
    registry = Registry().register(Tool("ours"), lambda: "ok")
    toolcrib = Toolcrib([registry, Tool("yours")], disclosure=Disclosure(Activation(tools=0)))
    fixed = toolcrib.session(budget=10_000)
    fixed.tools("anthropic")
    # Room for one of the two tools.
    session = toolcrib.session(budget=fixed.state.fixed_tokens + 30)
    told = "\n\nTo make room, these tools were put away; search to load them again:"
    results = []
    for name in ("ours", "yours", "ours"):
        messages = session.handle("anthropic", REPLIES["anthropic"]([("1", name, {})]))
        results += _results([*messages[1:], *session.answer("anthropic")])
    assert [text for _, text in results] == ["ok", f"yours was not run.{told} ours.", f"ok{told} yours."]
