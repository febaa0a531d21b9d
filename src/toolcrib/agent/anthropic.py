"""Claude, through Anthropic's client."""

from __future__ import annotations

import json
from typing import Any, Final

from toolcrib.adapters.anthropic import INVALID_JSON_KEY
from toolcrib.agent.provider import AgentRequest, AgentTokenUsage, ClientProvider, ReplyBuilder, StopReason

DEFAULT_MAX_TOKENS: Final = 4_096

_STOP_REASONS: Final = {"end_turn": "done", "stop_sequence": "done", "tool_use": "calls", "pause_turn": "again"}
_INPUT_COUNTS: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class Anthropic(ClientProvider):
    """The Messages API.

    `options` are those of `client.messages.create`, such as `thinking`. Tools in `options` are run
    by Anthropic; they are sent before the tools of the session.
    """

    wire = "anthropic"

    def __init__(
        self, client: Any, model: str, *, max_tokens: int = DEFAULT_MAX_TOKENS, stream: bool = True, **options: Any
    ) -> None:
        options = {"model": model, "max_tokens": max_tokens, **options}
        super().__init__(client, stream, options, ["messages"])

    def send(self, request: AgentRequest) -> Any:
        """Return the message, or its events."""
        system = {"system": request.system} if request.system else {}
        return self._client.messages.create(
            **{**self._options, **system},
            messages=request.messages,
            tools=self._all_tools(request),
            stream=self.streams,
        )

    def new_reply(self) -> ReplyBuilder:
        return _AnthropicReply()


class _AnthropicReply:
    def __init__(self) -> None:
        self.reply: dict[str, Any] = {"role": "assistant", "content": []}
        self._partial_json = ""

    def add_chunk(self, chunk: dict[str, Any]) -> str:
        match chunk.get("type"):
            case "message_start":
                self.reply = {**chunk["message"], "content": []}
            case "content_block_start":
                self.reply["content"].append(dict(chunk["content_block"]))
                self._partial_json = ""
            case "content_block_delta":
                return self._apply_delta(self.reply["content"][-1], chunk["delta"])
            case "content_block_stop" if self._partial_json:
                self.reply["content"][-1]["input"] = _parse_input(self._partial_json)
            case "message_delta":
                usage = {**self.reply.get("usage", {}), **chunk.get("usage", {})}
                self.reply.update(chunk["delta"], usage=usage)
        return ""

    def set_reply(self, reply: dict[str, Any]) -> str:
        self.reply = reply
        return self.text

    def _apply_delta(self, block: dict[str, Any], delta: dict[str, Any]) -> str:
        match delta["type"]:
            case "text_delta":
                block["text"] += delta["text"]
                return str(delta["text"])
            case "input_json_delta":
                self._partial_json += delta["partial_json"]
            case "thinking_delta":
                block["thinking"] += delta["thinking"]
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "compaction_delta":
                block["content"] = (block.get("content") or "") + (delta.get("content") or "")
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        return ""

    @property
    def text(self) -> str:
        return "".join(block.get("text", "") for block in self.reply["content"])

    @property
    def usage(self) -> AgentTokenUsage:
        counts = self.reply.get("usage", {})
        return AgentTokenUsage.from_counts(counts, _INPUT_COUNTS, ["output_tokens"])

    @property
    def stop_reason(self) -> StopReason:
        reason = str(self.reply.get("stop_reason"))
        return _STOP_REASONS.get(reason, reason)


def _parse_input(text: str) -> dict[str, Any]:
    """Return the arguments of a call; invalid JSON is kept in the form Anthropic prescribes."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {INVALID_JSON_KEY: text}
