"""One response through the gateway: what to ask the upstream, and what to make of its items.

Nothing here is sent or received. `body` is what to ask next; `reply` takes a whole answer. For an
answer that is streamed see `stream`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from toolcrib.adapters.openai_responses import calls_from_wire, turns_from_wire
from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.core.calls import ToolCall
from toolcrib.gateway.llm.conversation_memory import ScopedMemory
from toolcrib.gateway.llm.openai_responses.hidden_items import (
    HiddenItems,
    conversation_opening,
    drop_orphaned_reasoning,
    restore_hidden_items,
)
from toolcrib.gateway.llm.openai_responses.items import (
    CALL_TYPES,
    InputReader,
    Item,
    make_call_output,
    make_search_item_id,
    render_search_arguments,
    render_search_output,
)
from toolcrib.gateway.llm.openai_responses.tools import (
    ResponsesToolIndex,
    render_found_entries,
    tool_path,
    without_secrets,
)
from toolcrib.gateway.llm.response_headers import Treatment
from toolcrib.gateway.llm.tool_index import IndexedTool, ToolSelection
from toolcrib.gateway.llm.usage import add_usage

# `search`: a call of the search tool. `check`: a call of a tool that the model has not been shown.
ItemRole = Literal["search", "check", "plain"]

# Is told by which id the client knows a response, and by which the upstream does.
OnResponse = Callable[[str, str], None]

# Calls that the upstream answers itself, so that nobody waits for the client.
_HOSTED_CALL_TYPES: Final = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "image_generation_call",
        "mcp_call",
        "web_search_call",
    }
)


def _ignore_response(known_as: str, id: str) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    """What becomes of an item: what the client is shown, and what the upstream is sent next.

    `waits` says that it is the client's turn.
    """

    visible: list[Item] = field(default_factory=list)
    followup: list[Item] = field(default_factory=list)
    needs_client: bool = False
    is_answered: bool = False


class ResponsesRewriter:
    """One request and its rounds."""

    def __init__(
        self,
        body: Item,
        rack: ResponsesToolIndex,
        recall: ScopedMemory,
        max_rounds: int,
        issued: OnResponse = _ignore_response,
    ) -> None:
        self._given = body
        self._issued = issued
        self.index = rack
        self.selection = ToolSelection(rack.tools)
        self._reader = InputReader(rack, self.selection)
        begun = conversation_opening(body.get("input"), body.get("instructions"))
        self._recall = recall.narrow(begun)
        self._responses = recall.narrow("response")
        self._hidden = HiddenItems()
        self._max_rounds = max_rounds
        before = self._responses.get(str_or_empty(body.get("previous_response_id"))) or {}
        self._previous: Any = before.get("id", body.get("previous_response_id"))
        self._reader.load_definitions(before.get("brought", ()))
        self.selection.reveal(before.get("loaded", ()))
        self._input = self._convert_input(before.get("outputs", ()))
        self.selection.reveal(self._forced_tool_names())
        self._round = _ResponsesRound()
        self._spent: Any = None
        self.output: list[Item] = []
        self.rounds = 0
        self.searches = 0

    @property
    def treatment(self) -> Treatment:
        """What is done for the client."""
        return "search" if self.index.uses_tool_search else "transparent"

    def next_request(self) -> Item:
        """The next request to the upstream."""
        tools = [*self.index.tools.always_sent, *self._search_entries, *self.selection.wire_entries]
        body = {**self._given, "input": self._input, "tools": tools}
        if self._previous:
            body["previous_response_id"] = self._previous
        if "tool_choice" in body:
            body["tool_choice"] = self._convert_tool_choice(body["tool_choice"])
        if not tools:
            for name in ("tools", "tool_choice", "parallel_tool_calls"):
                body.pop(name, None)
        return body

    def classify_item(self, item: Item) -> ItemRole:
        """What an item is to us."""
        if item.get("type") != "function_call":
            return "plain"
        name = str_or_empty(item.get("name"))
        if self._offers_search and name == self.index.search_name:
            return "search"
        can_mend = self.rounds < self._max_rounds
        return "check" if can_mend and self.selection.is_unrevealed(name) else "plain"

    def begin_search_item(self, item: Item) -> Item | None:
        """The beginning of the item that a search is told by; None if it is not told."""
        if not self.index.uses_tool_search or not self._search_entries:
            return None
        return {**self._render_search_call(item, {}), "status": "in_progress"}

    def handle_item(self, item: Item) -> ItemOutcome:
        """Note an item of the upstream's. What is ours in it is searched, which takes its time."""
        kind = self.classify_item(item)
        if kind == "plain":
            outcome = self._handle_plain(item)
        elif not self._search_entries and kind == "search":
            # It was not even offered. What cannot be answered is not shown either.
            outcome = ItemOutcome()
        else:
            outcome = (
                self._handle_search(item)
                if kind == "search"
                else self._handle_unrevealed_call(item)
            )
        self.output += outcome.visible
        self._round.add(outcome)
        if outcome.is_answered and not outcome.visible:
            self._hidden.add_hidden(outcome.followup)
        for shown in outcome.visible:
            self._hidden.add_visible(shown)
        return outcome

    def finish_round(self, response: Item) -> bool:
        """At the end of a round: whether the answer is over, or the upstream is to be asked again."""
        if response.get("usage") is not None:
            self._spent = add_usage(self._spent, response["usage"])
        done, self._round = self._round, _ResponsesRound()
        if done.answered and not done.waits and response.get("status") in ("completed", None):
            self.rounds += 1
            self._continue_input(done)
            return False
        self._hidden.remember(self._recall)
        self._remember(response, done)
        id = str_or_empty(response.get("id"))
        self._issued(id, id)
        return True

    def handle_reply(self, response: Item) -> Item | None:
        """What the client is answered; None if the upstream is to be asked again."""
        for item in dicts_or_empty(response.get("output")):
            self.handle_item(item)
        return self.render_response(response) if self.finish_round(response) else None

    def render_response(self, response: Item) -> Item:
        """The answer as the client gets it, from that of the last round."""
        usage = {} if self._spent is None else {"usage": self._spent}
        return {**self.render_head(response), "output": self.output, **usage}

    def render_head(self, response: Item) -> Item:
        """A response in which the client finds its own request again."""
        given = ("tool_choice", "previous_response_id")
        echoed = {name: self._given[name] for name in given if name in self._given}
        if "tools" in self._given:
            echoed["tools"] = list(map(without_secrets, dicts_or_empty(self._given["tools"])))
        return {**response, **{name: echoed[name] for name in echoed if name in response}}

    def record_alias(self, id: str, response: Item) -> None:
        """Note that the client knows a response by another id than the upstream does."""
        if id != response.get("id"):
            self._remember(response, _ResponsesRound(), id)
            self._issued(id, str_or_empty(response.get("id")))

    def render_item(self, item: Item) -> Item:
        """A call under the name and namespace by which the client knows the tool."""
        if item.get("type") not in CALL_TYPES:
            return item
        ware = self._reader.find_tool(str_or_empty(item.get("name")))
        if ware is None:
            return item
        named = {**item, "name": ware.tool.name}
        return named if ware.namespace is None else {**named, "namespace": ware.namespace}

    @property
    def _offers_search(self) -> bool:
        return self.index.tools.offers_search or self.index.client_search is not None

    @property
    def _search_entries(self) -> list[Item]:
        """The search tool, while the model may search."""
        offered = self._offers_search and self.rounds < self._max_rounds
        return [self.index.search_entry] if offered else []

    def _convert_input(self, outputs: Iterable[Item]) -> Any:
        """The client's input for the upstream; a text stays one."""
        given = self._given.get("input")
        if not isinstance(given, list):
            return [*outputs, *_as_items(given)] if outputs else given
        items = list(dicts_or_empty(given))
        if not self.index.uses_tool_search:
            items = drop_orphaned_reasoning(restore_hidden_items(items, self._recall))
            self.selection.replay_history(
                self.index.tools.turn_handler.actions_from_history(turns_from_wire(items))
            )
        return [*outputs, *self._reader.convert(items)]

    def _forced_tool_names(self) -> list[str]:
        """The tool that the model has to call, which it therefore has to be shown."""
        choice = self._given.get("tool_choice")
        return [str_or_empty(choice.get("name"))] if isinstance(choice, dict) else []

    def _convert_tool_choice(self, choice: Any) -> Any:
        if not isinstance(choice, dict):
            return choice
        search = {"type": "function", "name": self.index.search_name}
        if choice.get("type") == "tool_search":
            return search if self._search_entries else "auto"
        if choice.get("type") == "allowed_tools" and self._search_entries:
            allowed = [
                one for one in dicts_or_empty(choice.get("tools")) if one != {"type": "tool_search"}
            ]
            return {**choice, "tools": [*allowed, search]}
        return choice

    def _handle_plain(self, item: Item) -> ItemOutcome:
        kind = str_or_empty(item.get("type"))
        waits = kind.endswith(("_call", "_request")) and kind not in _HOSTED_CALL_TYPES
        return ItemOutcome([self.render_item(item)], [item], waits)

    def _handle_search(self, item: Item) -> ItemOutcome:
        (call,) = calls_from_wire({"output": [item]})
        self.searches += 1
        if self.index.client_search is not None:
            search = self._render_search_call(item, dict(call.arguments or {}))
            return ItemOutcome([search], [item], needs_client=True)
        wares, answer = self._find_tools(call)
        paths = [tool_path(ware) for ware in wares] or _search_queries(call)
        sent = (
            {**item, "arguments": render_search_arguments(paths)}
            if self.index.uses_tool_search
            else item
        )
        result = make_call_output(call.id, render_search_output(wares) if wares else answer)
        shown: list[Item] = []
        if self.index.uses_tool_search:
            found = {
                "id": _make_output_id(item),
                "type": "tool_search_output",
                "status": "completed",
                "execution": "server",
                "call_id": None,
                "tools": render_found_entries(wares),
            }
            shown = [self._render_search_call(item, {"paths": paths}), found]
        return ItemOutcome(shown, [sent, result], is_answered=True)

    def _find_tools(self, call: ToolCall) -> tuple[list[IndexedTool], str]:
        """The tools that a search finds, and what the model is told if it finds none.

        Who names a namespace gets all of it.
        """
        queries = _search_queries(call)
        groups = [query for query in queries if query in self.index.namespaces]
        members = [id for group in groups for id in self.index.namespaces[group]]
        self.selection.reveal(members)
        held = self.index.tools.deferred
        wares = [held[id] for id in members]
        rest = [query for query in queries if query not in groups]
        if groups and not rest:
            return wares, ""
        arguments = {**(call.arguments or {}), "query": None, "queries": rest}
        (answer,) = self.selection.handle_calls(
            [ToolCall(call.id, call.name, arguments)], self.rounds
        ).answers
        found = [held[tool.id] for tool in answer.found_tools if tool.id not in members]
        return [*wares, *found], answer.text

    def _handle_unrevealed_call(self, item: Item) -> ItemOutcome:
        """A call of a tool that was not shown: it goes through if the arguments fit."""
        (call,) = calls_from_wire({"output": [item]})
        ware = self.index.tools.find(call.name)
        assert ware is not None, "only a tool that is held back is checked"
        if ware.wire_entry.get("type") == "mcp":
            self.selection.reveal([ware.tool.id])
            return ItemOutcome(
                [],
                [item, make_call_output(call.id, render_search_output([ware]))],
                is_answered=True,
            )
        turn = self.selection.handle_calls([call], self.rounds)
        if turn.tasks:
            return ItemOutcome([self.render_item(item)], [item], needs_client=True)
        return ItemOutcome(
            [], [item, make_call_output(call.id, turn.answers[0].text)], is_answered=True
        )

    def _render_search_call(self, item: Item, arguments: Item) -> Item:
        id = str_or_empty(item.get("call_id"))
        client = self.index.client_search is not None
        return {
            "id": make_search_item_id(id),
            "type": "tool_search_call",
            "status": "completed",
            "execution": "client" if client else "server",
            "call_id": id if client else None,
            "arguments": arguments,
        }

    def _continue_input(self, done: _ResponsesRound) -> None:
        """Ask again, with what was answered. A conversation at the upstream has the rest already."""
        if self._given.get("conversation"):
            self._input = done.results
        else:
            self._input = [*_as_items(self._input), *done.sent]

    def _remember(self, response: Item, done: _ResponsesRound, alias: str = "") -> None:
        """Remember what the next request needs that only names this response."""
        id = str_or_empty(response.get("id"))
        kept: Item = {
            "id": id,
            "loaded": self.selection.revealed_ids,
            "brought": self._reader.client_definitions,
        }
        if done.waits and done.answered:
            kept["outputs"] = done.results
        if alias:
            kept["outputs"] = (self._responses.get(id) or {}).get("outputs", ())
        if id and (alias or any(kept[name] for name in kept if name != "id")):
            self._responses.put(kept, alias or id)


class _ResponsesRound:
    """What one reply of the upstream came to."""

    def __init__(self) -> None:
        self.sent: list[Item] = []
        self.waits = False
        self.answered = False

    def add(self, outcome: ItemOutcome) -> None:
        self.sent += outcome.followup
        self.waits = self.waits or outcome.needs_client
        self.answered = self.answered or outcome.is_answered

    @property
    def results(self) -> list[Item]:
        """Our answers alone, without what they answer."""
        return [one for one in self.sent if one.get("type") == "function_call_output"]


def _search_queries(call: ToolCall) -> list[str]:
    """What a call of the search tool asks for, each once."""
    arguments = call.arguments or {}
    several = (arguments.get(name) for name in ("queries", "paths"))
    listed = [one for many in several for one in (many if isinstance(many, list) else [many])]
    said = (one.strip() for one in (arguments.get("query"), *listed) if isinstance(one, str))
    return list(dict.fromkeys(filter(None, said)))


def _make_output_id(item: Item) -> str:
    """An id that is as unique as the call's, and no other's."""
    id = str_or_empty(item.get("call_id")).encode("utf-8", "surrogatepass")
    return f"tso_{hashlib.blake2b(id, digest_size=24).hexdigest()}"


def _as_items(input: object) -> list[Item]:
    if isinstance(input, str):
        return [{"type": "message", "role": "user", "content": input}]
    return list(dicts_or_empty(input))
