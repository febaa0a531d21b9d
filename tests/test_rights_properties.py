"""Test that a refused tool never appears and never runs, whatever the predicate does."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.frameworks.script import build_lexical_engine
from tests.scripted import REPLIES
from toolcrib import Registry, Tool, Toolcrib
from toolcrib.errors import InvalidConfig
from toolcrib.session.disclosure import Activation, Disclosure

NAMES = ("read_mail", "send_mail", "drop_mail")
# What a predicate does with a tool. Only "allow" allows it.
Verdict = Literal["allow", "deny", "raise", "none", "one", "text", "coroutine"]
verdicts: st.SearchStrategy[Verdict] = st.sampled_from(["allow", "deny", "raise", "none", "one", "text", "coroutine"])
predicates = st.fixed_dictionaries(dict.fromkeys(NAMES, verdicts))
_VALUES: dict[str, Any] = {"allow": True, "deny": False, "none": None, "one": 1, "text": "yes"}


def _judge(verdicts: dict[str, Verdict], tool: Tool) -> Any:
    verdict = verdicts[tool.name]
    if verdict == "raise":
        raise KeyError("no such user")
    return _later() if verdict == "coroutine" else _VALUES[verdict]


async def _later() -> bool:
    return True


def _sync_predicate(verdicts: dict[str, Verdict]) -> Callable[[Tool], Any]:
    return lambda tool: _judge(verdicts, tool)


def _async_predicate(verdicts: dict[str, Verdict]) -> Callable[[Tool], Awaitable[Any]]:
    async def check(tool: Tool) -> Any:
        await asyncio.sleep(0)
        return _judge(verdicts, tool)

    return check


class RunLog:
    """Tools that record which of them were run."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.registry = Registry()
        for name in NAMES:
            self.registry.register(Tool(name, f"{name} of a mailbox, private"), self._function(name))

    def _function(self, name: str) -> Callable[[], str]:
        return lambda: self.names.append(name) or "ran"  # type: ignore[func-returns-value]

    def toolcrib(self) -> Toolcrib:
        return Toolcrib([self.registry], disclosure=Disclosure(Activation(tools=0)), engine=build_lexical_engine)


REPLY = REPLIES["openai_chat"](
    [("s", "search_tools", {"query": "mail of a mailbox", "limit": 5}), *((name, name, {}) for name in NAMES)]
)


def _allowed_names(verdicts: dict[str, Verdict]) -> set[str]:
    return {name for name, verdict in verdicts.items() if verdict == "allow"}


def _check_leaks(verdicts: dict[str, Verdict], log: RunLog, results: list[Any], tools: list[Any]) -> None:
    allowed = _allowed_names(verdicts)
    assert set(log.names) == allowed
    found = json.loads(results[1]["content"])
    assert {one["name"] for one in found["found"]} <= allowed
    # The reply to a call quotes the name that the model sent, and nothing else.
    texts = [json.dumps(tools), results[1]["content"]]
    texts += [message["content"].replace(f'"{message["tool_call_id"]}"', "") for message in results[2:]]
    for name in set(NAMES) - allowed:
        assert not any(name in text for text in texts), (name, texts)


@given(predicates)
def test_sync_predicate(verdicts: dict[str, Verdict]) -> None:
    log = RunLog()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        session = log.toolcrib().session(allowed=_sync_predicate(verdicts))
        results = session.handle("openai_chat", REPLY)
        _check_leaks(verdicts, log, results, session.tools("openai_chat"))
        hits = log.toolcrib().engine.search("mail", allowed=_sync_predicate(verdicts))
    assert {hit.tool.name for hit in hits} == _allowed_names(verdicts)


@given(predicates)
def test_async_predicate(verdicts: dict[str, Verdict]) -> None:
    async def main() -> None:
        log = RunLog()
        toolcrib = log.toolcrib()
        session = toolcrib.session(allowed=_async_predicate(verdicts))
        assert len(await session.tools_async("openai_chat")) == 1
        results = await session.handle_async("openai_chat", REPLY)
        _check_leaks(verdicts, log, results, await session.tools_async("openai_chat"))
        replayed = toolcrib.session(allowed=_async_predicate(verdicts))
        await replayed.replay_async("openai_chat", results)
        assert await replayed.tools_async("openai_chat") == await session.tools_async("openai_chat")
        hits = await toolcrib.engine.async_search("mail", allowed=_async_predicate(verdicts))
        assert {hit.tool.name for hit in hits} == _allowed_names(verdicts)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        asyncio.run(main())


@given(predicates)
def test_hooks_of_a_registry(verdicts: dict[str, Verdict]) -> None:
    # A hook may also return None, which is what a function without `return` does.
    allowed = {name for name, verdict in verdicts.items() if verdict in ("allow", "none")}
    log = RunLog()
    log.registry.before(lambda invocation: _judge(verdicts, invocation.tool))
    for name in NAMES:
        result = log.registry.call(name, {})
        assert result.is_error == (name not in allowed), result
    assert set(log.names) == allowed

    async def main() -> set[str]:
        log = RunLog()
        check = _async_predicate(verdicts)
        log.registry.before(lambda invocation: check(invocation.tool))
        for name in NAMES:
            await log.registry.call_async(name, {})
        return set(log.names)

    assert asyncio.run(main()) == allowed


def test_async_check_of_a_sync_caller_is_an_error() -> None:
    check = _async_predicate(dict.fromkeys(NAMES, "allow"))
    toolcrib = RunLog().toolcrib()
    session = toolcrib.session(allowed=check)
    calls: list[Callable[[], Any]] = [
        lambda: toolcrib.engine.search("mail", allowed=check),
        lambda: toolcrib.engine.explain("mail", "send_mail", allowed=check),
        lambda: session.tools("openai_chat"),
        lambda: session.handle("openai_chat", REPLY),
        lambda: session.replay("openai_chat", []),
    ]
    for call in calls:
        with pytest.raises(InvalidConfig, match="async caller"):
            call()
    asyncio.run(session.tools_async("openai_chat"))
    with pytest.raises(InvalidConfig, match="async caller"):
        session.tools("openai_chat")


def test_async_hook_of_a_sync_call_is_refused() -> None:
    log = RunLog()

    @log.registry.after
    async def record(outcome: object) -> None:
        log.names.append("recorded")

    result = log.registry.call("send_mail", {})
    assert result.is_error and "the hook record is async" in result.text
    assert asyncio.run(log.registry.call_async("send_mail", {})).text == "ran"
    assert log.names == ["send_mail", "recorded"]


def test_restored_session_awaits_the_check_when_it_is_used() -> None:
    log = RunLog()
    toolcrib = log.toolcrib()
    first = toolcrib.session()
    first.handle("openai_chat", REPLY)
    later = toolcrib.session(
        allowed=_async_predicate({"read_mail": "allow", "send_mail": "deny", "drop_mail": "raise"})
    )
    later.restore(first.save())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        tools = asyncio.run(later.tools_async("openai_chat"))
    assert [tool["function"]["name"] for tool in tools] == ["search_tools", "read_mail"]
