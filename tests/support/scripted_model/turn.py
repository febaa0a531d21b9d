"""What a scripted model says in one turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_PIECE_CHARS = 7


@dataclass(frozen=True)
class Text:
    """Words."""

    text: str


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool. Without an id, the server makes one as its provider would."""

    name: str
    arguments: Mapping[str, Any]
    id: str = ""

    @property
    def json(self) -> str:
        """The arguments as a model writes them."""
        return json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True)
class Raw:
    """A block in the provider's own words, such as a search of its own; sent as it is."""

    block: Mapping[str, Any]


Part = Text | ToolCall | Raw


@dataclass(frozen=True, init=False)
class Turn:
    """One answer: parts in their order; a bare text is a `Text`.

    `stop` is the provider's reason for ending, where it is not the one that follows from the parts.
    """

    parts: tuple[Part, ...]
    stop: str

    def __init__(self, *parts: Part | str, stop: str = "") -> None:
        said = tuple(Text(part) if isinstance(part, str) else part for part in parts)
        object.__setattr__(self, "parts", said)
        object.__setattr__(self, "stop", stop)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls among the parts."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def text(self) -> str:
        """The words of all parts."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tokens(self) -> int:
        """About as many tokens as this would cost."""
        return max(1, sum(map(_chars, self.parts)) // 4)

    def with_ids(self, new_id: Callable[[], str]) -> Turn:
        """The same turn in which every call has an id."""
        return Turn(
            *(
                ToolCall(part.name, part.arguments, part.id or new_id())
                if isinstance(part, ToolCall)
                else part
                for part in self.parts
            ),
            stop=self.stop,
        )


@dataclass(frozen=True)
class Failure:
    """An answer of the server instead of the model: overloaded, refused, broken."""

    status: int
    message: str


def _chars(part: Part) -> int:
    if isinstance(part, ToolCall):
        return len(part.name) + len(part.json)
    return len(part.text) if isinstance(part, Text) else len(json.dumps(part.block))


def pieces(text: str) -> Iterator[str]:
    """A text as a stream delivers it."""
    for start in range(0, len(text), _PIECE_CHARS):
        yield text[start : start + _PIECE_CHARS]
