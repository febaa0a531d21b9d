"""Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.scripted_model.turn import Part, Raw, Text, Turn, pieces
from tests.support.scripted_model.wires.wire import Body, describe_unanswered, estimate_tokens, format_event, join_texts


class Anthropic:
    """`/v1/messages` and `/v1/messages/count_tokens`."""

    name = "anthropic"

    def handles_path(self, path: str) -> bool:
        return path in ("/v1/messages", "/v1/messages/count_tokens")

    def streams(self, path: str, body: Body) -> bool:
        return bool(body.get("stream"))

    def find_request_error(self, body: Body) -> str:
        names = [tool["name"] for tool in body.get("tools", []) if "name" in tool]
        if len(names) != len(set(names)):
            return "tools: Tool names must be unique."
        messages = body.get("messages", [])
        if not messages or messages[0]["role"] != "user":
            return "messages: first message must use the user role"
        for number, message in enumerate(messages[:-1], 1):
            called = _ids(message, "tool_use", "id")
            answered = _ids(messages[number], "tool_result", "tool_use_id")
            if lost := describe_unanswered(called, answered):
                return (
                    f"messages.{number}: `tool_use` ids were found without `tool_result` blocks "
                    f"immediately after: {lost}"
                )
        return ""

    def tool_names(self, body: Body) -> tuple[str, ...]:
        return tuple(tool["name"] for tool in body.get("tools", []))

    def user_text(self, body: Body) -> str:
        texts = [join_texts(item["content"]) for item in body["messages"] if item["role"] == "user"]
        return next((text for text in reversed(texts) if text), "")

    def results(self, body: Body) -> tuple[str, ...]:
        content = body["messages"][-1]["content"]
        blocks = content if isinstance(content, list) else []
        return tuple(join_texts(block.get("content")) for block in blocks if block.get("type") == "tool_result")

    def new_id(self, number: int) -> str:
        return f"toolu_01{number:022d}"

    def count_tokens(self, path: str, body: Body) -> Body | None:
        return {"input_tokens": estimate_tokens(body)} if path.endswith("/count_tokens") else None

    def render_response(self, turn: Turn, body: Body, number: int) -> Body:
        return {
            **self._opening(body, number),
            "content": [_block(part) for part in turn.parts],
            "stop_reason": _stop(turn),
            "usage": {"input_tokens": estimate_tokens(body), "output_tokens": turn.tokens},
        }

    def render_events(self, turn: Turn, body: Body, number: int) -> Iterator[bytes]:
        yield _event("message_start", message=self._opening(body, number))
        for index, part in enumerate(turn.parts):
            yield _event("content_block_start", index=index, content_block=_empty_block(part))
            if index == 0:
                yield _event("ping")
            for delta in _deltas(part):
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        delta = {"stop_reason": _stop(turn), "stop_sequence": None}
        usage = {"input_tokens": estimate_tokens(body), "output_tokens": turn.tokens}
        yield _event("message_delta", delta=delta, usage=usage)
        yield _event("message_stop")

    def render_error(self, status: int, message: str) -> Body:
        kinds = {401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
        block_type = kinds.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": block_type, "message": message}}

    def _opening(self, body: Body, number: int) -> Body:
        return {
            "id": f"msg_01{number:022d}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": estimate_tokens(body), "output_tokens": 1},
        }


def _event(block_type: str, **fields: Any) -> bytes:
    return format_event({"type": block_type, **fields}, block_type)


def _stop(turn: Turn) -> str:
    return turn.stop or ("tool_use" if turn.calls else "end_turn")


def _block(part: Part) -> Body:
    if isinstance(part, Raw):
        return dict(part.block)
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {**_empty_block(part), "input": dict(part.arguments)}


def _empty_block(part: Part) -> Body:
    """Return a block as in its start event: empty, except for fields without deltas."""
    if isinstance(part, Raw):
        return dict(part.block)
    if isinstance(part, Text):
        return {"type": "text", "text": ""}
    return {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}


def _deltas(part: Part) -> Iterator[Body]:
    if isinstance(part, Text):
        yield from ({"type": "text_delta", "text": piece} for piece in pieces(part.text))
    elif not isinstance(part, Raw):
        for piece in ("", *pieces(part.json)):
            yield {"type": "input_json_delta", "partial_json": piece}


def _ids(message: Body, block_type: str, field: str) -> list[str]:
    content = message["content"] if isinstance(message["content"], list) else []
    return [block[field] for block in content if block.get("type") == block_type]
