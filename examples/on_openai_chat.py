"""OpenAI's Chat Completions, or any server that speaks it, with tools that the model finds.

Run it with `pip install toolcrib openai` and an OPENAI_API_KEY:

    python -m examples.on_openai_chat
"""

from __future__ import annotations

from collections.abc import Iterator

import openai
from openai.types.chat import ChatCompletionMessageParam

from examples import office
from toolcrib import Toolcrib
from toolcrib.agent.agent import Agent
from toolcrib.agent.events import TextDelta
from toolcrib.agent.openai_chat import OpenAIChat

MODEL = "gpt-5.4-mini"
MAX_STEPS = 10


def answer(client: openai.OpenAI, task: str) -> str:
    """A loop of your own: `tools` goes into each request, `handle` takes each reply."""
    session = Toolcrib(office.tools()).session()
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": task}]
    for _ in range(MAX_STEPS):
        reply = client.chat.completions.create(
            model=MODEL, messages=messages, tools=session.tools("openai_chat")
        )
        messages += session.handle("openai_chat", reply)
        message = reply.choices[0].message
        if not message.tool_calls:
            return message.content or ""
    raise RuntimeError(f"not done after {MAX_STEPS} steps")


def spoken(client: openai.OpenAI, task: str) -> Iterator[str]:
    """The same as an agent, word by word."""
    agent = Agent(OpenAIChat(client, MODEL), Toolcrib(office.tools()).session())
    for event in agent.stream(task):
        if isinstance(event, TextDelta):
            yield event.text


def main() -> None:
    """Ask both."""
    with openai.OpenAI() as client:
        print(answer(client, office.TASK))
        for words in spoken(client, office.TASK):
            print(words, end="", flush=True)


if __name__ == "__main__":
    main()
