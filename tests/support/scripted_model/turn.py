"""The turns of a scripted model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

_PIECE_CHARS = 7


@dataclass(frozen=True)
class Text:
    """A text."""

    text: str


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool. Without an id, the server generates one like its provider."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""

    @property
    def json(self) -> str:
        """The arguments as JSON text."""
        return json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True)
class Raw:
    """A block in the provider's format, such as a hosted search; sent unchanged."""

    block: Mapping[str, Any]


Part = Text | ToolCall | Raw


@dataclass(frozen=True, init=False)
class Turn:
    """One reply: its parts in order; a string is a `Text`.

    `stop` is the provider's stop reason, if it differs from the one that follows from the parts.
    """

    parts: tuple[Part, ...]
    stop: str

    def __init__(self, *parts: Part | str, stop: str = "") -> None:
        texts = tuple(Text(part) if isinstance(part, str) else part for part in parts)
        object.__setattr__(self, "parts", texts)
        object.__setattr__(self, "stop", stop)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls among the parts."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def text(self) -> str:
        """The text of all parts."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tokens(self) -> int:
        """The approximate number of tokens."""
        return max(1, sum(map(_chars, self.parts)) // 4)

    def with_ids(self, new_id: Callable[[], str]) -> Turn:
        """Return the turn with an id for every call."""
        return Turn(
            *(replace(part, id=part.id or new_id()) if isinstance(part, ToolCall) else part for part in self.parts),
            stop=self.stop,
        )


@dataclass(frozen=True)
class Failure:
    """An error response of the server, such as overloaded."""

    status: int
    message: str


def _chars(part: Part) -> int:
    if isinstance(part, ToolCall):
        return len(part.name) + len(part.json)
    return len(part.text) if isinstance(part, Text) else len(json.dumps(part.block))


def pieces(text: str) -> Iterator[str]:
    """Return a text in pieces, as in a stream."""
    for start in range(0, len(text), _PIECE_CHARS):
        yield text[start : start + _PIECE_CHARS]
