"""One response, of as many passes of the model as it takes: what both kinds of search share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

Body = dict[str, Any]

# The model was cut off, or has nothing more to say: a search at the end was not meant to be run.
FINAL_STOPS: Final = frozenset(
    {"max_tokens", "refusal", "model_context_window_exceeded", "stop_sequence"}
)


class MessagesRewriter(Protocol):
    """What is said to an upstream, and what the client sees of it.

    Blocks are as the client would see them; where `shows_searches` is false, it sees neither the
    searches nor their results.
    """

    shows_searches: bool

    def next_request(self) -> Body:
        """What to ask the upstream next."""

    def is_search(self, name: str) -> bool:
        """Whether a call of this name is ours to answer."""

    def convert_block(self, block: Mapping[str, Any]) -> Body:
        """A block of the upstream's as it begins for the client."""

    def pending_searches(self) -> list[Body]:
        """The searches that are to be answered before the model is asked."""

    def run_searches(self, calls: Sequence[Body]) -> list[Body]:
        """What the searches found. This may take long: it is done in a thread."""

    def append_round(self, blocks: Sequence[Body], results: Sequence[Body]) -> None:
        """The model said this, and was answered that."""

    def stop_reason(self) -> str | None:
        """Why to end after a search without asking again; None to go on."""


def split_calls(talk: MessagesRewriter, blocks: Sequence[Body]) -> tuple[list[Body], bool]:
    """The searches among the blocks, and whether there are calls of the client's tools besides."""
    calls = [block for block in blocks if is_gateway_search(talk, block)]
    others = any(
        block.get("type") == "tool_use" and not is_gateway_search(talk, block) for block in blocks
    )
    return calls, others


def is_gateway_search(talk: MessagesRewriter, block: Mapping[str, Any]) -> bool:
    """Whether a block is a search that we answer."""
    kind = "server_tool_use" if talk.shows_searches else "tool_use"
    return block.get("type") == kind and talk.is_search(str(block.get("name")))
