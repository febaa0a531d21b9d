"""Items that a client was not shown, put back where they were when it sends the others again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.gateway.llm.conversation_memory import ScopedMemory
from toolcrib.gateway.llm.json_body import serialize_json

Item = dict[str, Any]


def conversation_opening(input: object, instructions: object = None) -> object:
    """What the requests of one conversation have in common: how it began, and on what terms."""
    if isinstance(input, str):
        return [instructions, "user", input]
    begun = [instructions]
    for item in dicts_or_empty(input):
        role = item.get("role")
        if role in ("system", "developer", "user"):
            begun += [role, _content_text(item.get("content"))]
        if role == "user":
            break
    return begun


def _content_text(content: object) -> object:
    """A text and a list with this one text in it are the same to everybody."""
    return "".join(str_or_empty(part.get("text")) for part in dicts_or_empty(content)) or content


def item_anchor(item: Item) -> tuple[object, ...] | None:
    """What identifies an item of the model when the client sends it back; None if nothing does."""
    kind = item.get("type", "message")
    if kind in ("function_call", "custom_tool_call"):
        sent = item.get("arguments", item.get("input"))
        return kind, item.get("call_id"), item.get("name"), sent
    if kind == "reasoning":
        return (kind, item["id"]) if item.get("id") else None
    if kind == "message" and item.get("role") == "assistant":
        content = item.get("content")
        return kind, "".join(
            str_or_empty(part.get("text")) for part in dicts_or_empty(content)
        ) or content
    return None


class HiddenItems:
    """What is not shown of one answer, and between which of the items that are."""

    def __init__(self) -> None:
        self._waiting: list[Item] = []
        self._anchored: list[tuple[tuple[object, ...], list[Item]]] = []
        self._last: tuple[object, ...] | None = None

    def add_hidden(self, items: Iterable[Item]) -> None:
        """These come next, and are not shown."""
        self._waiting += items

    def add_visible(self, item: Item) -> None:
        """This comes next, and is shown."""
        place = item_anchor(item)
        if place is None:
            return
        if self._waiting:
            self._anchored.append((place, list(self._waiting)))
        if item.get("type") != "reasoning":
            # Not everybody sends reasoning back, so what stands before it is kept there twice.
            self._waiting = []
            self._last = place

    def remember(self, recall: ScopedMemory) -> None:
        """Remember it for the next request."""
        for place, items in self._anchored:
            if place == self._last:
                items += self._waiting
                self._waiting = []
            recall.put(items, *place)
        if self._waiting and self._last is not None:
            recall.put(self._waiting, *self._last)


def restore_hidden_items(items: Sequence[Item], recall: ScopedMemory) -> list[Item]:
    """The items with those that the client was not shown, as far as they are remembered."""
    whole: list[Item] = []
    known: set[bytes] = set()
    for item in items:
        place = item_anchor(item)
        for hidden in (recall.get(*place) if place else None) or ():
            # Not by its call's id: not every upstream gives one.
            identity = serialize_json(hidden)
            if identity not in known:
                known.add(identity)
                whole.append(hidden)
        whole.append(item)
    return whole


def drop_orphaned_reasoning(items: Sequence[Item]) -> list[Item]:
    """The items without reasoning that led to something which is no longer there."""
    later = [*items[1:], {}]
    return [
        one
        for one, following in zip(items, later, strict=False)
        if not (one.get("type") == "reasoning" == following.get("type"))
    ]
