"""The messages of a chat completion: what the client was not shown put back, references spelled out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from toolcrib.adapters.openai_chat import references, turns_from_wire
from toolcrib.adapters.plain_json import objects, text
from toolcrib.core import prompts
from toolcrib.gateway.llm.conversation_memory import Recall
from toolcrib.gateway.llm.tool_index import Shelf
from toolcrib.session.session import Act

Message = dict[str, Any]


def has_references(messages: Sequence[Message]) -> bool:
    """Whether the client loads tools itself."""
    return any(one.get("role") == "tool" and references(one.get("content")) for one in messages)


def opening(messages: Sequence[Message]) -> object:
    """What the messages of one conversation have in common: how it began, and on what terms."""
    begun: list[object] = []
    for message in messages:
        role = message.get("role")
        if role in ("system", "developer", "user"):
            begun += [role, message.get("content")]
        if role == "user":
            break
    return begun


def restored(messages: Sequence[Message], recall: Recall) -> list[Message]:
    """The messages with those that the client was not shown, as far as they are remembered."""
    whole: list[Message] = []
    for message in messages:
        hidden = recall.get(*anchor(message)) if message.get("role") == "assistant" else None
        whole.extend([message] if hidden is None else hidden)
    return whole


def anchor(message: Message) -> tuple[object, ...]:
    """What identifies a message of the model when the client sends it back."""
    calls = [
        [call.get("id"), function.get("name"), function.get("arguments")]
        for call in objects(message.get("tool_calls"))
        for function in objects([call.get("function")])
    ]
    content = message.get("content")
    words = "".join(text(part.get("text")) for part in objects(content)) or text(content)
    return "chat", words, calls


def spelled_out(messages: Sequence[Message], shelf: Shelf) -> list[Message]:
    """The messages with references as text, which every model takes."""
    return [_spelled_out(message, shelf) for message in messages]


def acts(messages: Sequence[Message], shelf: Shelf) -> Iterator[tuple[Act, ...]]:
    """What the model and the client did: searches, calls, and references by the client."""
    turns = turns_from_wire(messages)
    for exchanges, done in zip(turns, shelf.conversation.acts(turns), strict=True):
        yield tuple(
            Act(act.kind, (*act.names, *exchange.names))
            for exchange, act in zip(exchanges, done, strict=True)
        )


def _spelled_out(message: Message, shelf: Shelf) -> Message:
    names = references(message.get("content")) if message.get("role") == "tool" else []
    if not names:
        return message
    known = [name for name in names if name in shelf.wares]
    found = {"found": [{"name": name} for name in known]}
    says = prompts.LOADED if known else prompts.NOTHING_FOUND
    told = json.dumps({**found, "message": says}, ensure_ascii=False, separators=(",", ":"))
    others = [one for one in objects(message["content"]) if one.get("type") != "tool_reference"]
    words = [text(one.get("text")) for one in others]
    return {**message, "content": "\n".join(filter(None, [*words, told]))}
