"""Message threads, which the official client's tool runner uses by default."""

from __future__ import annotations

import anthropic
import pytest

from tests.gateway.llm.anthropic.requests import HARBOUR, REGEX, conversation_with
from tests.support.scripted_model.server import Request
from tests.support.scripted_model.turn import ToolCall, Turn


def script(request: Request) -> Turn:
    return Turn("It is at noon.") if request.results else Turn(ToolCall("read_tide", {"text": "today"}))


def test_tool_runner_completes_its_turns_with_an_upstream_without_threads() -> None:
    @anthropic.beta_tool
    def read_tide(text: str) -> str:
        """Tell when the water is high."""
        return "noon"

    with conversation_with(script) as conversation:
        runner = conversation.client.beta.messages.tool_runner(
            model="claude-opus-4-8",
            max_tokens=100,
            tools=[read_tide],
            messages=[{"role": "user", "content": "When is high tide?"}],
        )
        message = runner.until_done()
        bodies = [request.body for request in conversation.upstream_requests]
    assert [block.text for block in message.content if block.type == "text"] == ["It is at noon."]
    # The second turn has the whole conversation, not only the result.
    assert [len(body["messages"]) for body in bodies] == [1, 3]
    assert not any("thread" in body for body in bodies)


@pytest.mark.parametrize("tools", [[], [REGEX, *HARBOUR]])
def test_thread_is_refused_with_the_code_that_clients_know(tools: list[dict[str, object]]) -> None:
    with conversation_with([]) as conversation, pytest.raises(anthropic.BadRequestError) as raised:
        conversation.client.messages.create(
            model="claude-opus-4-8",
            max_tokens=100,
            messages=[{"role": "user", "content": "Hi"}],
            tools=tools,  # type: ignore[arg-type]
            extra_body={"thread": {"type": "create"}},
        )
    body = raised.value.body
    assert isinstance(body, dict)
    assert body["error"]["details"] == {"error_code": "thread_unsupported_request"}
