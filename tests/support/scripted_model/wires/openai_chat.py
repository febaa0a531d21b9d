"""OpenAI's Chat Completions API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.scripted_model.turn import ToolCall, Turn, pieces
from tests.support.scripted_model.wires.wire import Body, describe_unanswered, estimate_tokens, format_event, join_texts


class OpenAIChat:
    """`/v1/chat/completions`."""

    name = "openai_chat"

    def handles_path(self, path: str) -> bool:
        return path == "/v1/chat/completions"

    def streams(self, path: str, body: Body) -> bool:
        return bool(body.get("stream"))

    def find_request_error(self, body: Body) -> str:
        called: list[str] = []
        answered: list[str] = []
        for message in [*body["messages"], {"role": "end"}]:
            if message["role"] == "tool":
                answered.append(message["tool_call_id"])
                continue
            if lost := describe_unanswered(called, answered):
                return (
                    "An assistant message with 'tool_calls' must be followed by tool messages "
                    f"responding to each 'tool_call_id'. These do not match: {lost}"
                )
            called = [call["id"] for call in message.get("tool_calls") or []]
            answered = []
        return ""

    def tool_names(self, body: Body) -> tuple[str, ...]:
        return tuple(tool["function"]["name"] for tool in body.get("tools", []))

    def user_text(self, body: Body) -> str:
        texts = [join_texts(item.get("content")) for item in body["messages"] if item["role"] == "user"]
        return texts[-1] if texts else ""

    def results(self, body: Body) -> tuple[str, ...]:
        found: list[str] = []
        for message in reversed(body["messages"]):
            if message["role"] != "tool":
                break
            found.insert(0, join_texts(message["content"]))
        return tuple(found)

    def new_id(self, number: int) -> str:
        return f"call_{number:024d}"

    def count_tokens(self, path: str, body: Body) -> Body | None:
        return None

    def render_response(self, turn: Turn, body: Body, number: int) -> Body:
        message: Body = {"role": "assistant", "content": turn.text or None, "refusal": None}
        if turn.calls:
            message["tool_calls"] = [_call(call, call.json) for call in turn.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _stop(turn)}
        return {**_opening(body, number, "chat.completion"), "choices": [choice], "usage": _usage(turn, body)}

    def render_events(self, turn: Turn, body: Body, number: int) -> Iterator[bytes]:
        opening = _opening(body, number, "chat.completion.chunk")
        counted = (body.get("stream_options") or {}).get("include_usage")

        def chunk(stop: str | None = None, /, **delta: Any) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": stop}
            return format_event({**opening, "choices": [choice], **({"usage": None} if counted else {})})

        yield chunk(role="assistant", content="" if turn.text else None, refusal=None)
        for piece in pieces(turn.text):
            yield chunk(content=piece)
        for index, call in enumerate(turn.calls):
            yield chunk(tool_calls=[{"index": index, **_call(call, "")}])
            for piece in pieces(call.json):
                yield chunk(tool_calls=[{"index": index, "function": {"arguments": piece}}])
        yield chunk(_stop(turn))
        if counted:
            yield format_event({**opening, "choices": [], "usage": _usage(turn, body)})
        yield format_event("[DONE]")

    def render_error(self, status: int, message: str) -> Body:
        object_type = "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"message": message, "type": object_type, "param": None, "code": None}}


def _opening(body: Body, number: int, object_type: str) -> Body:
    return {"id": f"chatcmpl-{number:024d}", "object": object_type, "created": 1_767_312_000, "model": body["model"]}


def _call(call: ToolCall, arguments: str) -> Body:
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _stop(turn: Turn) -> str:
    return turn.stop or ("tool_calls" if turn.calls else "stop")


def _usage(turn: Turn, body: Body) -> Body:
    usage = estimate_tokens(body)
    return {"prompt_tokens": usage, "completion_tokens": turn.tokens, "total_tokens": usage + turn.tokens}
