"""Google's Gemini API through Chat Completions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from toolcrib.adapters.gemini import name_fields, to_json_schema, tools_from_wire
from toolcrib.adapters.plain_json import dict_or_empty, dicts_or_empty, str_or_empty
from toolcrib.errors import InvalidSchema, InvalidTool, RequestFailed
from toolcrib.gateway.llm.endpoint import render_gemini_error
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.translation.translator import (
    Body,
    CallCollector,
    ChatMessages,
    CompletionReply,
    EventWriter,
    Translator,
    check_fields,
    function_call,
    image_part,
    list_entries,
    parse_call,
    refuse,
    text_part,
    translate_budget,
)

_TRANSLATED: Final = ("contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings")
# These affect speed, price or what the provider stores.
_IGNORED: Final = ("model", "labels", "serviceTier", "store")
_SETTINGS: Final = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "seed": "seed",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}
_TRANSLATED_SETTINGS: Final = ("responseMimeType", "responseSchema", "responseJsonSchema", "thinkingConfig")
_THINKING_FIELDS: Final = ("includeThoughts", "thinkingBudget", "thinkingLevel")
_LEVELS: Final = {"MINIMAL": "low", "LOW": "low", "MEDIUM": "medium", "HIGH": "high", "XHIGH": "high"}
_CHOICES: Final = {"AUTO": "auto", "VALIDATED": "auto", "ANY": "required", "NONE": "none"}
# Chat Completions has no safety filters, so only thresholds that switch a filter off are accepted.
_NO_FILTER: Final = (None, "BLOCK_NONE", "OFF", "HARM_BLOCK_THRESHOLD_UNSPECIFIED")
# Fields that describe the content of a part. They are left out: another model cannot read a signature.
_PART_DETAILS: Final = ("thought", "thoughtSignature", "partMetadata", "mediaResolution")
_GOOGLE_FILES: Final = "https://generativelanguage.googleapis.com/"
_FINISH_REASONS: Final = {"length": "MAX_TOKENS", "content_filter": "SAFETY"}


class GeminiTranslator(Translator):
    """One request of the Gemini API, which has the model in its path."""

    def __init__(self, model: str, *, is_streaming: bool) -> None:
        self._model = model
        self._is_streaming = is_streaming
        self._shows_thoughts = False

    def translate_request(self, body: Mapping[str, Any]) -> Body:
        fields = name_fields(body)
        check_fields(fields, (*_TRANSLATED, *_IGNORED))
        for number, setting in enumerate(dicts_or_empty(fields.get("safetySettings"))):
            if setting.get("threshold") not in _NO_FILTER:
                raise refuse(f"safetySettings.{number}", f"the threshold {setting['threshold']}")
        request: Body = {"model": self._model, "messages": _translate_contents(fields)}
        try:
            request.update(self._translate_settings(name_fields(fields.get("generationConfig"))))
            tools = _translate_tools(list_entries(fields, "tools"))
        except (InvalidSchema, InvalidTool) as error:
            raise RequestFailed(str(error)) from error
        if tools:
            request.update(_choose_tools(tools, name_fields(fields.get("toolConfig"))))
        if self._is_streaming:
            request |= {"stream": True, "stream_options": {"include_usage": True}}
        return request

    def _translate_settings(self, settings: Body) -> Body:
        place = "generationConfig."
        if settings.pop("candidateCount", None) not in (None, 1):
            raise refuse(f"{place}candidateCount", "more than one candidate")
        if settings.pop("responseModalities", None) not in (None, [], ["TEXT"]):
            raise refuse(f"{place}responseModalities", "another modality than TEXT")
        check_fields(settings, (*_SETTINGS, *_TRANSLATED_SETTINGS), place)
        request = {_SETTINGS[name]: value for name, value in settings.items() if name in _SETTINGS}
        thinking = name_fields(settings.get("thinkingConfig"))
        check_fields(thinking, _THINKING_FIELDS, f"{place}thinkingConfig.")
        self._shows_thoughts = thinking.get("includeThoughts") is True
        request.update(translate_budget(thinking.get("thinkingBudget"), self._model))
        if level := _LEVELS.get(str(thinking.get("thinkingLevel"))):
            request["reasoning_effort"] = level
        return request | _translate_format(settings, place)

    def translate_reply(self, reply: CompletionReply) -> Body:
        writer = self.write_events()
        chunks = [*writer.handle_chunk(reply), *writer.finish()]
        if not reply.finish_reason:
            raise RequestFailed("the upstream did not end its reply; try again", 502)
        parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"] if part != _EMPTY_PART]
        chunks[-1]["candidates"][0]["content"]["parts"] = parts
        return chunks[-1]

    def translate_error(self, status: int, body: Mapping[str, Any]) -> Body:
        message = str_or_empty(dict_or_empty(body.get("error")).get("message"))
        return render_gemini_error(RequestFailed(message or f"the upstream answered with status {status}", status))

    def write_events(self) -> EventWriter:
        return _GeminiEvents(self._shows_thoughts)


_EMPTY_PART: Final = {"text": ""}


class _GeminiEvents(EventWriter):
    """Sends texts as they come, and the calls, which cannot be sent in pieces, at the end."""

    def __init__(self, shows_thoughts: bool) -> None:
        self._shows_thoughts = shows_thoughts
        self._calls = CallCollector()
        self._head: Body = {}
        self._usage: Body = {}
        self._reason = ""
        self._is_refused = False

    def handle_chunk(self, chunk: CompletionReply) -> list[Body]:
        self._head = self._head or {"responseId": chunk.id, "modelVersion": chunk.model}
        parts: list[Body] = []
        if chunk.reasoning and self._shows_thoughts:
            parts.append({"text": chunk.reasoning, "thought": True})
        if text := chunk.text or chunk.refusal:
            parts.append({"text": text})
        for position, call in enumerate(chunk.calls):
            self._calls.add(call, position)
        if chunk.usage:
            self._usage = _render_usage(chunk)
        if chunk.finish_reason:
            self._reason = _FINISH_REASONS.get(chunk.finish_reason, "STOP")
        self._is_refused = self._is_refused or bool(chunk.refusal)
        return [self._render_chunk(parts)] if parts else []

    def finish(self) -> list[Body]:
        if not self._reason:
            return []
        parsed = map(parse_call, self._calls.calls)
        calls = [{"functionCall": {"id": id, "name": name, "args": arguments}} for id, name, arguments in parsed]
        last = self._render_chunk(calls or [_EMPTY_PART])
        last["candidates"][0]["finishReason"] = "SAFETY" if self._is_refused else self._reason
        return [{**last, "usageMetadata": self._usage} if self._usage else last]

    def _render_chunk(self, parts: list[Body]) -> Body:
        return {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}], **self._head}


def _list_parts(content: object) -> list[tuple[str, Body]]:
    """Return the parts of a content with the names of their main fields; texts have the name `text`."""
    named = map(name_fields, dicts_or_empty(dict_or_empty(content).get("parts")))
    kinds = ((next((name for name in part if name not in _PART_DETAILS), ""), part) for part in named)
    return [(kind, part) for kind, part in kinds if kind]


def _translate_contents(fields: Mapping[str, Any]) -> list[Body]:
    chat = ChatMessages()
    if system := _list_parts(fields.get("systemInstruction")):
        texts = [_translate_part(kind, part, "systemInstruction") for kind, part in system]
        if any(part["type"] != "text" for part in texts):
            raise refuse("systemInstruction", "an image")
        chat.add("system", texts)
    # The names and ids of the calls without a result.
    pending: list[tuple[str, str]] = []
    for number, content in enumerate(list_entries(fields, "contents")):
        place, parts = f"contents.{number}", _list_parts(content)
        if dict_or_empty(content).get("role") == "model":
            # A result belongs to the latest turn of the model.
            pending = list(_add_reply(chat, parts, place))
        else:
            _add_user_content(chat, parts, pending, place)
    return chat.finish()


def _add_reply(chat: ChatMessages, parts: Iterable[tuple[str, Body]], place: str) -> Iterable[tuple[str, str]]:
    """Add a turn of the model, and yield its calls. A call without an id gets one made from its position."""
    for number, (kind, part) in enumerate(parts):
        if kind == "functionCall":
            call = dict_or_empty(part[kind])
            name = str_or_empty(call.get("name"))
            id = str_or_empty(call.get("id")) or f"call_{place.removeprefix('contents.')}_{number}"
            yield name, id
            chat.add_reply(calls=[function_call(id, name, serialize_json(call.get("args") or {}).decode())])
        elif kind == "text":
            text, is_thought = str_or_empty(part[kind]), part.get("thought") is True
            chat.add_reply(text="" if is_thought else text, reasoning=text if is_thought else "")
        else:
            raise refuse(place, f"a part with {kind}")


def _add_user_content(
    chat: ChatMessages, parts: Sequence[tuple[str, Body]], pending: list[tuple[str, str]], place: str
) -> None:
    others: list[Body] = []
    for kind, part in parts:
        if kind != "functionResponse":
            others.append(_translate_part(kind, part, place))
            continue
        response = dict_or_empty(part[kind])
        name, id = str_or_empty(response.get("name")), str_or_empty(response.get("id"))
        call = next((call for call in pending if (call[1] == id if id else call[0] == name)), (name, id or name))
        if call in pending:
            pending.remove(call)
        text, is_error = _render_result(dict_or_empty(response.get("response")))
        media = [_translate_part(inner_kind, inner, place) for inner_kind, inner in _list_parts(response)]
        chat.add_result(call[1], [text_part(text), *media], is_error=is_error)
    if others:
        chat.add("user", others)


def _render_result(response: Body) -> tuple[str, bool]:
    """Return the result of a function as a text, and whether it is an error."""
    match response:
        case {"output": str(text)} | {"result": str(text)} | {"error": str(text)} if len(response) == 1:
            return text, "error" in response
    return serialize_json(response).decode(), "error" in response


def _translate_part(kind: str, part: Body, place: str) -> Body:
    if kind == "text":
        return text_part(str_or_empty(part[kind]))
    media = name_fields(part[kind])
    type, url = str_or_empty(media.get("mimeType")), str_or_empty(media.get("fileUri"))
    if kind == "inlineData" and type.startswith("image/"):
        # Google's SDK encodes images in URL-safe Base64.
        data = str_or_empty(media.get("data")).replace("-", "+").replace("_", "/")
        return image_part(f"data:{type};base64,{data}")
    if kind == "fileData" and type.startswith("image/") and url.startswith("http") and _GOOGLE_FILES not in url:
        return image_part(url)
    raise refuse(place, f"a part with {kind}{' of type ' + type if type else ''}")


def _translate_tools(entries: Sequence[Any]) -> list[Body]:
    functions: list[Body] = []
    for number, entry in enumerate(entries):
        fields = name_fields(entry)
        declarations = fields.pop("functionDeclarations", None)
        if hosted := next((name for name, value in fields.items() if value is not None), ""):
            raise refuse(f"tools.{number}", f"the tool {hosted}")
        for tool in tools_from_wire({"functionDeclarations": declarations or []}):
            schema = {"type": "object", "properties": {}, **tool.input_schema}
            function = {"name": tool.name, "description": tool.description, "parameters": schema}
            functions.append({"type": "function", "function": function})
    return functions


def _choose_tools(tools: list[Body], config: Body) -> Body:
    """Return the tools that the model may call, and whether it has to."""
    check_fields(config, ("functionCallingConfig",), "toolConfig.")
    calling, place = name_fields(config.get("functionCallingConfig")), "toolConfig.functionCallingConfig."
    check_fields(calling, ("mode", "allowedFunctionNames"), place)
    if names := calling.get("allowedFunctionNames"):
        tools = [tool for tool in tools if tool["function"]["name"] in names]
    mode = calling.get("mode") or "MODE_UNSPECIFIED"
    if mode == "MODE_UNSPECIFIED":
        return {"tools": tools}
    if mode not in _CHOICES:
        raise refuse(f"{place}mode", f"the mode {mode}")
    return {"tools": tools, "tool_choice": _CHOICES[mode]}


def _translate_format(settings: Mapping[str, Any], place: str) -> Body:
    schema = settings.get("responseJsonSchema")
    if dialect := dict_or_empty(settings.get("responseSchema")):
        schema = to_json_schema(dialect, "responseSchema")
    if schema:
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": schema}}}
    type = settings.get("responseMimeType") or "text/plain"
    if type == "application/json":
        return {"response_format": {"type": "json_object"}}
    if type != "text/plain":
        raise refuse(f"{place}responseMimeType", f"the type {type}")
    return {}


def _render_usage(reply: CompletionReply) -> Body:
    return {
        "promptTokenCount": reply.input_tokens,
        "cachedContentTokenCount": reply.cached_tokens,
        "candidatesTokenCount": reply.output_tokens - reply.reasoning_tokens,
        "thoughtsTokenCount": reply.reasoning_tokens,
        "totalTokenCount": reply.input_tokens + reply.output_tokens,
    }
