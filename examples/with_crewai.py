"""A CrewAI agent with tool search.

Run it with `pip install 'toolcrib[crewai]'` and an OPENAI_API_KEY:

    python examples/with_crewai.py
"""

from __future__ import annotations

from typing import Any

from crewai import Agent

from toolcrib.demo import office
from toolcrib.frameworks.crewai import build_search_tools


def agent(llm: Any) -> Agent:
    """Return the agent; two tools search and call the others."""
    tools = build_search_tools(office.tools())
    return Agent(role="Assistant", goal="Help the office.", backstory="You know its tools.", llm=llm, tools=tools)


def main() -> None:
    """Run the agent with one task."""
    print(agent("gpt-5.4-mini").kickoff(office.TASK))


if __name__ == "__main__":
    main()
