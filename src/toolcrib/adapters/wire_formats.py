"""The wire formats by name. Each format is a module with the functions of a protocol."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, Protocol

from toolcrib.adapters import anthropic, gemini, mcp, openai_chat, openai_responses
from toolcrib.core.calls import CallReply, PastCall, ToolCall
from toolcrib.core.token_count import MAX_CACHED_COUNTS, TokenCounter, count_tokens
from toolcrib.core.tool import Tool
from toolcrib.errors import InvalidConfig, InvalidMessage
from toolcrib.session.disclosure import find_hosting_provider

JsonObjects = list[dict[str, Any]]
# Who searches: Toolcrib, Toolcrib in the format of the provider, or the provider.
SearchMode = Literal["ours", "client", "hosted", "hosted_regex"]
# The option of a session that selects the search mode.
NativeSearch = bool | Literal["client", "auto", "bm25", "regex"]


class WireFormat(Protocol):
    """The conversions of one provider's format."""

    def tools_to_wire(self, tools: Iterable[Tool], /) -> JsonObjects: ...
    def calls_from_wire(self, reply: object, /) -> list[ToolCall]: ...
    def reply_to_messages(self, reply: object, /) -> JsonObjects: ...
    def answers_to_wire(self, answers: Sequence[CallReply], /) -> JsonObjects: ...
    def turns_from_wire(self, messages: Iterable[object], /) -> list[list[PastCall]]: ...


class SearchWireFormat(WireFormat, Protocol):
    """A format with deferred tools, which the provider or Toolcrib searches."""

    def hosted_search_to_wire(self, visible: Iterable[Tool], deferred: Iterable[Tool], /) -> JsonObjects: ...
    def client_search_to_wire(
        self, own_tools: Iterable[Tool], visible: Iterable[Tool], deferred: Iterable[Tool], /
    ) -> JsonObjects: ...
    def client_answers_to_wire(self, answers: Sequence[CallReply], /) -> JsonObjects: ...
    def loaded_names_from_wire(self, reply: object, /) -> list[str]: ...


SEARCH_WIRE_FORMATS: Final[Mapping[str, SearchWireFormat]] = {
    "anthropic": anthropic,
    "openai_responses": openai_responses,
}
_REPLY_KEYS: Final = frozenset({"choices", "content", "output", "candidates", "jsonrpc"})
_MAX_ERROR_CHARS: Final = 300
# The wire formats of the providers that can search.
_HOSTING_FORMATS: Final = {"anthropic": "anthropic", "openai": "openai_responses"}
WIRE_FORMATS: Final[Mapping[str, WireFormat]] = {
    "anthropic": anthropic,
    "openai_chat": openai_chat,
    "openai_responses": openai_responses,
    "gemini": gemini,
    "mcp": mcp,
}


def get_wire_format(name: str) -> WireFormat:
    """Return the wire format with this name."""
    if not isinstance(name, str) or name not in WIRE_FORMATS:
        known = ", ".join(WIRE_FORMATS)
        raise InvalidConfig(f"no wire format {name!r}; the formats are {known}")
    return WIRE_FORMATS[name]


def parse_calls(wire: str, reply: object) -> list[ToolCall]:
    """Return the calls of a reply.

    Raises `InvalidMessage` if it is an error of the provider, or has calls in the format of another provider.
    """
    if isinstance(reply, Mapping) and isinstance(reply.get("error"), Mapping) and _REPLY_KEYS.isdisjoint(reply):
        message = str(reply["error"].get("message", ""))[:_MAX_ERROR_CHARS]
        raise InvalidMessage(f"this is an error of the provider, not a reply: {message}")
    calls = get_wire_format(wire).calls_from_wire(reply)
    for other in () if calls else ("anthropic", "openai_chat", "openai_responses", "gemini"):
        if any(call.id and call.name for call in WIRE_FORMATS[other].calls_from_wire(reply)):
            raise InvalidMessage(
                f"this is a reply in the format {other!r}, not {wire!r}; pass the format of your provider"
            )
    return calls


def select_search_modes(native: object, model: str | None) -> dict[str, SearchMode]:
    """Return who searches, by wire format. Toolcrib does for formats that are not listed."""
    if native == "auto":
        if not isinstance(model, str | None):
            raise InvalidConfig(f"model is the id of a model, such as 'claude-sonnet-5', not {model!r}")
        provider = find_hosting_provider(model or "")
        return {_HOSTING_FORMATS[provider]: "hosted"} if provider else {}
    if native is True or native == "client":
        return dict.fromkeys(_HOSTING_FORMATS.values(), "hosted" if native is True else "client")
    if native in ("bm25", "regex"):
        return {"anthropic": "hosted" if native == "bm25" else "hosted_regex"}
    if native is False:
        return {}
    raise InvalidConfig(f'native is True, False, "auto", "client", "bm25" or "regex", not {native!r}')


@lru_cache(maxsize=MAX_CACHED_COUNTS)
def count_wire_tokens(wire: str, count: TokenCounter, tool: Tool) -> int:
    """Return the tokens of a tool's definition in a request in this format.

    The sum over some tools is at least the tokens of the list of them.
    """
    text = json.dumps(get_wire_format(wire).tools_to_wire([tool]), ensure_ascii=False, separators=(",", ":"))
    # One more for the separator, and for counters that round.
    return count_tokens(text, count) + 1
