"""Conversations through the gateway in each API, whole and streamed, with the official clients."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai

from tests.gateway.llm.serving import running_llm_gateway
from tests.support.scripted_model.server import Request, Script, ScriptedModel
from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.gateway import LlmGateway

APIS = ("messages", "chat", "responses")
Json = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """The text of a reply, its calls as (name, arguments), and their ids."""

    text: str
    calls: list[tuple[str, Json]]
    ids: list[str]


@dataclass
class SdkConversation:
    """A client of one API, and the history that it sends."""

    api: str
    stream: bool
    url: str
    model: ScriptedModel
    gateway: LlmGateway
    tools: list[tuple[str, str, Json]]
    options: Json = field(default_factory=dict)
    history: list[Any] = field(default_factory=list)
    headers: Mapping[str, str] = field(default_factory=dict)
    last_id: str = ""

    @property
    def requests(self) -> list[Request]:
        """The requests that the model has received."""
        return self.model.requests

    def ask(self, text: str) -> Reply:
        """Send a message of the user."""
        self.history.append({"role": "user", "content": text})
        return self.send()

    def answer(self, reply: Reply, text: str = "done") -> Reply:
        """Send the results of all calls of a reply."""
        if self.api == "messages":
            results = [{"type": "tool_result", "tool_use_id": id, "content": text} for id in reply.ids]
            self.history.append({"role": "user", "content": results})
        elif self.api == "chat":
            self.history += [{"role": "tool", "tool_call_id": id, "content": text} for id in reply.ids]
        else:
            outputs = [{"type": "function_call_output", "call_id": id, "output": text} for id in reply.ids]
            self.history += outputs
        return self.send()

    def send(self) -> Reply:
        """Send the history, and append the reply to it."""
        return {"messages": self._send_messages, "chat": self._send_chat, "responses": self._send_responses}[self.api]()

    def upstream_messages(self, number: int) -> list[Any]:
        """The messages or items of a request that the model has received."""
        body = self.requests[number].body
        items = body["input" if self.api == "responses" else "messages"]
        if isinstance(items, str):
            return [{"role": "user", "content": items}]
        # The type of an item with a role is optional.
        return [{key: value for key, value in item.items() if value != "message"} for item in items]

    def is_prefix_stable(self) -> bool:
        """Return whether every request starts with the whole request before it."""
        bodies = [request.body for request in self.requests]
        pairs = zip(range(len(bodies)), range(1, len(bodies)), strict=False)
        return all(
            bodies[before]["tools"] == bodies[after]["tools"]
            and self.upstream_messages(after)[: len(self.upstream_messages(before))] == self.upstream_messages(before)
            for before, after in pairs
        )

    def _send_messages(self) -> Reply:
        tools = [{"name": name, "description": about, "input_schema": schema} for name, about, schema in self.tools]
        given: Json = {"model": "m", "max_tokens": 99, "messages": self.history, "tools": tools, **self.options}
        with anthropic.Anthropic(base_url=self.url, api_key="secret", max_retries=0) as client:
            if self.stream:
                with client.messages.stream(**given) as stream:
                    message: Any = stream.get_final_message()
            else:
                raw = client.messages.with_raw_response.create(**given)
                self.headers, message = raw.headers, raw.parse()
        content = message.model_dump(
            mode="json", exclude_unset=True, exclude={"content": {"__all__": {"parsed_output"}}}
        )["content"]
        self.history.append({"role": "assistant", "content": content})
        calls = [block for block in content if block["type"] == "tool_use"]
        text = "".join(block.get("text", "") for block in content)
        return Reply(text, [(call["name"], call["input"]) for call in calls], [call["id"] for call in calls])

    def _send_chat(self) -> Reply:
        tools = [
            {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}
            for name, about, schema in self.tools
        ]
        given: Json = {"model": "m", "messages": self.history, "tools": tools, **self.options}
        with openai.OpenAI(base_url=f"{self.url}/v1", api_key="secret", max_retries=0) as client:
            if self.stream:
                with client.chat.completions.stream(**given) as stream:
                    completion: Any = stream.get_final_completion()
            else:
                raw = client.chat.completions.with_raw_response.create(**given)
                self.headers, completion = raw.headers, raw.parse()
        message = completion.choices[0].message.model_dump(
            exclude_none=True, exclude={"parsed": True, "tool_calls": {"__all__": {"function": {"parsed_arguments"}}}}
        )
        self.history.append(message)
        calls = message.get("tool_calls", [])
        named = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls]
        return Reply(message.get("content") or "", named, [call["id"] for call in calls])

    def _send_responses(self) -> Reply:
        tools = [
            {"type": "function", "name": name, "description": about, "parameters": schema, "strict": False}
            for name, about, schema in self.tools
        ]
        given: Json = {"model": "m", "input": self.history, "tools": tools, **self.options}
        with openai.OpenAI(base_url=f"{self.url}/v1", api_key="secret", max_retries=0) as client:
            if self.stream:
                with client.responses.stream(**given) as stream:
                    response: Any = stream.get_final_response()
            else:
                raw = client.responses.with_raw_response.create(**given)
                self.headers, response = raw.headers, raw.parse()
        self.last_id = response.id
        items = [item.model_dump(mode="json", exclude_none=True) for item in response.output]
        for item in items:
            item.pop("parsed_arguments", None)
            for part in item.get("content", []):
                part.pop("parsed", None)
        self.history += items
        calls = [item for item in items if item["type"] == "function_call"]
        named = [(call["name"], json.loads(call["arguments"])) for call in calls]
        return Reply(response.output_text, named, [call["call_id"] for call in calls])


@contextmanager
def sdk_conversation(
    api: str, script: Script, tools: list[tuple[str, str, Json]], *, stream: bool = False, **upstream: Any
) -> Iterator[SdkConversation]:
    """Run a scripted model and a gateway, and yield a conversation in one API."""
    with ExitStack() as opened:
        model = opened.enter_context(ScriptedModel(script))
        wire = "messages" if api == "messages" else "openai"
        known = LlmUpstreamConfig("scripted", api=wire, url=model.url, **upstream)  # type: ignore[arg-type]
        gateway = LlmGateway(LlmGatewayConfig((known,)))
        url = opened.enter_context(running_llm_gateway(gateway)).url
        yield SdkConversation(api, stream, url, model, gateway, tools)
