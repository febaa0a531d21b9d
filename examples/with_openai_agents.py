"""An agent of the OpenAI Agents SDK with tool search.

Run it with `pip install 'toolcrib[openai-agents]'` and an OPENAI_API_KEY:

    python examples/with_openai_agents.py
"""

from __future__ import annotations

from typing import Any

from agents import Runner, function_tool
from agents.models.interface import Model

from toolcrib.demo import office
from toolcrib.frameworks.openai_agents import ToolcribAgent


def agent(model: Model | str) -> Any:
    """Return the agent; the only change is `ToolcribAgent` in place of `Agent`."""
    tools = [function_tool(function) for function in office.tools()]
    return ToolcribAgent("office", tools=tools, model=model)


def main() -> None:
    """Run the agent with one task."""
    office_agent = agent("gpt-5.4-mini")
    result = Runner.run_sync(office_agent, office.TASK, run_config=office_agent.run_config())
    print(result.final_output)


if __name__ == "__main__":
    main()
