"""Google's Gemini API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.support.scripted_model.turn import Part, Raw, Text, Turn, pieces
from tests.support.scripted_model.wires.wire import Body, estimate_tokens, format_event, join_texts

_STREAM = ":streamGenerateContent"
_COUNT = ":countTokens"


class Gemini:
    """`/v1beta/models/{model}` with `:generateContent`, `:streamGenerateContent`, `:countTokens`."""

    name = "gemini"

    def handles_path(self, path: str) -> bool:
        return path.startswith(("/v1beta/models/", "/v1/models/")) and ":" in path

    def streams(self, path: str, body: Body) -> bool:
        return path.endswith(_STREAM)

    def find_request_error(self, body: Body) -> str:
        contents = body.get("contents", [])
        for number, content in enumerate(contents[:-1], 1):
            called = len(_parts(content, "functionCall"))
            answered = len(_parts(contents[number], "functionResponse"))
            if called != answered:
                return (
                    "Please ensure that the number of function response parts is equal to the "
                    "number of function call parts of the function call turn."
                )
        return ""

    def tool_names(self, body: Body) -> tuple[str, ...]:
        return tuple(
            function["name"] for tool in body.get("tools", []) for function in tool.get("functionDeclarations", [])
        )

    def user_text(self, body: Body) -> str:
        texts = [join_texts(item["parts"]) for item in body["contents"] if item.get("role") == "user"]
        return next((text for text in reversed(texts) if text), "")

    def results(self, body: Body) -> tuple[str, ...]:
        answers = _parts(body["contents"][-1], "functionResponse")
        return tuple(_result(answer["response"]) for answer in answers)

    def new_id(self, number: int) -> str:
        return f"fc-{number}"

    def count_tokens(self, path: str, body: Body) -> Body | None:
        return {"totalTokens": estimate_tokens(body)} if path.endswith(_COUNT) else None

    def render_response(self, turn: Turn, body: Body, number: int) -> Body:
        return self._chunk([_part(part) for part in turn.parts], turn, body, number)

    def render_events(self, turn: Turn, body: Body, number: int) -> Iterator[bytes]:
        for part in turn.parts:
            # Text is streamed in pieces; a call always comes in one chunk.
            whole = [_part(part)]
            texts = [{"text": piece} for piece in pieces(part.text)] if isinstance(part, Text) else whole
            for piece in texts:
                yield format_event(self._chunk([piece], None, body, number))
        yield format_event(self._chunk([{"text": ""}], turn, body, number))

    def render_error(self, status: int, message: str) -> Body:
        name = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED"}
        return {"error": {"code": status, "message": message, "status": name.get(status, "INTERNAL")}}

    def _chunk(self, parts: list[Body], turn: Turn | None, body: Body, number: int) -> Body:
        candidate: Body = {"content": {"role": "model", "parts": parts}, "index": 0}
        usage_counts = estimate_tokens(body)
        usage = {"promptTokenCount": usage_counts, "totalTokenCount": usage_counts}
        if turn:
            candidate["finishReason"] = turn.stop or "STOP"
            usage["candidatesTokenCount"] = turn.tokens
            usage["totalTokenCount"] += turn.tokens
        return {
            "candidates": [candidate],
            "usageMetadata": usage,
            "modelVersion": "scripted",
            "responseId": f"response-{number}",
        }


def _part(part: Part) -> Body:
    if isinstance(part, Raw):
        return dict(part.block)
    if isinstance(part, Text):
        return {"text": part.text}
    return {"functionCall": {"id": part.id, "name": part.name, "args": dict(part.arguments)}}


def _parts(content: Body, field: str) -> list[Any]:
    return [part[field] for part in content.get("parts", []) if field in part]


def _result(response: Body) -> str:
    """Return a result as text: by convention it is under `result`, `output` or `error`."""
    value = next((response[key] for key in ("result", "output", "error") if key in response), response)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
