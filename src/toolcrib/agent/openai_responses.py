"""A model behind the Responses API, through OpenAI's client."""

from __future__ import annotations

from typing import Any, Final

from toolcrib.agent.provider import Assembly, Message, Request, Spent, Stop

_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")
_CALLS: Final = ("function_call", "custom_tool_call", "tool_search_call")


class OpenAIResponses:
    """The Responses API, nothing stored there. `options` are those of `client.responses.create`."""

    wire = "openai_responses"

    def __init__(self, client: Any, model: str, **options: Any) -> None:
        self._client = client
        self._options = {"model": model, "store": False, **options}

    def opening(self, task: str) -> Message:
        """The user's item."""
        return {"role": "user", "content": task}

    def ask(self, request: Request) -> Any:
        """The events of a response."""
        system = {"instructions": request.system} if request.system else {}
        return self._client.responses.create(
            **{**self._options, **system},
            input=request.messages,
            tools=request.tools,
            stream=True,
        )

    def assembly(self) -> Assembly:
        """An empty response."""
        return _Response()


class _Response:
    def __init__(self) -> None:
        self.text = ""
        self.reply: dict[str, Any] = {"output": []}

    def feed(self, chunk: dict[str, Any]) -> str:
        if chunk.get("type") == "response.output_text.delta":
            self.text += chunk["delta"]
            return str(chunk["delta"])
        if chunk.get("type") in _ENDS:
            # The last event has the whole of it.
            self.reply = chunk["response"]
        return ""

    @property
    def spent(self) -> Spent:
        usage = self.reply.get("usage") or {}
        return Spent(usage.get("input_tokens", 0), usage.get("output_tokens", 0))

    @property
    def stop(self) -> Stop:
        status = str(self.reply.get("status"))
        if status != "completed":
            return str((self.reply.get("incomplete_details") or {}).get("reason", status))
        made = [
            item
            for item in self.reply["output"]
            if item.get("type") in _CALLS and item.get("execution") != "server"
        ]
        return "calls" if made else "done"
