"""A Pydantic AI agent with tool search.

Run it with `pip install 'toolcrib[pydantic-ai]' 'pydantic-ai-slim[openai]'` and an OPENAI_API_KEY:

    python examples/with_pydantic_ai.py
"""

from __future__ import annotations

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models import Model

from toolcrib.demo import office
from toolcrib.frameworks.pydantic_ai import ToolcribCapability


def agent(model: Model | str) -> Agent[Any, str]:
    """Return the agent with all its tools; the capability selects those the model sees."""
    return Agent(model, tools=office.tools(), capabilities=[ToolcribCapability()])


def main() -> None:
    """Run the agent with one task."""
    print(agent("openai:gpt-5.4-mini").run_sync(office.TASK).output)


if __name__ == "__main__":
    main()
