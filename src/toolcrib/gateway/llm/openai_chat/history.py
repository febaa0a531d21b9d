"""The messages of a chat completion: what the client was not shown put back, references spelled out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from toolcrib.adapters.openai_chat import referenced_tool_names, turns_from_wire
from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.core import prompts
from toolcrib.gateway.llm.conversation_memory import ScopedMemory
from toolcrib.gateway.llm.tool_index import ToolIndex
from toolcrib.session.session import ModelAction

Message = dict[str, Any]


def has_references(messages: Sequence[Message]) -> bool:
    """Whether the client loads tools itself."""
    return any(
        one.get("role") == "tool" and referenced_tool_names(one.get("content")) for one in messages
    )


def conversation_opening(messages: Sequence[Message]) -> object:
    """What the messages of one conversation have in common: how it began, and on what terms."""
    begun: list[object] = []
    for message in messages:
        role = message.get("role")
        if role in ("system", "developer", "user"):
            begun += [role, message.get("content")]
        if role == "user":
            break
    return begun


def restore_hidden_messages(messages: Sequence[Message], recall: ScopedMemory) -> list[Message]:
    """The messages with those that the client was not shown, as far as they are remembered."""
    whole: list[Message] = []
    for message in messages:
        hidden = (
            recall.get(*message_anchor(message)) if message.get("role") == "assistant" else None
        )
        whole.extend([message] if hidden is None else hidden)
    return whole


def message_anchor(message: Message) -> tuple[object, ...]:
    """What identifies a message of the model when the client sends it back."""
    calls = [
        [call.get("id"), function.get("name"), function.get("arguments")]
        for call in dicts_or_empty(message.get("tool_calls"))
        for function in dicts_or_empty([call.get("function")])
    ]
    content = message.get("content")
    words = "".join(
        str_or_empty(part.get("text")) for part in dicts_or_empty(content)
    ) or str_or_empty(content)
    return "chat", words, calls


def render_references(messages: Sequence[Message], shelf: ToolIndex) -> list[Message]:
    """The messages with references as text, which every model takes."""
    return [_render_message_references(message, shelf) for message in messages]


def list_actions(
    messages: Sequence[Message], shelf: ToolIndex
) -> Iterator[tuple[ModelAction, ...]]:
    """What the model and the client did: searches, calls, and references by the client."""
    turns = turns_from_wire(messages)
    for exchanges, done in zip(turns, shelf.turn_handler.actions_from_history(turns), strict=True):
        yield tuple(
            ModelAction(act.type, (*act.names, *exchange.names))
            for exchange, act in zip(exchanges, done, strict=True)
        )


def _render_message_references(message: Message, shelf: ToolIndex) -> Message:
    names = referenced_tool_names(message.get("content")) if message.get("role") == "tool" else []
    if not names:
        return message
    known = [name for name in names if name in shelf.tools]
    found = {"found": [{"name": name} for name in known]}
    says = prompts.TOOLS_LOADED if known else prompts.NO_MATCH
    told = json.dumps({**found, "message": says}, ensure_ascii=False, separators=(",", ":"))
    others = [
        one for one in dicts_or_empty(message["content"]) if one.get("type") != "tool_reference"
    ]
    words = [str_or_empty(one.get("text")) for one in others]
    return {**message, "content": "\n".join(filter(None, [*words, told]))}
