"""A model behind the Responses API, through OpenAI's client."""

from __future__ import annotations

from typing import Any, Final

from toolcrib.agent.provider import AgentRequest, AgentTokenUsage, ClientProvider, Message, ReplyBuilder, StopReason

_FINAL_EVENTS: Final = ("response.completed", "response.incomplete", "response.failed")
_CALL_TYPES: Final = ("function_call", "custom_tool_call", "tool_search_call")
_TYPES_WITH_ID: Final = ("message", *_CALL_TYPES, "tool_search_output")


class OpenAIResponses(ClientProvider):
    """The Responses API. OpenAI stores nothing unless `store=True` is among the options.

    `options` are those of `client.responses.create`. Tools in `options` are run by OpenAI; they are
    sent before the tools of the session.
    """

    wire = "openai_responses"

    def __init__(self, client: Any, model: str, *, stream: bool = True, **options: Any) -> None:
        super().__init__(client, stream, {"model": model, "store": False, **options}, ["input"])

    def send(self, request: AgentRequest) -> Any:
        """Return the response, or its events."""
        system = {"instructions": request.system} if request.system else {}
        return self._client.responses.create(
            **{**self._options, **system}, input=request.messages, tools=self._all_tools(request), stream=self.streams
        )

    def new_reply(self) -> ReplyBuilder:
        return _ResponsesReply(is_stored=self._options["store"] is not False)


class _ResponsesReply:
    def __init__(self, is_stored: bool) -> None:
        self.text = ""
        self._is_stored = is_stored
        self._response: dict[str, Any] = {"output": []}

    @property
    def reply(self) -> dict[str, Any]:
        if self._is_stored:
            return self._response
        return {**self._response, "output": _detach_items(self._response.get("output") or [])}

    def set_reply(self, reply: dict[str, Any]) -> str:
        self._response = reply
        messages = [item for item in reply.get("output") or [] if item.get("type") == "message"]
        parts = [part for message in messages for part in message.get("content") or []]
        self.text = "".join(part.get("text") or "" for part in parts)
        return self.text

    def add_chunk(self, chunk: dict[str, Any]) -> str:
        if chunk.get("type") == "response.output_text.delta":
            self.text += chunk["delta"]
            return str(chunk["delta"])
        if chunk.get("type") in _FINAL_EVENTS:
            # The last event contains the complete response.
            self._response = chunk["response"]
        return ""

    @property
    def usage(self) -> AgentTokenUsage:
        counts = self._response.get("usage") or {}
        return AgentTokenUsage.from_counts(counts, ["input_tokens"], ["output_tokens"])

    @property
    def stop_reason(self) -> StopReason:
        status = str(self._response.get("status") or "")
        if status != "completed":
            reason = (self._response.get("incomplete_details") or {}).get("reason")
            error = (self._response.get("error") or {}).get("message")
            return str(reason or error or status)
        has_calls = any(
            item.get("type") in _CALL_TYPES and item.get("execution") != "server"
            for item in self._response.get("output") or []
        )
        return "calls" if has_calls else "done"


def _detach_items(items: list[Message]) -> list[Message]:
    """Return the items of an unstored response in a form that refers to nothing stored.

    Reasoning is sent back only if it is complete, that is encrypted, which a request has to ask for
    with `include`. The other items lose their ids: with an id, OpenAI demands the reasoning that
    preceded the item.
    """
    return [
        {field: value for field, value in item.items() if field != "id"} if item.get("type") in _TYPES_WITH_ID else item
        for item in items
        if item.get("type") != "reasoning" or item.get("encrypted_content")
    ]
