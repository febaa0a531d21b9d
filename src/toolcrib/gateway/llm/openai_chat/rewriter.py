"""One chat completion through the gateway: what to ask the upstream, and what to make of its replies.

Nothing here is sent or received. `body` is what to ask next; `reply` takes a whole answer. For an
answer that is streamed see `stream`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from toolcrib.adapters.openai_chat import answers_to_wire, calls_from_wire
from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.gateway.llm.conversation_memory import ScopedMemory
from toolcrib.gateway.llm.openai_chat.history import (
    conversation_opening,
    list_actions,
    message_anchor,
    render_references,
    restore_hidden_messages,
)
from toolcrib.gateway.llm.openai_chat.tools import render_entry
from toolcrib.gateway.llm.response_headers import Treatment
from toolcrib.gateway.llm.tool_index import Entry, ToolIndex, ToolSelection
from toolcrib.gateway.llm.usage import add_usage

Message = dict[str, Any]

# Between what the model says before a search and what it says after it.
PARAGRAPH_BREAK: Final = "\n\n"
# Texts that a message may have, and that are put together over the rounds.
TEXT_FIELDS: Final = ("content", "refusal", "reasoning_content", "reasoning")


class ChatRewriter:
    """One request and its rounds."""

    def __init__(
        self,
        body: Message,
        shelf: ToolIndex,
        recall: ScopedMemory,
        max_rounds: int,
        treatment: Treatment = "transparent",
    ) -> None:
        self._given = body
        self.treatment: Treatment = treatment
        given = list(dicts_or_empty(body.get("messages")))
        self._recall = recall.narrow(conversation_opening(given))
        whole = restore_hidden_messages(given, self._recall)
        self.index = shelf
        self.selection = ToolSelection(shelf)
        self.selection.replay_history(list_actions(whole, shelf))
        self.selection.reveal(_forced_tool_names(body.get("tool_choice")))
        self._messages = render_references(whole, shelf)
        self._hidden: list[Message] = []
        self._spoken: Message = {}
        self._max_rounds = max_rounds
        self.searches = 0
        self.rounds = 0
        self.usage: Any = None

    def next_request(self) -> Message:
        """The next request to the upstream."""
        tools = [*self.index.always_sent, *self._search_entries, *self.selection.wire_entries]
        body = {**self._given, "messages": [*self._messages, *self._hidden], "tools": tools}
        if not tools:
            for field in ("tools", "tool_choice", "parallel_tool_calls"):
                body.pop(field, None)
        return body

    def is_intercepted(self, name: str) -> bool:
        """Whether a call is not to be passed on as it comes: a search, or one that we check first."""
        return self._is_search(name) or self.selection.is_unrevealed(name)

    def handle_reply(self, reply: Message) -> Message | None:
        """What the client is answered; None if the upstream is to be asked again."""
        self.add_usage(reply.get("usage"))
        choices = dicts_or_empty(reply.get("choices"))
        message = choices[0].get("message") if len(choices) == 1 else None
        if not isinstance(message, dict):
            return reply
        reason = choices[0].get("finish_reason")
        shown = self.handle_message(message, reason)
        if shown is None:
            return None
        choice = {
            **choices[0],
            "message": shown,
            "finish_reason": visible_finish_reason(shown, reason),
        }
        usage = {} if self.usage is None else {"usage": self.usage}
        return {**reply, "choices": [choice], **usage}

    def add_usage(self, usage: object) -> None:
        """Count what a round has cost."""
        if usage is not None:
            self.usage = add_usage(self.usage, usage)

    def handle_message(self, message: Message, reason: object) -> Message | None:
        """What the client is shown of a message; None if the upstream is to be asked again.

        What is ours in it is answered. This searches, which takes its time.
        """
        self._collect_texts(message)
        given = dicts_or_empty(message.get("tool_calls"))
        ours = [call for call in given if self.is_intercepted(_call_name(call))]
        if not ours or reason in ("length", "content_filter"):
            # What broke off asks for nothing that could be known.
            return self._finish(
                message, [call for call in given if not _contains_object(call, ours)]
            )
        if self.rounds >= self._max_rounds:
            return self._finish(
                message, [one for one in given if not self._is_search(_call_name(one))]
            )
        calls = calls_from_wire({"tool_calls": ours})
        turn = self.selection.handle_calls(calls, self.rounds)
        self.rounds += 1
        self.searches += sum(self._is_search(call.name) for call in calls)
        answered = [
            one
            for one, call in zip(ours, calls, strict=True)
            if any(answer.call is call for answer in turn.answers)
        ]
        shown = [call for call in given if not _contains_object(call, answered)]
        results = answers_to_wire(turn.answers)
        if shown:
            return self._finish(message, shown, results)
        self._hidden += [{"role": "assistant", **message}, *results]
        return None

    @property
    def _search_entries(self) -> list[Entry]:
        offered = self.index.offers_search and self.rounds < self._max_rounds
        return [render_entry(self.index.search_tool)] if offered else []

    def _is_search(self, name: str) -> bool:
        return self.index.offers_search and name == self.index.search_tool.name

    def _collect_texts(self, message: Message) -> None:
        """Note what is said, which the client is shown whatever becomes of the calls."""
        for field in TEXT_FIELDS:
            words = message.get(field)
            if isinstance(words, str) and words:
                before = self._spoken.get(field)
                self._spoken[field] = f"{before}{PARAGRAPH_BREAK}{words}" if before else words

    def _finish(
        self, message: Message, shown: Sequence[Entry], results: Sequence[Message] = ()
    ) -> Message:
        visible = {**message, **self._spoken}
        visible.pop("tool_calls", None)
        if shown:
            visible["tool_calls"] = list(shown)
        if self._hidden or results:
            whole = [*self._hidden, {"role": "assistant", **message}, *results]
            self._recall.put(whole, *message_anchor(visible))
        return visible


def visible_finish_reason(shown: Message, reason: object) -> object:
    """Why a message ends, as far as the client is shown it."""
    if reason in ("tool_calls", "stop"):
        return "tool_calls" if shown.get("tool_calls") else "stop"
    return reason


def _forced_tool_names(choice: object) -> list[str]:
    """The tools that the model has to call, which it therefore has to be shown."""
    function = choice.get("function") if isinstance(choice, dict) else None
    return [str_or_empty(function.get("name"))] if isinstance(function, dict) else []


def _call_name(call: Entry) -> str:
    function = call.get("function")
    return str_or_empty(function.get("name")) if isinstance(function, dict) else ""


def _contains_object(one: object, others: Sequence[object]) -> bool:
    """Whether this very object is: two calls may be alike."""
    return any(one is other for other in others)
