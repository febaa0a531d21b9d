"""Frameworks that use OpenAI's tool search, on a model that has none.

They are large, so an environment variable enables these tests.
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

# OpenAI has tool search for these models, so the gateway is switched on explicitly.
UPSTREAM = {"tool_search": "on"}
SCRIPT = [
    Turn(ToolCall("search_tools", {"query": "exchange rate of currencies"})),
    Turn(ToolCall("get_exchange_rate", {"currency": "USD"})),
    Turn("A dollar is 0.9 euros."),
]


@pytest.mark.parametrize("streamed", [False, True])
def test_pydantic_ai_finds_and_calls_tool(streamed: bool) -> None:
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import Agent, Tool
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    currencies: list[str] = []

    def get_exchange_rate(currency: str) -> str:
        """Look up the exchange rate of a currency."""
        currencies.append(currency)
        return "0.9"

    def send_email(recipient: str) -> str:
        """Send a letter."""
        return recipient

    async def run(url: str) -> str:
        provider = OpenAIProvider(base_url=f"{url}/v1", api_key="x")
        model = OpenAIResponsesModel("gpt-5.4", provider=provider)
        tools = [Tool(item, defer_loading=True) for item in (get_exchange_rate, send_email)]
        agent = Agent(model, tools=tools)
        async with provider.client:
            if not streamed:
                return str((await agent.run("What is a dollar?")).output)
            async with agent.run_stream("What is a dollar?") as result:
                return str(await result.get_output())

    with openai_setup(SCRIPT, UPSTREAM) as setup:
        assert asyncio.run(run(setup.url)) == "A dollar is 0.9 euros."
        assert currencies == ["USD"]
        assert [request.tool_names for request in setup.requests] == [
            ("search_tools",),
            ("search_tools", "get_exchange_rate"),
            ("search_tools", "get_exchange_rate"),
        ]


def test_langchain_finds_and_calls_tool() -> None:
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

    with openai_setup(SCRIPT, UPSTREAM) as setup:
        model = chat(model="gpt-5.4", base_url=f"{setup.url}/v1", api_key="x", use_responses_api=True)
        tools: list[Any] = [tool(get_exchange_rate), tool(send_email)]
        search = middleware.ProviderToolSearchMiddleware(searchable_tools=tools)
        agent = agents.create_agent(model, tools=tools, middleware=[search])
        done = agent.invoke({"messages": [{"role": "user", "content": "What is a dollar?"}]})
        assert "A dollar is 0.9 euros." in str(done["messages"][-1].content)
        assert setup.requests[1].tool_names == ("search_tools", "get_exchange_rate")


def test_langchain_with_chat_completions_uses_transparent_search() -> None:
    chat = pytest.importorskip("langchain_openai").ChatOpenAI
    tool = pytest.importorskip("langchain_core.tools").tool

    def get_exchange_rate(currency: str) -> str:
        """Look up the exchange rate of a currency."""
        return "0.9"

    with openai_setup(SCRIPT, UPSTREAM) as setup:
        model = chat(model="any", base_url=f"{setup.url}/v1", api_key="x")
        reply = model.bind_tools([tool(get_exchange_rate)]).invoke("What is a dollar?")
        assert [call["name"] for call in reply.tool_calls] == ["get_exchange_rate"]
        assert setup.requests[0].tool_names == ("search_tools",)
