"""A model behind the Chat Completions API, through OpenAI's client."""

from __future__ import annotations

from typing import Any, Final

from toolcrib.agent.provider import AgentRequest, AgentTokenUsage, ClientProvider, ReplyBuilder, StopReason

_STOP_REASONS: Final = {"stop": "done", "tool_calls": "calls", "function_call": "calls"}


class OpenAIChat(ClientProvider):
    """The Chat Completions API.

    `options` are those of `client.chat.completions.create`. Tools in `options` are run by the
    server; they are sent before the tools of the session.
    """

    wire = "openai_chat"

    def __init__(self, client: Any, model: str, *, stream: bool = True, **options: Any) -> None:
        usage = {"stream_options": {"include_usage": True}} if stream else {}
        super().__init__(client, stream, {"model": model, **usage, **options}, ["messages"])

    def send(self, request: AgentRequest) -> Any:
        """Return the completion, or its chunks."""
        all_tools = self._all_tools(request)
        # The API rejects an empty list of tools.
        tools = {"tools": all_tools} if all_tools else {}
        system = [{"role": "system", "content": request.system}] if request.system else []
        return self._client.chat.completions.create(
            **self._options, **tools, messages=[*system, *request.messages], stream=self.streams
        )

    def new_reply(self) -> ReplyBuilder:
        return _ChatReply()


class _ChatReply:
    """A completion under construction. Fields that servers add are sent back unchanged."""

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
        call = self._find_or_start_call(piece)
        for field, value in piece.items():
            if field == "function":
                for part, text in (value or {}).items():
                    call["function"][part] = _append_value(call["function"].get(part), text)
            elif field not in ("index", "id"):
                call[field] = value or call.get(field)

    def _find_or_start_call(self, piece: dict[str, Any]) -> dict[str, Any]:
        """Return the call that a piece continues; some servers number calls wrongly or not at all."""
        id, index = piece.get("id") or "", piece.get("index")
        matches = [call for call in self._calls if call["index"] == index and id in ("", call["id"])]
        if index is None and not id:
            matches = self._calls
        if matches:
            return matches[-1]
        empty = {"name": "", "arguments": ""}
        call = {"index": index, "id": id, "type": "function", "function": empty}
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
                {field: value for field, value in call.items() if field != "index"} for call in self._calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": self._stop}
        return {"choices": [choice], "usage": self._usage}

    @property
    def usage(self) -> AgentTokenUsage:
        return AgentTokenUsage.from_counts(self._usage, ["prompt_tokens"], ["completion_tokens"])

    @property
    def stop_reason(self) -> StopReason:
        # Some servers report `stop` even if the model called tools.
        return "calls" if self._calls else _STOP_REASONS.get(self._stop, self._stop)


def _append_value(before: Any, added: Any) -> Any:
    """Return a field after a delta: strings and lists are concatenated, other values replaced."""
    if isinstance(before, type(added)) and isinstance(added, str | list):
        return before + added
    return before if added is None else added
