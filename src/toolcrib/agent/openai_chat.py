"""A model behind the Chat Completions API, through OpenAI's client."""

from __future__ import annotations

from typing import Any, Final

from toolcrib.agent.provider import Assembly, Message, Request, Spent, Stop

_STOPS: Final = {"stop": "done", "tool_calls": "calls", "function_call": "calls"}


class OpenAIChat:
    """Chat Completions. `options` are those of `client.chat.completions.create`."""

    wire = "openai_chat"

    def __init__(self, client: Any, model: str, **options: Any) -> None:
        self._client = client
        self._options = {"model": model, "stream_options": {"include_usage": True}, **options}

    def opening(self, task: str) -> Message:
        """The user's message."""
        return {"role": "user", "content": task}

    def ask(self, request: Request) -> Any:
        """The chunks of a completion."""
        # An empty list of tools is refused.
        offered = {"tools": request.tools} if request.tools else {}
        system = [{"role": "system", "content": request.system}] if request.system else []
        return self._client.chat.completions.create(
            **self._options, **offered, messages=[*system, *request.messages], stream=True
        )

    def assembly(self) -> Assembly:
        """An empty completion."""
        return _Completion()


class _Completion:
    def __init__(self) -> None:
        self.text = ""
        self._calls: dict[int, dict[str, Any]] = {}
        self._stop = ""
        self._usage: dict[str, Any] = {}

    def feed(self, chunk: dict[str, Any]) -> str:
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices", [])[:1]:
            delta = choice.get("delta") or {}
            for call in delta.get("tool_calls") or []:
                self._grow(call)
            self._stop = choice.get("finish_reason") or self._stop
            words = delta.get("content") or ""
            self.text += words
            return str(words)
        return ""

    def _grow(self, piece: dict[str, Any]) -> None:
        empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        call = self._calls.setdefault(piece["index"], empty)
        call["id"] = piece.get("id") or call["id"]
        for field, text in (piece.get("function") or {}).items():
            call["function"][field] += text or ""

    @property
    def reply(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.text or None}
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        choice = {"index": 0, "message": message, "finish_reason": self._stop}
        return {"choices": [choice], "usage": self._usage}

    @property
    def spent(self) -> Spent:
        return Spent(self._usage.get("prompt_tokens", 0), self._usage.get("completion_tokens", 0))

    @property
    def stop(self) -> Stop:
        # Some servers say `stop` also where the model has called.
        return "calls" if self._calls else _STOPS.get(self._stop, self._stop)
