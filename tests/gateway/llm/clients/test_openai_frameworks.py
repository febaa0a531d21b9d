"""Frameworks with OpenAI's native tool search switched on, before a model that has none.

They are large, so this is asked for by an environment variable.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from tests.gateway.llm.serving_openai import openai_setup
from tests.support.scripted_model.turn import ToolCall, Turn

PYTHON = "TOOLCRIB_PYTHON_CLIENTS"

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get(PYTHON),
        reason=f"set {PYTHON} where pydantic-ai-slim[openai], langchain and langchain-openai are installed",
    ),
    pytest.mark.filterwarnings("default"),
]

# As these models do search at OpenAI, the gateway is told that the one behind it does not.
UPSTREAM = {"tool_search": "on"}
SCRIPT = [
    Turn(ToolCall("search_tools", {"query": "exchange rate of currencies"})),
    Turn(ToolCall("get_exchange_rate", {"currency": "USD"})),
    Turn("A dollar is 0.9 euros."),
]


@pytest.mark.parametrize("streamed", [False, True])
def test_pydantic_ai_completes_a_task(streamed: bool) -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent, Tool
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    asked: list[str] = []

    def get_exchange_rate(currency: str) -> str:
        """Look up the exchange rate of a currency."""
        asked.append(currency)
        return "0.9"

    def send_email(recipient: str) -> str:
        """Send a letter."""
        return recipient

    async def run(url: str) -> str:
        provider = OpenAIProvider(base_url=f"{url}/v1", api_key="x")
        model = OpenAIResponsesModel("gpt-5.4", provider=provider)
        tools = [Tool(one, defer_loading=True) for one in (get_exchange_rate, send_email)]
        agent = Agent(model, tools=tools)
        async with provider.client:
            if not streamed:
                return str((await agent.run("What is a dollar?")).output)
            async with agent.run_stream("What is a dollar?") as result:
                return str(await result.get_output())

    with openai_setup(SCRIPT, UPSTREAM) as one:
        assert asyncio.run(run(one.url)) == "A dollar is 0.9 euros."
        assert asked == ["USD"]
        assert [request.tool_names for request in one.requests] == [
            ("search_tools",),
            ("search_tools", "get_exchange_rate"),
            ("search_tools", "get_exchange_rate"),
        ]


def test_langchain_completes_a_task() -> None:
    chat = pytest.importorskip("langchain_openai").ChatOpenAI
    agents = pytest.importorskip("langchain.agents")
    middleware = pytest.importorskip("langchain.agents.middleware")
    tool = pytest.importorskip("langchain_core.tools").tool

    def get_exchange_rate(currency: str) -> str:
        """Look up the exchange rate of a currency."""
        return "0.9"

    def send_email(recipient: str) -> str:
        """Send a letter."""
        return recipient

    with openai_setup(SCRIPT, UPSTREAM) as one:
        model = chat(model="gpt-5.4", base_url=f"{one.url}/v1", api_key="x", use_responses_api=True)
        tools: list[Any] = [tool(get_exchange_rate), tool(send_email)]
        search = middleware.ProviderToolSearchMiddleware(searchable_tools=tools)
        agent = agents.create_agent(model, tools=tools, middleware=[search])
        done = agent.invoke({"messages": [{"role": "user", "content": "What is a dollar?"}]})
        assert "A dollar is 0.9 euros." in str(done["messages"][-1].content)
        assert one.requests[1].tool_names == ("search_tools", "get_exchange_rate")


def test_langchain_on_chat_completions_needs_no_setting() -> None:
    chat = pytest.importorskip("langchain_openai").ChatOpenAI
    tool = pytest.importorskip("langchain_core.tools").tool

    def get_exchange_rate(currency: str) -> str:
        """Look up the exchange rate of a currency."""
        return "0.9"

    with openai_setup(SCRIPT, UPSTREAM) as one:
        model = chat(model="any", base_url=f"{one.url}/v1", api_key="x")
        said = model.bind_tools([tool(get_exchange_rate)]).invoke("What is a dollar?")
        assert [call["name"] for call in said.tool_calls] == ["get_exchange_rate"]
        assert one.requests[0].tool_names == ("search_tools",)
