"""Requests and replies of any shape are translated or refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.translation.gemini import GeminiTranslator
from toolcrib.gateway.llm.translation.messages import MessagesTranslator
from toolcrib.gateway.llm.translation.responses import ResponsesTranslator
from toolcrib.gateway.llm.translation.translator import CompletionReply, Translator

BUILDERS = [MessagesTranslator, ResponsesTranslator, partial(GeminiTranslator, "m", is_streaming=True)]
translators = pytest.mark.parametrize("build", BUILDERS)
odd = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for objects with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


KINDS = (
    "text image document tool_use tool_result thinking message function_call reasoning function_call_output "
    "custom_tool_call input_text input_image function custom"
)
kinds = st.sampled_from(KINDS.split())
parts = some(type=kinds | odd, text=odd, source=odd, content=odd, input=odd, id=odd, tool_use_id=odd, image_url=odd)
items = some(
    type=kinds | odd, role=st.sampled_from(["user", "assistant"]) | odd, content=st.lists(parts) | odd, output=odd
)
tools = some(
    functionDeclarations=odd, type=kinds | odd, name=odd, description=odd, parameters=odd, input_schema=odd, format=odd
)
media = some(mimeType=st.just("image/png") | odd, data=odd, fileUri=odd)
result = some(name=odd, id=odd, response=odd, parts=odd)
gemini_parts = some(
    text=odd,
    thought=odd,
    functionCall=some(name=odd, id=odd, args=odd) | odd,
    functionResponse=result | odd,
    inlineData=media | odd,
    fileData=media | odd,
)
contents = some(role=st.sampled_from(["user", "model"]) | odd, parts=st.lists(gemini_parts, max_size=3) | odd)
configs = some(responseSchema=odd, responseMimeType=odd, thinkingConfig=odd, candidateCount=odd, stopSequences=odd)
requests = some(
    contents=st.lists(contents | odd, max_size=3) | odd,
    systemInstruction=contents | odd,
    toolConfig=some(functionCallingConfig=some(mode=odd, allowedFunctionNames=odd) | odd) | odd,
    generationConfig=configs | odd,
    safetySettings=odd,
    messages=st.lists(items, max_size=3) | odd,
    input=st.lists(items, max_size=3) | odd,
    system=st.lists(parts, max_size=2) | odd,
    instructions=odd,
    tools=st.lists(tools, max_size=2) | odd,
    tool_choice=odd,
    stop_sequences=odd,
    output_config=odd,
    reasoning=odd,
    text=odd,
    stream=st.booleans(),
)
calls = some(index=odd, id=odd, function=some(name=odd, arguments=odd) | odd)
message = some(content=odd, refusal=odd, reasoning_content=odd, tool_calls=st.lists(calls, max_size=2) | odd)
choices = some(message=message | odd, delta=message | odd, finish_reason=st.sampled_from(["stop", "length"]) | odd)
replies = some(id=odd, model=odd, choices=st.lists(choices, max_size=2) | odd, usage=odd)


@translators
@settings(max_examples=150, deadline=None)
@given(body=requests)
def test_any_request_is_translated_or_refused(build: Callable[[], Translator], body: dict[str, Any]) -> None:
    with suppress(RequestFailed):
        translated = build().translate_request(body)
        assert all(message["role"] for message in translated["messages"])


@translators
@settings(max_examples=150, deadline=None)
@given(chunks=st.lists(replies, max_size=3))
def test_any_reply_is_translated_or_an_error(build: Callable[[], Translator], chunks: list[dict[str, Any]]) -> None:
    translator = build()
    with suppress(RequestFailed):
        events = translator.write_events()
        sent = [event for chunk in chunks for event in events.handle_chunk(CompletionReply(chunk))]
        assert all(serialize_json(event) for event in [*sent, *events.finish()])
    for chunk in chunks:
        with suppress(RequestFailed):
            assert translator.translate_reply(CompletionReply(chunk))
        assert translator.translate_error(500, chunk) is not None
