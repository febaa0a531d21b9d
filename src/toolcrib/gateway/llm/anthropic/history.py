"""Convert a history with searches for a model that does not know tool search, and put hidden searches back.

A search of the API becomes a call of an ordinary tool and its result; a reference to a tool becomes
text. The same block always becomes the same bytes, so the prompt cache of the upstream stays valid.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard

from toolcrib.adapters.plain_json import dict_or_empty, dicts_or_empty, str_or_empty
from toolcrib.core import prompts
from toolcrib.gateway.llm.conversation_memory import ReplyMemory
from toolcrib.gateway.llm.tools.tool_index import ToolIndex, render_loaded_tools
from toolcrib.gateway.llm.tools.tool_selection import ToolSelection
from toolcrib.profiles.claude import VARIANTS

SERVER_ID: Final = "srvtoolu_"
CLIENT_ID: Final = "toolu_"
SEARCH_RESULT: Final = "tool_search_tool_result"
MAX_BREAKPOINTS: Final = 4
BREAKPOINT: Final = {"type": "ephemeral"}

Block = dict[str, Any]
Message = dict[str, Any]
# Returns the short description of a tool by name; empty if the request has no such tool.
Describe = Callable[[str], str]

_ID_DIGITS: Final = 22
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_THINKING: Final = ("thinking", "redacted_thinking")


def render_plain_messages(messages: object, describe: Describe) -> Any:
    """Return the messages for an upstream without tool search."""
    if not isinstance(messages, list):
        return messages
    history = _PlainHistory(describe)
    for message in messages:
        history.add(message)
    return history.messages


def iter_blocks(messages: object) -> Iterator[tuple[int, int, Block]]:
    """Yield every block of a history with the indexes of its message and of itself."""
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for place, block in enumerate(content if isinstance(content, list) else ()):
            if isinstance(block, dict):
                yield at, place, block


def is_search_use(block: object) -> TypeGuard[Block]:
    """Return whether a block is a search of the API."""
    if not isinstance(block, dict) or block.get("type") != "server_tool_use":
        return False
    return str(block.get("name")) in VARIANTS


def is_search_result(block: object) -> TypeGuard[Block]:
    """Return whether a block is the result of a search of the API."""
    return isinstance(block, dict) and block.get("type") == SEARCH_RESULT


def is_reference(part: object) -> TypeGuard[Block]:
    """Return whether a part of a result is a reference to a tool."""
    return isinstance(part, dict) and part.get("type") == "tool_reference"


def find_pending_searches(body: Mapping[str, Any]) -> dict[str, Block]:
    """Return the searches without a result by id; the next response has to start with them."""
    pending: dict[str, Block] = {}
    for _, _, block in iter_blocks(body.get("messages")):
        if is_search_use(block):
            pending[str(block.get("id"))] = block
        elif is_search_result(block):
            pending.pop(str(block.get("tool_use_id")), None)
    return pending


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


def add_cache_breakpoints(messages: list[Any], ids: Collection[str], used: int) -> list[Any]:
    """Return messages with cache breakpoints on the last results of these calls.

    `used` is the number of breakpoints that the request has already; the API allows four.
    """
    left = MAX_BREAKPOINTS - used
    results = [(at, place) for at, place, block in iter_blocks(messages) if block.get("tool_use_id") in ids]
    marked = list(messages)
    for at, place in results[-left:] if left > 0 else ():
        blocks = list(marked[at]["content"])
        blocks[place] = {"cache_control": BREAKPOINT, **blocks[place]}
        marked[at] = {**marked[at], "content": blocks}
    return marked


class _PlainHistory:
    """The converted messages so far."""

    def __init__(self, describe: Describe) -> None:
        self.messages: list[Any] = []
        self._describe = describe
        # The last message if its content is a list, and whether the client has sent no such message.
        self._last: Block | None = None
        self._is_added = False

    def add(self, message: Any) -> None:
        """Convert a message and append it."""
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list | str):
            self._append_unchanged(message)
        elif message.get("role") == "user" and self._is_added and self._last is not None:
            # Some upstreams refuse two user messages in a row.
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            self._last["content"] += map(self._convert_user_block, blocks)
        elif isinstance(content, str):
            self._append_unchanged(message)
        elif message.get("role") == "assistant":
            self._add_assistant(message)
        else:
            self._append(message, list(map(self._convert_user_block, content)))

    def _add_assistant(self, message: Block) -> None:
        """Append a message of the model, split at each search result."""
        if not message["content"]:
            self._append_unchanged(message)
        blocks: list[Any] | None = None
        for block in message["content"]:
            if is_search_result(block):
                self._result_blocks().append(self._convert_search_result(block))
                blocks = None
                continue
            if blocks is None:
                blocks = []
                self._append(message, blocks)
            blocks.append(_convert_assistant_block(block))

    def _result_blocks(self) -> list[Any]:
        """Return the blocks of the user message for results: the last message, or a new one."""
        if self._last is None or self._last.get("role") != "user":
            self._append({"role": "user"}, [], is_added=True)
        assert self._last is not None
        blocks: list[Any] = self._last["content"]
        return blocks

    def _append(self, message: Block, blocks: list[Any], is_added: bool = False) -> None:
        self._last = {**message, "content": blocks}
        self._is_added = is_added
        self.messages.append(self._last)

    def _append_unchanged(self, message: Any) -> None:
        self._last, self._is_added = None, False
        self.messages.append(message)

    def _convert_user_block(self, block: Any) -> Any:
        content = block.get("content") if isinstance(block, dict) else None
        if not isinstance(content, list) or block.get("type") != "tool_result":
            return block
        if not any(map(is_reference, content)):
            return block
        return {**block, "content": list(map(self._convert_reference, content))}

    def _convert_reference(self, part: Any) -> Any:
        if not is_reference(part):
            return part
        name = str(part.get("tool_name"))
        text = prompts.REFERENCE.format(name=name, description=self._describe(name)).rstrip()
        return {"type": "text", "text": text, **_get_cache_control(part)}

    def _convert_search_result(self, block: Block) -> Block:
        content = dict_or_empty(block.get("content"))
        result: Block = {"type": "tool_result", "tool_use_id": strip_server_prefix(block.get("tool_use_id"))}
        if content.get("type") == "tool_search_tool_result_error":
            reason = content.get("error_message") or content.get("error_code")
            return {**result, "content": str(reason), "is_error": True, **_get_cache_control(block)}
        references = dicts_or_empty(content.get("tool_references"))
        names = [str(reference.get("tool_name")) for reference in references]
        found = [{"name": name, "description": self._describe(name)} for name in names]
        return {**result, "content": render_loaded_tools(found), **_get_cache_control(block)}


def _convert_assistant_block(block: Any) -> Any:
    if is_search_use(block):
        return {
            "type": "tool_use",
            "id": strip_server_prefix(block.get("id")),
            "name": block.get("name"),
            "input": block.get("input", {}),
            **_get_cache_control(block),
        }
    is_direct = dict_or_empty(dict_or_empty(block).get("caller")).get("type") == "direct"
    if is_direct and block.get("type") == "tool_use":
        return {key: value for key, value in block.items() if key != "caller"}
    return block


def _get_cache_control(block: Block) -> Block:
    value = block.get("cache_control")
    return {} if value is None else {"cache_control": value}


def _to_base62(number: int) -> str:
    digits = ""
    for _ in range(_ID_DIGITS):
        number, digit = divmod(number, len(_DIGITS))
        digits += _DIGITS[digit]
    return digits


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
    """Return a message of the user with the prefetched definitions."""
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
