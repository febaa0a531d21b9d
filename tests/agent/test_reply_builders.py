"""Replies put together from chunks as real servers send them, the careless ones included."""

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


def _fed(provider: Provider, chunks: list[dict[str, Any]]) -> ReplyBuilder:
    assembly = provider.new_reply()
    for chunk in chunks:
        assembly.add_chunk(chunk)
    return assembly


def _deltas(*deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]


CHAT = OpenAIChat(None, "any")


def _call(id: str, name: str, arguments: str, **place: Any) -> dict[str, Any]:
    return {"tool_calls": [{"id": id, "function": {"name": name, "arguments": arguments}, **place}]}


@pytest.mark.parametrize("place", [{}, {"index": None}, {"index": 0}])
def test_calls_that_a_server_does_not_number_are_told_apart_by_their_ids(
    place: dict[str, Any],
) -> None:
    more = {"tool_calls": [{"function": {"arguments": "}"}, **place}]}
    chunks = _deltas(_call("a", "x", "{}", **place), _call("b", "y", "{", **place), more)
    [choice] = _fed(CHAT, chunks).reply["choices"]
    assert [(one["id"], one["function"]) for one in choice["message"]["tool_calls"]] == [
        ("a", {"name": "x", "arguments": "{}"}),
        ("b", {"name": "y", "arguments": "{}"}),
    ]
    assert all("index" not in one for one in choice["message"]["tool_calls"])


def test_a_call_in_pieces_is_one_call_also_where_its_id_is_repeated() -> None:
    chunks = _deltas(
        _call("a", "x", "", index=0),
        _call("b", "y", "", index=1),
        _call("a", "", '{"n":', index=0),
        _call("", "", "1}", index=0),
    )
    [choice] = _fed(CHAT, chunks).reply["choices"]
    assert [one["function"]["arguments"] for one in choice["message"]["tool_calls"]] == [
        '{"n":1}',
        "",
    ]


def test_what_a_server_adds_to_a_message_goes_back_as_it_came() -> None:
    signed = {"google": {"thought_signature": "c2ln"}}
    chunks = _deltas(
        {"role": "assistant", "reasoning_content": "Let me "},
        {"reasoning_content": "see.", "content": None},
        {"content": "Hm", "reasoning_details": [{"n": 1}]},
        {"content": ".", "reasoning_details": [{"n": 2}], "refusal": None},
        _call("a", "x", "{}", index=0, extra_content=signed),
    )
    assembly = _fed(CHAT, [*chunks, {"choices": None, "usage": {"prompt_tokens": None}}])
    [choice] = assembly.reply["choices"]
    [call] = choice["message"].pop("tool_calls")
    assert call["extra_content"] == signed
    assert choice["message"] == {
        "role": "assistant",
        "content": "Hm.",
        "reasoning_content": "Let me see.",
        "reasoning_details": [{"n": 1}, {"n": 2}],
        "refusal": None,
    }
    assert (assembly.text, assembly.stop_reason, assembly.usage.total_tokens) == ("Hm.", "calls", 0)


def _claude_call(*pieces: str) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": "t", "name": "x", "input": {}}
    return [
        {"type": "content_block_start", "content_block": block},
        *(
            {
                "type": "content_block_delta",
                "delta": {"type": "input_json_delta", "partial_json": piece},
            }
            for piece in pieces
        ),
        {"type": "content_block_stop"},
    ]


@pytest.mark.parametrize("written", ['{"a": ', "[1]", "[" * 100_000])
def test_arguments_of_claude_that_are_no_object_are_told_as_that(written: str) -> None:
    reply = _fed(Anthropic(None, "any"), _claude_call(written)).reply
    assert reply["content"][0]["input"] == {"INVALID_JSON": written}
    [call] = anthropic_wire.calls_from_wire(reply)
    assert call.arguments is None


def test_a_compaction_of_claude_is_kept() -> None:
    block = {"type": "compaction", "content": None}
    delta = {"type": "compaction_delta", "content": "So far: nothing."}
    chunks: list[dict[str, Any]] = [
        {"type": "content_block_start", "content_block": block},
        {"type": "content_block_delta", "delta": delta},
        {"type": "content_block_stop"},
    ]
    reply = _fed(Anthropic(None, "any"), chunks).reply
    assert reply["content"] == [{"type": "compaction", "content": "So far: nothing."}]


def test_thoughts_of_gemini_are_paid_for_and_a_refused_prompt_says_why() -> None:
    usage = {"promptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 90}
    assert _fed(Gemini(None, "any"), [{"usageMetadata": usage}]).usage.output_tokens == 92
    refused = [{"promptFeedback": {"blockReason": "SAFETY"}}]
    assert _fed(Gemini(None, "any"), refused).stop_reason == "SAFETY"


class _FixedReplyProvider:
    """A provider whose model says one thing."""

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
def test_a_reply_that_is_no_end_says_what_to_do(reply: dict[str, Any], message: str) -> None:
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


def test_what_openai_has_not_stored_is_not_looked_up_there() -> None:
    turns = [Turn(_thought(), "Hm.", ToolCall("nothing", {})), Turn("Done.")]
    with _responses(turns) as (model, provider):
        Agent(provider, Toolcrib([nothing]).session()).run("x")
    _, said, call, result = model.requests[1].body["input"]
    assert [said["type"], call["type"], result["type"]] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    assert "id" not in said and "id" not in call


def test_thoughts_go_back_to_openai_where_they_come_as_a_whole_or_are_stored() -> None:
    encrypted = _thought(encrypted_content="x")
    turns = [Turn(encrypted, ToolCall("nothing", {})), Turn("Done.")]
    with _responses(turns, include=["reasoning.encrypted_content"]) as (model, provider):
        Agent(provider, Toolcrib([nothing]).session()).run("x")
    assert model.requests[1].body["input"][1] == encrypted.block
    with _responses([Turn(_thought(), ToolCall("nothing", {})), Turn("Done.")], store=True) as (
        model,
        provider,
    ):
        Agent(provider, Toolcrib([nothing]).session()).run("x")
    assert [item.get("id", "")[:3] for item in model.requests[1].body["input"]] == [
        "",
        "rs_",
        "fc_",
        "",
    ]


def test_a_response_that_failed_says_why() -> None:
    assembly = OpenAIResponses(None, "any").new_reply()
    assembly.set_reply({"status": "failed", "error": {"message": "overloaded"}})
    assert assembly.stop_reason == "overloaded"
