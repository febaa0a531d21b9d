"""One chat completion over all its rounds: what to send to the upstream, and what its replies mean.

See `stream` for replies that are streamed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from toolcrib.adapters.openai_chat import answers_to_wire, calls_from_wire, tools_to_wire, turns_from_wire
from toolcrib.adapters.plain_json import (
    dict_or_empty,
    dicts_or_empty,
    join_texts,
    parse_arguments,
    referenced_tool_names,
    str_or_empty,
)
from toolcrib.gateway.llm.conversation_memory import ReplyMemory, ScopedMemory, strip_formatting
from toolcrib.gateway.llm.endpoint import Treatment
from toolcrib.gateway.llm.search_loop import RequestRewriter
from toolcrib.gateway.llm.tools.tool_index import Entry, ToolIndex, render_loaded_tools
from toolcrib.gateway.llm.tools.tool_selection import ToolSelection
from toolcrib.session.session import ModelAction
from toolcrib.session.turn import ToolTask

Message = dict[str, Any]

# Separates the texts of two rounds.
PARAGRAPH_BREAK: Final = "\n\n"
# The texts of a message, which are joined over the rounds.
TEXT_FIELDS: Final = ("content", "refusal", "reasoning_content", "reasoning")


class ChatRewriter(RequestRewriter):
    """One request and its rounds."""

    def __init__(
        self,
        body: Message,
        index: ToolIndex,
        memory: ScopedMemory,
        max_rounds: int,
        treatment: Treatment = "transparent",
    ) -> None:
        super().__init__(body, index, max_rounds)
        self.treatment = treatment
        client_messages = dicts_or_empty(body.get("messages"))
        self._memory = ReplyMemory(memory.narrow("chat"))
        self._context = message_context(client_messages)
        messages = restore_hidden_messages(client_messages, self._memory)
        self._selection = ToolSelection(index)
        if index.is_dispatch:
            self._selection.replay_calls(turns_from_wire(messages))
        else:
            self._selection.replay_history(list_actions(messages, index))
        # The tool that the model has to call has to be sent.
        self._selection.reveal([get_function_name(dict_or_empty(body.get("tool_choice")))])
        self._messages = [
            self._selection.add_prefetched(_wrap_calls(_render_references(message, index), index), "text")
            for message in messages
        ]
        self._hidden: list[Message] = []
        self._texts: Message = {}

    def next_request(self) -> Message:
        # In dispatch style the list of tools never changes.
        may_search = self.index.is_dispatch or self.rounds < self._max_rounds
        own_tools = tools_to_wire(self.index.own_tools) if may_search else []
        tools = [*self.index.always_sent, *own_tools, *self._selection.wire_entries]
        body = {**self._body, "messages": [*self._messages, *self._hidden], "tools": tools}
        if not tools:
            for field in ("tools", "tool_choice", "parallel_tool_calls"):
                body.pop(field, None)
        return body

    def is_intercepted(self, name: str) -> bool:
        """Return whether the gateway handles a call: a search, or a call of a tool that is not listed."""
        return self._selection.is_intercepted(name)

    def may_be_visible(self, name: str) -> bool:
        """Return whether the client may get a call that the gateway handles."""
        return self.is_intercepted(name) and not self._is_search(name)

    def has_searches(self, reply: Message) -> bool:
        message = _get_message(reply)
        return message is not None and self.has_intercepted_calls(message)

    def has_intercepted_calls(self, message: Message) -> bool:
        """Return whether a message has calls that the gateway handles."""
        calls = dicts_or_empty(message.get("tool_calls"))
        return any(self.is_intercepted(get_function_name(call)) for call in calls)

    def handle_reply(self, reply: Message) -> Message | None:
        self.add_usage(reply.get("usage"))
        message = _get_message(reply)
        if message is None:
            return reply
        (choice,) = dicts_or_empty(reply["choices"])
        reason = choice.get("finish_reason")
        visible = self.handle_message(message, reason)
        if visible is None:
            return None
        changes = {"message": visible, "finish_reason": visible_finish_reason(visible, reason)}
        usage = {} if self.usage is None else {"usage": self.usage}
        return {**reply, "choices": [{**choice, **changes}], **usage}

    def handle_message(self, message: Message, reason: object) -> Message | None:
        """Run the searches of a message, which may take long.

        Return the message for the client, or None if the upstream has to be asked again.
        """
        self._collect_texts(message)
        calls = dicts_or_empty(message.get("tool_calls"))
        intercepted = [call for call in calls if self.is_intercepted(get_function_name(call))]
        if not intercepted or reason in ("length", "content_filter"):
            # A message that was cut off may have incomplete calls.
            return self._finish(message, exclude_objects(calls, intercepted))
        is_last = self.rounds >= self._max_rounds
        tool_calls = calls_from_wire({"tool_calls": intercepted})
        replies, tasks = self.answer_calls(tool_calls)
        replied = {id(reply.call) for reply in replies}
        pairs = list(zip(intercepted, tool_calls, strict=True))
        answered = [call for call, tool_call in pairs if id(tool_call) in replied]
        by_call = {id(call): tasks.get(id(tool_call)) for call, tool_call in pairs}
        visible = [self._render_call(call, by_call.get(id(call))) for call in exclude_objects(calls, answered)]
        results = answers_to_wire(replies)
        if visible or is_last:
            return self._finish(message, visible, results)
        self._hidden += [{"role": "assistant", **message}, *results]
        return None

    def _render_call(self, call: Message, task: ToolTask | None) -> Message:
        """Return a call of `call_tool` as a call of the client's tool; another call is unchanged."""
        name = self.index.tools[task.tool.id].wire_name if task else ""
        if task is None or get_function_name(call) == name:
            return call
        arguments = json.dumps(task.arguments, ensure_ascii=False)
        return {**call, "function": {**call["function"], "name": name, "arguments": arguments}}

    def _is_search(self, name: str) -> bool:
        return self.index.offers_search and name == self.index.search_tool.name

    def _collect_texts(self, message: Message) -> None:
        """Record the texts of a round, which the client gets with the last round."""
        for field in TEXT_FIELDS:
            text = message.get(field)
            if isinstance(text, str) and text:
                before = self._texts.get(field)
                self._texts[field] = f"{before}{PARAGRAPH_BREAK}{text}" if before else text

    def _finish(self, message: Message, visible_calls: Sequence[Entry], results: Sequence[Message] = ()) -> Message:
        """Return the message for the client, and remember what is hidden from it."""
        visible = {**message, **self._texts}
        visible.pop("tool_calls", None)
        if visible_calls:
            visible["tool_calls"] = list(visible_calls)
        is_hidden = bool(self._hidden or results)
        hidden = [*self._hidden, {"role": "assistant", **message}, *results] if is_hidden else []
        self._memory.remember(hidden, self._context, *message_anchor(visible))
        return visible


def has_references(messages: Sequence[Message]) -> bool:
    """Return whether the client loads tools itself, with `tool_reference` parts."""
    return any(map(_referenced_names, messages))


def message_context(messages: Iterable[Message]) -> list[object]:
    """Return what identifies the client's messages after the last reply of the model.

    Results of tools are identified by their calls, because clients shorten old results.
    """
    context: list[object] = []
    for message in messages:
        role, call_id = message.get("role"), message.get("tool_call_id")
        if role == "assistant":
            context = []
        elif role not in ("system", "developer"):
            context.append(_content_text(message.get("content")) if call_id is None else [call_id])
    return context


def restore_hidden_messages(messages: Sequence[Message], memory: ReplyMemory) -> list[Message]:
    """Return the messages with those that were hidden from the client and are remembered."""
    restored: list[Message] = []
    start = 0
    for number, message in enumerate(messages):
        hidden = None
        if message.get("role") == "assistant":
            hidden = memory.recall(message_context(messages[start:number]), *message_anchor(message))
            start = number
        restored.extend([message] if hidden is None else hidden)
    return restored


def message_anchor(message: Message) -> tuple[object, ...]:
    """Return what identifies a message of the model when the client sends it back."""
    calls = [
        [call.get("id"), function.get("name"), strip_formatting(function.get("arguments"))]
        for call in dicts_or_empty(message.get("tool_calls"))
        for function in dicts_or_empty([call.get("function")])
    ]
    return _content_text(message.get("content")), calls


def _content_text(content: object) -> str:
    """Return the text of a content, so that a text and a list with this text are equal."""
    return join_texts(content) or str_or_empty(content)


def _wrap_calls(message: Message, index: ToolIndex) -> Message:
    """Return a message with calls of deferred tools as calls of `call_tool`, in dispatch style."""
    calls = message.get("tool_calls")
    if not index.is_dispatch or not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [_wrap_call(call, index) for call in calls]}


def _wrap_call(call: Any, index: ToolIndex) -> Any:
    function = dict_or_empty(dict_or_empty(call).get("function"))
    text = function.get("arguments")
    arguments = parse_arguments(text)
    wrapped = index.wrap_call(str_or_empty(function.get("name")), text if arguments is None else arguments)
    if wrapped is None:
        return call
    changes = {"name": index.call_tool.name, "arguments": json.dumps(wrapped, ensure_ascii=False)}
    return {**call, "function": {**function, **changes}}


def list_actions(messages: Sequence[Message], index: ToolIndex) -> Iterator[tuple[ModelAction, ...]]:
    """Yield the searches and calls of each turn, with the tools that the client has loaded."""
    turns = turns_from_wire(messages)
    for calls, actions in zip(turns, index.turn_handler.actions_from_history(turns), strict=True):
        yield tuple(
            ModelAction(action.type, (*action.names, *call.names)) for call, action in zip(calls, actions, strict=True)
        )


def _referenced_names(message: Message) -> list[str]:
    is_result = message.get("role") == "tool"
    return referenced_tool_names(message.get("content")) if is_result else []


def _render_references(message: Message, index: ToolIndex) -> Message:
    """Return a message with references to tools as text."""
    names = _referenced_names(message)
    if not names:
        return message
    known = [{"name": name} for name in names if name in index.tools]
    texts = [
        str_or_empty(part.get("text"))
        for part in dicts_or_empty(message["content"])
        if part.get("type") != "tool_reference"
    ]
    texts.append(render_loaded_tools(known))
    return {**message, "content": "\n".join(filter(None, texts))}


def visible_finish_reason(message: Message, reason: object) -> object:
    """Return the finish reason that fits the message for the client."""
    if reason in ("tool_calls", "stop"):
        return "tool_calls" if message.get("tool_calls") else "stop"
    return reason


def exclude_objects(items: Sequence[Message], excluded: Sequence[Message]) -> list[Message]:
    """Return the items without the excluded ones, by identity: two calls may be equal."""
    return [item for item in items if not any(item is other for other in excluded)]


def _get_message(reply: Message) -> Message | None:
    choices = dicts_or_empty(reply.get("choices"))
    message = choices[0].get("message") if len(choices) == 1 else None
    return message if isinstance(message, dict) else None


def get_function_name(entry: Entry) -> str:
    """Return the name of the function of a call or a definition, or an empty string."""
    return str_or_empty(dict_or_empty(entry.get("function")).get("name"))
