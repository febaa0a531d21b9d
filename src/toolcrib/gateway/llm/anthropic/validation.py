"""What the API refuses about a request with tool search in it, in the API's words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from toolcrib.core import prompts
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.anthropic.history import (
    SEARCH_RESULT,
    SERVER_ID,
    is_search_result,
    is_search_use,
)
from toolcrib.gateway.llm.anthropic.tools import MessagesTools, list_mcp_members
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.profiles.claude import (
    VARIANTS,
    RequestRefusal,
    find_refusal,
    is_search_tool,
    referenced_tool_names,
)

MAX_TOOLS_BYTES: Final = 4 << 20
LIMIT_CODE: Final = "available_tools_limit_exceeded"

NOT_UNIQUE: Final = "tools: Tool names must be unique."
BAD_NAME: Final = "tools.{place}.custom.name: String should match pattern '{pattern}'"
BAD_SEARCH_NAME: Final = "tools.{place}.{type}.name: Input should be '{name}'"
TOO_MANY: Final = "{count:,} tools have defer_loading; the limit is {most:,}"
TOO_LARGE: Final = "the tools in the prompt take {size:,} bytes; the limit is {most:,}"
ORPHAN: Final = (
    "messages.{at}.content.{place}: unexpected `tool_use_id` found in `{kind}` blocks: {id}. "
    "Each `{kind}` block must have a corresponding `server_tool_use` block before it."
)
DANGLING: Final = (
    "`{name}` tool use with id `{id}` was found without a corresponding `{kind}` block"
)
DROPPED: Final = " but no `{name}` tool was provided"
ANSWERED: Final = (
    "messages.{at}.content.{place}: `tool_result` is for client tools; `{id}` is the id of a "
    "server tool, whose result the API makes itself"
)
MIXED: Final = (
    "messages.{at}.content.{place}: `tool_reference` blocks cannot be mixed with other blocks in "
    "one `tool_result`; put text into blocks after all results"
)
WRONG_KEY: Final = (
    "messages.{at}.content.{place}.server_tool_use.input: `{name}` takes `{key}`, which is missing"
)

_STALE: Final = {"type": "text", "text": prompts.STALE_REFERENCES}
# As long as the names that MCP clients send.
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def check_request(body: Mapping[str, Any], listing: MessagesTools, max_tools: int) -> None:
    """Raise what the API would answer with, if it would refuse the request."""
    refused = find_refusal(body) or next(_find_problems(body, listing, max_tools), None)
    if refused is not None:
        raise RequestFailed(refused.message, code=refused.code)


def drop_stale_references(body: Mapping[str, Any], listing: MessagesTools) -> dict[str, Any]:
    """The request without references to tools that it does not have any more."""
    known = {str(entry.get("name")) for entry in listing.searchable}
    if all(name in known for name in referenced_tool_names(body)):
        return dict(body)
    messages = [
        {**message, "content": [_prune_references(block, known) for block in message["content"]]}
        if isinstance(message, Mapping) and isinstance(message.get("content"), list)
        else message
        for message in body["messages"]
    ]
    return {**body, "messages": messages}


def list_pending_searches(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The searches that the next response has to answer first, as they had to wait."""
    return list(_searches_without_result(body).values())


def _find_problems(
    body: Mapping[str, Any], listing: MessagesTools, max_tools: int
) -> Iterator[RequestRefusal]:
    yield from _find_tool_problems(listing, max_tools)
    yield from _find_history_problems(body, listing)
    waiting = _searches_without_result(body)
    if waiting and not _is_continuation(body):
        for block in waiting.values():
            yield _refuse_dangling(block, listing)
    for block in waiting.values():
        if str(block.get("name")) not in listing.search_names:
            yield _refuse_dangling(block, listing)


def _find_tool_problems(listing: MessagesTools, max_tools: int) -> Iterator[RequestRefusal]:
    names: list[str] = []
    for place, entry in enumerate(listing.entries):
        if not isinstance(entry, Mapping):
            continue
        if is_search_tool(entry):
            variant = VARIANTS[str(entry["type"])]
            if entry.get("name") != variant.name:
                yield RequestRefusal(
                    BAD_SEARCH_NAME.format(place=place, type=entry["type"], name=variant.name)
                )
        name = entry.get("name")
        if isinstance(name, str):
            names.append(name)
        if str(name) in listing.deferred and not _NAME.fullmatch(str(name)):
            yield RequestRefusal(BAD_NAME.format(place=place, pattern=f"^{_NAME.pattern}$"))
    if len(names) != len(set(names)):
        yield RequestRefusal(NOT_UNIQUE)
    held = len(listing.deferred) + sum(
        member.is_deferred
        for entry in listing.entries
        if isinstance(entry, Mapping)
        for member in list_mcp_members(entry)
    )
    if held > max_tools:
        yield RequestRefusal(TOO_MANY.format(count=held, most=max_tools), LIMIT_CODE)


def check_size(tools: list[Any]) -> None:
    """Raise, if the tools that the model is to be shown are too large."""
    size = len(serialize_json(tools))
    if size > MAX_TOOLS_BYTES:
        raise RequestFailed(TOO_LARGE.format(size=size, most=MAX_TOOLS_BYTES), code=LIMIT_CODE)


def _find_history_problems(
    body: Mapping[str, Any], listing: MessagesTools
) -> Iterator[RequestRefusal]:
    uses: dict[str, Mapping[str, Any]] = {}
    for at, place, block in _iter_blocks(body):
        where = {"at": at, "place": place}
        if is_search_use(block):
            uses[str(block.get("id"))] = block
        elif is_search_result(block):
            id = str(block.get("tool_use_id"))
            if id not in uses:
                yield RequestRefusal(ORPHAN.format(kind=SEARCH_RESULT, id=id, **where))
            elif _is_successful(block):
                yield from _find_wrong_key(uses[id], where)
        elif block.get("type") == "tool_result":
            id = str(block.get("tool_use_id"))
            if id.startswith(SERVER_ID):
                yield RequestRefusal(ANSWERED.format(id=id, **where))
            content = block.get("content")
            kinds = [
                isinstance(part, Mapping) and part.get("type") == "tool_reference"
                for part in (content if isinstance(content, list) else ())
            ]
            if any(kinds) and not all(kinds):
                yield RequestRefusal(MIXED.format(**where))


def _find_wrong_key(use: Mapping[str, Any], where: Mapping[str, int]) -> Iterator[RequestRefusal]:
    variant = VARIANTS[str(use.get("name"))]
    key, sent = variant.keys[0], use.get("input")
    if not isinstance(sent, Mapping) or key not in sent:
        yield RequestRefusal(WRONG_KEY.format(name=variant.name, key=key, **where))


def _is_successful(block: Mapping[str, Any]) -> bool:
    content = block.get("content")
    return isinstance(content, Mapping) and content.get("type") == "tool_search_tool_search_result"


def _refuse_dangling(block: Mapping[str, Any], listing: MessagesTools) -> RequestRefusal:
    name = str(block.get("name"))
    text = DANGLING.format(name=name, id=block.get("id"), kind=SEARCH_RESULT)
    return RequestRefusal(
        text if name in listing.search_names else text + DROPPED.format(name=name)
    )


def _searches_without_result(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The searches of a history without a result, by their ids."""
    found: dict[str, Mapping[str, Any]] = {}
    for _, _, block in _iter_blocks(body):
        if is_search_use(block):
            found[str(block.get("id"))] = block
        elif is_search_result(block):
            found.pop(str(block.get("tool_use_id")), None)
    return found


def _is_continuation(body: Mapping[str, Any]) -> bool:
    """Whether the turn goes on in which the last searches were made.

    That is so at the end of the history, or if nothing but results of client tools follows.
    """
    messages = body["messages"]
    last = messages[-1]
    if _contains_all_pending(body, messages[-1:]):
        return True
    content = last.get("content") if isinstance(last, Mapping) else None
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(one, Mapping) and one.get("type") == "tool_result" for one in content)
        and _contains_all_pending(body, messages[-2:-1])
    )


def _contains_all_pending(body: Mapping[str, Any], messages: list[Any]) -> bool:
    """Whether all searches without a result are in these messages."""
    there = {str(block.get("id")) for _, _, block in _iter_blocks({"messages": messages})}
    return _searches_without_result(body).keys() <= there


def _iter_blocks(body: Mapping[str, Any]) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Every block of a history with its message's number and its own."""
    messages = body.get("messages")
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, Mapping) else None
        for place, block in enumerate(content if isinstance(content, list) else ()):
            if isinstance(block, Mapping):
                yield at, place, block


def _prune_references(block: Any, known: set[str]) -> Any:
    """A block without its references to unknown tools."""
    if not isinstance(block, Mapping):
        return block
    content = block.get("content")
    if is_search_result(block) and isinstance(content, Mapping):
        references = content.get("tool_references")
        kept = [one for one in _as_list(references) if _is_known(one, known)]
        return {**block, "content": {**content, "tool_references": kept}}
    if block.get("type") == "tool_result" and isinstance(content, list):
        kept = [one for one in content if _is_known(one, known)]
        # The API refuses a result without anything in it.
        return {**block, "content": kept or [_STALE]}
    return block


def _is_known(one: Any, known: set[str]) -> bool:
    if not isinstance(one, Mapping) or one.get("type") != "tool_reference":
        return True
    return str(one.get("tool_name")) in known


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
