"""The session style `code`: the model searches, and calls the tools that it found in scripts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolcrib import Registry, Tool, Toolcrib
from toolcrib.session.disclosure import Activation, Disclosure

pytest.importorskip("pydantic_monty", reason="install toolcrib[code]")
ALWAYS = Disclosure(Activation(tools=0))


def build(**options: Any) -> Any:
    registry = Registry()
    sent: list[str] = []

    @registry.add
    def list_orders(city: str) -> list[dict[str, Any]]:
        """List the orders of a city."""
        return [{"id": number, "total": number * 10} for number in range(5)]

    @registry.add
    def send_mail(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return "sent"

    @registry.add
    def fail() -> str:
        """Always fail."""
        raise ValueError("no luck")

    remote = Tool("print_page", "Print a page on paper.")
    crib = Toolcrib([registry, remote], disclosure=ALWAYS)
    return crib.session(style="code", **options), sent


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": name, "input": arguments}]}


def read_result(messages: list[Any]) -> tuple[str, bool]:
    (part,) = messages[-1]["content"]
    content = part["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    return text, bool(part.get("is_error"))


def run(session: Any, code: str) -> tuple[str, bool]:
    return read_result(session.handle("anthropic", call("run_code", {"code": code})))


def test_search_returns_stubs_and_a_script_calls_the_tools() -> None:
    session, sent = build()
    assert [tool["name"] for tool in session.tools("anthropic")] == ["search_tools", "run_code"]
    text, _ = read_result(session.handle("anthropic", call("search_tools", {"query": "orders of a city"})))
    assert json.loads(text)["found"][0]["call"].startswith("await tools.local.list_orders(city: str)")
    code = """
orders = await tools.local.list_orders(city="Oslo")
await call_tool("send_mail", {"to": (await search_tools("send a mail", 1))[0]["name"]})
sum(order["total"] for order in orders)
"""
    assert run(session, code) == ("100", False)
    assert sent == ["send_mail"]
    # The list never changes.
    assert [tool["name"] for tool in session.tools("anthropic")] == ["search_tools", "run_code"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("await tools.local.fail()", "no luck"),
        ("await tools.local.list_orders()", "city"),
        ("await tools.local.nothing()", "There is no tool tools.local.nothing"),
        ("await call_tool('nothing')", "There is no tool nothing"),
        ("await tools.local.print_page()", "a script cannot call it"),
    ],
)
def test_errors_of_calls_reach_the_model(code: str, reason: str) -> None:
    session, _ = build()
    text, is_error = run(session, code)
    assert is_error
    assert reason in text


def test_rights_of_the_session_hold_in_scripts() -> None:
    session, sent = build(allowed={"list_orders"})
    text, is_error = run(session, "await tools.local.send_mail(to='x')")
    assert is_error
    assert "There is no tool" in text
    assert sent == []
    found, _ = run(session, "await search_tools('send a mail', 10)")
    assert "send_mail" not in found


def test_invalid_script_calls_are_refused_with_the_fix() -> None:
    session, _ = build()
    text, is_error = read_result(session.handle("anthropic", call("run_code", {"script": "1"})))
    assert is_error
    assert "code" in text


@pytest.mark.anyio
async def test_scripts_run_in_an_event_loop() -> None:
    session, _ = build()
    messages = await session.handle_async("anthropic", call("run_code", {"code": "len('abc')"}))
    assert read_result(messages) == ("3", False)
    direct = await session.handle_async("anthropic", call("send_mail", {"to": "x"}))
    assert read_result(direct) == ("sent", False)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
