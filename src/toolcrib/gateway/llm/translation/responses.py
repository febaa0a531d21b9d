"""OpenAI's Responses through Chat Completions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

from toolcrib.adapters.plain_json import dict_or_empty, dicts_or_empty, str_or_empty
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.endpoint import render_openai_error
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
    refuse,
    simplify_content,
    text_part,
)

_COPIED: Final = ("model", "temperature", "top_p", "stream", "parallel_tool_calls", "user")
_TRANSLATED: Final = ("input", "instructions", "tools", "tool_choice", "max_output_tokens", "reasoning", "text")
# These affect speed, price or what the provider stores.
_IGNORED: Final = (
    "store", "include", "metadata", "client_metadata", "prompt_cache_key", "prompt_cache_retention",
    "safety_identifier", "service_tier", "stream_options",
)  # fmt: skip
_TEXT_PARTS: Final = ("input_text", "output_text", "text")
_CUSTOM_PARAMETERS: Final = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}


class ResponsesTranslator(Translator):
    """One request of the Responses API."""

    def __init__(self) -> None:
        self._custom_names: set[str] = set()
        self._echo: Body = {}

    def translate_request(self, body: Mapping[str, Any]) -> Body:
        if body.get("truncation") not in (None, "disabled"):
            raise refuse("truncation")
        check_fields(body, (*_COPIED, *_TRANSLATED, *_IGNORED, "truncation"))
        request: Body = {name: body[name] for name in _COPIED if body.get(name) is not None}
        request["messages"] = _translate_input(body)
        if body.get("max_output_tokens") is not None:
            request["max_tokens"] = body["max_output_tokens"]
        if tools := list_entries(body, "tools"):
            request["tools"] = [self._translate_tool(number, tool) for number, tool in enumerate(tools)]
            if body.get("tool_choice") is not None:
                request["tool_choice"] = _translate_choice(body["tool_choice"])
        else:
            request.pop("parallel_tool_calls", None)
        if effort := dict_or_empty(body.get("reasoning")).get("effort"):
            request["reasoning_effort"] = effort
        request.update(_translate_text_settings(dict_or_empty(body.get("text"))))
        if body.get("stream") is True:
            request["stream_options"] = {"include_usage": True}
        self._echo = {
            "instructions": body.get("instructions"),
            "tools": body.get("tools") or [],
            "tool_choice": body.get("tool_choice") or "auto",
            "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
            "metadata": body.get("metadata") or {},
        }
        return request

    def translate_reply(self, reply: CompletionReply) -> Body:
        events = self.write_events()
        events.handle_chunk(reply)
        finished = events.finish()
        if not finished:
            raise RequestFailed("the upstream did not end its reply; try again", 502)
        return dict(finished[-1]["response"])

    def translate_error(self, status: int, body: Mapping[str, Any]) -> Body:
        return dict(body) or render_openai_error(RequestFailed(f"the upstream answered with status {status}", status))

    def write_events(self) -> EventWriter:
        return _ResponsesEvents(self._echo, self._custom_names)

    def _translate_tool(self, number: int, tool: Any) -> Body:
        entry = dict_or_empty(tool)
        function: Body = {"name": entry.get("name"), "description": entry.get("description") or ""}
        if entry.get("type") == "custom":
            # A custom tool takes a text, so it becomes a function with one text.
            self._custom_names.add(str_or_empty(entry.get("name")))
            if definition := dict_or_empty(entry.get("format")).get("definition"):
                function["description"] += f"\n\nThe input must match this grammar:\n{definition}"
            function["parameters"] = _CUSTOM_PARAMETERS
        elif entry.get("type") == "function":
            function["parameters"] = entry.get("parameters") or {"type": "object", "properties": {}}
            if entry.get("strict") is not None:
                function["strict"] = entry["strict"]
        else:
            raise refuse(f"tools.{number}", f"the tool {entry.get('type')}")
        return {"type": "function", "function": function}


class _ResponsesEvents(EventWriter):
    """Builds the response item by item."""

    def __init__(self, echo: Body, custom_names: set[str]) -> None:
        self._echo = echo
        self._custom_names = custom_names
        self._response: Body = {}
        self._sequence = 0
        self._open: str | int | None = None
        self._item: Body = {}
        self._text = ""
        self._calls = CallCollector()
        self._finish_reason = ""
        self._is_done = False

    def handle_chunk(self, chunk: CompletionReply) -> list[Body]:
        events: list[Body] = []
        if not self._response:
            self._response = self._start_response(chunk)
            events += [self._event(f"response.{name}", response=dict(self._response)) for name in _FIRST_EVENTS]
        if chunk.reasoning:
            events += self._add_delta("reasoning", {}, chunk.reasoning)
        if chunk.text:
            events += self._add_delta("message", {}, chunk.text)
        if chunk.refusal:
            events += self._add_delta("refusal", {}, chunk.refusal)
        for number, call in enumerate(chunk.calls):
            function = dict_or_empty(call.get("function"))
            index = self._calls.add(call, number)
            if index != self._open and not function.get("name"):
                raise RequestFailed("the upstream mixed the parts of several tool calls; try again", 502)
            events += self._add_delta(index, call, str_or_empty(function.get("arguments")))
        if chunk.usage:
            self._response["usage"] = _render_usage(chunk)
        self._finish_reason = chunk.finish_reason or self._finish_reason
        return events

    def finish(self) -> list[Body]:
        if not self._finish_reason or self._is_done:
            return []
        self._is_done = True
        events = self._close_item()
        status, reason = "completed", None
        if self._finish_reason in ("length", "content_filter"):
            status = "incomplete"
            reason = {"reason": "max_output_tokens" if self._finish_reason == "length" else "content_filter"}
        self._response = {**self._response, "status": status, "incomplete_details": reason}
        return [*events, self._event(f"response.{status}", response=self._response)]

    def _start_response(self, chunk: CompletionReply) -> Body:
        return {
            "id": f"resp_{chunk.id}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": chunk.model,
            "output": [],
            "previous_response_id": None,
            "store": False,
            "usage": None,
            **self._echo,
        }

    def _event(self, type: str, **fields: Any) -> Body:
        self._sequence += 1
        return {"type": type, "sequence_number": self._sequence - 1, **fields}

    def _item_event(self, type: str, **fields: Any) -> Body:
        index = len(self._response["output"])
        return self._event(type, item_id=self._item["id"], output_index=index, **fields)

    def _add_delta(self, kind: str | int, call: Mapping[str, Any], delta: str) -> list[Body]:
        events: list[Body] = []
        if self._open != kind:
            events += self._close_item()
            events += self._open_item(kind, call)
        self._text += delta
        name = self._item["type"]
        if name == "message":
            part = "refusal" if kind == "refusal" else "output_text"
            events.append(self._item_event(f"response.{part}.delta", content_index=0, delta=delta))
        elif name == "reasoning":
            events.append(self._item_event("response.reasoning_text.delta", content_index=0, delta=delta))
        elif name == "function_call" and delta:
            events.append(self._item_event("response.function_call_arguments.delta", delta=delta))
        return events

    def _open_item(self, kind: str | int, call: Mapping[str, Any]) -> list[Body]:
        self._open, self._text = kind, ""
        number = len(self._response["output"])
        id = f"{self._response['id'].removeprefix('resp_')}_{number}"
        function = dict_or_empty(call.get("function"))
        name, call_id = str_or_empty(function.get("name")), str_or_empty(call.get("id"))
        if kind == "reasoning":
            self._item = {"id": f"rs_{id}", "type": "reasoning", "summary": [], "content": []}
        elif isinstance(kind, str):
            self._item = {"id": f"msg_{id}", "type": "message", "role": "assistant", "content": []}
        elif name in self._custom_names:
            self._item = {"id": f"ctc_{id}", "type": "custom_tool_call", "call_id": call_id, "name": name, "input": ""}
        else:
            self._item = {"id": f"fc_{id}", "type": "function_call", "call_id": call_id, "name": name, "arguments": ""}
        self._item["status"] = "in_progress"
        events = [self._event("response.output_item.added", output_index=number, item=dict(self._item))]
        if self._item["type"] == "message":
            part = self._render_part("")
            events.append(self._item_event("response.content_part.added", content_index=0, part=part))
        return events

    def _render_part(self, text: str) -> Body:
        if self._open == "refusal":
            return {"type": "refusal", "refusal": text}
        return {"type": "output_text", "text": text, "annotations": []}

    def _close_item(self) -> list[Body]:
        if self._open is None:
            return []
        events: list[Body] = []
        text = self._text
        match self._item["type"]:
            case "message":
                part = self._render_part(text)
                self._item["content"] = [part]
                name, done = ("refusal", "refusal") if self._open == "refusal" else ("text", "output_text")
                events.append(self._item_event(f"response.{done}.done", content_index=0, **{name: text}))
                events.append(self._item_event("response.content_part.done", content_index=0, part=part))
            case "reasoning":
                self._item["content"] = [{"type": "reasoning_text", "text": text}]
                events.append(self._item_event("response.reasoning_text.done", content_index=0, text=text))
            case "custom_tool_call":
                self._item["input"] = _read_custom_input(text)
                done = "response.custom_tool_call_input.done"
                events.append(self._item_event(done, input=self._item["input"]))
            case _:
                # Some servers send nothing for a tool without parameters.
                text = self._item["arguments"] = text or "{}"
                done = "response.function_call_arguments.done"
                events.append(self._item_event(done, arguments=text, name=self._item["name"]))
        self._item["status"] = "completed"
        index = len(self._response["output"])
        events.append(self._event("response.output_item.done", output_index=index, item=self._item))
        self._response["output"] = [*self._response["output"], self._item]
        self._open, self._item = None, {}
        return events


_FIRST_EVENTS: Final = ("created", "in_progress")


def _translate_input(body: Mapping[str, Any]) -> list[Body]:
    chat = ChatMessages()
    if instructions := body.get("instructions"):
        chat.add("system", [text_part(str_or_empty(instructions))])
    content = body.get("input")
    if isinstance(content, str):
        chat.add("user", [text_part(content)])
    else:
        for number, item in enumerate(dicts_or_empty(list_entries(body, "input"))):
            _add_item(chat, item, f"input.{number}")
    return chat.finish()


def _add_item(chat: ChatMessages, item: Mapping[str, Any], place: str) -> None:
    call_id, name = str_or_empty(item.get("call_id")), str_or_empty(item.get("name"))
    match item.get("type", "message"):
        case "message":
            parts = _translate_parts(item.get("content"), f"{place}.content")
            if item.get("role") == "assistant":
                chat.add_reply(text=simplify_content([part for part in parts if part["type"] == "text"]))
            else:
                role = "user" if item.get("role") == "user" else "system"
                chat.add(role, parts)
        case "function_call":
            chat.add_reply(calls=[function_call(call_id, name, str_or_empty(item.get("arguments")))])
        case "custom_tool_call":
            arguments = serialize_json({"input": str_or_empty(item.get("input"))}).decode()
            chat.add_reply(calls=[function_call(call_id, name, arguments)])
        case "function_call_output" | "custom_tool_call_output":
            chat.add_result(call_id, _translate_parts(item.get("output"), f"{place}.output"))
        case "reasoning":
            texts = [str_or_empty(part.get("text")) for part in dicts_or_empty(item.get("content"))]
            chat.add_reply(reasoning="".join(texts))
        case other:
            raise refuse(place, f"an item of type {other}")


def _translate_parts(content: object, place: str) -> list[Body]:
    if isinstance(content, str):
        return [text_part(content)]
    parts: list[Body] = []
    for number, part in enumerate(dicts_or_empty(content)):
        url = part.get("image_url")
        if part.get("type") in _TEXT_PARTS:
            parts.append(text_part(str_or_empty(part.get("text"))))
        elif part.get("type") == "refusal":
            parts.append(text_part(str_or_empty(part.get("refusal"))))
        elif part.get("type") == "input_image" and isinstance(url, str):
            parts.append(image_part(url))
        else:
            raise refuse(f"{place}.{number}", f"a part of type {part.get('type')}")
    return parts


def _translate_choice(choice: object) -> Any:
    if isinstance(choice, str):
        return choice
    entry = dict_or_empty(choice)
    if entry.get("type") not in ("function", "custom"):
        raise refuse("tool_choice", f"the type {entry.get('type')}")
    return {"type": "function", "function": {"name": entry.get("name")}}


def _translate_text_settings(text: Mapping[str, Any]) -> Body:
    translated: Body = {}
    format = dict_or_empty(text.get("format"))
    if format.get("type") == "json_schema":
        schema = {name: value for name, value in format.items() if name != "type"}
        translated["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif format.get("type") == "json_object":
        translated["response_format"] = {"type": "json_object"}
    if text.get("verbosity") is not None:
        translated["verbosity"] = text["verbosity"]
    return translated


def _render_usage(reply: CompletionReply) -> Body:
    return {
        "input_tokens": reply.input_tokens,
        "input_tokens_details": {"cached_tokens": reply.cached_tokens},
        "output_tokens": reply.output_tokens,
        "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
        "total_tokens": reply.input_tokens + reply.output_tokens,
    }


def _read_custom_input(arguments: str) -> str:
    """Return the text of a custom tool's call. A model may also send the text itself."""
    try:
        value = dict_or_empty(json.loads(arguments)).get("input")
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, str) else arguments
