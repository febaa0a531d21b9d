"""A shipit agent with Toolcrib's search.

Run it with `pip install 'toolcrib[shipit]' openai` and an OPENAI_API_KEY:

    python examples/with_shipit_agent.py
"""

from __future__ import annotations

from typing import Any

from shipit_agent import Agent
from shipit_agent.llms.openai_adapter import OpenAIChatLLM
from shipit_agent.tools.function import FunctionTool

from toolcrib.demo import office
from toolcrib.frameworks.shipit_agent import ToolcribSearchTool


def agent(llm: Any) -> Agent:
    """Return the agent, with Toolcrib's search tool in place of its own."""
    tools = [FunctionTool.from_callable(function) for function in office.tools()]
    return Agent(llm=llm, tools=[*tools, ToolcribSearchTool()])


def main() -> None:
    """Run the agent with one task."""
    print(agent(OpenAIChatLLM(model="gpt-5.4-mini")).run(office.TASK).output)


if __name__ == "__main__":
    main()
