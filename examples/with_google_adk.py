"""A Google ADK agent with tool search.

Run it with `pip install 'toolcrib[google-adk]'` and a GOOGLE_API_KEY:

    python examples/with_google_adk.py
"""

from __future__ import annotations

import asyncio

from google.adk.agents import Agent
from google.adk.models.base_llm import BaseLlm
from google.adk.runners import InMemoryRunner

from toolcrib.demo import office
from toolcrib.frameworks.google_adk import ToolcribToolset


def agent(model: str | BaseLlm) -> Agent:
    """Return the agent; the toolset has all tools."""
    return Agent(name="office", model=model, tools=[ToolcribToolset(office.tools())])


def main() -> None:
    """Run the agent with one task and print its events."""
    runner = InMemoryRunner(agent=agent("gemini-3-flash"))
    asyncio.run(runner.run_debug(office.TASK))


if __name__ == "__main__":
    main()
