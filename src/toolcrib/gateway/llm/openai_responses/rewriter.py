"""One response over all its rounds: what to send to the upstream, and what its items mean.

See `stream` for replies that are streamed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from toolcrib.adapters.openai_responses import calls_from_wire, turns_from_wire
from toolcrib.adapters.plain_json import dict_or_empty, dicts_or_empty, str_or_empty
from toolcrib.core.calls import ToolCall
from toolcrib.gateway.llm.conversation_memory import ReplyMemory, ScopedMemory
from toolcrib.gateway.llm.openai_responses.items import (
    CALL_TYPES,
    HiddenItems,
    InputReader,
    Item,
    drop_orphaned_reasoning,
    item_context,
    make_call_output,
    make_search_item_id,
    render_search_arguments,
    render_search_output,
    restore_hidden_items,
)
from toolcrib.gateway.llm.openai_responses.tools import (
    ResponsesToolIndex,
    render_found_entries,
    tool_path,
    without_secrets,
)
from toolcrib.gateway.llm.search_loop import RequestRewriter
from toolcrib.gateway.llm.tools.tool_index import IndexedTool
from toolcrib.gateway.llm.tools.tool_selection import ToolSelection
from toolcrib.session.turn import ToolTask

# "search" is a call of the search tool, "check" a call of `call_tool` or of a tool that is not listed.
ItemRole = Literal["search", "check", "plain"]
# Called with the id of a response for the client, and with that of the upstream.
OnResponse = Callable[[str, str], None]

# Calls that the upstream runs itself.
_HOSTED_CALL_TYPES: Final = frozenset(
    {"code_interpreter_call", "file_search_call", "image_generation_call", "mcp_call", "web_search_call"}
)


@dataclass(slots=True)
class ItemOutcome:
    """What an item leads to; the outcomes of a round are merged into one.

    `visible` are the items for the client, and `followup` those for the next request to the
    upstream. `needs_client` is true if the client has to act, `is_answered` if the gateway has
    answered a call.
    """

    visible: list[Item] = field(default_factory=list)
    followup: list[Item] = field(default_factory=list)
    needs_client: bool = False
    is_answered: bool = False

    def merge(self, other: ItemOutcome) -> None:
        """Add the outcome of another item."""
        self.visible += other.visible
        self.followup += other.followup
        self.needs_client = self.needs_client or other.needs_client
        self.is_answered = self.is_answered or other.is_answered

    @property
    def results(self) -> list[Item]:
        """The answers of the gateway, without the calls."""
        return [item for item in self.followup if item.get("type") == "function_call_output"]


class ResponsesRewriter(RequestRewriter):
    """One request and its rounds."""

    index: ResponsesToolIndex

    def __init__(
        self,
        body: Item,
        index: ResponsesToolIndex,
        memory: ScopedMemory,
        max_rounds: int,
        on_response: OnResponse | None = None,
    ) -> None:
        super().__init__(body, index, max_rounds)
        self.treatment = "search" if index.uses_tool_search else "transparent"
        self.output: list[Item] = []
        self._on_response = on_response
        self._selection = ToolSelection(index)
        self._reader = InputReader(index, self._selection)
        self._hidden = HiddenItems()
        self._round = ItemOutcome()
        self._memory = ReplyMemory(memory.narrow("responses"))
        self._context = item_context(_as_items(body.get("input")))
        self._responses = memory.narrow("response")
        previous = self._responses.get(str_or_empty(body.get("previous_response_id"))) or {}
        self._previous_id: Any = previous.get("id", body.get("previous_response_id"))
        self._reader.load_definitions(previous.get("client_definitions", ()))
        self._selection.restore(previous.get("revealed", ()))
        self._input = self._convert_input(previous.get("outputs", ()))
        # The tool that the model has to call has to be sent.
        forced = dict_or_empty(body.get("tool_choice")).get("name")
        self._selection.reveal([str_or_empty(forced)])

    def next_request(self) -> Item:
        # In dispatch style the list of tools never changes.
        own = self.index.own_entries if self._may_search or self.index.is_dispatch else []
        tools = [*self.index.always_sent, *own, *self._selection.wire_entries]
        body = {**self._body, "input": self._input, "tools": tools}
        if self._previous_id:
            body["previous_response_id"] = self._previous_id
        if "tool_choice" in body:
            body["tool_choice"] = self._convert_tool_choice(body["tool_choice"])
        if not tools:
            for name in ("tools", "tool_choice", "parallel_tool_calls"):
                body.pop(name, None)
        return body

    def classify_item(self, item: Item) -> ItemRole:
        """Return whether the gateway handles an item, and how."""
        if item.get("type") != "function_call":
            return "plain"
        name = str_or_empty(item.get("name"))
        if self._has_search and name == self.index.search_name:
            return "search"
        if self.index.is_dispatch and name == self.index.call_tool.name:
            return "check"
        can_correct = self.rounds < self._max_rounds
        return "check" if can_correct and self._selection.is_unrevealed(name) else "plain"

    def begin_search_item(self, item: Item) -> Item | None:
        """Return the item that announces a search, or None if the client does not see it."""
        if not self.index.uses_tool_search or not self._may_search:
            return None
        return {**self._render_search_call(item, {}), "status": "in_progress"}

    def handle_item(self, item: Item) -> ItemOutcome:
        """Handle an item of the upstream. Searches, and so may take long, unless it is plain."""
        role = self.classify_item(item)
        if role == "plain":
            outcome = self._handle_plain(item)
        elif role == "check":
            outcome = self._handle_unrevealed_call(item)
        elif self._may_search:
            outcome = self._handle_search(item)
        else:
            # The search tool was no longer offered, so the call is dropped.
            outcome = ItemOutcome()
        self.output += outcome.visible
        self._round.merge(outcome)
        if outcome.is_answered and not outcome.visible:
            self._hidden.add_hidden(outcome.followup)
        for visible in outcome.visible:
            self._hidden.add_visible(visible)
        return outcome

    def finish_round(self, response: Item) -> bool:
        """End a round; return whether the reply is complete."""
        self.add_usage(response.get("usage"))
        outcome, self._round = self._round, ItemOutcome()
        is_completed = response.get("status") in ("completed", None)
        if outcome.is_answered and not outcome.needs_client and is_completed:
            self.rounds += 1
            if self._body.get("conversation"):
                # The upstream has stored the other items in the conversation.
                self._input = outcome.results
            else:
                self._input = [*_as_items(self._input), *outcome.followup]
            return False
        self._hidden.remember(self._memory, self._context)
        self._remember(response, outcome)
        id = str_or_empty(response.get("id"))
        if self._on_response:
            self._on_response(id, id)
        return True

    def has_searches(self, reply: Item) -> bool:
        items = dicts_or_empty(reply.get("output"))
        return any(self.classify_item(item) != "plain" for item in items)

    def handle_reply(self, reply: Item) -> Item | None:
        if not isinstance(reply.get("output"), list):
            return reply
        for item in dicts_or_empty(reply.get("output")):
            self.handle_item(item)
        return self.render_response(reply) if self.finish_round(reply) else None

    def render_response(self, response: Item) -> Item:
        """Return the response for the client, made from that of the last round."""
        usage = {} if self.usage is None else {"usage": self.usage}
        return {**self.render_head(response), "output": self.output, **usage}

    def render_head(self, response: Item) -> Item:
        """Return a response that repeats the client's own request, not that of the gateway."""
        fields = ("tool_choice", "previous_response_id", "tools")
        echo = {name: self._body[name] for name in fields if name in self._body and name in response}
        if "tools" in echo:
            echo["tools"] = list(map(without_secrets, dicts_or_empty(echo["tools"])))
        return {**response, **echo}

    def record_alias(self, id: str, response: Item) -> None:
        """Record the id of a response for the client if it differs from that of the upstream."""
        if id != response.get("id"):
            self._remember(response, ItemOutcome(), id)
            if self._on_response:
                self._on_response(id, str_or_empty(response.get("id")))

    def render_item(self, item: Item) -> Item:
        """Return a call with the name and namespace of the tool in the client's request."""
        if item.get("type") not in CALL_TYPES:
            return item
        indexed = self._reader.find_tool(str_or_empty(item.get("name")))
        if indexed is None:
            return item
        namespace = {} if indexed.namespace is None else {"namespace": indexed.namespace}
        return {**item, "name": indexed.tool.name, **namespace}

    @property
    def _has_search(self) -> bool:
        return self.index.offers_search or self.index.client_search is not None

    @property
    def _may_search(self) -> bool:
        return self._has_search and self.rounds < self._max_rounds

    def _convert_input(self, outputs: Iterable[Item]) -> Any:
        """Return the input for the upstream; a text stays a text."""
        input = self._body.get("input")
        if isinstance(input, str):
            item = self._add_prefetched(*_as_items(input))
            return [*outputs, item] if outputs else item["content"]
        if not isinstance(input, list):
            return [*outputs, *_as_items(input)] if outputs else input
        items = list(dicts_or_empty(input))
        if not self.index.uses_tool_search:
            items = drop_orphaned_reasoning(restore_hidden_items(items, self._memory))
            self._selection.replay_calls(turns_from_wire(items))
        return [*outputs, *map(self._add_prefetched, self._reader.convert(items))]

    def _add_prefetched(self, item: Item) -> Item:
        return self._selection.add_prefetched(item, "input_text")

    def _convert_tool_choice(self, choice: Any) -> Any:
        if not isinstance(choice, dict):
            return choice
        search = {"type": "function", "name": self.index.search_name}
        if choice.get("type") == "tool_search":
            return search if self._may_search else "auto"
        if choice.get("type") == "allowed_tools" and self._may_search:
            tools = dicts_or_empty(choice.get("tools"))
            allowed = [tool for tool in tools if tool != {"type": "tool_search"}]
            return {**choice, "tools": [*allowed, search]}
        return choice

    def _handle_plain(self, item: Item) -> ItemOutcome:
        type = str_or_empty(item.get("type"))
        needs_client = type.endswith(("_call", "_request")) and type not in _HOSTED_CALL_TYPES
        return ItemOutcome([self.render_item(item)], [item], needs_client)

    def _handle_search(self, item: Item) -> ItemOutcome:
        (call,) = calls_from_wire({"output": [item]})
        self.searches += 1
        if self.index.client_search is not None:
            search = self._render_search_call(item, dict(call.arguments or {}))
            return ItemOutcome([search], [item], needs_client=True)
        tools, answer = self._find_tools(call)
        is_listed = tools and not self.index.is_dispatch
        result = make_call_output(call.id, render_search_output(tools) if is_listed else answer)
        if not self.index.uses_tool_search:
            return ItemOutcome([], [item, result], is_answered=True)
        paths = [tool_path(indexed) for indexed in tools] or _search_queries(call)
        call_id = str_or_empty(item.get("call_id")).encode("utf-8", "surrogatepass")
        output = {
            # Made from the id of the call.
            "id": f"tso_{hashlib.blake2b(call_id, digest_size=24).hexdigest()}",
            "type": "tool_search_output",
            "status": "completed",
            "execution": "server",
            "call_id": None,
            "tools": render_found_entries(tools),
        }
        visible = [self._render_search_call(item, {"paths": paths}), output]
        sent = {**item, "arguments": render_search_arguments(paths)}
        return ItemOutcome(visible, [sent, result], is_answered=True)

    def _find_tools(self, call: ToolCall) -> tuple[list[IndexedTool], str]:
        """Return the tools that a search finds, and the text for the model if it finds none.

        A query that is the name of a namespace finds all its tools.
        """
        queries = _search_queries(call)
        known = {} if self.index.is_dispatch else self.index.namespaces
        namespaces = [query for query in queries if query in known]
        members = [id for name in namespaces for id in self.index.namespaces[name]]
        self._selection.reveal(members)
        deferred = self.index.deferred
        tools = [deferred[id] for id in members]
        rest = [query for query in queries if query not in namespaces]
        if namespaces and not rest:
            return tools, ""
        arguments = {**(call.arguments or {}), "query": None, "queries": rest}
        search = ToolCall(call.id, call.name, arguments)
        (answer,) = self._selection.handle_calls([search], self.rounds).replies
        found = [deferred[tool.id] for tool in answer.found_tools if tool.id not in members]
        return [*tools, *found], answer.text

    def _handle_unrevealed_call(self, item: Item) -> ItemOutcome:
        """Forward a call of a tool that is not listed to the client if its arguments are valid."""
        (call,) = calls_from_wire({"output": [item]})
        indexed = self.index.find(call.name)
        if indexed is not None and indexed.wire_entry.get("type") == "mcp":
            self._selection.reveal([indexed.tool.id])
            output = make_call_output(call.id, render_search_output([indexed]))
            return ItemOutcome([], [item, output], is_answered=True)
        turn = self._selection.handle_calls([call], self.rounds)
        if turn.tasks:
            return ItemOutcome([self._render_task(item, turn.tasks[0])], [item], needs_client=True)
        if self.rounds >= self._max_rounds:
            return ItemOutcome()
        output = make_call_output(call.id, turn.replies[0].text)
        return ItemOutcome([], [item, output], is_answered=True)

    def _render_task(self, item: Item, task: ToolTask) -> Item:
        """Return a call of `call_tool` as a call of the client's tool; another call keeps its arguments."""
        name = self.index.tools[task.tool.id].wire_name
        if item.get("name") == name:
            return self.render_item(item)
        arguments = json.dumps(task.arguments, ensure_ascii=False)
        return self.render_item({**item, "name": name, "arguments": arguments})

    def _render_search_call(self, item: Item, arguments: Item) -> Item:
        id = str_or_empty(item.get("call_id"))
        is_client = self.index.client_search is not None
        return {
            "id": make_search_item_id(id),
            "type": "tool_search_call",
            "status": "completed",
            "execution": "client" if is_client else "server",
            "call_id": id if is_client else None,
            "arguments": arguments,
        }

    def _remember(self, response: Item, outcome: ItemOutcome, alias: str = "") -> None:
        """Store what a request needs that refers to this response by its id."""
        id = str_or_empty(response.get("id"))
        state: dict[str, list[Any]] = {
            "revealed": self._selection.revealed_ids,
            "client_definitions": self._reader.client_definitions,
        }
        if outcome.needs_client and outcome.is_answered:
            state["outputs"] = outcome.results
        if alias:
            state["outputs"] = (self._responses.get(id) or {}).get("outputs", [])
        if id and (alias or any(state.values())):
            self._responses.put({"id": id, **state}, alias or id)


def _search_queries(call: ToolCall) -> list[str]:
    """Return the distinct queries of a call of the search tool."""
    arguments = call.arguments or {}
    values = [arguments.get("query")]
    for name in ("queries", "paths"):
        value = arguments.get(name)
        values += value if isinstance(value, list) else [value]
    queries = (value.strip() for value in values if isinstance(value, str))
    return list(dict.fromkeys(filter(None, queries)))


def _as_items(input: object) -> list[Item]:
    if isinstance(input, str):
        return [{"type": "message", "role": "user", "content": input}]
    return list(dicts_or_empty(input))
