"""OpenAI's Chat Completions API, or a compatible server, with tool search.

Run it with `pip install toolcrib openai` and an OPENAI_API_KEY:

    python examples/on_openai_chat.py
"""

from __future__ import annotations

from collections.abc import Iterator

import openai
from openai.types.chat import ChatCompletionMessageParam

from toolcrib import Toolcrib
from toolcrib.agent.agent import Agent, TextDelta
from toolcrib.agent.openai_chat import OpenAIChat
from toolcrib.demo import office

MODEL = "gpt-5.4-mini"
MAX_STEPS = 10


def run_loop(client: openai.OpenAI, task: str) -> str:
    """Run your own loop: send `tools` with each request, pass each reply to `handle`."""
    session = Toolcrib(office.tools()).session()
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": task}]
    for _ in range(MAX_STEPS):
        reply = client.chat.completions.create(model=MODEL, messages=messages, tools=session.tools("openai_chat"))
        messages += session.handle("openai_chat", reply)
        message = reply.choices[0].message
        if not message.tool_calls:
            return message.content or ""
    raise RuntimeError(f"not done after {MAX_STEPS} steps")


def stream_agent(client: openai.OpenAI, task: str) -> Iterator[str]:
    """Run an agent and yield its text as it arrives."""
    agent = Agent(OpenAIChat(client, MODEL), Toolcrib(office.tools()).session())
    for event in agent.stream(task):
        if isinstance(event, TextDelta):
            yield event.text


def main() -> None:
    """Run both with the same task."""
    with openai.OpenAI() as client:
        print(run_loop(client, office.TASK))
        for text in stream_agent(client, office.TASK):
            print(text, end="", flush=True)


if __name__ == "__main__":
    main()
