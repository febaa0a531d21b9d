"""The results of calls that a program runs itself: how they are given, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scripted import REPLIES, ScriptedCall
from toolcrib import Registry, Tool, Toolcrib
from toolcrib.core.calls import CallResult
from toolcrib.errors import InvalidMessage
from toolcrib.session.disclosure import Activation, Disclosure
from toolcrib.toolcrib import ToolcribSession


def _asked(*names: str) -> ToolcribSession:
    """A session whose model has called these tools, which the program runs."""
    session = Toolcrib([Tool(name) for name in dict.fromkeys(names)]).session()
    calls: list[ScriptedCall] = [(f"{number}", name, {}) for number, name in enumerate(names, 1)]
    session.handle("anthropic", REPLIES["anthropic"](calls))
    return session


def _told(messages: list[Any]) -> list[tuple[str, str]]:
    return [(block["tool_use_id"], block["content"]) for block in messages[0]["content"]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"1": "ok", "wrong": "x"}, "no call 'wrong' is pending; the pending ones are 1, 2"),
        ({"1": "ok", 2: "x"}, "no call 2 is pending"),
        ({"1": "ok", "2": b"\xff"}, "the result of call '2' is no JSON: .*; pass it as text"),
        ([("1", "ok")], "results come by call id; write {task.call.id: result}"),
    ],
)
def test_results_that_are_refused_leave_everything_as_it_was(wrong: Any, message: str) -> None:
    session = _asked("a", "b")
    with pytest.raises(InvalidMessage, match=message):
        session.answer("anthropic", wrong)
    assert [task.call.id for task in session.pending] == ["1", "2"]
    assert _told(session.answer("anthropic", {"1": "ok", "2": "x"})) == [("1", "ok"), ("2", "x")]


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
def test_a_result_is_told_as_a_registry_tells_it(result: object, text: str) -> None:
    assert _told(_asked("a").answer("anthropic", {"1": result})) == [("1", text)]
    if not isinstance(result, CallResult):
        registry = Registry().register(Tool("a"), lambda: result)
        assert registry.call("a", {}).text == text


def test_calls_without_an_id_are_told_apart_and_no_id_of_ours_is_sent() -> None:
    session = Toolcrib([Tool("a"), Tool("b")]).session()
    parts = [{"functionCall": {"name": name, "args": {"n": n}}} for n, name in enumerate("aab")]
    session.handle("gemini", {"candidates": [{"content": {"role": "model", "parts": parts}}]})
    assert len({task.call.id for task in session.pending}) == 3
    results = {task.call.id: f"{task.arguments['n']}" for task in session.pending}
    (content,) = session.answer("gemini", results)
    assert [part["functionResponse"] for part in content["parts"]] == [
        {"name": name, "response": {"output": f"{n}"}} for n, name in enumerate("aab")
    ]


def test_calls_with_one_id_are_told_apart_and_each_is_answered_under_it() -> None:
    session = Toolcrib([Tool("a")]).session()
    calls: list[ScriptedCall] = [(id, "a", {"n": n}) for n, id in enumerate(["x", "x", "x 2"])]
    session.handle("openai_chat", REPLIES["openai_chat"](calls))
    results = {task.call.id: task.arguments["n"] for task in session.pending}
    told = session.answer("openai_chat", results)
    assert [(one["tool_call_id"], one["content"]) for one in told] == [
        ("x", "0"), ("x", "1"), ("x 2", "2"),
    ]  # fmt: skip


def test_what_a_call_puts_away_is_told_with_its_result_whoever_runs_it() -> None:
    registry = Registry().register(Tool("ours"), lambda: "ok")
    crib = Toolcrib([registry, Tool("yours")], disclosure=Disclosure(Activation(tools=0)))
    session = crib.session(budget=1)
    told = "\n\nTo make room, these tools were put away; search to load them again:"
    results = []
    for name in ("ours", "yours", "ours"):
        messages = session.handle("anthropic", REPLIES["anthropic"]([("1", name, {})]))
        results += _told([*messages[1:], *session.answer("anthropic")])
    assert [text for _, text in results] == [
        "ok",
        f"yours was not run.{told} ours.",
        f"ok{told} yours.",
    ]
