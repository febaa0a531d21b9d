"""Tool search as the API itself would do it, for an upstream that cannot.

All state is in blocks as the client sees them: every pass tells the upstream the client's history
and what was added in this response, by the same rules. So the next request, which brings all of it
back, begins with the same bytes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from toolcrib.config.settings import LlmSearchRanking
from toolcrib.core.tool import Tool
from toolcrib.gateway.llm.anthropic.history import (
    SEARCH_RESULT,
    add_cache_breakpoints,
    iter_search_uses,
    make_server_id,
    render_plain_messages,
    strip_server_prefix,
)
from toolcrib.gateway.llm.anthropic.rewriter import Body
from toolcrib.gateway.llm.anthropic.tools import MessagesTools
from toolcrib.gateway.llm.anthropic.validation import list_pending_searches
from toolcrib.gateway.llm.toolset import SearchableTools
from toolcrib.profiles.claude import (
    DEFAULT_LIMIT,
    REGEX,
    VARIANTS,
    ClaudeToolSearch,
    referenced_tool_names,
)

MAX_SEARCHES_PER_ROUND: Final = 8
DIRECT: Final = {"type": "direct"}
TOO_MANY_SEARCHES: Final = "at most {most} searches at once; search again for the rest"
UNAVAILABLE: Final = "the search failed; try it in other words"

_PUNCTUATION = re.compile(r"[\W_]+")
_log = logging.getLogger(__name__)


class ServerSearchRewriter:
    """One response with searches that the client sees as the API's own."""

    shows_searches = True

    def __init__(
        self,
        body: Body,
        listing: MessagesTools,
        toolset: SearchableTools,
        ranking: LlmSearchRanking,
        max_rounds: int,
    ) -> None:
        self._body = body
        self._listing = listing
        self._toolset = toolset
        self._ranking = ranking
        self._max_rounds = max_rounds
        self._content: list[Body] = []
        self._taken = {str(block.get("id")) for block in iter_search_uses(body.get("messages"))}
        self._answered: list[str] = []
        self._rounds = 0
        self._breakpoints = _count_breakpoints(body)
        self._describe = _build_describe(listing)

    @property
    def revealed_entries(self) -> list[Any]:
        """The tools that the model is shown now."""
        return self._select_entries(self._messages())

    def next_request(self) -> Body:
        """The client's request and what was added to it, for an upstream without tool search."""
        history = self._messages()
        messages = render_plain_messages(history, self._describe)
        if self._breakpoints and self._answered:
            messages = add_cache_breakpoints(messages, self._answered, self._breakpoints)
        request = {**self._body, "messages": messages}
        if "tools" in request:
            request["tools"] = self._select_entries(history)
        choice = self._body.get("tool_choice")
        if self._rounds and isinstance(choice, Mapping) and self.is_search(str(choice.get("name"))):
            # It has searched, as it was told to. Told so again it would never end.
            request["tool_choice"] = {**_without_name(choice), "type": "auto"}
        return request

    def is_search(self, name: str) -> bool:
        """Whether a name is that of a search tool of this request."""
        return name in self._listing.search_names

    def convert_block(self, block: Mapping[str, Any]) -> Body:
        """A call of a search tool as the API's own; others with the word of who called."""
        if block.get("type") != "tool_use":
            return dict(block)
        name = str(block.get("name"))
        if not self.is_search(name):
            return {"caller": dict(DIRECT), **block} if "caller" not in block else dict(block)
        id = make_server_id(str(block.get("id")), self._taken)
        self._taken.add(id)
        return {
            "type": "server_tool_use",
            "id": id,
            "name": name,
            "input": block.get("input", {}),
            "caller": block.get("caller", dict(DIRECT)),
        }

    def pending_searches(self) -> list[Body]:
        """The searches that the client's last turn left open."""
        return [dict(block) for block in list_pending_searches(self._body)]

    def run_searches(self, calls: Sequence[Body]) -> list[Body]:
        """The result blocks of these searches."""
        return [
            {
                "type": SEARCH_RESULT,
                "tool_use_id": call["id"],
                "content": self._run_search(call, number),
            }
            for number, call in enumerate(calls)
        ]

    def append_round(self, blocks: Sequence[Body], results: Sequence[Body]) -> None:
        """Go on from what the model said and what was found."""
        self._content += [*blocks, *results]
        self._answered += [strip_server_prefix(result["tool_use_id"]) for result in results]
        if blocks and results:
            self._rounds += 1

    def stop_reason(self) -> str | None:
        """The client is asked to go on after so many rounds."""
        return "pause_turn" if self._rounds >= self._max_rounds else None

    def _select_entries(self, messages: list[Any]) -> list[Any]:
        revealed = referenced_tool_names({"messages": messages})
        choice = self._body.get("tool_choice")
        if isinstance(choice, Mapping) and choice.get("type") == "tool":
            # Who has to call a tool has to see it.
            revealed.append(str(choice.get("name")))
        return self._listing.select_entries(dict.fromkeys(revealed))

    def _messages(self) -> list[Any]:
        sent = self._body.get("messages")
        messages = list(sent) if isinstance(sent, list) else []
        if not self._content:
            return messages
        last = messages[-1] if messages else None
        if (
            isinstance(last, Mapping)
            and last.get("role") == "assistant"
            and isinstance(last.get("content"), list)
        ):
            return [*messages[:-1], {**last, "content": [*last["content"], *self._content]}]
        return [*messages, {"role": "assistant", "content": self._content}]

    def _run_search(self, call: Mapping[str, Any], number: int) -> dict[str, Any]:
        if number >= MAX_SEARCHES_PER_ROUND:
            text = TOO_MANY_SEARCHES.format(most=MAX_SEARCHES_PER_ROUND)
            return _search_error("too_many_requests", text)
        sent = call.get("input")
        try:
            return self._search(str(call.get("name")), sent if isinstance(sent, Mapping) else {})
        except Exception:
            # Whatever it is, the model can still go on without this search.
            _log.exception("a search failed")
            return _search_error("unavailable", UNAVAILABLE)

    def _search(self, name: str, input: Mapping[str, Any]) -> dict[str, Any]:
        variant = VARIANTS[name]
        # The older key of a pattern would be refused when the client sends this call back.
        input = {key: value for key, value in input.items() if key in (variant.keys[0], "limit")}
        by_meaning = self._ranking != "exact"
        if variant.name != REGEX:
            search = (
                ClaudeToolSearch((), lexical_search=self._toolset.find_best)
                if by_meaning
                else self._toolset.anthropic_search
            )
            return search.search(name, input)
        found = self._toolset.anthropic_search.search(name, input)
        if self._ranking == "hybrid" and "tool_references" in found:
            limit = input.get("limit") or DEFAULT_LIMIT
            words = _PUNCTUATION.sub(" ", input["pattern"]).strip()
            others = self._toolset.find_best(words, limit) if words else []
            found["tool_references"] = _merge_references(found["tool_references"], others)[:limit]
        return found


def _merge_references(found: list[dict[str, Any]], others: Sequence[Tool]) -> list[dict[str, Any]]:
    names = dict.fromkeys([*(one["tool_name"] for one in found), *(tool.name for tool in others)])
    return [{"type": "tool_reference", "tool_name": name} for name in names]


def _search_error(code: str, message: str) -> dict[str, Any]:
    return {
        "type": "tool_search_tool_result_error",
        "error_code": code,
        "error_message": message,
    }


def _build_describe(listing: MessagesTools) -> Callable[[str], Mapping[str, Any] | None]:
    known: dict[str, Mapping[str, Any]] = {}

    def describe(name: str) -> Mapping[str, Any] | None:
        if not known:
            known.update((str(entry.get("name")), entry) for entry in listing.searchable)
        return known.get(name)

    return describe


def _count_breakpoints(body: Mapping[str, Any]) -> int:
    """How many cache breakpoints a request has."""

    def count(value: object, depth: int) -> int:
        if isinstance(value, list):
            return sum(count(one, depth) for one in value)
        if not isinstance(value, Mapping) or depth > 3:
            return 0
        own = value.get("cache_control") is not None
        return own + count(value.get("content"), depth + 1)

    return (
        count(body.get("tools"), 3)
        + count(body.get("system"), 3)
        + count(body.get("messages"), 0)
        + (body.get("cache_control") is not None)
    )


def _without_name(choice: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in choice.items() if key != "name"}
