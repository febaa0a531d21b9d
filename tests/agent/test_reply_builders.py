"""Replies built from chunks as real servers send them, including malformed ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest

from tests.support.scripted_model.server import ScriptedModel
from tests.support.scripted_model.turn import Raw, ToolCall, Turn
from toolcrib import Toolcrib
from toolcrib.adapters import anthropic as anthropic_wire
from toolcrib.agent.agent import Agent
from toolcrib.agent.anthropic import Anthropic
from toolcrib.agent.gemini import Gemini
from toolcrib.agent.openai_chat import OpenAIChat
from toolcrib.agent.openai_responses import OpenAIResponses
from toolcrib.agent.provider import AgentRequest, Provider, ReplyBuilder
from toolcrib.errors import AgentUnfinished


def _build_reply(provider: Provider, chunks: list[dict[str, Any]]) -> ReplyBuilder:
    builder = provider.new_reply()
    for chunk in chunks:
        builder.add_chunk(chunk)
    return builder


def _deltas(*deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]


CHAT = OpenAIChat(None, "any")


def _call(id: str, name: str, arguments: str, **place: Any) -> dict[str, Any]:
    return {"tool_calls": [{"id": id, "function": {"name": name, "arguments": arguments}, **place}]}


@pytest.mark.parametrize("place", [{}, {"index": None}, {"index": 0}])
def test_unnumbered_calls_are_distinguished_by_id(place: dict[str, Any]) -> None:
    more = {"tool_calls": [{"function": {"arguments": "}"}, **place}]}
    chunks = _deltas(_call("a", "x", "{}", **place), _call("b", "y", "{", **place), more)
    [choice] = _build_reply(CHAT, chunks).reply["choices"]
    assert [(call_entry["id"], call_entry["function"]) for call_entry in choice["message"]["tool_calls"]] == [
        ("a", {"name": "x", "arguments": "{}"}),
        ("b", {"name": "y", "arguments": "{}"}),
    ]
    assert all("index" not in call_entry for call_entry in choice["message"]["tool_calls"])


def test_pieces_with_a_repeated_id_belong_to_one_call() -> None:
    chunks = _deltas(
        _call("a", "x", "", index=0),
        _call("b", "y", "", index=1),
        _call("a", "", '{"n":', index=0),
        _call("", "", "1}", index=0),
    )
    [choice] = _build_reply(CHAT, chunks).reply["choices"]
    assert [call_entry["function"]["arguments"] for call_entry in choice["message"]["tool_calls"]] == ['{"n":1}', ""]


def test_fields_added_by_a_server_are_sent_back_unchanged() -> None:
    signed = {"google": {"thought_signature": "c2ln"}}
    chunks = _deltas(
        {"role": "assistant", "reasoning_content": "Let me "},
        {"reasoning_content": "see.", "content": None},
        {"content": "Hm", "reasoning_details": [{"n": 1}]},
        {"content": ".", "reasoning_details": [{"n": 2}], "refusal": None},
        _call("a", "x", "{}", index=0, extra_content=signed),
    )
    builder = _build_reply(CHAT, [*chunks, {"choices": None, "usage": {"prompt_tokens": None}}])
    [choice] = builder.reply["choices"]
    [call] = choice["message"].pop("tool_calls")
    assert call["extra_content"] == signed
    assert choice["message"] == {
        "role": "assistant",
        "content": "Hm.",
        "reasoning_content": "Let me see.",
        "reasoning_details": [{"n": 1}, {"n": 2}],
        "refusal": None,
    }
    assert (builder.text, builder.stop_reason, builder.usage.total_tokens) == ("Hm.", "calls", 0)


def _claude_call(*pieces: str) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": "t", "name": "x", "input": {}}
    return [
        {"type": "content_block_start", "content_block": block},
        *(
            {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": piece}}
            for piece in pieces
        ),
        {"type": "content_block_stop"},
    ]


@pytest.mark.parametrize("invalid_json", ['{"a": ', "[1]", "[" * 100_000])
def test_invalid_arguments_of_claude_are_marked_as_invalid_json(invalid_json: str) -> None:
    reply = _build_reply(Anthropic(None, "any"), _claude_call(invalid_json)).reply
    assert reply["content"][0]["input"] == {"INVALID_JSON": invalid_json}
    [call] = anthropic_wire.calls_from_wire(reply)
    assert call.arguments is None


def test_compaction_of_claude_is_kept() -> None:
    block = {"type": "compaction", "content": None}
    delta = {"type": "compaction_delta", "content": "So far: nothing."}
    chunks: list[dict[str, Any]] = [
        {"type": "content_block_start", "content_block": block},
        {"type": "content_block_delta", "delta": delta},
        {"type": "content_block_stop"},
    ]
    reply = _build_reply(Anthropic(None, "any"), chunks).reply
    assert reply["content"] == [{"type": "compaction", "content": "So far: nothing."}]


def test_gemini_thoughts_count_as_output_and_block_reason_is_reported() -> None:
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 90}
    assert _build_reply(Gemini(None, "any"), [{"usageMetadata": usage}]).usage.output_tokens == 92
    refused = [{"promptFeedback": {"blockReason": "SAFETY"}}]
    assert _build_reply(Gemini(None, "any"), refused).stop_reason == "SAFETY"


class _FixedReplyProvider:
    """A provider that always returns the same reply."""

    wire = "openai_chat"
    streams = False

    def __init__(self, reply: dict[str, Any]) -> None:
        self._reply = reply

    def user_message(self, task: str) -> dict[str, Any]:
        return {"role": "user", "content": task}

    def send(self, request: AgentRequest) -> Any:
        return self._reply

    def new_reply(self) -> ReplyBuilder:
        return CHAT.new_reply()


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ({"choices": [{"finish_reason": "length", "message": {}}]}, "raise its token limit"),
        ({"choices": [{"finish_reason": "content_filter", "message": {}}]}, "rephrase the task"),
        ({"choices": []}, "without a reason"),
        ({}, "without a reason"),
    ],
)
def test_error_for_an_incomplete_reply_gives_advice(reply: dict[str, Any], message: str) -> None:
    with pytest.raises(AgentUnfinished, match=message):
        Agent(_FixedReplyProvider(reply), Toolcrib().session()).run("x")


@contextmanager
def _responses(turns: list[Turn], **options: Any) -> Iterator[tuple[ScriptedModel, Provider]]:
    with (
        ScriptedModel(turns) as model,
        openai.OpenAI(base_url=f"{model.url}/v1", api_key="any", max_retries=0) as client,
    ):
        yield model, OpenAIResponses(client, "scripted", **options)


def _thought(**more: str) -> Raw:
    return Raw({"type": "reasoning", "id": "rs_1", "summary": [], **more})


def nothing() -> str:
    """Do nothing."""
    return "done"


def test_unstored_items_are_sent_back_without_ids() -> None:
    turns = [Turn(_thought(), "Hm.", ToolCall("nothing", {})), Turn("Done.")]
    with _responses(turns) as (model, provider):
        Agent(provider, Toolcrib([nothing]).session()).run("x")
    _, message_item, call, result = model.requests[1].body["input"]
    assert [message_item["type"], call["type"], result["type"]] == ["message", "function_call", "function_call_output"]
    assert "id" not in message_item and "id" not in call


def test_reasoning_is_sent_back_if_encrypted_or_stored() -> None:
    encrypted = _thought(encrypted_content="x")
    turns = [Turn(encrypted, ToolCall("nothing", {})), Turn("Done.")]
    with _responses(turns, include=["reasoning.encrypted_content"]) as (model, provider):
        Agent(provider, Toolcrib([nothing]).session()).run("x")
    assert model.requests[1].body["input"][1] == encrypted.block
    with _responses([Turn(_thought(), ToolCall("nothing", {})), Turn("Done.")], store=True) as (model, provider):
        Agent(provider, Toolcrib([nothing]).session()).run("x")
    assert [item.get("id", "")[:3] for item in model.requests[1].body["input"]] == ["", "rs_", "fc_", ""]


def test_failed_response_reports_its_reason() -> None:
    builder = OpenAIResponses(None, "any").new_reply()
    builder.set_reply({"status": "failed", "error": {"message": "overloaded"}})
    assert builder.stop_reason == "overloaded"
