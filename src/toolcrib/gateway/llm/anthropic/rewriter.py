"""One request of the Messages API over all its rounds: what both kinds of tool search share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from toolcrib.adapters.plain_json import dicts_or_empty
from toolcrib.gateway.llm.endpoint import Treatment
from toolcrib.gateway.llm.tool_index import ToolIndex
from toolcrib.gateway.llm.usage import add_usage, merge_reports

Body = dict[str, Any]

# After these stop reasons a search call is incomplete or not meant to be run.
FINAL_STOPS: Final = frozenset(
    {"max_tokens", "refusal", "model_context_window_exceeded", "stop_sequence"}
)
# The API does not meter tool searches; it adds this object when any server tool has run.
SERVER_TOOL_USAGE: Final = {"web_search_requests": 0, "web_fetch_requests": 0}


class MessagesRewriter(ABC):
    """One request, its rounds, and the content of the reply so far.

    If `shows_searches` is true, the client sees the searches and their results as blocks of the
    API. `content` has the blocks that the client sees.
    """

    treatment: Treatment
    shows_searches: ClassVar[bool]

    def __init__(self, body: Body, index: ToolIndex, max_rounds: int) -> None:
        self.index = index
        self.rounds = 0
        self.searches = 0
        self.content: list[Body] = []
        self._body = body
        self._max_rounds = max_rounds
        self._usage: Body = {}
        self._id: object = None

    @property
    @abstractmethod
    def revealed_ids(self) -> list[str]:
        """The ids of the deferred tools that the model is sent."""

    @property
    def usage(self) -> Body:
        """The usage of all rounds, as the client gets it."""
        has_run = bool(self.searches) and self.shows_searches
        return {**({"server_tool_use": dict(SERVER_TOOL_USAGE)} if has_run else {}), **self._usage}

    @abstractmethod
    def next_request(self) -> Body:
        """Return the body to send to the upstream next."""

    @abstractmethod
    def is_search(self, name: str) -> bool:
        """Return whether a tool of this name is a search tool that the gateway runs."""

    @abstractmethod
    def convert_block(self, block: Mapping[str, Any]) -> Body:
        """Return a block of the upstream as the client sees it."""

    @abstractmethod
    def run_searches(self, calls: Sequence[Body]) -> list[Body]:
        """Run some searches and return their result blocks. Slow: run it in a thread."""

    @abstractmethod
    def append_round(self, blocks: Sequence[Body], results: Sequence[Body]) -> None:
        """Add the blocks of the model and the results of its searches to the history."""

    @abstractmethod
    def stop_reason(self) -> str | None:
        """Return why to stop after a search, or None to ask the upstream again."""

    def is_gateway_search(self, block: Mapping[str, Any]) -> bool:
        """Return whether a block, as the client sees it, is a search that the gateway runs."""
        type = "server_tool_use" if self.shows_searches else "tool_use"
        return block.get("type") == type and self.is_search(str(block.get("name")))

    def has_searches(self, reply: Body) -> bool:
        """Return whether a reply of the upstream calls a search tool of the gateway."""
        return any(
            block.get("type") == "tool_use" and self.is_search(str(block.get("name")))
            for block in dicts_or_empty(reply.get("content"))
        )

    def handle_reply(self, reply: Body) -> Body | None:
        self._id = self._id or reply.get("id")
        self.add_usage(reply.get("usage"))
        reason = reply.get("stop_reason")
        blocks = [self.convert_block(block) for block in dicts_or_empty(reply.get("content"))]
        _, stop = self.handle_round(blocks, reason if isinstance(reason, str) else None)
        if stop is None:
            return None
        changes = {"content": self.content, "stop_reason": stop or None, "usage": self.usage}
        return {**reply, **changes, "id": self._id}

    def handle_round(
        self, blocks: Sequence[Body], reason: str | None
    ) -> tuple[list[Body], str | None]:
        """Run the searches among the blocks of one round, which ended for `reason`.

        Return the result blocks, and the stop reason of the reply if it is complete. That is empty
        if the upstream has given none.
        """
        calls = [block for block in blocks if self.is_gateway_search(block)]
        has_client_calls = any(
            block.get("type") == "tool_use" and not self.is_gateway_search(block)
            for block in blocks
        )
        stop: str | None
        results: list[Body] = []
        if not calls or reason in FINAL_STOPS:
            stop = reason or ""
        elif has_client_calls and self.shows_searches:
            # As in the API, the search waits until the client has answered its calls.
            stop = "tool_use"
        else:
            results = self.run_searches(calls)
            stop = "tool_use" if has_client_calls else None
        self.add_results(blocks, results)
        return results, self.stop_reason() if stop is None else stop

    def add_results(self, blocks: Sequence[Body], results: Sequence[Body]) -> None:
        """Add the blocks of a round and the results of its searches."""
        self.searches += len(results)
        if blocks and results:
            self.rounds += 1
        if self.shows_searches:
            self.content += [*blocks, *results]
        else:
            self.content += [block for block in blocks if not self.is_gateway_search(block)]
        self.append_round(blocks, results)

    def add_usage(self, *reports: object) -> None:
        """Add the usage of one round, which may be reported several times."""
        self._usage = add_usage(self._usage, merge_reports(*reports))
