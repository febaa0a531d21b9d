"""A streamed reply of Gemini: the rounds joined into one reply, without the searches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolcrib.adapters.plain_json import dict_or_empty, dicts_or_empty
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.gemini.rewriter import GeminiRewriter
from toolcrib.gateway.llm.search_loop import ChunkStream

Chunk = dict[str, Any]


class GeminiStream(ChunkStream):
    """One streamed reply."""

    # Google's client reads a comment as an error, and skips empty lines.
    ping = b"\n"

    def __init__(self, rewriter: GeminiRewriter) -> None:
        self._rewriter = rewriter
        # That of the first round: clients take another id for an interruption.
        self._response_id: Any = None
        self._parts: list[Chunk] = []
        self._sent: list[Chunk] = []
        self._last: Chunk = {}
        self._usage: Any = None

    @property
    def has_final_searches(self) -> bool:
        return any(map(self._rewriter.is_intercepted, self._parts))

    def handle_event(self, event: Chunk) -> Iterator[Chunk]:
        candidates = dicts_or_empty(event.get("candidates"))
        self._usage = event.get("usageMetadata") or self._usage
        if not candidates:
            # An error, or the feedback to a prompt that was blocked.
            self._has_failed = self._has_failed or "error" in event or "promptFeedback" in event
            yield event
            return
        self._response_id = self._response_id or event.get("responseId")
        self._last = event if self._response_id is None else {**event, "responseId": self._response_id}
        candidate = candidates[0]
        self._reason = candidate.get("finishReason") or self._reason
        parts = dicts_or_empty(dict_or_empty(candidate.get("content")).get("parts"))
        self._parts += parts
        # Calls are buffered after the first one that the gateway handles, so that they stay in order.
        visible = [part for part in parts if "functionCall" not in part or not self.has_final_searches]
        self._sent += visible
        if visible and candidate.get("finishReason") is None:
            yield self._make_chunk(visible)
        elif visible:
            # The reason is sent at the end of the last round.
            texts = [part for part in visible if part != {"text": ""}]
            if texts:
                yield self._make_chunk(texts)

    def finish_round(self) -> list[Chunk]:
        if self._has_failed:
            self.is_complete = True
            return []
        self._rewriter.add_usage(self._usage)
        visible = self._rewriter.handle_parts(self._parts, self._reason)
        if visible is None:
            self._parts, self._sent, self._usage, self._reason = [], [], None, None
            return []
        self.is_complete = True
        rest = [part for part in visible if not any(part is sent for sent in self._sent)]
        last = self._make_chunk(rest or [{"text": ""}])
        last["candidates"][0]["finishReason"] = self._reason
        if self._rewriter.usage is not None:
            last["usageMetadata"] = self._rewriter.usage
        return [last]

    def encode_error(self, error: RequestFailed, upstream_body: Chunk | None) -> bytes:
        """Return an error chunk: with the error of the upstream, if it has sent one."""
        if upstream_body and "error" in upstream_body:
            return self.encode_event({"error": upstream_body["error"]})
        return self.encode_event({"error": {"code": error.status, "message": str(error), "status": "INTERNAL"}})

    def _make_chunk(self, parts: list[Chunk]) -> Chunk:
        candidate = {
            name: value
            for name, value in dicts_or_empty(self._last.get("candidates"))[0].items()
            if name != "finishReason"
        }
        chunk = {name: value for name, value in self._last.items() if name != "usageMetadata"}
        return {**chunk, "candidates": [{**candidate, "content": {"role": "model", "parts": parts}}]}
