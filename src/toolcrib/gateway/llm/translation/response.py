"""A response of Chat Completions that reads like one of the client's API."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote

from toolcrib.config.settings import LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import HttpExchange
from toolcrib.gateway.llm.json_body import parse_upstream_body, serialize_json
from toolcrib.gateway.llm.sse import SseParser, format_event
from toolcrib.gateway.llm.translation.gemini import GeminiTranslator
from toolcrib.gateway.llm.translation.messages import MessagesTranslator
from toolcrib.gateway.llm.translation.responses import ResponsesTranslator
from toolcrib.gateway.llm.translation.translator import Body, CompletionReply, EventWriter, Translator, check_error
from toolcrib.gateway.llm.upstream.http_messages import HeaderList, UpstreamResponse

CHAT_TARGET: Final = "/v1/chat/completions"
# The paths of the APIs that can be translated; those of Gemini have the model and the method in them.
TRANSLATORS: Final[dict[str, Callable[[], Translator]]] = {
    "/v1/messages": MessagesTranslator,
    "/v1/responses": ResponsesTranslator,
}
GEMINI_PATH: Final = re.compile(
    r"(?P<prefix>/v1(?:beta|alpha)?/models/)"
    # The models of other providers have slashes and colons in their names.
    r"(?P<model>[^/:]+|.+(?=:(?:generateContent|streamGenerateContent|countTokens)$)):(?P<method>\w+)"
)

_FOREIGN_PREFIXES: Final = ("anthropic-", "x-goog-")
_FOREIGN_KEYS: Final = ("x-api-key", "x-goog-api-key")
_DONE: Final = "[DONE]"


class TranslatedResponse(UpstreamResponse):
    """Translates the body of a response while it is read."""

    def __init__(self, response: UpstreamResponse, translator: Translator, *, is_streaming: bool) -> None:
        is_streaming = is_streaming and response.is_success and response.is_event_stream
        type = "text/event-stream; charset=utf-8" if is_streaming else "application/json"
        super().__init__(response.request, response.status, response.headers_for_type(type))
        self._response = response
        self._translator = translator
        self._writer: EventWriter | None = translator.write_events() if is_streaming else None
        self._parser = SseParser()
        self._is_done = False

    async def discard_rest(self) -> None:
        await self._response.discard_rest()

    async def close(self) -> None:
        await self._response.close()

    async def read_raw_chunk(self) -> bytes:
        if self._writer is None:
            return b"" if self._is_done else self._count_raw(await self._translate_whole())
        while not self._is_done:
            if data := await self._translate_next(self._writer):
                return self._count_raw(data)
        return b""

    async def _translate_whole(self) -> bytes:
        self._is_done = True
        body = await self._read_body()
        if not self.is_success:
            return serialize_json(self._translator.translate_error(self.status, body))
        if not check_error(body).get("choices"):
            raise RequestFailed("the upstream sent no reply; try again", 502)
        return serialize_json(self._translator.translate_reply(CompletionReply(body)))

    async def _translate_next(self, writer: EventWriter) -> bytes:
        """Return the events that follow from the next bytes of the upstream."""
        chunk = await self._response.read_chunk()
        events: list[Body] = []
        for data in self._parser.parse_chunk(chunk) if chunk else ():
            if data == _DONE:
                self._is_done = True
            else:
                events += writer.handle_chunk(CompletionReply(check_error(parse_upstream_body(data))))
        if not chunk or self._is_done:
            self._is_done = True
            last = writer.finish()
            if not last:
                raise RequestFailed("the upstream ended its answer in the middle; try again", 502)
            events += last
        return b"".join(format_event(event.get("type", ""), serialize_json(event)) for event in events)

    async def _read_body(self) -> Body:
        data = await self._response.read()
        try:
            return parse_upstream_body(data)
        except RequestFailed:
            if self.is_success:
                raise
            return {}


def choose_translator(exchange: HttpExchange, upstream: LlmUpstreamConfig) -> Translator | None:
    """Return a translator if the upstream does not have the API of a request, but Chat Completions."""
    path = exchange.path
    has_responses = upstream.api == "openai" and path.startswith("/v1/responses")
    if upstream.api not in ("chat", "openai") or has_responses:
        return None
    if path.endswith(("/v1/messages/count_tokens", ":countTokens")):
        raise RequestFailed("the upstream of this model has only Chat Completions, which cannot count tokens", 404)
    # The target has the model of the upstream, the path that of the client.
    if match := GEMINI_PATH.fullmatch(exchange.target.partition("?")[0]):
        method = match["method"]
        if method not in ("generateContent", "streamGenerateContent"):
            raise RequestFailed(f"the upstream of this model has only Chat Completions, which has no {method}", 404)
        return GeminiTranslator(unquote(match["model"]), is_streaming=method == "streamGenerateContent")
    translator = TRANSLATORS.get(path)
    return translator() if translator else None


def translate_headers(headers: HeaderList) -> HeaderList:
    """Return the headers of a request to Anthropic or Google for a request to OpenAI."""
    kept = [(name, value) for name, value in headers if not name.startswith(_FOREIGN_PREFIXES) and name != "x-api-key"]
    if all(name != "authorization" for name, _ in kept):
        kept += [("authorization", f"Bearer {value}") for name, value in headers if name in _FOREIGN_KEYS][:1]
    return kept
