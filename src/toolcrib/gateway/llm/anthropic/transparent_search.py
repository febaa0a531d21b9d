"""Tool search for clients that know nothing of it.

Most tools are held back and a search tool is added. The client sees neither: it sends tools and a
history as ever, and gets a reply that calls one of its tools.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from toolcrib.adapters import anthropic
from toolcrib.gateway.llm.anthropic.rewriter import Body
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.toolset import SearchableTools

MAX_REMEMBERED_TOOLS: Final = 1_000


class TransparentSearchRewriter:
    """One response with searches that the client does not see.

    `revealed` are the names of the tools that this conversation was shown before, and `remember` is
    told when there are more.
    """

    shows_searches = False

    def __init__(
        self,
        body: Body,
        toolset: SearchableTools,
        revealed: Sequence[str],
        remember: Callable[[tuple[str, ...]], None],
        max_rounds: int,
    ) -> None:
        self._body = body
        self._conversation = toolset.turn_handler
        self._remember = remember
        self._max_rounds = max_rounds
        self._rounds = 0
        self._added: list[Body] = []
        held = {tool.name for tool in toolset.tools}
        entries = {str(entry.get("name")): entry for entry in toolset.entries}
        self._held = {name: entry for name, entry in entries.items() if name in held}
        called = dict.fromkeys([*revealed, *_called_names(body)])
        self._revealed = [name for name in called if name in self._held]
        self._pinned = [entry for entry in body["tools"] if not self._is_held(entry)]
        self._search_tool = {
            **anthropic.tools_to_wire([self._conversation.search_tool])[0],
            **_last_breakpoint(self._held.values()),
        }
        tools = (self._conversation.find_tool(name) for name in self._revealed)
        self._session = self._conversation.start_session().reveal(tool for tool in tools if tool)

    @property
    def revealed_entries(self) -> list[Any]:
        """The tools that the model is shown now: what does not change comes first."""
        search = [] if self._rounds >= self._max_rounds else [self._search_tool]
        return [*self._pinned, *search, *self._loaded]

    @property
    def revealed_client_entries(self) -> list[Any]:
        """Those of them that the client has sent."""
        return [*self._pinned, *self._loaded]

    @property
    def _loaded(self) -> list[Any]:
        return [_without_cache_control(self._held[name]) for name in self._revealed]

    def next_request(self) -> Body:
        """The client's request with few tools, and what was said since."""
        tools = self.revealed_entries
        request = {
            **self._body,
            "messages": _append_to_history(self._body.get("messages"), self._added),
        }
        if tools:
            return {**request, "tools": tools}
        return {key: one for key, one in request.items() if key not in ("tools", "tool_choice")}

    def is_search(self, name: str) -> bool:
        """Whether a name is that of our search tool."""
        return name == self._conversation.search_tool.name

    def convert_block(self, block: Mapping[str, Any]) -> Body:
        """A block, as it is."""
        return dict(block)

    def pending_searches(self) -> list[Body]:
        """Nothing waits: what was searched for is answered at once."""
        return []

    def run_searches(self, calls: Sequence[Body]) -> list[Body]:
        """What the searches found, told to the model; it is shown the tools from now on."""
        turn = self._conversation.handle_calls(
            self._session, anthropic.calls_from_wire({"content": list(calls)})
        )
        self._session = turn.session
        found = [tool.name for answer in turn.answers for tool in answer.found_tools]
        self._revealed = list(dict.fromkeys([*self._revealed, *found]))
        results: list[Body] = anthropic.answers_to_wire(turn.answers)[0]["content"]
        return results

    def append_round(self, blocks: Sequence[Body], results: Sequence[Body]) -> None:
        """Go on from what the model said and what it was told."""
        if results:
            self._rounds += 1
            self._remember(tuple(self._revealed[-MAX_REMEMBERED_TOOLS:]))
            self._added += [
                {"role": "assistant", "content": list(blocks)},
                {"role": "user", "content": list(results)},
            ]

    def stop_reason(self) -> str | None:
        """After so many rounds there is one more without the search tool; then it is enough."""
        return "end_turn" if self._rounds > self._max_rounds else None

    def _is_held(self, entry: object) -> bool:
        return isinstance(entry, Mapping) and str(entry.get("name")) in self._held


def list_deferrable(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tools that may be held back; none if the request is not as it should be.

    Those that the provider defines, those that are told not to be, and the one that the model is
    told to call, may not.
    """
    tools = body.get("tools")
    choice = body.get("tool_choice")
    forced = choice.get("name") if isinstance(choice, Mapping) else None
    entries = [one for one in tools if isinstance(one, Mapping)] if isinstance(tools, list) else []
    names = [str(entry.get("name")) for entry in entries]
    if len(set(names)) != len(names):
        return []
    return [
        entry
        for entry in entries
        if entry.get("type") in (None, "custom")
        and "input_schema" in entry
        and entry.get("defer_loading") is not False
        and entry.get("name") != forced
    ]


def conversation_key(body: Mapping[str, Any], *whose: str) -> str:
    """What a conversation is known by from request to request: whose it is, and how it began."""
    messages = body.get("messages")
    first = messages[:1] if isinstance(messages, list) else None
    begun = serialize_json([whose, body.get("model"), body.get("system"), first])
    return hashlib.blake2b(begun, digest_size=16).hexdigest()


def _called_names(body: Mapping[str, Any]) -> list[str]:
    """The tools that were called in the conversation, in order."""
    messages = body.get("messages")
    return [
        str(block.get("name"))
        for message in (messages if isinstance(messages, list) else ())
        if isinstance(message, Mapping) and isinstance(message.get("content"), list)
        for block in message["content"]
        if isinstance(block, Mapping) and block.get("type") == "tool_use"
    ]


def _last_breakpoint(entries: Any) -> dict[str, Any]:
    """The cache breakpoint of the last of these that has one: it moves to the search tool."""
    marks = [one["cache_control"] for one in entries if one.get("cache_control") is not None]
    return {"cache_control": marks[-1]} if marks else {}


def _without_cache_control(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in entry.items() if key != "cache_control"}


def _append_to_history(messages: object, added: Sequence[Body]) -> Any:
    """The history with what was said since, which goes on where the client began an answer."""
    if not added:
        return messages
    history = list(messages) if isinstance(messages, list) else []
    last = history[-1] if history else None
    if not isinstance(last, Mapping) or last.get("role") != "assistant":
        return [*history, *added]
    begun = last.get("content")
    blocks = [{"type": "text", "text": begun}] if isinstance(begun, str) else begun
    content = [*(blocks if isinstance(blocks, list) else []), *added[0]["content"]]
    return [*history[:-1], {**last, "content": content}, *added[1:]]
