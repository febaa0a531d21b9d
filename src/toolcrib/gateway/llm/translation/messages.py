"""Anthropic's Messages through Chat Completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from toolcrib.adapters.plain_json import dict_or_empty, dicts_or_empty, str_or_empty
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import render_messages_error
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

_COPIED: Final = ("model", "temperature", "top_p", "top_k", "stream")
_TRANSLATED: Final = (
    "max_tokens", "messages", "system", "tools", "tool_choice", "stop_sequences", "output_config", "thinking",
)  # fmt: skip
# These affect speed, price or what the provider stores. Context management only shortens what a model reads.
_IGNORED: Final = ("metadata", "service_tier", "context_management", "cache_control", "inference_geo")
_THINKING_FIELDS: Final = ("type", "budget_tokens", "display")
_THINKING_TYPES: Final = ("enabled", "adaptive", "disabled")
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}
_STOP_REASONS: Final = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


class MessagesTranslator(Translator):
    """One request of the Messages API."""

    def __init__(self) -> None:
        self._shows_thinking = True

    def translate_request(self, body: Mapping[str, Any]) -> Body:
        check_fields(body, (*_COPIED, *_TRANSLATED, *_IGNORED))
        request: Body = {name: body[name] for name in _COPIED if name in body}
        request["messages"] = _translate_messages(body)
        if "max_tokens" in body:
            request["max_tokens"] = body["max_tokens"]
        if body.get("stop_sequences"):
            request["stop"] = body["stop_sequences"]
        if tools := list_entries(body, "tools"):
            request["tools"] = [_translate_tool(number, tool) for number, tool in enumerate(tools)]
            request.update(_translate_choice(dict_or_empty(body.get("tool_choice"))))
        thinking = dict_or_empty(body.get("thinking"))
        self._shows_thinking = thinking.get("type") != "disabled" and thinking.get("display") != "omitted"
        request.update(_translate_thinking(thinking, str_or_empty(body.get("model"))))
        request.update(_translate_output(dict_or_empty(body.get("output_config"))))
        if body.get("stream") is True:
            request["stream_options"] = {"include_usage": True}
        return request

    def translate_reply(self, reply: CompletionReply) -> Body:
        content: list[Body] = []
        if reply.reasoning and self._shows_thinking:
            content.append({"type": "thinking", "thinking": reply.reasoning, "signature": ""})
        if reply.text or reply.refusal:
            content.append({"type": "text", "text": reply.text or reply.refusal})
        for call in reply.calls:
            id, name, arguments = parse_call(call)
            content.append({"type": "tool_use", "id": id, "name": name, "input": arguments})
        message = _start_message(reply)
        reason = _stop_reason(reply.finish_reason, is_refused=bool(reply.refusal), has_calls=bool(reply.calls))
        return {**message, "content": content, "stop_reason": reason, "usage": _render_usage(reply)}

    def translate_error(self, status: int, body: Mapping[str, Any]) -> Body:
        error = dict_or_empty(body.get("error"))
        return render_messages_error(
            RequestFailed(str_or_empty(error.get("message")) or f"the upstream answered with status {status}", status)
        )

    def write_events(self) -> EventWriter:
        return _MessagesEvents(self._shows_thinking)


class _MessagesEvents(EventWriter):
    def __init__(self, shows_thinking: bool) -> None:
        self._shows_thinking = shows_thinking
        self._has_started = False
        self._is_done = False
        self._index = -1
        # The kind of the open block: "thinking", "text", or the index of a tool call.
        self._open: str | int | None = None
        self._calls = CallCollector()
        self._finish_reason = ""
        self._is_refused = False
        self._usage: Body = {"output_tokens": 0}

    def handle_chunk(self, chunk: CompletionReply) -> list[Body]:
        events: list[Body] = []
        if not self._has_started:
            self._has_started = True
            message = {**_start_message(chunk), "usage": {"input_tokens": 0, "output_tokens": 0}}
            events.append({"type": "message_start", "message": message})
        if chunk.reasoning and self._shows_thinking:
            block = {"type": "thinking", "thinking": "", "signature": ""}
            events += self._add_delta("thinking", block, {"type": "thinking_delta", "thinking": chunk.reasoning})
        if text := chunk.text or chunk.refusal:
            events += self._add_delta("text", {"type": "text", "text": ""}, {"type": "text_delta", "text": text})
        self._is_refused = self._is_refused or bool(chunk.refusal)
        for number, call in enumerate(chunk.calls):
            events += self._add_call(number, call)
        if chunk.usage:
            self._usage = _render_usage(chunk)
        self._finish_reason = chunk.finish_reason or self._finish_reason
        return events

    def finish(self) -> list[Body]:
        if not self._finish_reason or self._is_done:
            return []
        self._is_done = True
        has_calls = bool(self._calls.calls)
        reason = _stop_reason(self._finish_reason, is_refused=self._is_refused, has_calls=has_calls)
        delta = {"stop_reason": reason, "stop_sequence": None}
        return [
            *self._close_block(),
            {"type": "message_delta", "delta": delta, "usage": self._usage},
            {"type": "message_stop"},
        ]

    def _add_call(self, number: int, call: Mapping[str, Any]) -> Iterator[Body]:
        function = dict_or_empty(call.get("function"))
        index = self._calls.add(call, number)
        name = str_or_empty(function.get("name"))
        block = {"type": "tool_use", "id": str_or_empty(call.get("id")), "name": name, "input": {}}
        if index != self._open and not name:
            raise RequestFailed("the upstream mixed the parts of several tool calls; try again", 502)
        partial_json = str_or_empty(function.get("arguments"))
        yield from self._add_delta(index, block, {"type": "input_json_delta", "partial_json": partial_json})

    def _add_delta(self, kind: str | int, block: Body, delta: Body) -> Iterator[Body]:
        if self._open != kind:
            yield from self._close_block()
            self._open = kind
            self._index += 1
            yield {"type": "content_block_start", "index": self._index, "content_block": block}
        yield {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _close_block(self) -> list[Body]:
        is_open, self._open = self._open is not None, None
        return [{"type": "content_block_stop", "index": self._index}] if is_open else []


def _translate_messages(body: Mapping[str, Any]) -> list[Body]:
    chat = ChatMessages()
    if system := _join_texts(body.get("system"), "system"):
        chat.add("system", [text_part(system)])
    for number, message in enumerate(dicts_or_empty(list_entries(body, "messages"))):
        place = f"messages.{number}.content"
        content = message.get("content")
        blocks: Sequence[Body] = dicts_or_empty(content)
        if isinstance(content, str):
            blocks = [{"type": "text", "text": content}]
        if message.get("role") == "assistant":
            _add_reply(chat, blocks, place)
        elif message.get("role") == "system":
            check_fields(message, ("role", "content"), f"messages.{number}.")
            chat.add("system", [text_part(_join_texts(content, place))])
        else:
            _add_user_message(chat, blocks, place)
    return chat.finish()


def _add_reply(chat: ChatMessages, blocks: Sequence[Body], place: str) -> None:
    for number, block in enumerate(blocks):
        match block.get("type"):
            case "text":
                chat.add_reply(text=str_or_empty(block.get("text")))
            case "thinking":
                chat.add_reply(reasoning=str_or_empty(block.get("thinking")))
            case "redacted_thinking":
                # Other models than the one that has written it cannot read it.
                pass
            case "tool_use":
                arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
                call = function_call(str_or_empty(block.get("id")), str_or_empty(block.get("name")), arguments)
                chat.add_reply(calls=[call])
            case other:
                raise refuse(f"{place}.{number}", f"a block of type {other}")


def _add_user_message(chat: ChatMessages, blocks: Sequence[Body], place: str) -> None:
    parts: list[Body] = []
    for number, block in enumerate(blocks):
        if block.get("type") == "tool_result":
            result = _translate_result(block.get("content"), f"{place}.{number}.content")
            is_error = block.get("is_error") is True
            chat.add_result(str_or_empty(block.get("tool_use_id")), result, is_error=is_error)
        else:
            parts.append(_translate_part(block, f"{place}.{number}"))
    if parts:
        chat.add("user", parts)


def _translate_result(content: object, place: str) -> list[Body]:
    if content is None or isinstance(content, str):
        return [text_part(content or "")]
    return [_translate_part(block, f"{place}.{number}") for number, block in enumerate(dicts_or_empty(content))]


def _translate_part(block: Mapping[str, Any], place: str) -> Body:
    source = dict_or_empty(block.get("source"))
    match block.get("type"), source.get("type"):
        case "text", _:
            return text_part(str_or_empty(block.get("text")))
        case "image", "base64":
            return image_part(f"data:{source.get('media_type')};base64,{source.get('data')}")
        case "image", "url":
            return image_part(str_or_empty(source.get("url")))
        case "document", "text":
            return text_part(str_or_empty(source.get("data")))
    kind = f"{block.get('type')} with a {source['type']} source" if source else block.get("type")
    raise refuse(place, f"a block of type {kind}")


def _join_texts(content: object, place: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for number, block in enumerate(dicts_or_empty(content)):
        if block.get("type") != "text":
            raise refuse(f"{place}.{number}", f"a block of type {block.get('type')}")
        texts.append(str_or_empty(block.get("text")))
    return "\n\n".join(texts)


def _translate_tool(number: int, tool: Any) -> Body:
    entry = dict_or_empty(tool)
    if entry.get("type", "custom") != "custom":
        raise refuse(f"tools.{number}", f"the tool {entry.get('type')}")
    function = {"name": entry.get("name"), "description": entry.get("description", "")}
    function["parameters"] = entry.get("input_schema", {"type": "object", "properties": {}})
    if entry.get("strict") is True:
        function["strict"] = True
    return {"type": "function", "function": function}


def _translate_choice(choice: Mapping[str, Any]) -> Body:
    translated: Body = {}
    if choice.get("type") == "tool":
        translated["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    elif choice:
        translated["tool_choice"] = _CHOICES.get(str(choice.get("type")), choice.get("type"))
    if choice.get("disable_parallel_tool_use") is True:
        translated["parallel_tool_calls"] = False
    return translated


def _translate_thinking(thinking: Mapping[str, Any], model: str) -> Body:
    check_fields(thinking, _THINKING_FIELDS, "thinking.")
    if thinking and thinking.get("type") not in _THINKING_TYPES:
        raise refuse("thinking.type", f"the type {thinking.get('type')}")
    return translate_budget(thinking.get("budget_tokens"), model)


def _translate_output(config: Mapping[str, Any]) -> Body:
    translated: Body = {}
    if effort := config.get("effort"):
        # Few servers know an effort above "high".
        translated["reasoning_effort"] = effort if effort in ("low", "medium") else "high"
    if schema := dict_or_empty(config.get("format")).get("schema"):
        json_schema = {"name": "output", "schema": schema, "strict": True}
        translated["response_format"] = {"type": "json_schema", "json_schema": json_schema}
    return translated


def _start_message(reply: CompletionReply) -> Body:
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _stop_reason(finish_reason: str, *, is_refused: bool, has_calls: bool) -> str:
    reason = "refusal" if is_refused else _STOP_REASONS.get(finish_reason, "end_turn")
    # Many servers end a call with `stop`, and OpenAI does so if the call was forced.
    return "tool_use" if has_calls and reason == "end_turn" else reason


def _render_usage(reply: CompletionReply) -> Body:
    return {
        "input_tokens": max(0, reply.input_tokens - reply.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": reply.cached_tokens,
        "output_tokens": reply.output_tokens,
    }
