"""Claude with tool search: in your own loop, and as an agent.

Run it with `pip install toolcrib anthropic` and an ANTHROPIC_API_KEY:

    python examples/on_anthropic.py
"""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
from anthropic.types import MessageParam

from toolcrib import Toolcrib
from toolcrib.agent.agent import Agent, TextDelta
from toolcrib.agent.anthropic import Anthropic
from toolcrib.demo import office

MODEL = "claude-sonnet-5"
MAX_STEPS = 10


def run_loop(client: anthropic.Anthropic, task: str) -> str:
    """Run your own loop: send `tools` with each request, pass each reply to `handle`."""
    session = Toolcrib(office.tools()).session()
    messages: list[MessageParam] = [{"role": "user", "content": task}]
    for _ in range(MAX_STEPS):
        reply = client.messages.create(
            model=MODEL, max_tokens=4_096, messages=messages, tools=session.tools("anthropic")
        )
        messages += session.handle("anthropic", reply)
        if reply.stop_reason != "tool_use":
            return "".join(block.text for block in reply.content if block.type == "text")
    raise RuntimeError(f"not done after {MAX_STEPS} steps")


def stream_agent(client: anthropic.Anthropic, task: str) -> Iterator[str]:
    """Run an agent and yield its text as it arrives."""
    agent = Agent(Anthropic(client, MODEL), Toolcrib(office.tools()).session())
    for event in agent.stream(task):
        if isinstance(event, TextDelta):
            yield event.text


def main() -> None:
    """Run both with the same task."""
    with anthropic.Anthropic() as client:
        print(run_loop(client, office.TASK))
        for text in stream_agent(client, office.TASK):
            print(text, end="", flush=True)


if __name__ == "__main__":
    main()
