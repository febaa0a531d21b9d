"""Gemini, through Google's client."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any

from toolcrib.agent.provider import (
    AgentRequest,
    AgentTokenUsage,
    Message,
    ReplyBuilder,
    StopReason,
    check_options,
)


class Gemini:
    """`generate_content`. For async, give `client.aio`. `config` is that of a request, as a mapping.

    `tools` in it are tools that Gemini runs; they go out before those of the session.
    """

    wire = "gemini"

    def __init__(
        self,
        client: Any,
        model: str,
        config: Mapping[str, Any] | None = None,
        *,
        stream: bool = True,
    ) -> None:
        self._client = client
        self._model = model
        self.streams = stream
        options = dict(config or {})
        self._tools = list(options.pop("tools", ()))
        # The client would otherwise run functions by itself.
        automatic = {"automatic_function_calling": {"disable": True}}
        self._config = {**automatic, **check_options(options, ["automatic_function_calling"])}

    def user_message(self, task: str) -> Message:
        """The user's content."""
        return {"role": "user", "parts": [{"text": task}]}

    def send(self, request: AgentRequest) -> Any:
        """The chunks of a response."""
        system = {"system_instruction": request.system} if request.system else {}
        models = self._client.models
        ask = models.generate_content_stream if self.streams else models.generate_content
        return ask(
            model=self._model,
            contents=[_decode_signatures(content) for content in request.messages],
            config={**self._config, **system, "tools": [*self._tools, *request.tools]},
        )

    def new_reply(self) -> ReplyBuilder:
        """An empty response."""
        return _GeminiReply()


class _GeminiReply:
    def __init__(self) -> None:
        self._parts: list[dict[str, Any]] = []
        self._stop = ""
        self._usage: dict[str, Any] = {}

    def set_reply(self, reply: dict[str, Any]) -> str:
        return self.add_chunk(reply)

    def add_chunk(self, chunk: dict[str, Any]) -> str:
        self._usage = chunk.get("usageMetadata") or self._usage
        blocked = (chunk.get("promptFeedback") or {}).get("blockReason")
        self._stop = blocked or self._stop
        words = ""
        for candidate in (chunk.get("candidates") or [])[:1]:
            self._stop = candidate.get("finishReason") or self._stop
            for part in (candidate.get("content") or {}).get("parts") or []:
                self._add_part(part)
                words += "" if part.get("thought") else part.get("text", "")
        return words

    def _add_part(self, part: dict[str, Any]) -> None:
        """Words go on from the words before; everything else is a part of its own."""
        last = self._parts[-1] if self._parts else {}
        if [*part] == ["text"] and [*last] == ["text"]:
            last["text"] += part["text"]
        elif part != {"text": ""}:
            self._parts.append(dict(part))

    @property
    def reply(self) -> dict[str, Any]:
        content = {"role": "model", "parts": self._parts}
        return {"candidates": [{"content": content, "finishReason": self._stop}]}

    @property
    def text(self) -> str:
        return "".join(part.get("text", "") for part in self._parts if not part.get("thought"))

    @property
    def usage(self) -> AgentTokenUsage:
        read = ("promptTokenCount", "toolUsePromptTokenCount")
        written = ("candidatesTokenCount", "thoughtsTokenCount")
        return AgentTokenUsage(
            sum(self._usage.get(field) or 0 for field in read),
            sum(self._usage.get(field) or 0 for field in written),
        )

    @property
    def stop_reason(self) -> StopReason:
        if any("functionCall" in part for part in self._parts):
            return "calls"
        return "done" if self._stop == "STOP" else self._stop


def _decode_signatures(content: Message) -> Message:
    """A content as the client takes it: it reads a signature in JSON, but not in a dictionary."""
    return {**content, "parts": [_decode_signature(part) for part in content["parts"]]}


def _decode_signature(part: dict[str, Any]) -> dict[str, Any]:
    signature = part.get("thoughtSignature")
    if not isinstance(signature, str):
        return part
    plain = signature.replace("+", "-").replace("/", "_")
    return {**part, "thoughtSignature": urlsafe_b64decode(plain + "=" * (-len(plain) % 4))}
