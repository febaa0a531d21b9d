"""A model behind the Responses API, through OpenAI's client."""

from __future__ import annotations

from typing import Any, Final

from toolcrib.agent.provider import (
    AgentRequest,
    AgentTokenUsage,
    Message,
    ReplyBuilder,
    StopReason,
    check_options,
)

_FINAL_EVENTS: Final = ("response.completed", "response.incomplete", "response.failed")
_CALL_TYPES: Final = ("function_call", "custom_tool_call", "tool_search_call")
_TYPES_WITH_ID: Final = ("message", *_CALL_TYPES, "tool_search_output")


class OpenAIResponses:
    """The Responses API, nothing stored there. `options` are those of `client.responses.create`.

    `tools` among them are tools that OpenAI runs; they go out before those of the session.
    """

    wire = "openai_responses"

    def __init__(self, client: Any, model: str, *, stream: bool = True, **options: Any) -> None:
        self._client = client
        self.streams = stream
        self._tools = list(options.pop("tools", ()))
        self._options = {"model": model, "store": False, **check_options(options, ["input"])}

    def user_message(self, task: str) -> Message:
        """The user's item."""
        return {"role": "user", "content": task}

    def send(self, request: AgentRequest) -> Any:
        """The events of a response."""
        system = {"instructions": request.system} if request.system else {}
        return self._client.responses.create(
            **{**self._options, **system},
            input=request.messages,
            tools=[*self._tools, *request.tools],
            stream=self.streams,
        )

    def new_reply(self) -> ReplyBuilder:
        """An empty response."""
        return _ResponsesReply(stored=self._options["store"] is not False)


class _ResponsesReply:
    def __init__(self, stored: bool) -> None:
        self.text = ""
        self._stored = stored
        self._response: dict[str, Any] = {"output": []}

    @property
    def reply(self) -> dict[str, Any]:
        if self._stored:
            return self._response
        return {**self._response, "output": _detach_items(self._response.get("output") or [])}

    def set_reply(self, reply: dict[str, Any]) -> str:
        self._response = reply
        said = [item for item in reply.get("output") or [] if item.get("type") == "message"]
        parts = [part for item in said for part in item.get("content") or []]
        self.text = "".join(part.get("text") or "" for part in parts)
        return self.text

    def add_chunk(self, chunk: dict[str, Any]) -> str:
        if chunk.get("type") == "response.output_text.delta":
            self.text += chunk["delta"]
            return str(chunk["delta"])
        if chunk.get("type") in _FINAL_EVENTS:
            # The last event has the whole of it.
            self._response = chunk["response"]
        return ""

    @property
    def usage(self) -> AgentTokenUsage:
        usage = self._response.get("usage") or {}
        return AgentTokenUsage(usage.get("input_tokens") or 0, usage.get("output_tokens") or 0)

    @property
    def stop_reason(self) -> StopReason:
        status = str(self._response.get("status") or "")
        if status != "completed":
            failed = (self._response.get("error") or {}).get("message")
            return str(
                (self._response.get("incomplete_details") or {}).get("reason") or failed or status
            )
        made = [
            item
            for item in self._response.get("output") or []
            if item.get("type") in _CALL_TYPES and item.get("execution") != "server"
        ]
        return "calls" if made else "done"


def _detach_items(items: list[Message]) -> list[Message]:
    """Items of a response that OpenAI has not stored, such that it does not look any of them up.

    Thoughts go back only as a whole, encrypted, which has to be asked for with `include`. The others
    lose their ids, by which OpenAI would ask for the thoughts that led to them.
    """
    return [
        {field: value for field, value in item.items() if field != "id"}
        if item.get("type") in _TYPES_WITH_ID
        else item
        for item in items
        if item.get("type") != "reasoning" or item.get("encrypted_content")
    ]
