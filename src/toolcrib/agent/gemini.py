"""Gemini, through Google's client."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any, Final

from toolcrib.agent.provider import AgentRequest, AgentTokenUsage, ClientProvider, Message, ReplyBuilder, StopReason

_INPUT_COUNTS: Final = ("promptTokenCount", "toolUsePromptTokenCount")
_OUTPUT_COUNTS: Final = ("candidatesTokenCount", "thoughtsTokenCount")


class Gemini(ClientProvider):
    """The `generate_content` API. For async, pass `client.aio`.

    `config` is the configuration of a request, as a mapping. Tools in it are run by Gemini; they
    are sent before the tools of the session.
    """

    wire = "gemini"

    def __init__(
        self, client: Any, model: str, config: Mapping[str, Any] | None = None, *, stream: bool = True
    ) -> None:
        super().__init__(client, stream, dict(config or {}), ["automatic_function_calling"])
        # Otherwise the client runs functions itself.
        self._options["automatic_function_calling"] = {"disable": True}
        self._model = model

    def user_message(self, task: str) -> Message:
        """Return a task as a content of the user."""
        return {"role": "user", "parts": [{"text": task}]}

    def send(self, request: AgentRequest) -> Any:
        """Return the response, or its chunks."""
        system = {"system_instruction": request.system} if request.system else {}
        models = self._client.models
        generate = models.generate_content_stream if self.streams else models.generate_content
        return generate(
            model=self._model,
            contents=[
                {**content, "parts": list(map(_decode_signature, content["parts"]))} for content in request.messages
            ],
            config={**self._options, **system, "tools": self._all_tools(request)},
        )

    def new_reply(self) -> ReplyBuilder:
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
        block_reason = (chunk.get("promptFeedback") or {}).get("blockReason")
        self._stop = block_reason or self._stop
        text = ""
        for candidate in (chunk.get("candidates") or [])[:1]:
            self._stop = candidate.get("finishReason") or self._stop
            for part in (candidate.get("content") or {}).get("parts") or []:
                self._add_part(part)
                text += "" if part.get("thought") else part.get("text", "")
        return text

    def _add_part(self, part: dict[str, Any]) -> None:
        """Append text to a preceding text part; add any other part to the list."""
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
        return AgentTokenUsage.from_counts(self._usage, _INPUT_COUNTS, _OUTPUT_COUNTS)

    @property
    def stop_reason(self) -> StopReason:
        if any("functionCall" in part for part in self._parts):
            return "calls"
        return "done" if self._stop == "STOP" else self._stop


def _decode_signature(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part with its signature as bytes: the client does not decode signatures in dicts."""
    signature = part.get("thoughtSignature")
    if not isinstance(signature, str):
        return part
    url_safe = signature.replace("+", "-").replace("/", "_")
    padding = "=" * (-len(url_safe) % 4)
    return {**part, "thoughtSignature": urlsafe_b64decode(url_safe + padding)}
