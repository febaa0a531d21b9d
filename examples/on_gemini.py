"""Gemini with tool search: in your own loop, and as an agent.

Run it with `pip install toolcrib google-genai` and a GEMINI_API_KEY:

    python examples/on_gemini.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google import genai
from google.genai import types

from toolcrib import Toolcrib
from toolcrib.agent.agent import Agent, TextDelta
from toolcrib.agent.gemini import Gemini
from toolcrib.demo import office

MODEL = "gemini-3.5-flash"
MAX_STEPS = 10


def run_loop(client: genai.Client, task: str) -> str:
    """Run your own loop: send `tools` with each request, pass each reply to `handle`."""
    session = Toolcrib(office.tools()).session()
    contents: list[Any] = [{"role": "user", "parts": [{"text": task}]}]
    for _ in range(MAX_STEPS):
        config = types.GenerateContentConfig(tools=session.tools("gemini"))
        reply = client.models.generate_content(model=MODEL, contents=contents, config=config)
        contents += session.handle("gemini", reply)
        if not reply.function_calls:
            return reply.text or ""
    raise RuntimeError(f"not done after {MAX_STEPS} steps")


def stream_agent(client: genai.Client, task: str) -> Iterator[str]:
    """Run an agent and yield its text as it arrives."""
    agent = Agent(Gemini(client, MODEL), Toolcrib(office.tools()).session())
    for event in agent.stream(task):
        if isinstance(event, TextDelta):
            yield event.text


def main() -> None:
    """Run both with the same task."""
    with genai.Client() as client:
        print(run_loop(client, office.TASK))
        for text in stream_agent(client, office.TASK):
            print(text, end="", flush=True)


if __name__ == "__main__":
    main()
