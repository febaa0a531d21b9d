"""Conversations with a scripted model through the gateway, with the official client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anthropic

from tests.gateway.llm.serving import RunningLlmGateway, running_llm_gateway
from tests.support.scripted_model.server import Request, Script, ScriptedModel
from tests.support.scripted_model.turn import Failure, ToolCall, Turn
from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.gateway import LlmGateway

REGEX = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
BM25 = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
Blocks = list[dict[str, Any]]


def tool(name: str, description: str = "", **more: Any) -> dict[str, Any]:
    """Return a tool with one argument."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, "description": description, "input_schema": schema, **more}


def deferred_tool(name: str, description: str = "", **more: Any) -> dict[str, Any]:
    """Return a deferred tool."""
    return tool(name, description, defer_loading=True, **more)


HARBOUR = [
    deferred_tool("moor_boat", "Tie a boat to the quay"),
    deferred_tool("raise_sail", "Hoist the canvas on a halyard"),
    deferred_tool("read_tide", "Tell when the water is high"),
    deferred_tool("log_weather", "Note wind and rain in the book"),
]


def regex_search(pattern: str, **more: Any) -> ToolCall:
    """Return a call of the regex search tool."""
    return ToolCall(REGEX["name"], {"pattern": pattern, **more})


def bm25_search(query: str, **more: Any) -> ToolCall:
    """Return a call of the BM25 search tool."""
    return ToolCall(BM25["name"], {"query": query, **more})


@dataclass
class Conversation:
    """A client, a gateway and a scripted model."""

    model: ScriptedModel
    server: RunningLlmGateway
    client: anthropic.Anthropic
    stream: bool
    history: list[Any] = field(default_factory=list)

    @property
    def upstream_requests(self) -> list[Request]:
        """The requests that the model has received."""
        return self.model.requests

    def send(
        self,
        tools: list[dict[str, Any]],
        *new_messages: Any,
        beta: bool = False,
        headers: Mapping[str, str] | None = None,
        **body: Any,
    ) -> dict[str, Any]:
        """Append messages to the history, and return the reply as JSON."""
        self.history += [item if isinstance(item, dict) else user_message(item) for item in new_messages]
        messages: Any = self.client.beta.messages if beta else self.client.messages
        known = {
            "model": "plain-model",
            "max_tokens": 99,
            "messages": self.history,
            "tools": tools or anthropic.omit,
            "extra_headers": headers or {},
            **body,
        }
        if self.stream:
            with messages.stream(**known) as stream:
                message = stream.get_final_message()
        else:
            message = messages.create(**known)
        reply: dict[str, Any] = message.model_dump(mode="json", exclude_unset=True)
        self.history.append({"role": "assistant", "content": reply["content"]})
        return reply


def user_message(text: str) -> dict[str, Any]:
    """Return a user message."""
    return {"role": "user", "content": text}


def tool_result_message(id: str, content: object = "done") -> dict[str, Any]:
    """Return the message that answers one call."""
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": content}]}


def block_types(reply: Mapping[str, Any]) -> list[str]:
    """Return the types of the blocks of a reply."""
    return [block["type"] for block in reply["content"]]


def referenced_names(block: Mapping[str, Any]) -> list[str]:
    """Return the names that a search result refers to."""
    assert block["content"]["type"] == "tool_search_tool_search_result", block
    return [item["tool_name"] for item in block["content"]["tool_references"]]


class _GatewaySetup:
    """A scripted model and a gateway, shared by the tests with the same settings."""

    def __init__(self, settings: Mapping[str, Any], upstream: Mapping[str, Any]) -> None:
        self._turns: Callable[[Request], Turn | Failure] | Iterator[Turn | Failure] = iter(())
        self._open = ExitStack()
        self.model = self._open.enter_context(ScriptedModel(self._turn))
        known = LlmUpstreamConfig("scripted", api="messages", url=self.model.url, **upstream)
        gateway = LlmGateway(LlmGatewayConfig((known,), **settings))
        self.server = self._open.enter_context(running_llm_gateway(gateway))

    def start_script(self, script: Script) -> None:
        self.model.requests = []
        self._turns = script if callable(script) else iter(script)

    def close(self) -> None:
        self._open.close()

    def _turn(self, request: Request) -> Turn | Failure:
        if callable(self._turns):
            return self._turns(request)
        return next(self._turns, Failure(400, "the script has no more turns"))


_stands: dict[str, _GatewaySetup] = {}
_clients: list[anthropic.Anthropic] = []


def close_all() -> None:
    """Close the shared gateways and clients."""
    while _stands:
        _stands.popitem()[1].close()
    while _clients:
        _clients.pop().close()


@contextmanager
def conversation_with(
    script: Script, *, stream: bool = False, settings: Mapping[str, Any] | None = None, **more: Any
) -> Iterator[Conversation]:
    """Start a conversation; `settings` are those of the gateway, `more` those of the upstream.

    Searches use BM25 unless `search` is set, because encoding tools takes long. Found tools are
    revealed unless `style` is set.
    """
    upstream = {"search": "exact", "style": "reveal", **more}
    key = repr((sorted((settings or {}).items()), sorted(upstream.items())))
    if key not in _stands:
        _stands[key] = _GatewaySetup(settings or {}, upstream)
    if not _clients:
        _clients.append(anthropic.Anthropic(api_key="secret", max_retries=0))
    stand = _stands[key]
    stand.start_script(script)
    client = _clients[0].with_options(base_url=stand.server.url)
    yield Conversation(stand.model, stand.server, client, stream)
