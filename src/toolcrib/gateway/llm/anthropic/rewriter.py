"""One request of the Messages API over all its rounds, and searches that the client does not see.

For a client that does not know tool search, most tools are deferred and a search tool is added. The
client sees neither: it sends tools and a history as usual, and gets a reply that calls its own tools.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from toolcrib.adapters import anthropic
from toolcrib.adapters.plain_json import dict_or_empty, dicts_or_empty
from toolcrib.gateway.llm.anthropic.history import iter_blocks
from toolcrib.gateway.llm.anthropic.tools import index_entries
from toolcrib.gateway.llm.conversation_memory import ScopedMemory
from toolcrib.gateway.llm.endpoint import Treatment
from toolcrib.gateway.llm.search_loop import RequestRewriter
from toolcrib.gateway.llm.tool_index import Entry, ToolIndex, ToolSelection

Body = dict[str, Any]

# After these stop reasons a search call is incomplete or not meant to be run.
FINAL_STOPS: Final = frozenset({"max_tokens", "refusal", "model_context_window_exceeded", "stop_sequence"})
# The API does not meter tool searches; it adds this object when any server tool has run.
SERVER_TOOL_USAGE: Final = {"web_search_requests": 0, "web_fetch_requests": 0}
MAX_REMEMBERED_TOOLS: Final = 1_000


class MessagesRewriter(RequestRewriter):
    """One request, its rounds, and the content of the reply so far.

    If `shows_searches` is true, the client sees the searches and their results as blocks of the
    API. `content` has the blocks that the client sees.
    """

    shows_searches: ClassVar[bool]

    def __init__(self, body: Body, index: ToolIndex, max_rounds: int) -> None:
        super().__init__(body, index, max_rounds)
        self.content: list[Body] = []
        self._id: object = None

    @property
    def usage(self) -> Body:
        has_run = bool(self.searches) and self.shows_searches
        server_tools = {"server_tool_use": dict(SERVER_TOOL_USAGE)} if has_run else {}
        return {**server_tools, **(self._usage or {})}

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

    def handle_round(self, blocks: Sequence[Body], reason: str | None) -> tuple[list[Body], str | None]:
        """Run the searches among the blocks of one round, which ended for `reason`.

        Return the result blocks, and the stop reason of the reply if it is complete. That is empty
        if the upstream has given none.
        """
        calls = [block for block in blocks if self.is_gateway_search(block)]
        has_client_calls = any(
            block.get("type") == "tool_use" and not self.is_gateway_search(block) for block in blocks
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
        """Add the usage of one round, which may be reported several times; a later report wins."""
        merged = {
            key: value
            for report in reports
            if isinstance(report, Mapping)
            for key, value in report.items()
            if value is not None
        }
        super().add_usage(merged)


class TransparentSearchRewriter(MessagesRewriter):
    """One request with searches that the client does not see."""

    treatment: Treatment = "transparent"
    shows_searches = False

    def __init__(self, body: Body, index: ToolIndex, memory: ScopedMemory, max_rounds: int) -> None:
        super().__init__(body, index, max_rounds)
        self._memory = memory.narrow(*_conversation_opening(body))
        self._selection = ToolSelection(index)
        self._selection.reveal([*(self._memory.get("revealed") or ()), *_called_names(body)])
        self._added: list[Body] = []
        self._search_entry = {
            **anthropic.tools_to_wire([index.search_tool])[0],
            **_last_breakpoint(each.client_entry for each in index.deferred.values()),
        }

    @property
    def revealed_ids(self) -> list[str]:
        return self._selection.revealed_ids

    def next_request(self) -> Body:
        offers_search = self.index.offers_search and self.rounds < self._max_rounds
        search = [self._search_entry] if offers_search else []
        # The tools that never change come first, which keeps the prompt cache valid.
        tools = [*self.index.always_sent, *search, *self._selection.wire_entries]
        messages = _append_to_history(self._body.get("messages"), self._added)
        request = {**self._body, "messages": messages, "tools": tools}
        if not tools:
            request.pop("tools")
            request.pop("tool_choice", None)
        return request

    def is_search(self, name: str) -> bool:
        return name == self.index.search_tool.name

    def convert_block(self, block: Mapping[str, Any]) -> Body:
        return dict(block)

    def run_searches(self, calls: Sequence[Body]) -> list[Body]:
        wire_calls = anthropic.calls_from_wire({"content": list(calls)})
        turn = self._selection.handle_calls(wire_calls, self.rounds)
        results: list[Body] = anthropic.answers_to_wire(turn.replies)[0]["content"]
        return results

    def append_round(self, blocks: Sequence[Body], results: Sequence[Body]) -> None:
        if results:
            self._memory.put(self.revealed_ids[-MAX_REMEMBERED_TOOLS:], "revealed")
            self._added += [{"role": "assistant", "content": list(blocks)}, {"role": "user", "content": list(results)}]

    def stop_reason(self) -> str | None:
        # After one more round without the search tool.
        return "end_turn" if self.rounds > self._max_rounds else None


def list_deferrable(body: Mapping[str, Any]) -> list[Entry]:
    """Return the tools that may be deferred, or none if two tools have the same name.

    Not deferred are tools that the provider defines, tools that set `defer_loading` to false, and
    the tool that the model has to call.
    """
    forced = dict_or_empty(body.get("tool_choice")).get("name")
    entries = dicts_or_empty(body.get("tools"))
    names = [str(entry.get("name")) for entry in entries]
    if len(set(names)) != len(names):
        return []
    return [
        entry
        for entry in entries
        if entry.get("type") in (None, "custom")
        and "input_schema" in entry
        and entry.get("defer_loading") is not False
        and entry.get("name") != forced
    ]


def build_transparent_index(body: Mapping[str, Any]) -> ToolIndex:
    """Build the index of a request, in which all tools are deferred that may be."""
    deferrable = list_deferrable(body)
    tools = index_entries(deferrable, (str(entry.get("name")) for entry in deferrable))
    names = {indexed.tool.name for indexed in tools}
    always_sent = [
        entry for entry in body["tools"] if not isinstance(entry, Mapping) or str(entry.get("name")) not in names
    ]
    return ToolIndex(always_sent, tools)


def _conversation_opening(body: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what all requests of a conversation start with."""
    messages = body.get("messages")
    first = messages[:1] if isinstance(messages, list) else None
    return "messages", body.get("model"), body.get("system"), first


def _called_names(body: Mapping[str, Any]) -> list[str]:
    """Return the names of the tools that were called in the conversation."""
    return [
        str(block.get("name")) for _, _, block in iter_blocks(body.get("messages")) if block.get("type") == "tool_use"
    ]


def _last_breakpoint(entries: Iterable[Entry]) -> dict[str, Any]:
    """Return the last cache breakpoint of the deferred tools, which moves to the search tool."""
    marks = [entry["cache_control"] for entry in entries if entry.get("cache_control") is not None]
    return {"cache_control": marks[-1]} if marks else {}


def _append_to_history(messages: object, added: Sequence[Body]) -> Any:
    """Return the history with some messages; a reply that the client has started is continued."""
    if not added:
        return messages
    history = list(messages) if isinstance(messages, list) else []
    last = history[-1] if history else None
    if not isinstance(last, Mapping) or last.get("role") != "assistant":
        return [*history, *added]
    start = last.get("content")
    blocks = [{"type": "text", "text": start}] if isinstance(start, str) else start
    content = [*(blocks if isinstance(blocks, list) else []), *added[0]["content"]]
    return [*history[:-1], {**last, "content": content}, *added[1:]]
