"""A parsed request of a client to one of the LLM APIs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolcrib.adapters.plain_json import dicts_or_empty, str_or_empty
from toolcrib.config.settings import LlmSearchSwitch, LlmUpstreamConfig
from toolcrib.gateway.llm.endpoint import HttpExchange
from toolcrib.gateway.llm.upstream.upstreams import CREDENTIAL_HEADERS
from toolcrib.session.disclosure import Provider, find_hosting_provider


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """A parsed request, the upstream it goes to, and its tool search setting."""

    exchange: HttpExchange
    upstream: LlmUpstreamConfig
    switch: LlmSearchSwitch
    body: dict[str, Any]
    # Whether another model can answer if the upstream fails.
    has_fallback: bool = False
    # The model, if it is not in the body.
    path_model: str = ""

    @property
    def tool_entries(self) -> list[dict[str, Any]]:
        """The tools of the request."""
        return list(dicts_or_empty(self.body.get("tools")))

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.path_model or str_or_empty(self.body.get("model"))

    @property
    def is_streaming(self) -> bool:
        """Whether the client asks for a stream."""
        return self.body.get("stream") is True or self.exchange.path.endswith(":streamGenerateContent")

    @property
    def restricts_tools(self) -> bool:
        """Whether the client itself selects among its tools, with the `allowed_tools` of OpenAI."""
        choice = self.body.get("tool_choice")
        return isinstance(choice, dict) and choice.get("type") == "allowed_tools"

    @property
    def owner(self) -> tuple[str, ...]:
        """The client that sent the request."""
        return request_owner(self.exchange)

    def is_well_formed(self, history: str) -> bool:
        """Return whether the tools and the history are lists of objects.

        The history may also be a text. Other requests are left to the upstream to refuse.
        """
        messages = self.body.get(history) or []
        lists = (self.body.get("tools") or [], [] if isinstance(messages, str) else messages)
        return all(isinstance(each, list) and len(dicts_or_empty(each)) == len(each) for each in lists)

    def uses_native_search(self, provider: Provider) -> bool:
        """Return whether the model's own provider searches, so that the request is not changed."""
        if self.switch == "native":
            return True
        return self.switch == "auto" and find_hosting_provider(self.model) == provider


def request_owner(exchange: HttpExchange) -> tuple[str, ...]:
    """Return what identifies the client: its gateway key and the credentials for the upstream."""
    credentials = sorted(f"{name} {value}" for name, value in exchange.headers if name in CREDENTIAL_HEADERS)
    return (exchange.principal.name, exchange.principal.profile or "", *credentials)
