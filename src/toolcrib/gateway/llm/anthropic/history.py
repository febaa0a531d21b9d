"""A history with searches in it, as a model is told it that knows nothing of tool search.

A search of the API becomes a call of an ordinary tool and its result, a reference to a tool becomes
words about it. The same block always becomes the same bytes, so what an upstream has cached stays
as it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolcrib.core import prompts
from toolcrib.profiles.claude import VARIANTS

SERVER_ID: Final = "srvtoolu_"
CLIENT_ID: Final = "toolu_"
SEARCH_RESULT: Final = "tool_search_tool_result"
DESCRIPTION_CHARS: Final = 200
MAX_BREAKPOINTS: Final = 4
BREAKPOINT: Final = {"type": "ephemeral"}

Block = Mapping[str, Any]
# What is known of a tool, by its name: the entry of the request, if there is one.
Describe = Callable[[str], Mapping[str, Any] | None]

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(slots=True)
class _PlainMessage:
    """A message that is being put together; `ours` if the client sent none like it."""

    original: Mapping[str, Any]
    blocks: list[Any]
    is_added: bool = False

    @property
    def role(self) -> object:
        return self.original.get("role")


def render_plain_messages(messages: object, describe: Describe) -> Any:
    """The messages for an upstream that knows nothing of tool search."""
    if not isinstance(messages, list):
        return messages
    told: list[Any] = []
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), list):
            _append_unchanged(told, message)
        elif message.get("role") == "assistant":
            _append_assistant(told, message, describe)
        else:
            _append_user(told, message, describe)
    return [
        {**one.original, "content": one.blocks} if isinstance(one, _PlainMessage) else one
        for one in told
    ]


def is_search_use(block: object) -> bool:
    """Whether a block is a search of the API's."""
    return (
        isinstance(block, Mapping)
        and block.get("type") == "server_tool_use"
        and str(block.get("name")) in VARIANTS
    )


def is_search_result(block: object) -> bool:
    """Whether a block is what such a search found."""
    return isinstance(block, Mapping) and block.get("type") == SEARCH_RESULT


def make_server_id(id: str, taken: Collection[str] = ()) -> str:
    """The id of a search of the API's, made of that of the model's call; none that is taken.

    Not every upstream makes ids of this form, nor ids that differ from turn to turn.
    """
    if id.startswith(CLIENT_ID) and f"srv{id}" not in taken:
        return f"srv{id}"
    number = 0
    while True:
        digest = hashlib.blake2b(f"{number} {id}".encode(), digest_size=16).digest()
        made = f"{SERVER_ID}01{_to_base62(int.from_bytes(digest, 'big'))}"
        if made not in taken:
            return made
        number += 1


def strip_server_prefix(id: object) -> str:
    """The id under which a search is told to a model as an ordinary call."""
    return str(id).removeprefix("srv")


def iter_search_uses(messages: object) -> Iterator[Block]:
    """Every search of the API's in a history."""
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, Mapping) else None
        yield from filter(is_search_use, content if isinstance(content, list) else ())


def add_cache_breakpoints(messages: list[Any], results: Collection[str], used: int) -> list[Any]:
    """With a cache breakpoint on the results of these calls, the last ones first, while any are left."""
    left = MAX_BREAKPOINTS - used
    marked = list(messages)
    for place in range(len(marked) - 1, -1, -1):
        content = marked[place].get("content") if isinstance(marked[place], Mapping) else None
        if not isinstance(content, list):
            continue
        blocks = list(content)
        for at in range(len(blocks) - 1, -1, -1):
            block = blocks[at]
            if left > 0 and isinstance(block, Mapping) and block.get("tool_use_id") in results:
                blocks[at] = {"cache_control": BREAKPOINT, **block}
                left -= 1
        marked[place] = {**marked[place], "content": blocks}
    return marked


def _append_unchanged(told: list[Any], message: Any) -> None:
    last = told[-1] if told else None
    text = message.get("content") if isinstance(message, Mapping) else None
    if (
        isinstance(last, _PlainMessage)
        and last.is_added
        and isinstance(text, str)
        and message.get("role") == "user"
    ):
        # Not every upstream takes two messages of a user after one another.
        last.blocks.append({"type": "text", "text": text})
        return
    told.append(message)


def _append_assistant(told: list[Any], message: Mapping[str, Any], describe: Describe) -> None:
    current: _PlainMessage | None = None
    for block in message["content"]:
        if is_search_result(block):
            # The model asked, so it is told; a search that had to wait for other results joins them.
            _get_result_message(told).blocks.append(_render_search_result(block, describe))
            current = None
            continue
        if current is None:
            current = _PlainMessage(message, [])
            told.append(current)
        current.blocks.append(_convert_assistant_block(block))
    if not message["content"]:
        told.append(message)


def _get_result_message(told: list[Any]) -> _PlainMessage:
    """The message that results go into: before what a user says besides."""
    last = told[-1] if told else None
    if isinstance(last, _PlainMessage) and last.role == "user":
        return last
    new = _PlainMessage({"role": "user"}, [], is_added=True)
    told.append(new)
    return new


def _append_user(told: list[Any], message: Mapping[str, Any], describe: Describe) -> None:
    blocks = [_convert_user_block(block, describe) for block in message["content"]]
    last = told[-1] if told else None
    if isinstance(last, _PlainMessage) and last.is_added and message.get("role") == "user":
        last.blocks += blocks
        return
    told.append(_PlainMessage(message, blocks))


def _convert_assistant_block(block: Any) -> Any:
    if is_search_use(block):
        return {
            "type": "tool_use",
            "id": strip_server_prefix(block.get("id")),
            "name": block.get("name"),
            "input": block.get("input", {}),
            **_get_cache_control(block),
        }
    if isinstance(block, Mapping) and block.get("type") == "tool_use":
        caller = block.get("caller")
        if isinstance(caller, Mapping) and caller.get("type") == "direct":
            return {key: value for key, value in block.items() if key != "caller"}
    return block


def _convert_user_block(block: Any, describe: Describe) -> Any:
    if not isinstance(block, Mapping) or block.get("type") != "tool_result":
        return block
    content = block.get("content")
    if not isinstance(content, list) or not any(map(_is_reference, content)):
        return block
    parts = [_render_reference(part, describe) if _is_reference(part) else part for part in content]
    return {**block, "content": parts}


def _is_reference(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "tool_reference"


def _render_reference(part: Block, describe: Describe) -> dict[str, Any]:
    name = str(part.get("tool_name"))
    text = prompts.REFERENCE.format(
        name=name, description=_get_description(name, describe)
    ).rstrip()
    return {"type": "text", "text": text, **_get_cache_control(part)}


def _render_search_result(block: Block, describe: Describe) -> dict[str, Any]:
    content = block.get("content")
    content = content if isinstance(content, Mapping) else {}
    result: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": strip_server_prefix(block.get("tool_use_id")),
    }
    if content.get("type") == "tool_search_tool_result_error":
        reason = content.get("error_message") or content.get("error_code")
        return {**result, "content": str(reason), "is_error": True, **_get_cache_control(block)}
    references = content.get("tool_references")
    names = [
        str(one.get("tool_name"))
        for one in (references if isinstance(references, list) else ())
        if isinstance(one, Mapping)
    ]
    told = {
        "found": [
            {"name": name, "description": _get_description(name, describe)} for name in names
        ],
        "message": prompts.TOOLS_LOADED if names else prompts.NO_MATCH,
    }
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    return {**result, "content": text, **_get_cache_control(block)}


def _get_description(name: str, describe: Describe) -> str:
    entry = describe(name)
    about = entry.get("description") if entry else None
    if not isinstance(about, str):
        return ""
    return about if len(about) <= DESCRIPTION_CHARS else f"{about[: DESCRIPTION_CHARS - 1]}…"


def _get_cache_control(block: Block) -> dict[str, Any]:
    value = block.get("cache_control")
    return {} if value is None else {"cache_control": value}


def _to_base62(number: int, count: int = 22) -> str:
    digits = ""
    for _ in range(count):
        number, digit = divmod(number, len(_DIGITS))
        digits += _DIGITS[digit]
    return digits
