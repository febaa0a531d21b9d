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
from toolcrib.adapters.plain_json import objects, text
from toolcrib.core.calls import Call
from toolcrib.gateway.llm.conversation_memory import Recall
from toolcrib.gateway.llm.openai_responses.hidden_items import (
    Hidden,
    opening,
    restored,
    without_orphans,
)
from toolcrib.gateway.llm.openai_responses.items import (
    CALLS,
    Item,
    Reader,
    asked,
    output,
    search_item_id,
    told,
)
from toolcrib.gateway.llm.openai_responses.tools import (
    Rack,
    found_entries,
    path_of,
    without_secrets,
)
from toolcrib.gateway.llm.response_headers import Treatment
from toolcrib.gateway.llm.tool_index import Desk, Ware
from toolcrib.gateway.llm.usage import summed

# `search`: a call of the search tool. `check`: a call of a tool that the model has not been shown.
Kind = Literal["search", "check", "plain"]

# Is told by which id the client knows a response, and by which the upstream does.
Note = Callable[[str, str], None]

# Calls that the upstream answers itself, so that nobody waits for the client.
_ANSWERED: Final = frozenset(
    {
        "code_interpreter_call",
        "file_search_call",
        "image_generation_call",
        "mcp_call",
        "web_search_call",
    }
)


def _nobody(known_as: str, id: str) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of an item: what the client is shown, and what the upstream is sent next.

    `waits` says that it is the client's turn.
    """

    shown: list[Item] = field(default_factory=list)
    sent: list[Item] = field(default_factory=list)
    waits: bool = False
    answered: bool = False


class Talk:
    """One request and its rounds."""

    def __init__(
        self,
        body: Item,
        rack: Rack,
        recall: Recall,
        max_rounds: int,
        issued: Note = _nobody,
    ) -> None:
        self._given = body
        self._issued = issued
        self.rack = rack
        self.desk = Desk(rack.shelf)
        self._reader = Reader(rack, self.desk)
        begun = opening(body.get("input"), body.get("instructions"))
        self._recall = recall.within(begun)
        self._responses = recall.within("response")
        self._hidden = Hidden()
        self._max_rounds = max_rounds
        before = self._responses.get(text(body.get("previous_response_id"))) or {}
        self._previous: Any = before.get("id", body.get("previous_response_id"))
        self._reader.load(before.get("brought", ()))
        self.desk.load(before.get("loaded", ()))
        self._input = self._read(before.get("outputs", ()))
        self.desk.load(self._chosen())
        self._round = _Round()
        self._spent: Any = None
        self.output: list[Item] = []
        self.rounds = 0
        self.searches = 0

    @property
    def treatment(self) -> Treatment:
        """What is done for the client."""
        return "search" if self.rack.asked else "transparent"

    def body(self) -> Item:
        """The next request to the upstream."""
        tools = [*self.rack.shelf.front, *self._search, *self.desk.tools]
        body = {**self._given, "input": self._input, "tools": tools}
        if self._previous:
            body["previous_response_id"] = self._previous
        if "tool_choice" in body:
            body["tool_choice"] = self._choice(body["tool_choice"])
        if not tools:
            for name in ("tools", "tool_choice", "parallel_tool_calls"):
                body.pop(name, None)
        return body

    def kind(self, item: Item) -> Kind:
        """What an item is to us."""
        if item.get("type") != "function_call":
            return "plain"
        name = text(item.get("name"))
        if self._offers_search and name == self.rack.search_name:
            return "search"
        can_mend = self.rounds < self._max_rounds
        return "check" if can_mend and self.desk.holds_back(name) else "plain"

    def begun(self, item: Item) -> Item | None:
        """The beginning of the item that a search is told by; None if it is not told."""
        if not self.rack.asked or not self._search:
            return None
        return {**self._search_call(item, {}), "status": "in_progress"}

    def take(self, item: Item) -> Outcome:
        """Note an item of the upstream's. What is ours in it is searched, which takes its time."""
        kind = self.kind(item)
        if kind == "plain":
            outcome = self._plain(item)
        elif not self._search and kind == "search":
            # It was not even offered. What cannot be answered is not shown either.
            outcome = Outcome()
        else:
            outcome = self._searched(item) if kind == "search" else self._checked(item)
        self.output += outcome.shown
        self._round.add(outcome)
        if outcome.answered and not outcome.shown:
            self._hidden.hide(outcome.sent)
        for shown in outcome.shown:
            self._hidden.show(shown)
        return outcome

    def end(self, response: Item) -> bool:
        """At the end of a round: whether the answer is over, or the upstream is to be asked again."""
        if response.get("usage") is not None:
            self._spent = summed(self._spent, response["usage"])
        done, self._round = self._round, _Round()
        if done.answered and not done.waits and response.get("status") in ("completed", None):
            self.rounds += 1
            self._go_on(done)
            return False
        self._hidden.keep(self._recall)
        self._keep(response, done)
        id = text(response.get("id"))
        self._issued(id, id)
        return True

    def reply(self, response: Item) -> Item | None:
        """What the client is answered; None if the upstream is to be asked again."""
        for item in objects(response.get("output")):
            self.take(item)
        return self.whole(response) if self.end(response) else None

    def whole(self, response: Item) -> Item:
        """The answer as the client gets it, from that of the last round."""
        usage = {} if self._spent is None else {"usage": self._spent}
        return {**self.head(response), "output": self.output, **usage}

    def head(self, response: Item) -> Item:
        """A response in which the client finds its own request again."""
        given = ("tool_choice", "previous_response_id")
        echoed = {name: self._given[name] for name in given if name in self._given}
        if "tools" in self._given:
            echoed["tools"] = list(map(without_secrets, objects(self._given["tools"])))
        return {**response, **{name: echoed[name] for name in echoed if name in response}}

    def alias(self, id: str, response: Item) -> None:
        """Note that the client knows a response by another id than the upstream does."""
        if id != response.get("id"):
            self._keep(response, _Round(), id)
            self._issued(id, text(response.get("id")))

    def to_client(self, item: Item) -> Item:
        """A call under the name and namespace by which the client knows the tool."""
        if item.get("type") not in CALLS:
            return item
        ware = self._reader.ware(text(item.get("name")))
        if ware is None:
            return item
        named = {**item, "name": ware.tool.name}
        return named if ware.namespace is None else {**named, "namespace": ware.namespace}

    @property
    def _offers_search(self) -> bool:
        return self.rack.shelf.searched or self.rack.client is not None

    @property
    def _search(self) -> list[Item]:
        """The search tool, while the model may search."""
        offered = self._offers_search and self.rounds < self._max_rounds
        return [self.rack.search_entry] if offered else []

    def _read(self, outputs: Iterable[Item]) -> Any:
        """The client's input for the upstream; a text stays one."""
        given = self._given.get("input")
        if not isinstance(given, list):
            return [*outputs, *_as_items(given)] if outputs else given
        items = list(objects(given))
        if not self.rack.asked:
            items = without_orphans(restored(items, self._recall))
            self.desk.follow(self.rack.shelf.conversation.acts(turns_from_wire(items)))
        return [*outputs, *self._reader.read(items)]

    def _chosen(self) -> list[str]:
        """The tool that the model has to call, which it therefore has to be shown."""
        choice = self._given.get("tool_choice")
        return [text(choice.get("name"))] if isinstance(choice, dict) else []

    def _choice(self, choice: Any) -> Any:
        if not isinstance(choice, dict):
            return choice
        search = {"type": "function", "name": self.rack.search_name}
        if choice.get("type") == "tool_search":
            return search if self._search else "auto"
        if choice.get("type") == "allowed_tools" and self._search:
            allowed = [
                one for one in objects(choice.get("tools")) if one != {"type": "tool_search"}
            ]
            return {**choice, "tools": [*allowed, search]}
        return choice

    def _plain(self, item: Item) -> Outcome:
        kind = text(item.get("type"))
        waits = kind.endswith(("_call", "_request")) and kind not in _ANSWERED
        return Outcome([self.to_client(item)], [item], waits)

    def _searched(self, item: Item) -> Outcome:
        (call,) = calls_from_wire({"output": [item]})
        self.searches += 1
        if self.rack.client is not None:
            search = self._search_call(item, dict(call.arguments or {}))
            return Outcome([search], [item], waits=True)
        wares, answer = self._found(call)
        paths = [path_of(ware) for ware in wares] or _queries(call)
        sent = {**item, "arguments": asked(paths)} if self.rack.asked else item
        result = output(call.id, told(wares) if wares else answer)
        shown: list[Item] = []
        if self.rack.asked:
            found = {
                "id": _output_id(item),
                "type": "tool_search_output",
                "status": "completed",
                "execution": "server",
                "call_id": None,
                "tools": found_entries(wares),
            }
            shown = [self._search_call(item, {"paths": paths}), found]
        return Outcome(shown, [sent, result], answered=True)

    def _found(self, call: Call) -> tuple[list[Ware], str]:
        """The tools that a search finds, and what the model is told if it finds none.

        Who names a namespace gets all of it.
        """
        queries = _queries(call)
        groups = [query for query in queries if query in self.rack.groups]
        members = [id for group in groups for id in self.rack.groups[group]]
        self.desk.load(members)
        held = self.rack.shelf.held
        wares = [held[id] for id in members]
        rest = [query for query in queries if query not in groups]
        if groups and not rest:
            return wares, ""
        arguments = {**(call.arguments or {}), "query": None, "queries": rest}
        (answer,) = self.desk.turn([Call(call.id, call.name, arguments)], self.rounds).answers
        found = [held[tool.id] for tool in answer.found if tool.id not in members]
        return [*wares, *found], answer.text

    def _checked(self, item: Item) -> Outcome:
        """A call of a tool that was not shown: it goes through if the arguments fit."""
        (call,) = calls_from_wire({"output": [item]})
        ware = self.rack.shelf.ware(call.name)
        assert ware is not None, "only a tool that is held back is checked"
        if ware.sent.get("type") == "mcp":
            self.desk.load([ware.tool.id])
            return Outcome([], [item, output(call.id, told([ware]))], answered=True)
        turn = self.desk.turn([call], self.rounds)
        if turn.tasks:
            return Outcome([self.to_client(item)], [item], waits=True)
        return Outcome([], [item, output(call.id, turn.answers[0].text)], answered=True)

    def _search_call(self, item: Item, arguments: Item) -> Item:
        id = text(item.get("call_id"))
        client = self.rack.client is not None
        return {
            "id": search_item_id(id),
            "type": "tool_search_call",
            "status": "completed",
            "execution": "client" if client else "server",
            "call_id": id if client else None,
            "arguments": arguments,
        }

    def _go_on(self, done: _Round) -> None:
        """Ask again, with what was answered. A conversation at the upstream has the rest already."""
        if self._given.get("conversation"):
            self._input = done.results
        else:
            self._input = [*_as_items(self._input), *done.sent]

    def _keep(self, response: Item, done: _Round, alias: str = "") -> None:
        """Remember what the next request needs that only names this response."""
        id = text(response.get("id"))
        kept: Item = {"id": id, "loaded": self.desk.revealed, "brought": self._reader.brought}
        if done.waits and done.answered:
            kept["outputs"] = done.results
        if alias:
            kept["outputs"] = (self._responses.get(id) or {}).get("outputs", ())
        if id and (alias or any(kept[name] for name in kept if name != "id")):
            self._responses.put(kept, alias or id)


class _Round:
    """What one reply of the upstream came to."""

    def __init__(self) -> None:
        self.sent: list[Item] = []
        self.waits = False
        self.answered = False

    def add(self, outcome: Outcome) -> None:
        self.sent += outcome.sent
        self.waits = self.waits or outcome.waits
        self.answered = self.answered or outcome.answered

    @property
    def results(self) -> list[Item]:
        """Our answers alone, without what they answer."""
        return [one for one in self.sent if one.get("type") == "function_call_output"]


def _queries(call: Call) -> list[str]:
    """What a call of the search tool asks for, each once."""
    arguments = call.arguments or {}
    several = (arguments.get(name) for name in ("queries", "paths"))
    listed = [one for many in several for one in (many if isinstance(many, list) else [many])]
    said = (one.strip() for one in (arguments.get("query"), *listed) if isinstance(one, str))
    return list(dict.fromkeys(filter(None, said)))


def _output_id(item: Item) -> str:
    """An id that is as unique as the call's, and no other's."""
    id = text(item.get("call_id")).encode("utf-8", "surrogatepass")
    return f"tso_{hashlib.blake2b(id, digest_size=24).hexdigest()}"


def _as_items(input: object) -> list[Item]:
    if isinstance(input, str):
        return [{"type": "message", "role": "user", "content": input}]
    return list(objects(input))
