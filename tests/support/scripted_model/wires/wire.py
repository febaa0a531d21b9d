"""The interface of a scripted API: read a request, render a response."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from tests.support.scripted_model.turn import Turn

Body = dict[str, Any]


class Wire(Protocol):
    """One provider's API, without I/O."""

    name: str

    def handles_path(self, path: str) -> bool:
        """Return whether a path belongs to this API."""

    def streams(self, path: str, body: Body) -> bool:
        """Return whether the response has to be streamed."""

    def find_request_error(self, body: Body) -> str:
        """Return why the real API would reject a request; empty if it would not."""

    def tool_names(self, body: Body) -> tuple[str, ...]:
        """Return the names of the tools in a request."""

    def user_text(self, body: Body) -> str:
        """Return the text of the last user message."""

    def results(self, body: Body) -> tuple[str, ...]:
        """Return the results of the last turn's calls."""

    def new_id(self, number: int) -> str:
        """Return the id of a call."""

    def count_tokens(self, path: str, body: Body) -> Body | None:
        """Return the response to a token count request; None for other requests."""

    def render_response(self, turn: Turn, body: Body, number: int) -> Body:
        """Return a complete response."""

    def render_events(self, turn: Turn, body: Body, number: int) -> Iterator[bytes]:
        """Return the same response as a stream."""

    def render_error(self, status: int, message: str) -> Body:
        """Return the body of an error."""


def format_event(data: Mapping[str, Any] | str, name: str = "") -> bytes:
    """Return one server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def estimate_tokens(body: Body) -> int:
    """Return the approximate number of tokens of a request."""
    return max(1, len(json.dumps(body, ensure_ascii=False)) // 4)


def join_texts(content: object) -> str:
    """Return the text of a message, given as a string or a list of blocks."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(block.get("text", "") for block in blocks if isinstance(block, dict))


def describe_unanswered(called: list[str], answered: list[str]) -> str:
    """Return a text about calls without results and results without calls."""
    return ", ".join(dict.fromkeys([*_less(called, answered), *_less(answered, called)]))


def _less(some: list[str], others: list[str]) -> list[str]:
    return [item for item in some if item not in others]
