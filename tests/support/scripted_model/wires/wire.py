"""What the server has to know of an API: how to read a request, and how to write an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from tests.support.scripted_model.turn import Turn

Body = dict[str, Any]


class Wire(Protocol):
    """One provider's API. Pure: bodies in, bodies out."""

    name: str

    def handles_path(self, path: str) -> bool:
        """Whether a path belongs to this API."""

    def streams(self, path: str, body: Body) -> bool:
        """Whether the answer is to be streamed."""

    def find_request_error(self, body: Body) -> str:
        """What the real API would refuse about a request; empty if nothing."""

    def tool_names(self, body: Body) -> tuple[str, ...]:
        """The tools the model is offered."""

    def user_text(self, body: Body) -> str:
        """The last words of the user."""

    def results(self, body: Body) -> tuple[str, ...]:
        """The results of the last turn's calls."""

    def new_id(self, number: int) -> str:
        """The id of a call."""

    def count_tokens(self, path: str, body: Body) -> Body | None:
        """The answer to a request that only counts tokens; None if it is none."""

    def render_response(self, turn: Turn, body: Body, number: int) -> Body:
        """A whole answer."""

    def render_events(self, turn: Turn, body: Body, number: int) -> Iterator[bytes]:
        """The same answer as a stream."""

    def render_error(self, status: int, message: str) -> Body:
        """The body of an error."""


def format_event(data: Mapping[str, Any] | str, name: str = "") -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def estimate_tokens(body: Body) -> int:
    """About as many tokens as a request would cost."""
    return max(1, len(json.dumps(body, ensure_ascii=False)) // 4)


def join_texts(content: object) -> str:
    """The words of a message, be it a text or a list of blocks."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(block.get("text", "") for block in blocks if isinstance(block, dict))


def describe_unanswered(called: list[str], answered: list[str]) -> str:
    """The calls without a result, and the results without a call."""
    return ", ".join(dict.fromkeys([*_less(called, answered), *_less(answered, called)]))


def _less(some: list[str], others: list[str]) -> list[str]:
    return [one for one in some if one not in others]
