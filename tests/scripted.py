"""Replies of a scripted model in the format of each provider."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

ScriptedCall = tuple[str, str, dict[str, Any]]


def anthropic_reply(calls: Sequence[ScriptedCall]) -> dict[str, Any]:
    """Return a Message."""
    uses = [{"type": "tool_use", "id": id, "name": name, "input": sent} for id, name, sent in calls]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-8",
        "content": [{"type": "text", "text": "Let me see."}, *uses],
        "stop_reason": "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def openai_chat_reply(calls: Sequence[ScriptedCall]) -> dict[str, Any]:
    """Return a ChatCompletion."""
    made = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(sent)}}
        for id, name, sent in calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": None if made else "Done."}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "gpt-4o",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls" if made else "stop",
                "message": {**message, "tool_calls": made} if made else message,
            }
        ],
    }


def openai_responses_reply(calls: Sequence[ScriptedCall]) -> dict[str, Any]:
    """Return a Response."""
    spoken = {
        "type": "message",
        "id": "m",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
    }
    made = [
        {"type": "function_call", "call_id": id, "name": name, "arguments": json.dumps(sent)}
        for id, name, sent in calls
    ]
    return {
        "id": "r",
        "object": "response",
        "created_at": 0,
        "model": "gpt-5.4",
        "output": [spoken, *made],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def gemini_reply(calls: Sequence[ScriptedCall]) -> dict[str, Any]:
    """Return a GenerateContentResponse."""
    made = [{"functionCall": {"id": id, "name": name, "args": sent}} for id, name, sent in calls]
    content = {"role": "model", "parts": [{"text": "Let me see."}, *made]}
    return {"candidates": [{"content": content, "finishReason": "STOP"}]}


def mcp_request(calls: Sequence[ScriptedCall]) -> dict[str, Any]:
    """Return a `tools/call` request with the first call."""
    id, name, sent = calls[0]
    parameters = {"name": name, "arguments": sent}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": parameters}


REPLIES = {
    "anthropic": anthropic_reply,
    "openai_chat": openai_chat_reply,
    "openai_responses": openai_responses_reply,
    "gemini": gemini_reply,
    "mcp": mcp_request,
}
