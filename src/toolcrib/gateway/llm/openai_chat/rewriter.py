"""One chat completion through the gateway: what to ask the upstream, and what to make of its replies.

Nothing here is sent or received. `body` is what to ask next; `reply` takes a whole answer. For an
answer that is streamed see `stream`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from toolcrib.adapters.openai_chat import answers_to_wire, calls_from_wire
from toolcrib.adapters.plain_json import objects, text
from toolcrib.gateway.llm.conversation_memory import Recall
from toolcrib.gateway.llm.openai_chat.history import acts, anchor, opening, restored, spelled_out
from toolcrib.gateway.llm.openai_chat.tools import to_entry
from toolcrib.gateway.llm.response_headers import Treatment
from toolcrib.gateway.llm.tool_index import Desk, Entry, Shelf
from toolcrib.gateway.llm.usage import summed

Message = dict[str, Any]

# Between what the model says before a search and what it says after it.
PARAGRAPH: Final = "\n\n"
# Texts that a message may have, and that are put together over the rounds.
TEXTS: Final = ("content", "refusal", "reasoning_content", "reasoning")


class Talk:
    """One request and its rounds."""

    def __init__(
        self,
        body: Message,
        shelf: Shelf,
        recall: Recall,
        max_rounds: int,
        treatment: Treatment = "transparent",
    ) -> None:
        self._given = body
        self.treatment: Treatment = treatment
        given = list(objects(body.get("messages")))
        self._recall = recall.within(opening(given))
        whole = restored(given, self._recall)
        self.shelf = shelf
        self.desk = Desk(shelf)
        self.desk.follow(acts(whole, shelf))
        self.desk.load(_chosen(body.get("tool_choice")))
        self._messages = spelled_out(whole, shelf)
        self._hidden: list[Message] = []
        self._spoken: Message = {}
        self._max_rounds = max_rounds
        self.searches = 0
        self.rounds = 0
        self.usage: Any = None

    def body(self) -> Message:
        """The next request to the upstream."""
        tools = [*self.shelf.front, *self._search, *self.desk.tools]
        body = {**self._given, "messages": [*self._messages, *self._hidden], "tools": tools}
        if not tools:
            for field in ("tools", "tool_choice", "parallel_tool_calls"):
                body.pop(field, None)
        return body

    def is_ours(self, name: str) -> bool:
        """Whether a call is not to be passed on as it comes: a search, or one that we check first."""
        return self._is_search(name) or self.desk.holds_back(name)

    def reply(self, reply: Message) -> Message | None:
        """What the client is answered; None if the upstream is to be asked again."""
        self.spend(reply.get("usage"))
        choices = objects(reply.get("choices"))
        message = choices[0].get("message") if len(choices) == 1 else None
        if not isinstance(message, dict):
            return reply
        reason = choices[0].get("finish_reason")
        shown = self.settle(message, reason)
        if shown is None:
            return None
        choice = {**choices[0], "message": shown, "finish_reason": finish(shown, reason)}
        usage = {} if self.usage is None else {"usage": self.usage}
        return {**reply, "choices": [choice], **usage}

    def spend(self, usage: object) -> None:
        """Count what a round has cost."""
        if usage is not None:
            self.usage = summed(self.usage, usage)

    def settle(self, message: Message, reason: object) -> Message | None:
        """What the client is shown of a message; None if the upstream is to be asked again.

        What is ours in it is answered. This searches, which takes its time.
        """
        self._speak(message)
        given = objects(message.get("tool_calls"))
        ours = [call for call in given if self.is_ours(_name(call))]
        if not ours or reason in ("length", "content_filter"):
            # What broke off asks for nothing that could be known.
            return self._over(message, [call for call in given if not _is_among(call, ours)])
        if self.rounds >= self._max_rounds:
            return self._over(message, [one for one in given if not self._is_search(_name(one))])
        calls = calls_from_wire({"tool_calls": ours})
        turn = self.desk.turn(calls, self.rounds)
        self.rounds += 1
        self.searches += sum(self._is_search(call.name) for call in calls)
        answered = [
            one
            for one, call in zip(ours, calls, strict=True)
            if any(answer.call is call for answer in turn.answers)
        ]
        shown = [call for call in given if not _is_among(call, answered)]
        results = answers_to_wire(turn.answers)
        if shown:
            return self._over(message, shown, results)
        self._hidden += [{"role": "assistant", **message}, *results]
        return None

    @property
    def _search(self) -> list[Entry]:
        offered = self.shelf.searched and self.rounds < self._max_rounds
        return [to_entry(self.shelf.search)] if offered else []

    def _is_search(self, name: str) -> bool:
        return self.shelf.searched and name == self.shelf.search.name

    def _speak(self, message: Message) -> None:
        """Note what is said, which the client is shown whatever becomes of the calls."""
        for field in TEXTS:
            words = message.get(field)
            if isinstance(words, str) and words:
                before = self._spoken.get(field)
                self._spoken[field] = f"{before}{PARAGRAPH}{words}" if before else words

    def _over(
        self, message: Message, shown: Sequence[Entry], results: Sequence[Message] = ()
    ) -> Message:
        visible = {**message, **self._spoken}
        visible.pop("tool_calls", None)
        if shown:
            visible["tool_calls"] = list(shown)
        if self._hidden or results:
            whole = [*self._hidden, {"role": "assistant", **message}, *results]
            self._recall.put(whole, *anchor(visible))
        return visible


def finish(shown: Message, reason: object) -> object:
    """Why a message ends, as far as the client is shown it."""
    if reason in ("tool_calls", "stop"):
        return "tool_calls" if shown.get("tool_calls") else "stop"
    return reason


def _chosen(choice: object) -> list[str]:
    """The tools that the model has to call, which it therefore has to be shown."""
    function = choice.get("function") if isinstance(choice, dict) else None
    return [text(function.get("name"))] if isinstance(function, dict) else []


def _name(call: Entry) -> str:
    function = call.get("function")
    return text(function.get("name")) if isinstance(function, dict) else ""


def _is_among(one: object, others: Sequence[object]) -> bool:
    """Whether this very object is: two calls may be alike."""
    return any(one is other for other in others)
