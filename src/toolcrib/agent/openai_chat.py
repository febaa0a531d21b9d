"""A model behind the Chat Completions API, through OpenAI's client."""

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

_STOP_REASONS: Final = {"stop": "done", "tool_calls": "calls", "function_call": "calls"}


class OpenAIChat:
    """Chat Completions. `options` are those of `client.chat.completions.create`.

    `tools` among them are tools that the server runs; they go out before those of the session.
    """

    wire = "openai_chat"

    def __init__(self, client: Any, model: str, *, stream: bool = True, **options: Any) -> None:
        self._client = client
        self.streams = stream
        self._tools = list(options.pop("tools", ()))
        counting = {"stream_options": {"include_usage": True}} if stream else {}
        self._options = {"model": model, **counting, **check_options(options, ["messages"])}

    def user_message(self, task: str) -> Message:
        """The user's message."""
        return {"role": "user", "content": task}

    def send(self, request: AgentRequest) -> Any:
        """The chunks of a completion."""
        # An empty list of tools is refused.
        tools = [*self._tools, *request.tools]
        offered = {"tools": tools} if tools else {}
        system = [{"role": "system", "content": request.system}] if request.system else []
        return self._client.chat.completions.create(
            **self._options, **offered, messages=[*system, *request.messages], stream=self.streams
        )

    def new_reply(self) -> ReplyBuilder:
        """An empty completion."""
        return _ChatReply()


class _ChatReply:
    """A completion in the making. What servers add to OpenAI's fields goes back as it came."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: list[dict[str, Any]] = []
        self._stop = ""
        self._usage: dict[str, Any] = {}

    def add_chunk(self, chunk: dict[str, Any]) -> str:
        self._usage = chunk.get("usage") or self._usage
        for choice in (chunk.get("choices") or [])[:1]:
            self._stop = choice.get("finish_reason") or self._stop
            delta = choice.get("delta") or {}
            for piece in delta.get("tool_calls") or []:
                self._add_call_piece(piece)
            for field in delta.keys() - {"role", "tool_calls"}:
                self._message[field] = _append_value(self._message.get(field), delta[field])
            return str(delta.get("content") or "")
        return ""

    def set_reply(self, reply: dict[str, Any]) -> str:
        for choice in (reply.get("choices") or [])[:1]:
            self._stop = choice.get("finish_reason") or ""
            self._message = {"content": None, **(choice.get("message") or {})}
            self._calls = list(self._message.pop("tool_calls", None) or ())
        self._usage = reply.get("usage") or {}
        return self.text

    def _add_call_piece(self, piece: dict[str, Any]) -> None:
        """A piece goes on with the call of its number. Not all servers number calls, or rightly."""
        call = self._find_or_start_call(piece)
        for field, value in piece.items():
            if field == "function":
                for part, text in (value or {}).items():
                    call["function"][part] = _append_value(call["function"].get(part), text)
            elif field not in ("index", "id"):
                call[field] = value or call.get(field)

    def _find_or_start_call(self, piece: dict[str, Any]) -> dict[str, Any]:
        id, at = piece.get("id") or "", piece.get("index")
        same = [call for call in self._calls if call["index"] == at and id in ("", call["id"])]
        if at is None and not id:
            same = self._calls
        if same:
            return same[-1]
        empty = {"name": "", "arguments": ""}
        call = {"index": at, "id": id, "type": "function", "function": empty}
        self._calls.append(call)
        return call

    @property
    def text(self) -> str:
        return str(self._message.get("content") or "")

    @property
    def reply(self) -> dict[str, Any]:
        message = dict(self._message)
        if self._calls:
            message["tool_calls"] = [
                {field: value for field, value in call.items() if field != "index"}
                for call in self._calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": self._stop}
        return {"choices": [choice], "usage": self._usage}

    @property
    def usage(self) -> AgentTokenUsage:
        return AgentTokenUsage(
            self._usage.get("prompt_tokens") or 0, self._usage.get("completion_tokens") or 0
        )

    @property
    def stop_reason(self) -> StopReason:
        # Some servers say `stop` also where the model has called.
        return "calls" if self._calls else _STOP_REASONS.get(self._stop, self._stop)


def _append_value(before: Any, more: Any) -> Any:
    """A field with what a piece adds to it."""
    is_alike = isinstance(before, type(more)) and isinstance(more, str | list)
    return before + more if is_alike else before if more is None else more
