"""Test properties of every conversation: a stable prefix, rights, and replay from the history."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.frameworks.script import build_lexical_engine
from tests.scripted import REPLIES
from toolcrib import Tool, Toolcrib
from toolcrib.adapters.wire_formats import NativeSearch
from toolcrib.core.token_count import estimate_tokens
from toolcrib.core.tool import Policy
from toolcrib.errors import InvalidConfig
from toolcrib.session.disclosure import Activation, Disclosure, Tier
from toolcrib.toolcrib import ToolcribSession

WORDS = ("mail", "file", "city", "user", "order", "image")
NAMES = tuple(f"{verb}_{word}" for verb in ("get", "send", "drop") for word in WORDS)


def _tool(name: str, about: str = "") -> Tool:
    # Every text of a disallowed tool has a mark, so that a leak is detected.
    mark = "forbidden" if name.startswith("drop") else "plain"
    verb, word = name.split("_")
    schema = {"properties": {f"{mark}_{word}": {"type": "string"}}}
    policy: Policy = "never" if name == "get_mail" else "automatic"
    return Tool(f"{name}_{mark}", f"{verb} the {word} {mark} {about}", schema, policy=policy)


TOOLS = tuple(map(_tool, NAMES))

searches = st.tuples(st.just("search"), st.lists(st.sampled_from([*WORDS, "get", "send", "drop", "the"]), min_size=1))
calls = st.tuples(st.just("call"), st.sampled_from([tool.name for tool in TOOLS] + ["nothing"]))
turns = st.lists(st.lists(searches | calls, max_size=3), max_size=6)
changes = st.tuples(st.sampled_from(["add", "change", "remove"]), st.sampled_from(NAMES))
# The search tool and the pinned tool take less than 300 tokens in every format.
budgets = st.none() | st.integers(300, 500)
tiers: st.SearchStrategy[Tier] = st.sampled_from(["hidden", "name", "stub"])
wires = st.sampled_from([wire for wire in REPLIES if wire != "mcp"])


def _flatten(steps: list[Any]) -> list[Any]:
    """Return turns and changes as one list."""
    return [one for step in steps for one in (step if isinstance(step, list) else [step])]


def _is_allowed(tool: Tool) -> bool:
    return "forbidden" not in tool.name


def _toolcrib(tier: Tier = "hidden") -> Toolcrib:
    return Toolcrib(TOOLS, disclosure=Disclosure(Activation(tools=0), tier=tier), engine=build_lexical_engine)


def _run_turn(session: ToolcribSession, wire: str, turn: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Handle one turn and return the results, without the model's own texts."""
    said = [
        (f"c{at}", "search_tools", {"query": " ".join(value)}) if kind == "search" else (f"c{at}", value, {})
        for at, (kind, value) in enumerate(turn)
    ]
    messages = session.handle(wire, REPLIES[wire](said))
    if session.pending:
        messages += session.answer(wire, {task.call.id: "done" for task in session.pending})
    return messages


def _change_catalog(toolcrib: Toolcrib, kind: str, name: str) -> None:
    tool = _tool(name, "anew" if kind == "change" else "")
    if kind != "remove":
        toolcrib.update(toolcrib.catalog.with_tools([tool]))
    elif tool.id in toolcrib.catalog:
        toolcrib.update(toolcrib.catalog.without([tool.id]))


def _is_gone(toolcrib: Toolcrib, entry: dict[str, Any]) -> bool:
    tool = toolcrib.catalog.get(entry["function"]["name"])
    return tool is None or tool.description != entry["function"]["description"]


def _is_fixed(toolcrib: Toolcrib, entry: dict[str, Any]) -> bool:
    """Return whether this is the search tool or a pinned one, which are never evicted."""
    tool = toolcrib.catalog.get(entry["function"]["name"])
    return tool is None or tool.policy == "never"


@given(st.lists(turns | changes, max_size=6), budgets)
def test_prefix_changes_only_if_a_tool_is_gone(steps: list[Any], budget: int | None) -> None:
    toolcrib = _toolcrib()
    session = toolcrib.session(budget=budget)
    before = session.tools("openai_chat")
    for step in _flatten(steps):
        if isinstance(step, tuple):
            _change_catalog(toolcrib, *step)
        else:
            _run_turn(session, "openai_chat", step)
        after = session.tools("openai_chat")
        kept = [entry for entry in before if entry in after]
        if budget is None:
            assert json.dumps(after[: len(kept)]) == json.dumps(kept)
            assert all(_is_gone(toolcrib, entry) for entry in before if entry not in after)
        else:
            # An evicted tool may return in the same turn, but at the end.
            stayed = [entry for entry in kept if _is_fixed(toolcrib, entry)]
            assert [entry for entry in after if entry in stayed] == stayed
            same = [one == other for one, other in zip(before, after, strict=False)]
            first = same.index(False) if False in same else len(same)
            # The first difference is at a removed tool.
            assert first == len(before) or not _is_fixed(toolcrib, before[first]) or _is_gone(toolcrib, before[first])
        before = after


@given(st.lists(turns | changes, max_size=6), budgets, wires, st.sampled_from(["reveal", "dispatch"]))
def test_disallowed_tools_appear_nowhere(steps: list[Any], budget: int | None, wire: str, style: Any) -> None:
    toolcrib = _toolcrib()
    session = toolcrib.session(style=style, budget=budget, allowed=_is_allowed)
    for turn in _flatten(steps):
        if isinstance(turn, tuple):
            _change_catalog(toolcrib, *turn)
            continue
        ours = [one for one in turn if "forbidden" not in one[1]]
        _, *results = [*_run_turn(session, wire, ours)]
        assert "forbidden" not in json.dumps(results)
        assert "forbidden" not in json.dumps(session.tools(wire))
        assert "forbidden" not in json.dumps(session.save())
    natives: tuple[NativeSearch, ...] = (True, "client")
    for native in natives:
        handed = _toolcrib().session(native=native, allowed=_is_allowed)
        assert "forbidden" not in json.dumps(handed.tools(wire))


@given(st.lists(turns | changes, max_size=6), st.integers(1, 800), st.lists(wires, min_size=1), tiers)
def test_tools_never_exceed_the_budget(steps: list[Any], budget: int, wires: list[str], tier: Tier) -> None:
    toolcrib = _toolcrib(tier)
    session = _start_session(toolcrib, budget, wires)
    if session is None:
        # The search tool and the pinned tool do not fit, which is an error and not an exceeded budget.
        return
    for at, step in enumerate(_flatten(steps)):
        wire = wires[at % len(wires)]
        if isinstance(step, tuple):
            _change_catalog(toolcrib, *step)
        else:
            _run_turn(session, wire, step)
        sent = session.tools(wire)
        assert estimate_tokens(json.dumps(sent, ensure_ascii=False, separators=(",", ":"))) <= budget
        larger = toolcrib.session()
        larger.restore(session.save())
        later = toolcrib.session(budget=budget)
        later.restore(larger.save())
        assert estimate_tokens(json.dumps(later.tools(wire), ensure_ascii=False, separators=(",", ":"))) <= budget


def _start_session(toolcrib: Toolcrib, budget: int, wires: list[str]) -> ToolcribSession | None:
    session = None
    try:
        for wire in wires:
            session = toolcrib.session(budget=budget)
            session.tools(wire)
    except InvalidConfig as error:
        assert "raise the budget" in str(error)
        return None
    return session


@given(turns, budgets, wires, st.sampled_from(["reveal", "dispatch"]))
def test_history_equals_the_live_session(
    steps: list[list[tuple[str, Any]]], budget: int | None, wire: str, style: Any
) -> None:
    toolcrib = _toolcrib()
    live = toolcrib.session(style=style, budget=budget, allowed=_is_allowed)
    messages: list[dict[str, Any]] = []
    for number, turn in enumerate(steps):
        messages.append(_user_message(wire, number))
        messages += _run_turn(live, wire, turn)
    replayed = toolcrib.session(style=style, budget=budget, allowed=_is_allowed)
    replayed.replay(wire, messages)
    assert replayed.tools(wire) == live.tools(wire)
    assert replayed.state == live.state


@given(st.lists(turns | changes, max_size=6), wires)
def test_history_equals_the_live_session_for_unchanged_tools(steps: list[Any], wire: str) -> None:
    toolcrib = _toolcrib()
    live = toolcrib.session()
    messages: list[dict[str, Any]] = []
    touched = set()
    for step in _flatten(steps):
        if isinstance(step, tuple):
            _change_catalog(toolcrib, *step)
            touched.add(_tool(step[1]).id)
        else:
            messages += [_user_message(wire, 0), *_run_turn(live, wire, step)]
    live.tools(wire)
    replayed = toolcrib.session()
    replayed.replay(wire, messages)
    of = [[one.id for one in session.state.revealed] for session in (live, replayed)]
    ours, theirs = ([id for id in ids if id not in touched] for ids in of)
    assert ours == theirs
    # A history does not contain the definition that was found, so the current one is shown.
    assert all(id in toolcrib.catalog for id in of[1])


def _user_message(wire: str, number: int) -> dict[str, Any]:
    if wire == "gemini":
        return {"role": "user", "parts": [{"text": f"question {number}"}]}
    return {"role": "user", "content": f"question {number}"}
