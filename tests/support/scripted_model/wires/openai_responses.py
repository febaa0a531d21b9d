"""OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.scripted_model.turn import Part, Raw, Text, Turn, pieces
from tests.support.scripted_model.wires.wire import Body, describe_unanswered, estimate_tokens, format_event, join_texts


class OpenAIResponses:
    """`/v1/responses`, without stored responses: every request contains its whole history."""

    name = "openai_responses"

    def handles_path(self, path: str) -> bool:
        return path == "/v1/responses"

    def streams(self, path: str, body: Body) -> bool:
        return bool(body.get("stream"))

    def find_request_error(self, body: Body) -> str:
        if body.get("previous_response_id"):
            # The provider has stored the calls.
            return ""
        called = [entry["call_id"] for entry in _items(body, "function_call")]
        answered = [entry["call_id"] for entry in _items(body, "function_call_output")]
        if lost := describe_unanswered(called, answered):
            return f"No tool output found for function call {lost}."
        return ""

    def tool_names(self, body: Body) -> tuple[str, ...]:
        return tuple(tool.get("name", tool["type"]) for tool in body.get("tools", []))

    def user_text(self, body: Body) -> str:
        if isinstance(body["input"], str):
            return body["input"]
        texts = [join_texts(entry["content"]) for entry in body["input"] if entry.get("role") == "user"]
        return texts[-1] if texts else ""

    def results(self, body: Body) -> tuple[str, ...]:
        found: list[str] = []
        for item in reversed(body["input"] if isinstance(body["input"], list) else []):
            if item.get("type") != "function_call_output":
                break
            found.insert(0, join_texts(item["output"]))
        return tuple(found)

    def new_id(self, number: int) -> str:
        return f"call_{number:024d}"

    def count_tokens(self, path: str, body: Body) -> Body | None:
        return None

    def render_response(self, turn: Turn, body: Body, number: int) -> Body:
        items = [_item(part, f"{number}{index}") for index, part in enumerate(turn.parts)]
        status = "incomplete" if turn.stop else "completed"
        return {
            **_opening(body, number),
            "status": status,
            "incomplete_details": {"reason": turn.stop} if turn.stop else None,
            "output": items,
            "usage": _usage(turn, body),
        }

    def render_events(self, turn: Turn, body: Body, number: int) -> Iterator[bytes]:
        answer = self.render_response(turn, body, number)
        story = _events(turn, _opening(body, number), answer)
        for sequence, (item_type, fields) in enumerate(story):
            yield format_event({"type": item_type, "sequence_number": sequence, **fields}, item_type)

    def render_error(self, status: int, message: str) -> Body:
        item_type = "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"message": message, "type": item_type, "param": None, "code": None}}


def _events(turn: Turn, opening: Body, answer: Body) -> Iterator[tuple[str, Body]]:
    yield "response.created", {"response": opening}
    yield "response.in_progress", {"response": opening}
    for index, (part, item) in enumerate(zip(turn.parts, answer["output"], strict=True)):
        yield "response.output_item.added", {"output_index": index, "item": _empty_item(part, item)}
        if isinstance(part, Text):
            yield from _text_events(part, {"item_id": item["id"], "output_index": index})
        elif not isinstance(part, Raw):
            place = {"item_id": item["id"], "output_index": index}
            for piece in pieces(part.json):
                yield "response.function_call_arguments.delta", {**place, "delta": piece}
            done = {**place, "name": part.name, "arguments": part.json}
            yield "response.function_call_arguments.done", done
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield f"response.{answer['status']}", {"response": answer}


def _text_events(part: Text, place: Body) -> Iterator[tuple[str, Body]]:
    place = {**place, "content_index": 0}
    yield "response.content_part.added", {**place, "part": _words("")}
    for piece in pieces(part.text):
        yield "response.output_text.delta", {**place, "delta": piece, "logprobs": []}
    yield "response.output_text.done", {**place, "text": part.text, "logprobs": []}
    yield "response.content_part.done", {**place, "part": _words(part.text)}


def _opening(body: Body, number: int) -> Body:
    return {
        "id": f"resp_{number:048d}",
        "object": "response",
        "created_at": 1_767_312_000,
        "model": body["model"],
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "output": [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "top_p": 1.0,
        "usage": None,
    }


def _item(part: Part, id: str) -> Body:
    if isinstance(part, Raw):
        return dict(part.block)
    if isinstance(part, Text):
        return {
            "id": f"msg_{id:0>48}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [_words(part.text)],
        }
    return {
        "id": f"fc_{id:0>48}",
        "type": "function_call",
        "status": "completed",
        "call_id": part.id,
        "name": part.name,
        "arguments": part.json,
    }


def _empty_item(part: Part, item: Body) -> Body:
    """Return an item as in its first event."""
    if isinstance(part, Raw):
        return item
    empty: Body = {"content": []} if isinstance(part, Text) else {"arguments": ""}
    return {**item, "status": "in_progress", **empty}


def _words(text: str) -> Body:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _items(body: Body, item_type: str) -> list[Any]:
    items = body["input"] if isinstance(body["input"], list) else []
    return [item for item in items if item.get("type") == item_type]


def _usage(turn: Turn, body: Body) -> Body:
    usage = estimate_tokens(body)
    return {
        "input_tokens": usage,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": turn.tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage + turn.tokens,
    }
