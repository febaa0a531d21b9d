"""A Haystack agent with tool search.

Run it with `pip install 'toolcrib[haystack]'` and an OPENAI_API_KEY:

    python examples/with_haystack.py
"""

from __future__ import annotations

from typing import Any

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function

from toolcrib.demo import office
from toolcrib.frameworks.haystack import ToolcribSearchableToolset


def agent(generator: Any) -> Agent:
    """Return the agent; the toolset has all tools."""
    tools = [create_tool_from_function(function) for function in office.tools()]
    return Agent(chat_generator=generator, tools=ToolcribSearchableToolset(tools))


def main() -> None:
    """Run the agent with one task."""
    message = ChatMessage.from_user(office.TASK)
    print(agent(OpenAIChatGenerator(model="gpt-5.4-mini")).run([message])["last_message"].text)


if __name__ == "__main__":
    main()
