"""Arbitrary requests and replies: they are handled or refused, and never crash the gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateway.llm.openai_responses.requests import CLIENT, CRM, MCP, SEARCH, deferred_functions
from tests.gateway.llm.raw_upstream import ScriptedAnswer, raw_upstream
from tests.gateway.llm.serving import running_llm_gateway
from tests.gateway.llm.serving_openai import chat_functions, functions
from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm.conversation_memory import ConversationMemory, ScopedMemory
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.llm.openai_chat.endpoint import build_deferred_index, build_transparent_index
from toolcrib.gateway.llm.openai_chat.rewriter import ChatRewriter
from toolcrib.gateway.llm.openai_chat.stream import ChatStream
from toolcrib.gateway.llm.openai_responses.rewriter import ResponsesRewriter
from toolcrib.gateway.llm.openai_responses.stream import ResponsesStream
from toolcrib.gateway.llm.openai_responses.tools import build_responses_index
from toolcrib.gateway.llm.tools.exposure import Exposure

Json = dict[str, Any]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.sampled_from(["", "x", "search_tools", "send_email", "crm", "call_1", "{}", "[1]", "\n"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
KINDS = st.sampled_from(
    [
        "function",
        "custom",
        "namespace",
        "mcp",
        "tool_search",
        "message",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "tool_search_call",
        "tool_search_output",
        "additional_tools",
        "reasoning",
        "response.created",
        "response.output_item.added",
        "response.output_item.done",
        "response.function_call_arguments.done",
        "response.completed",
        "error",
    ]
)
FIELDS = [
    "id", "role", "name", "namespace", "description", "parameters", "defer_loading", "execution",
    "call_id", "tool_call_id", "arguments", "output", "content", "tools", "function", "custom",
    "server_label", "index", "delta", "tool_calls", "choices", "message", "finish_reason", "usage",
    "status", "item", "output_index", "response", "error", "paths", "text", "tool_name",
]  # fmt: skip


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    fields = st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6)
    return st.builds(lambda kind, more: {"type": kind, **more}, KINDS | VALUES, fields)


THINGS = _objects(VALUES | _objects(VALUES) | st.lists(_objects(VALUES | _objects(VALUES)), max_size=3))
LISTS = st.lists(THINGS, max_size=4)


def _ignore_refusals(work: Callable[[], Any]) -> Any:
    """Return the result of some work, or None if it is refused."""
    with suppress(RequestFailed):
        return work()


@settings(max_examples=50)
@given(LISTS, LISTS, LISTS, VALUES)
def test_chat_rewriter_accepts_arbitrary_json(
    tools: list[Json], messages: list[Json], replies: list[Json], choice: Any
) -> None:
    sparing = Exposure(threshold_tools=2, style="reveal")
    dispatching = Exposure(threshold_tools=2, style="dispatch")
    for index in (
        build_transparent_index([*tools, *chat_functions()], sparing),
        build_transparent_index([*tools, *chat_functions()], dispatching),
        build_deferred_index([*tools, *chat_functions(defer_loading=True)], client_loads=False),
    ):
        body = {"messages": messages, "tools": tools, "tool_choice": choice}

        def build(index: Any = index, body: Json = body) -> ChatRewriter:
            return ChatRewriter(body, index, ScopedMemory(ConversationMemory(10), "x"), 3)

        whole = build()
        for reply in replies:
            serialize_json(whole.next_request())
            whole.handle_reply({"choices": [{"message": reply}], "usage": reply.get("usage")})
            whole.handle_reply(reply)
        stream = ChatStream(build())
        for reply in replies:
            sent = [*stream.handle_event(reply), *stream.handle_event({"choices": [{"delta": reply}]})]
            serialize_json(sent)
        serialize_json(stream.finish_round())


@settings(max_examples=50)
@given(LISTS, LISTS, LISTS, VALUES)
def test_responses_rewriter_accepts_arbitrary_json(
    tools: list[Json], items: list[Json], replies: list[Json], choice: Any
) -> None:
    for known, style in (
        ([*deferred_functions(), CRM, MCP], "auto"),
        ([CLIENT, *functions(defer_loading=True)], "auto"),
        (functions(), "reveal"),
        (functions(), "dispatch"),
    ):
        exposure = Exposure(threshold_tools=2, style=style)  # type: ignore[arg-type]
        index = _ignore_refusals(lambda: build_responses_index([*tools, *known], exposure))  # noqa: B023
        index = index or build_responses_index([SEARCH])
        body = {"input": items, "tools": tools, "tool_choice": choice, "previous_response_id": "x"}

        def build(index: Any = index, body: Json = body) -> Any:
            return _ignore_refusals(
                lambda: ResponsesRewriter(body, index, ScopedMemory(ConversationMemory(10), "x"), 3)
            )

        whole = build()
        if whole is None:
            continue
        for reply in replies:
            serialize_json(whole.next_request())
            whole.handle_reply({"output": [reply, *replies], "usage": reply.get("usage")})
            whole.handle_reply(reply)
        stream = ResponsesStream(build())
        for reply in replies:
            serialize_json(list(stream.handle_event(reply)))
            if stream.needs_search:
                serialize_json(stream.run_search())
            if stream.is_ended:
                serialize_json(stream.finish_round())


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    """Yield a client of a gateway whose upstream refuses everything."""
    refusal = ScriptedAnswer([b'{"error":{"message":"no"}}'], 422, "application/json")
    with raw_upstream(always=refusal) as raw:
        upstream = LlmUpstreamConfig("faulty", api="openai", url=raw.url, retries=0, style="reveal")
        gateway = LlmGateway(LlmGatewayConfig((upstream,), threshold_tools=2))
        with running_llm_gateway(gateway) as served, httpx2.Client(base_url=served.url, timeout=60) as client:
            yield client


BODIES = st.dictionaries(
    st.sampled_from(["model", "messages", "input", "tools", "tool_choice", "stream", "n"]), VALUES | LISTS, max_size=7
)


@settings(max_examples=30)
@given(body=BODIES)
def test_arbitrary_bodies_are_refused(client: httpx2.Client, body: Json) -> None:
    for path in ("/v1/chat/completions", "/v1/responses"):
        assert client.post(path, json=body).status_code in (400, 422)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b'{"a":' * 3_000, b'{"input":"\\ud800"}', b"1" * 9_999]
)
def test_body_that_is_not_json_object_is_refused(client: httpx2.Client, data: bytes) -> None:
    for path in ("/v1/chat/completions", "/v1/responses"):
        answer = client.post(path, content=data)
        assert answer.status_code in (400, 422)
        assert answer.json()["error"]["message"]
