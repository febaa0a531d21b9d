"""An agent of the OpenAI Agents SDK that finds its tools.

Run it with `pip install 'toolcrib[openai-agents]'` and an OPENAI_API_KEY:

    python -m examples.with_openai_agents
"""

from __future__ import annotations

from typing import Any

from agents import Runner, function_tool
from agents.models.interface import Model

from examples import office
from toolcrib.frameworks.openai_agents import ToolcribAgent


def agent(model: Model | str) -> Any:
    """The agent: `ToolcribAgent` in place of `Agent`, and nothing else is different."""
    tools = [function_tool(function) for function in office.tools()]
    return ToolcribAgent("office", tools=tools, model=model)


def main() -> None:
    """Ask it something."""
    clerk = agent("gpt-5.4-mini")
    print(Runner.run_sync(clerk, office.TASK, run_config=clerk.run_config()).final_output)


if __name__ == "__main__":
    main()
