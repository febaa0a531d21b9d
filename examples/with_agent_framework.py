"""A Microsoft Agent Framework agent with tool search.

Run it with `pip install 'toolcrib[agent-framework]' agent-framework-openai` and an OPENAI_API_KEY:

    python examples/with_agent_framework.py
"""

from __future__ import annotations

import asyncio
from typing import Any

from agent_framework import Agent
from agent_framework.openai import OpenAIChatCompletionClient

from toolcrib.demo import office
from toolcrib.frameworks.agent_framework import ToolcribProvider


def agent(client: Any) -> Agent:
    """Return the agent; the provider has all tools."""
    return Agent(client=client, context_providers=[ToolcribProvider(office.tools())])


async def run() -> None:
    """Run the agent with one task."""
    print(await agent(OpenAIChatCompletionClient(model="gpt-5.4-mini")).run(office.TASK))


def main() -> None:
    """Run the agent in an event loop."""
    asyncio.run(run())


if __name__ == "__main__":
    main()
