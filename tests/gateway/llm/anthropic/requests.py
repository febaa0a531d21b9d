"""Asking a model through the gateway with the official client, streamed or not."""

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
    """A tool of one argument."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, "description": description, "input_schema": schema, **more}


def deferred_tool(name: str, description: str = "", **more: Any) -> dict[str, Any]:
    """A tool that is held back."""
    return tool(name, description, defer_loading=True, **more)


HARBOUR = [
    deferred_tool("moor_boat", "Tie a boat to the quay"),
    deferred_tool("raise_sail", "Hoist the canvas on a halyard"),
    deferred_tool("read_tide", "Tell when the water is high"),
    deferred_tool("log_weather", "Note wind and rain in the book"),
]


def regex_search(pattern: str, **more: Any) -> ToolCall:
    """The model searches by a pattern."""
    return ToolCall(REGEX["name"], {"pattern": pattern, **more})


def bm25_search(query: str, **more: Any) -> ToolCall:
    """The model searches in words."""
    return ToolCall(BM25["name"], {"query": query, **more})


@dataclass
class Conversation:
    """A client before a gateway before a scripted model."""

    model: ScriptedModel
    server: RunningLlmGateway
    client: anthropic.Anthropic
    stream: bool
    history: list[Any] = field(default_factory=list)

    @property
    def upstream_requests(self) -> list[Request]:
        """What the model was asked."""
        return self.model.requests

    def send(
        self,
        tools: list[dict[str, Any]],
        *said: Any,
        beta: bool = False,
        headers: Mapping[str, str] | None = None,
        **body: Any,
    ) -> dict[str, Any]:
        """The model's reply to the history and what is said now, as plain JSON."""
        self.history += [one if isinstance(one, dict) else user_message(one) for one in said]
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
    """A user's message."""
    return {"role": "user", "content": text}


def tool_result_message(id: str, content: object = "done") -> dict[str, Any]:
    """The message by which a client answers one call."""
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": id, "content": content}],
    }


def block_types(reply: Mapping[str, Any]) -> list[str]:
    """The types of a reply's blocks."""
    return [block["type"] for block in reply["content"]]


def referenced_names(block: Mapping[str, Any]) -> list[str]:
    """The names a search result refers to."""
    assert block["content"]["type"] == "tool_search_tool_search_result", block
    return [one["tool_name"] for one in block["content"]["tool_references"]]


class _GatewaySetup:
    """A scripted model and a gateway before it, which stay for the next test with the same settings."""

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
    """Close what stayed open between tests."""
    while _stands:
        _stands.popitem()[1].close()
    while _clients:
        _clients.pop().close()


@contextmanager
def conversation_with(
    script: Script, *, stream: bool = False, settings: Mapping[str, Any] | None = None, **more: Any
) -> Iterator[Conversation]:
    """A conversation with a scripted model; `settings` are the gateway's, `more` the upstream's.

    Language is searched by words alone, unless `search` says otherwise: reading takes its time.
    """
    upstream = {"search": "exact", **more}
    key = repr((sorted((settings or {}).items()), sorted(upstream.items())))
    if key not in _stands:
        _stands[key] = _GatewaySetup(settings or {}, upstream)
    if not _clients:
        _clients.append(anthropic.Anthropic(api_key="secret", max_retries=0))
    stand = _stands[key]
    stand.start_script(script)
    client = _clients[0].with_options(base_url=stand.server.url)
    yield Conversation(stand.model, stand.server, client, stream)
