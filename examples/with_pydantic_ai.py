"""A Pydantic AI agent that finds its tools.

Run it with `pip install 'toolcrib[pydantic-ai]' 'pydantic-ai-slim[openai]'` and an OPENAI_API_KEY:

    python -m examples.with_pydantic_ai
"""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models import Model

from examples import office
from toolcrib.frameworks.pydantic_ai import ToolcribCapability


def agent(model: Model | str) -> Agent[Any, str]:
    """The agent. All its tools are given as ever; the capability decides which the model sees."""
    return Agent(model, tools=office.tools(), capabilities=[ToolcribCapability()])


def main() -> None:
    """Ask it something."""
    print(agent("openai:gpt-5.4-mini").run_sync(office.TASK).output)


if __name__ == "__main__":
    main()
