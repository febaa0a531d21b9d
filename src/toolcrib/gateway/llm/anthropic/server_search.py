"""Tool search as Anthropic's API does it, for an upstream that has none.

All state is in blocks as the client sees them. Every round converts the client's history and the
blocks of this reply by the same rules. So the next request, which sends all of it back, starts with
the same bytes and the prompt cache of the upstream stays valid.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolcrib.adapters.plain_json import dict_or_empty
from toolcrib.config.settings import LlmSearchRanking
from toolcrib.gateway.llm.anthropic.history import (
    SEARCH_RESULT,
    add_cache_breakpoints,
    find_pending_searches,
    is_search_use,
    iter_blocks,
    make_server_id,
    render_plain_messages,
    strip_server_prefix,
)
from toolcrib.gateway.llm.anthropic.rewriter import Body, MessagesRewriter
from toolcrib.gateway.llm.anthropic.tools import MessagesToolIndex, MessagesTools
from toolcrib.gateway.llm.endpoint import Treatment
from toolcrib.gateway.llm.tools.tool_index import shorten_description
from toolcrib.profiles.claude import DEFAULT_LIMIT, REGEX, VARIANTS, ClaudeToolSearch, referenced_tool_names

MAX_SEARCHES_PER_ROUND: Final = 8
DIRECT_CALLER: Final = {"type": "direct"}
TOO_MANY_SEARCHES: Final = "at most {limit} searches at once; search again for the rest"
UNAVAILABLE: Final = "the search failed; try it in other words"

_PUNCTUATION = re.compile(r"[\W_]+")
_log = logging.getLogger(__name__)


class ServerSearchRewriter(MessagesRewriter):
    """One request with searches that the client sees as those of the API."""

    treatment: Treatment = "search"
    shows_searches = True
    index: MessagesToolIndex

    def __init__(
        self, body: Body, tools: MessagesTools, index: MessagesToolIndex, ranking: LlmSearchRanking, max_rounds: int
    ) -> None:
        super().__init__(body, index, max_rounds)
        self._tools = tools
        self._ranking = ranking
        self._used_ids = {
            str(block.get("id")) for _, _, block in iter_blocks(body.get("messages")) if is_search_use(block)
        }
        self._answered_ids: list[str] = []
        self._breakpoints = _count_breakpoints(body)

    @property
    def revealed_ids(self) -> list[str]:
        return [name for name in self._revealed_names() if name in self.index.deferred]

    @property
    def sent_entries(self) -> list[Any]:
        """The tools that the model is sent."""
        return self._tools.select_entries(self._revealed_names())

    def next_request(self) -> Body:
        messages = render_plain_messages(self._messages(), self._describe)
        if self._breakpoints and self._answered_ids:
            messages = add_cache_breakpoints(messages, self._answered_ids, self._breakpoints)
        request = {**self._body, "messages": messages}
        if "tools" in request:
            request["tools"] = self.sent_entries
        choice = dict_or_empty(self._body.get("tool_choice"))
        if self.rounds and self.is_search(str(choice.get("name"))):
            # The model has searched. If it had to search again, the loop would not end.
            rest = {key: value for key, value in choice.items() if key != "name"}
            request["tool_choice"] = {**rest, "type": "auto"}
        return request

    def is_search(self, name: str) -> bool:
        return name in self._tools.search_names

    def convert_block(self, block: Mapping[str, Any]) -> Body:
        """Return a call of a search tool as a server tool use, and any other call with a caller."""
        if block.get("type") != "tool_use":
            return dict(block)
        name = str(block.get("name"))
        if not self.is_search(name):
            return {"caller": dict(DIRECT_CALLER), **block}
        id = make_server_id(str(block.get("id")), self._used_ids)
        self._used_ids.add(id)
        return {
            "type": "server_tool_use",
            "id": id,
            "name": name,
            "input": block.get("input", {}),
            "caller": block.get("caller", dict(DIRECT_CALLER)),
        }

    def list_pending_searches(self) -> list[Body]:
        """Return the searches in the client's history that have no result yet."""
        return list(find_pending_searches(self._body).values())

    def run_searches(self, calls: Sequence[Body]) -> list[Body]:
        return [
            {"type": SEARCH_RESULT, "tool_use_id": call["id"], "content": self._run_search(call, number)}
            for number, call in enumerate(calls)
        ]

    def append_round(self, blocks: Sequence[Body], results: Sequence[Body]) -> None:
        """Record which searches were answered; the blocks are in `content`."""
        self._answered_ids += [strip_server_prefix(result["tool_use_id"]) for result in results]

    def stop_reason(self) -> str | None:
        """Return `pause_turn` after the last round, which asks the client to continue."""
        return "pause_turn" if self.rounds >= self._max_rounds else None

    def _revealed_names(self) -> list[str]:
        names = referenced_tool_names({"messages": self._messages()})
        choice = dict_or_empty(self._body.get("tool_choice"))
        if choice.get("type") == "tool":
            names.append(str(choice.get("name")))
        return list(dict.fromkeys(names))

    def _messages(self) -> list[Any]:
        """Return the client's messages and the content of this reply."""
        client_messages = self._body.get("messages")
        messages = list(client_messages) if isinstance(client_messages, list) else []
        if not self.content:
            return messages
        last = messages[-1] if messages else None
        if isinstance(last, dict) and last.get("role") == "assistant" and isinstance(last.get("content"), list):
            return [*messages[:-1], {**last, "content": [*last["content"], *self.content]}]
        return [*messages, {"role": "assistant", "content": self.content}]

    def _describe(self, name: str) -> str:
        indexed = self.index.tools.get(name)
        return shorten_description(indexed.tool.description) if indexed else ""

    def _run_search(self, call: Mapping[str, Any], number: int) -> dict[str, Any]:
        if number >= MAX_SEARCHES_PER_ROUND:
            text = TOO_MANY_SEARCHES.format(limit=MAX_SEARCHES_PER_ROUND)
            return _search_error("too_many_requests", text)
        try:
            return self._search(str(call.get("name")), dict_or_empty(call.get("input")))
        except Exception:
            # The model can continue without this search.
            _log.exception("a search failed")
            return _search_error("unavailable", UNAVAILABLE)

    def _search(self, name: str, input: Mapping[str, Any]) -> dict[str, Any]:
        variant = VARIANTS[name]
        # The older name of the pattern would be refused when the client sends this call back.
        input = {key: value for key, value in input.items() if key in (variant.keys[0], "limit")}
        search = self.index.claude_search
        if variant.name != REGEX:
            if self._ranking != "exact":
                search = ClaudeToolSearch((), lexical_search=self.index.find_best)
            return search.search(name, input)
        result = search.search(name, input)
        if self._ranking == "hybrid" and "tool_references" in result:
            limit = input.get("limit") or DEFAULT_LIMIT
            query = _PUNCTUATION.sub(" ", input["pattern"]).strip()
            others = self.index.find_best(query, limit) if query else []
            found = (reference["tool_name"] for reference in result["tool_references"])
            names = list(dict.fromkeys([*found, *(tool.name for tool in others)]))[:limit]
            result["tool_references"] = [{"type": "tool_reference", "tool_name": name} for name in names]
        return result


def _search_error(code: str, message: str) -> dict[str, Any]:
    return {"type": "tool_search_tool_result_error", "error_code": code, "error_message": message}


def _count_breakpoints(body: Mapping[str, Any]) -> int:
    """Return the number of cache breakpoints of a request."""

    def count(value: object, depth: int) -> int:
        if isinstance(value, list):
            return sum([count(item, depth) for item in value])
        if not isinstance(value, dict) or depth > 3:
            return 0
        content = value.get("content")
        return (value.get("cache_control") is not None) + (count(content, depth + 1) if content else 0)

    return (
        count(body.get("tools"), 3)
        + count(body.get("system"), 3)
        + count(body.get("messages"), 0)
        + (body.get("cache_control") is not None)
    )
