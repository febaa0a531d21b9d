"""Items that are hidden from the client, and restored when it sends the visible items back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.gateway.llm.conversation_memory import ScopedMemory
from toolcrib.gateway.llm.json_body import serialize_json

Item = dict[str, Any]


def conversation_opening(input: object, instructions: object = None) -> object:
    """Return what all requests of a conversation start with, up to the first user message."""
    if isinstance(input, str):
        return [instructions, "user", input]
    opening = [instructions]
    for item in dicts_or_empty(input):
        role = item.get("role")
        if role in ("system", "developer", "user"):
            opening += [role, _content_text(item.get("content"))]
        if role == "user":
            break
    return opening


def item_anchor(item: Item) -> tuple[object, ...] | None:
    """Return what identifies an item of the model when the client sends it back, or None."""
    type = item.get("type", "message")
    if type in ("function_call", "custom_tool_call"):
        arguments = item.get("arguments", item.get("input"))
        return type, item.get("call_id"), item.get("name"), arguments
    if type == "reasoning":
        return (type, item["id"]) if item.get("id") else None
    if type == "message" and item.get("role") == "assistant":
        return type, _content_text(item.get("content"))
    return None


def _content_text(content: object) -> object:
    """Return the text of a content, so that a text and a list with this text are equal."""
    parts = (str_or_empty(part.get("text")) for part in dicts_or_empty(content))
    return "".join(parts) or content


class HiddenItems:
    """The hidden items of one reply, and the visible items that they precede."""

    def __init__(self) -> None:
        self._pending: list[Item] = []
        self._anchored: list[tuple[tuple[object, ...], list[Item]]] = []
        self._last: tuple[object, ...] | None = None

    def add_hidden(self, items: Iterable[Item]) -> None:
        """Add items that the client does not see."""
        self._pending += items

    def add_visible(self, item: Item) -> None:
        """Add an item that the client sees."""
        anchor = item_anchor(item)
        if anchor is None:
            return
        if self._pending:
            self._anchored.append((anchor, list(self._pending)))
        if item.get("type") != "reasoning":
            # Some clients do not send reasoning back, so what precedes it is also stored with the
            # next item.
            self._pending = []
            self._last = anchor

    def remember(self, memory: ScopedMemory) -> None:
        """Store the hidden items for the next request."""
        for anchor, items in self._anchored:
            if anchor == self._last:
                items += self._pending
                self._pending = []
            memory.put(items, *anchor)
        if self._pending and self._last is not None:
            memory.put(self._pending, *self._last)


def restore_hidden_items(items: Sequence[Item], memory: ScopedMemory) -> list[Item]:
    """Return the items with those that were hidden from the client and are remembered."""
    restored: list[Item] = []
    seen: set[bytes] = set()
    for item in items:
        anchor = item_anchor(item)
        for hidden in (memory.get(*anchor) if anchor else None) or ():
            # Compared by content, because some upstreams send no call ids.
            content = serialize_json(hidden)
            if content not in seen:
                seen.add(content)
                restored.append(hidden)
        restored.append(item)
    return restored


def drop_orphaned_reasoning(items: Sequence[Item]) -> list[Item]:
    """Return the items without reasoning that is followed by other reasoning.

    The item that belongs to it is missing, and OpenAI refuses such a history.
    """
    following = [*items[1:], {}]
    return [
        item
        for item, after in zip(items, following, strict=False)
        if not (item.get("type") == "reasoning" == after.get("type"))
    ]
