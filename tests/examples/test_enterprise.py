"""The enterprise example, with a scripted model and the official client."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from typing import Any

import anthropic
import openai
import pytest

from examples.enterprise import CUSTOMERS, TASKS, build_registry
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib.agent.anthropic import Anthropic
from toolcrib.agent.openai_chat import OpenAIChat
from toolcrib.errors import AgentUnfinished, InvalidConfig
from toolcrib.profiles.dynamic_registry import MAX_LOGGED_CHARS, SYSTEM_PROMPT, DynamicToolAgent


def search(query: str) -> ToolCall:
    return ToolCall("search_tools", {"query": query})


def execute(name: str, **options_given: Any) -> ToolCall:
    return ToolCall("execute_dynamic_tool", {"tool_name": name, "tool_input": options_given})


def run(turns: Iterable[Turn], task: str, **options: Any) -> tuple[str, list[Request]]:
    with ScriptedModel(turns) as model, anthropic.Anthropic(base_url=model.url, api_key="any", max_retries=0) as client:
        agent = DynamicToolAgent(build_registry(), provider=Anthropic(client, "scripted"), **options)
        return agent.run(task), model.requests


def results(request: Request) -> list[Any]:
    return [json.loads(result) for result in request.results]


def test_task_for_one_tool() -> None:
    text_lines, requests = run(
        [
            Turn("I need to send mail.", search("email")),
            Turn(execute("send_email", to="team@example.com", subject="Review", body="Off.")),
            Turn("I wrote", "to the team."),
        ],
        TASKS[0],
    )
    assert text_lines == "I wrote to the team."
    assert [request.tool_names for request in requests] == [("search_tools", "execute_dynamic_tool")] * 3
    assert requests[0].body["system"] == SYSTEM_PROMPT
    [found] = results(requests[1])
    assert found["tools"][0]["name"] == "send_email"
    assert found["tools"][0]["input_schema"]["required"] == ["to", "subject", "body"]
    assert results(requests[2]) == [{"status": "sent", "to": "team@example.com"}]


def test_task_with_dependent_tools() -> None:
    lines: list[str] = []
    text_lines, requests = run(
        [
            Turn(search("customer contact"), search("ticket"), search("email")),
            Turn(*(execute("find_contact", email=email) for email in CUSTOMERS)),
            Turn(
                *(
                    execute("create_ticket", project="SALES", summary=f"Call {item['name']}")
                    for item in CUSTOMERS.values()
                )
            ),
            Turn(execute("send_email", to="sales@example.com", subject="New", body="1, 2")),
            Turn("Opened SALES-1 and SALES-2."),
        ],
        TASKS[1],
        log=lines.append,
    )
    assert text_lines == "Opened SALES-1 and SALES-2."
    assert [item["tools"][0]["name"] for item in results(requests[1])] == [
        "find_contact",
        "create_ticket",
        "send_email",
    ]
    assert results(requests[2]) == [*CUSTOMERS.values()]
    assert results(requests[3]) == [{"ticket": "SALES-1"}, {"ticket": "SALES-2"}]
    assert lines[0] == '[Meta-tool] search_tools: {"query": "customer contact"}'
    assert len(lines) == 8
    assert all(len(line) <= MAX_LOGGED_CHARS + 30 for line in lines)


def test_task_with_an_error_on_the_way() -> None:
    def model(request: Request) -> Turn:
        answered = results(request)
        if not answered:
            return Turn(search("query database"), search("text phone"))
        if "tools" in answered[0]:
            return Turn(execute("query_database", sql="SELECT …", database="store"))
        if "error" in answered[0]:
            assert "database" in answered[0]["error"]
            return Turn(execute("query_database", sql="SELECT …", database="shop"))
        if "rows" in answered[0]:
            return Turn(
                *(
                    execute("send_text", phone=row["phone"], message=f"For you, {row['name']}: V10")
                    for row in answered[0]["rows"]
                )
            )
        return Turn(f"Sent {len(answered)} vouchers.")

    with (
        ScriptedModel(model) as server,
        anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0) as client,
    ):
        tools = build_registry()
        text_lines = DynamicToolAgent(tools, provider=Anthropic(client, "scripted")).run(TASKS[2])
    assert text_lines == "Sent 2 vouchers."
    assert tools.registry.usage("send_text").successes == 2
    used = tools.registry.usage("query_database")
    assert (used.successes, used.failures) == (1, 1)


def test_tool_error_is_reported_and_the_model_continues() -> None:
    text_lines, requests = run([Turn(execute("send_text", phone="+1", message="x" * 161)), Turn("Too long.")], TASKS[2])
    assert text_lines == "Too long."
    assert results(requests[1]) == [
        {"error": "Execution failed: the message has 161 characters; 160 is the limit", "tool_name": "send_text"}
    ]


def test_endless_and_truncated_runs_raise_unfinished() -> None:
    with pytest.raises(AgentUnfinished, match="is not done after 3 steps") as caught:
        run([Turn("Hm.", search("x"))] * 5, TASKS[0], max_steps=3)
    assert caught.value.text == "Hm."
    with pytest.raises(AgentUnfinished, match="stopped because of max_tokens") as caught:
        run([Turn("I was about to", stop="max_tokens")], TASKS[0])
    assert caught.value.text == "I was about to"


def test_tool_registered_while_the_agent_runs_is_found() -> None:
    tools = build_registry()

    def model(request: Request) -> Turn:
        if not request.results:
            tools.register({"name": "fax", "description": "Send a fax"}, lambda: "sent")
            return Turn(search("fax"))
        return Turn(str(results(request)[0]["found"]))

    with (
        ScriptedModel(model) as server,
        anthropic.Anthropic(base_url=server.url, api_key="any", max_retries=0) as client,
    ):
        assert DynamicToolAgent(tools, provider=Anthropic(client, "scripted")).run("Fax it.") == "1"


def test_same_agent_works_in_an_event_loop() -> None:
    async def main() -> str:
        async with anthropic.AsyncAnthropic(base_url=model.url, api_key="any", max_retries=0) as client:
            agent = DynamicToolAgent(build_registry(), provider=Anthropic(client, "scripted"))
            return await agent.run_async("Is there a tracker?")

    with ScriptedModel([Turn(search("ticket")), Turn("There is.")]) as model:
        assert asyncio.run(main()) == "There is."
    assert results(model.requests[1])[0]["found"] == 1


def test_provider_is_not_a_model_and_the_default_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidConfig, match="model must be the name of a model, not object; use provider="):
        DynamicToolAgent(build_registry(), object())  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "anthropic", None)
    with pytest.raises(InvalidConfig, match="needs the anthropic package"):
        DynamicToolAgent(build_registry())


def test_same_agent_works_with_another_provider() -> None:
    turns = [Turn(search("ticket")), Turn("There is", " one.")]
    with (
        ScriptedModel(turns) as model,
        openai.OpenAI(base_url=f"{model.url}/v1", api_key="any", max_retries=0) as client,
    ):
        agent = DynamicToolAgent(build_registry(), provider=OpenAIChat(client, "scripted"))
        assert agent.run("Is there a tracker?") == "There is one."
    assert model.requests[0].tool_names == ("search_tools", "execute_dynamic_tool")
    assert model.requests[0].body["messages"][0] == {"role": "system", "content": SYSTEM_PROMPT}
