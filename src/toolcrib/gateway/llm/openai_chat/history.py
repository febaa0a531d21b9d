"""The messages of a chat completion: restore hidden messages and render references to tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from toolcrib.adapters.openai_chat import referenced_tool_names, turns_from_wire
from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.gateway.llm.conversation_memory import ScopedMemory
from toolcrib.gateway.llm.tool_index import ToolIndex, render_loaded_tools
from toolcrib.session.session import ModelAction

Message = dict[str, Any]


def has_references(messages: Sequence[Message]) -> bool:
    """Return whether the client loads tools itself, with `tool_reference` parts."""
    return any(map(_referenced_names, messages))


def conversation_opening(messages: Sequence[Message]) -> object:
    """Return what all requests of a conversation start with, up to the first user message."""
    opening: list[object] = []
    for message in messages:
        role = message.get("role")
        if role in ("system", "developer", "user"):
            opening += [role, message.get("content")]
        if role == "user":
            break
    return opening


def restore_hidden_messages(messages: Sequence[Message], memory: ScopedMemory) -> list[Message]:
    """Return the messages with those that were hidden from the client and are remembered."""
    restored: list[Message] = []
    for message in messages:
        is_reply = message.get("role") == "assistant"
        hidden = memory.get(*message_anchor(message)) if is_reply else None
        restored.extend([message] if hidden is None else hidden)
    return restored


def message_anchor(message: Message) -> tuple[object, ...]:
    """Return what identifies a message of the model when the client sends it back."""
    calls = [
        [call.get("id"), function.get("name"), function.get("arguments")]
        for call in dicts_or_empty(message.get("tool_calls"))
        for function in dicts_or_empty([call.get("function")])
    ]
    content = message.get("content")
    parts = (str_or_empty(part.get("text")) for part in dicts_or_empty(content))
    return "".join(parts) or str_or_empty(content), calls


def render_references(messages: Sequence[Message], index: ToolIndex) -> list[Message]:
    """Return the messages with references to tools as text."""
    return [_render_message_references(message, index) for message in messages]


def list_actions(
    messages: Sequence[Message], index: ToolIndex
) -> Iterator[tuple[ModelAction, ...]]:
    """Yield the searches and calls of each turn, with the tools that the client has loaded."""
    turns = turns_from_wire(messages)
    for calls, actions in zip(turns, index.turn_handler.actions_from_history(turns), strict=True):
        yield tuple(
            ModelAction(action.type, (*action.names, *call.names))
            for call, action in zip(calls, actions, strict=True)
        )


def _referenced_names(message: Message) -> list[str]:
    is_result = message.get("role") == "tool"
    return referenced_tool_names(message.get("content")) if is_result else []


def _render_message_references(message: Message, index: ToolIndex) -> Message:
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
