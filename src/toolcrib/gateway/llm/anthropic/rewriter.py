"""One request of the Messages API over all its rounds, and searches that the client does not see.

For a client that does not know tool search, most tools are deferred and a search tool is added. The
client sees neither: it sends tools and a history as usual, and gets a reply that calls its own tools.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from toolcrib.adapters import anthropic
from toolcrib.adapters.plain_json import dict_or_empty, dicts_or_empty
from toolcrib.gateway.llm.anthropic.history import (
    add_prefetched,
    message_anchor,
    message_context,
    restore_hidden_messages,
    wrap_calls,
)
from toolcrib.gateway.llm.anthropic.tools import index_entries, strip_deferral
from toolcrib.gateway.llm.conversation_memory import ReplyMemory, ScopedMemory
from toolcrib.gateway.llm.endpoint import Treatment
from toolcrib.gateway.llm.search_loop import RequestRewriter
from toolcrib.gateway.llm.tools.exposure import Exposure
from toolcrib.gateway.llm.tools.tool_index import Entry, IndexedTool, ToolIndex, plan_exposure, split_entries
from toolcrib.gateway.llm.tools.tool_selection import ToolSelection

Body = dict[str, Any]

# After these stop reasons a search call is incomplete or not meant to be run.
FINAL_STOPS: Final = frozenset({"max_tokens", "refusal", "model_context_window_exceeded", "stop_sequence"})
# The API does not meter tool searches; it adds this object when any server tool has run.
SERVER_TOOL_USAGE: Final = {"web_search_requests": 0, "web_fetch_requests": 0}


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

    def is_buffered(self, block: Mapping[str, Any]) -> bool:
        """Return whether the client gets a block only when it is complete, or not at all."""
        return False

    def resolve_block(self, block: Body) -> Body | None:
        """Return a complete block as the client sees it, or None if it is hidden. May take long."""
        return block

    def remember(self, blocks: Sequence[Body], results: Sequence[Body]) -> None:
        """Store what the client does not see, after the last round."""

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
            block.get("type") == "tool_use" and (self.is_search(str(block.get("name"))) or self.is_buffered(block))
            for block in dicts_or_empty(reply.get("content"))
        )

    def handle_reply(self, reply: Body) -> Body | None:
        if not isinstance(reply.get("content"), list):
            return reply
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
        stop = self.stop_reason() if stop is None else stop
        if stop is not None:
            self.remember(blocks, results)
        return results, stop

    def add_results(self, blocks: Sequence[Body], results: Sequence[Body]) -> None:
        """Add the blocks of a round and the results of its searches."""
        # Some models send empty texts, but the API refuses them in a history.
        blocks = [block for block in blocks if block.get("type") != "text" or block.get("text") != ""]
        self.searches += len(results)
        if blocks and results:
            self.rounds += 1
        if self.shows_searches:
            self.content += [*blocks, *results]
        else:
            self.content += [visible for visible in map(self.resolve_block, blocks) if visible is not None]
        self.append_round(blocks, results)

    def add_usage(self, *reports: object) -> None:
        """Add the usage of one round, which may be reported several times; a later report wins."""
        merged = {
            key: value
            for report in reports
            if isinstance(report, dict)
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
        self._memory = ReplyMemory(memory.narrow("messages"))
        client_messages = body["messages"]
        self._context = message_context(client_messages)
        restored = restore_hidden_messages(client_messages, self._memory)
        self._selection = ToolSelection(index)
        self._selection.replay_calls(anthropic.turns_from_wire(dicts_or_empty(restored)))
        # The tool that the model has to call has to be sent.
        self._selection.reveal([str(dict_or_empty(body.get("tool_choice")).get("name"))])
        self._messages = [add_prefetched(wrap_calls(message, index), self._selection) for message in restored]
        self._added: list[Body] = []
        # The calls that the gateway handles, and what became of them: a call for the client, or a reply.
        self._outcomes: dict[int, tuple[Body, Body | None, Body | None]] = {}
        own_entries = anthropic.tools_to_wire(index.own_tools)
        # The last cache breakpoint of the deferred tools moves to the search tool.
        marks = [each.client_entry.get("cache_control") for each in index.deferred.values()]
        own_entries[-1].update([("cache_control", mark) for mark in marks if mark is not None][-1:])
        self._own_entries = own_entries

    def next_request(self) -> Body:
        # In dispatch style the list of tools never changes.
        may_search = self.index.is_dispatch or self.rounds < self._max_rounds
        own_entries = self._own_entries if may_search else []
        # The tools that never change come first, which keeps the prompt cache valid.
        tools = [*self.index.always_sent, *own_entries, *self._selection.wire_entries]
        request = {**self._body, "messages": _append_to_history(self._messages, self._added), "tools": tools}
        if not tools:
            request.pop("tools")
            request.pop("tool_choice", None)
        return request

    def is_search(self, name: str) -> bool:
        return name == self.index.search_tool.name

    def convert_block(self, block: Mapping[str, Any]) -> Body:
        return dict(block)

    def is_buffered(self, block: Mapping[str, Any]) -> bool:
        return block.get("type") == "tool_use" and self._selection.is_intercepted(str(block.get("name")))

    def is_gateway_search(self, block: Mapping[str, Any]) -> bool:
        return self.resolve_block(dict_or_empty(block)) is None

    def resolve_block(self, block: Body) -> Body | None:
        if id(block) not in self._outcomes:
            if not self.is_buffered(block):
                return block
            if self.is_search(str(block.get("name"))):
                return None
        return self._handle_call(block)[0]

    def run_searches(self, calls: Sequence[Body]) -> list[Body]:
        return [result for call in calls if (result := self._handle_call(call)[1]) is not None]

    def append_round(self, blocks: Sequence[Body], results: Sequence[Body]) -> None:
        if results:
            self._added.append({"role": "assistant", "content": list(blocks)})
            self._added.append({"role": "user", "content": list(results)})

    def stop_reason(self) -> str | None:
        # After one more round without the search tool.
        return "end_turn" if self.rounds > self._max_rounds else None

    def remember(self, blocks: Sequence[Body], results: Sequence[Body]) -> None:
        # A search of a reply that was cut off has no result.
        complete = [block for block in blocks if not self.is_gateway_search(block)]
        last = [{"role": "assistant", "content": complete}] if complete and not results else []
        hidden = [*self._added, *last] if self._added else []
        self._memory.remember(hidden, self._context, *message_anchor(self.content))

    def _handle_call(self, block: Body) -> tuple[Body | None, Body | None]:
        """Return the call for the client, or the result block of a call that the gateway answers."""
        if id(block) not in self._outcomes:
            (call,) = anthropic.calls_from_wire({"content": [block]})
            turn = self._selection.handle_calls([call], self.rounds)
            visible, result = None, None
            if turn.tasks:
                task = turn.tasks[0]
                name = self.index.tools[task.tool.id].wire_name
                visible = {**block, "name": name, "input": dict(task.arguments)}
            else:
                result = anthropic.answers_to_wire(turn.replies)[0]["content"][0]
            # The block is kept, so that its identity is not used again.
            self._outcomes[id(block)] = (block, visible, result)
        return self._outcomes[id(block)][1:]


def list_deferrable(body: Mapping[str, Any]) -> list[Entry]:
    """Return the tools that may be deferred, or none if two tools have the same name.

    Tools that the provider defines, and tools that programs of the model call, are never deferred.
    """
    entries = dicts_or_empty(body.get("tools"))
    names = [str(entry.get("name")) for entry in entries]
    if len(set(names)) != len(names):
        return []
    return [
        entry
        for entry in entries
        if entry.get("type") in (None, "custom")
        and "input_schema" in entry
        and entry.get("allowed_callers") in (None, ["direct"])
    ]


def build_transparent_index(body: Mapping[str, Any], exposure: Exposure) -> ToolIndex:
    """Build the index of a request that does not know tool search."""
    tools = {id(each.client_entry): each for each in index_entries(list_deferrable(body), ())}
    plan = plan_exposure(exposure, tools.values())
    entries: list[tuple[Any, IndexedTool | None]] = []
    for entry in body["tools"]:
        sent, tool = strip_deferral(entry), tools.get(id(entry))
        if tool is not None and tool.tool.id not in plan.deferred_ids:
            # Only the definition of a tool that may be revealed has no cache breakpoint.
            tool = replace(tool, wire_entry=sent)
        entries.append((sent, tool))
    return ToolIndex(*split_entries(entries, plan.deferred_ids), plan)


def _append_to_history(history: list[Any], added: Sequence[Body]) -> list[Any]:
    """Return the history with some messages; a reply that the client has started is continued."""
    if not added:
        return history
    last = history[-1] if history else None
    if not isinstance(last, dict) or last.get("role") != "assistant":
        return [*history, *added]
    start = last.get("content")
    blocks = [{"type": "text", "text": start}] if isinstance(start, str) else start
    content = [*(blocks if isinstance(blocks, list) else []), *added[0]["content"]]
    return [*history[:-1], {**last, "content": content}, *added[1:]]
