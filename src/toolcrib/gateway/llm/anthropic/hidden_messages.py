"""Messages that the client does not see, put back at their place in its history.

A client sees one reply where the model has searched in between. The messages behind that reply are
stored with what identifies it, and replace it when the client sends it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from toolcrib.adapters.plain_json import dict_or_empty, dicts_or_empty, str_or_empty
from toolcrib.gateway.llm.conversation_memory import ReplyMemory
from toolcrib.gateway.llm.tools.tool_index import ToolIndex
from toolcrib.gateway.llm.tools.tool_selection import ToolSelection

Message = dict[str, Any]

_THINKING: Final = ("thinking", "redacted_thinking")


def message_anchor(content: object) -> tuple[object, ...]:
    """Return what identifies a reply of the model when the client sends it back.

    That is its text and its calls. Clients move cache breakpoints, drop thinking and join texts.
    """
    blocks = _as_blocks(content)
    text = "".join(str_or_empty(block.get("text")) for block in blocks if block.get("type") == "text")
    calls = [
        [block.get("id"), block.get("name"), block.get("input")] for block in blocks if block.get("type") == "tool_use"
    ]
    return text, calls


def message_context(messages: Iterable[Any]) -> list[object]:
    """Return what identifies the client's messages after the last reply of the model.

    Results of tools are identified by their calls, because clients shorten old results.
    """
    context: list[object] = []
    for message in map(dict_or_empty, messages):
        if message.get("role") == "assistant":
            context = []
            continue
        for block in _as_blocks(message.get("content")):
            if block.get("type") == "tool_result":
                context.append([block.get("tool_use_id")])
            elif block.get("type") == "text":
                context.append(block.get("text"))
    return context


def restore_hidden_messages(messages: Sequence[Any], memory: ReplyMemory) -> list[Any]:
    """Return the messages with those that were hidden from the client and are remembered."""
    restored: list[Any] = []
    # Results of hidden searches that belong to the same message as the results of the client.
    results: Sequence[Message] = ()
    start = 0
    for number, message in enumerate(messages):
        content = dict_or_empty(message).get("content")
        if dict_or_empty(message).get("role") != "assistant":
            restored.append({**message, "content": [*results, *_as_blocks(content)]} if results else message)
            results = ()
            continue
        hidden = memory.recall(message_context(messages[start:number]), *message_anchor(content))
        start = number
        if hidden is None:
            restored.append(message)
            continue
        adapted = _adapt_hidden(hidden, _as_blocks(content))
        if adapted[-1]["role"] == "user":
            results = adapted.pop()["content"]
        restored += adapted
    return [*restored, {"role": "user", "content": results}] if results else restored


def _adapt_hidden(hidden: Sequence[Message], client_blocks: Sequence[Message]) -> list[Message]:
    """Return stored messages with the cache breakpoint of the reply that they replace.

    They have no thinking if the client has dropped it from the reply.
    """
    has_thinking = any(block.get("type") in _THINKING for block in client_blocks)
    adapted = [
        {
            **message,
            "content": [block for block in message["content"] if has_thinking or block["type"] not in _THINKING],
        }
        for message in hidden
    ]
    marks = [block["cache_control"] for block in client_blocks if block.get("cache_control") is not None]
    last = next(message["content"] for message in reversed(adapted) if message["role"] == "assistant")
    if marks and last and last[-1]["type"] not in _THINKING:
        last[-1] = {**last[-1], "cache_control": marks[-1]}
    return adapted


def wrap_calls(message: Any, index: ToolIndex) -> Any:
    """Return a message with calls of deferred tools as calls of `call_tool`, in dispatch style."""
    content = dict_or_empty(message).get("content")
    if not index.is_dispatch or not isinstance(content, list):
        return message
    return {**message, "content": [_wrap_call(block, index) for block in content]}


def add_prefetched(message: Any, selection: ToolSelection) -> Any:
    """Return a message of the user with the definitions that it certainly needs."""
    blocks = _as_blocks(dict_or_empty(message).get("content"))
    if dict_or_empty(message).get("role") != "user" or not blocks or blocks[-1].get("type") != "text":
        return message
    text = selection.prefetch(str_or_empty(blocks[-1].get("text")))
    return {**message, "content": [*blocks, {"type": "text", "text": text}]} if text else message


def _wrap_call(block: Any, index: ToolIndex) -> Any:
    if dict_or_empty(block).get("type") != "tool_use":
        return block
    wrapped = index.wrap_call(str(block.get("name")), block.get("input"))
    return block if wrapped is None else {**block, "name": index.call_tool.name, "input": wrapped}


def _as_blocks(content: object) -> Sequence[Message]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else dicts_or_empty(content)
