"""Convert a history with searches for a model that does not know tool search.

A search of the API becomes a call of an ordinary tool and its result; a reference to a tool becomes
text. The same block always becomes the same bytes, so the prompt cache of the upstream stays valid.
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
# Returns the entry of a tool by name, if the request has one.
Describe = Callable[[str], Mapping[str, Any] | None]

_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(slots=True)
class _PlainMessage:
    """A converted message. `is_added` is true if the client has sent no such message."""

    original: Mapping[str, Any]
    blocks: list[Any]
    is_added: bool = False

    @property
    def role(self) -> object:
        return self.original.get("role")


def render_plain_messages(messages: object, describe: Describe) -> Any:
    """Return the messages for an upstream without tool search."""
    if not isinstance(messages, list):
        return messages
    plain: list[Any] = []
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), list):
            _append_unchanged(plain, message)
        elif message.get("role") == "assistant":
            _append_assistant(plain, message, describe)
        else:
            _append_user(plain, message, describe)
    return [
        {**message.original, "content": message.blocks}
        if isinstance(message, _PlainMessage)
        else message
        for message in plain
    ]


def is_search_use(block: object) -> bool:
    """Return whether a block is a search of the API."""
    return (
        isinstance(block, Mapping)
        and block.get("type") == "server_tool_use"
        and str(block.get("name")) in VARIANTS
    )


def is_search_result(block: object) -> bool:
    """Return whether a block is the result of a search of the API."""
    return isinstance(block, Mapping) and block.get("type") == SEARCH_RESULT


def make_server_id(id: str, used: Collection[str] = ()) -> str:
    """Return an unused id for a search of the API, made from the id of the model's call.

    Some upstreams use other forms of ids, or the same id in every turn.
    """
    if id.startswith(CLIENT_ID) and f"srv{id}" not in used:
        return f"srv{id}"
    number = 0
    while True:
        digest = hashlib.blake2b(f"{number} {id}".encode(), digest_size=16).digest()
        server_id = f"{SERVER_ID}01{_to_base62(int.from_bytes(digest, 'big'))}"
        if server_id not in used:
            return server_id
        number += 1


def strip_server_prefix(id: object) -> str:
    """Return the id of a search as an ordinary call."""
    return str(id).removeprefix("srv")


def iter_search_uses(messages: object) -> Iterator[Block]:
    """Yield every search of the API in a history."""
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, Mapping) else None
        yield from filter(is_search_use, content if isinstance(content, list) else ())


def add_cache_breakpoints(messages: list[Any], ids: Collection[str], used: int) -> list[Any]:
    """Return messages with cache breakpoints on the last results of these calls.

    `used` is the number of breakpoints that the request has already; the API allows four.
    """
    left = MAX_BREAKPOINTS - used
    marked = list(messages)
    for at in range(len(marked) - 1, -1, -1):
        content = marked[at].get("content") if isinstance(marked[at], Mapping) else None
        if not isinstance(content, list):
            continue
        blocks = list(content)
        for place in range(len(blocks) - 1, -1, -1):
            block = blocks[place]
            if left > 0 and isinstance(block, Mapping) and block.get("tool_use_id") in ids:
                blocks[place] = {"cache_control": BREAKPOINT, **block}
                left -= 1
        marked[at] = {**marked[at], "content": blocks}
    return marked


def _append_unchanged(plain: list[Any], message: Any) -> None:
    last = plain[-1] if plain else None
    text = message.get("content") if isinstance(message, Mapping) else None
    if (
        isinstance(last, _PlainMessage)
        and last.is_added
        and isinstance(text, str)
        and message.get("role") == "user"
    ):
        # Some upstreams refuse two user messages in a row.
        last.blocks.append({"type": "text", "text": text})
        return
    plain.append(message)


def _append_assistant(plain: list[Any], message: Mapping[str, Any], describe: Describe) -> None:
    current: _PlainMessage | None = None
    for block in message["content"]:
        if is_search_result(block):
            # The result becomes a user message, together with the results of other calls.
            _get_result_message(plain).blocks.append(_render_search_result(block, describe))
            current = None
            continue
        if current is None:
            current = _PlainMessage(message, [])
            plain.append(current)
        current.blocks.append(_convert_assistant_block(block))
    if not message["content"]:
        plain.append(message)


def _get_result_message(plain: list[Any]) -> _PlainMessage:
    """Return the user message for results: the last message, or a new one."""
    last = plain[-1] if plain else None
    if isinstance(last, _PlainMessage) and last.role == "user":
        return last
    new = _PlainMessage({"role": "user"}, [], is_added=True)
    plain.append(new)
    return new


def _append_user(plain: list[Any], message: Mapping[str, Any], describe: Describe) -> None:
    blocks = [_convert_user_block(block, describe) for block in message["content"]]
    last = plain[-1] if plain else None
    if isinstance(last, _PlainMessage) and last.is_added and message.get("role") == "user":
        last.blocks += blocks
        return
    plain.append(_PlainMessage(message, blocks))


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
        str(reference.get("tool_name"))
        for reference in (references if isinstance(references, list) else ())
        if isinstance(reference, Mapping)
    ]
    answer = {
        "found": [
            {"name": name, "description": _get_description(name, describe)} for name in names
        ],
        "message": prompts.TOOLS_LOADED if names else prompts.NO_MATCH,
    }
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    return {**result, "content": text, **_get_cache_control(block)}


def _get_description(name: str, describe: Describe) -> str:
    entry = describe(name)
    text = entry.get("description") if entry else None
    if not isinstance(text, str):
        return ""
    return text if len(text) <= DESCRIPTION_CHARS else f"{text[: DESCRIPTION_CHARS - 1]}…"


def _get_cache_control(block: Block) -> dict[str, Any]:
    value = block.get("cache_control")
    return {} if value is None else {"cache_control": value}


def _to_base62(number: int, count: int = 22) -> str:
    digits = ""
    for _ in range(count):
        number, digit = divmod(number, len(_DIGITS))
        digits += _DIGITS[digit]
    return digits
