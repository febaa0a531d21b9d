"""Requests and replies of the Responses API, and a rewriter for them."""

from __future__ import annotations

import json
from typing import Any

from tests.gateway.llm.serving_openai import functions, parameters
from toolcrib.gateway.llm.conversation_memory import ConversationMemory, ScopedMemory
from toolcrib.gateway.llm.openai_responses.rewriter import ResponsesRewriter
from toolcrib.gateway.llm.openai_responses.tools import ResponsesToolIndex, build_responses_index
from toolcrib.gateway.llm.tools.exposure import Exposure

Json = dict[str, Any]
SEARCH: Json = {"type": "tool_search"}
USER: Json = {"role": "user", "content": "What is a dollar in euros?"}
CRM: Json = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers and what they have ordered",
    "tools": [
        {"type": "function", "name": "get_profile", "parameters": parameters("customer")},
        {
            "type": "function",
            "name": "list_orders",
            "description": "List the orders of a customer",
            "parameters": parameters("customer"),
            "defer_loading": True,
        },
        {
            "type": "function",
            "name": "cancel_order",
            "description": "Cancel an order",
            "parameters": parameters("order"),
            "defer_loading": True,
        },
    ],
}
MCP: Json = {
    "type": "mcp",
    "server_label": "wiki",
    "server_description": "Pages of the company's encyclopedia",
    "server_url": "https://wiki.example/mcp",
    "authorization": "a secret",
    "defer_loading": True,
}
CLIENT: Json = {
    "type": "tool_search",
    "execution": "client",
    "description": "Find tools",
    "parameters": {"type": "object", "properties": {"goal": {"type": "string"}}},
}


def deferred_functions() -> list[Json]:
    return [SEARCH, *functions(defer_loading=True)]


def transparent_index(tools: list[Json] | None = None) -> ResponsesToolIndex:
    return build_responses_index(tools or functions(), Exposure(style="reveal"))


def build_rewriter(input: Any = None, tools: list[Json] | None = None, **more: Any) -> ResponsesRewriter:
    """Return a rewriter for a request; by default with six deferred functions."""
    entries = deferred_functions() if tools is None else tools
    rack = more.pop("index", None) or build_responses_index(entries)
    body = {"model": "m", "input": input or [USER], "tools": entries, **more.pop("body", {})}
    settings: Json = {"memory": new_memory(), "max_rounds": 10, **more}
    return ResponsesRewriter(body, rack, **settings)


def new_memory() -> ScopedMemory:
    return ScopedMemory(ConversationMemory(100), "somebody")


def function_call(name: str, id: str = "call_1", **arguments: Any) -> Json:
    return {
        "id": f"fc_{id}",
        "type": "function_call",
        "status": "completed",
        "call_id": id,
        "name": name,
        "arguments": json.dumps(arguments),
    }


def search_call(query: str = "exchange rate of currencies", id: str = "call_s") -> Json:
    return function_call("search_tools", id, query=query)


def assistant_message(text: str) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": f"msg_{text}", "type": "message", "role": "assistant", "status": "completed", "content": content}


def response(*output: Json, id: str = "resp_1", status: str = "completed", **more: Any) -> Json:
    usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 2}, "output_tokens": 1}
    return {
        "id": id,
        "object": "response",
        "status": status,
        "output": list(output),
        "usage": usage,
        "tools": ["what the upstream was sent"],
        **more,
    }


def tool_names(body: Json) -> list[str]:
    return [tool.get("name", tool["type"]) for tool in body.get("tools", [])]


def item_types(items: Any) -> list[str]:
    return [item.get("type", "message") for item in items]
