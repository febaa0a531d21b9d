"""Golden vectors of the API, sent through the gateway."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.gateway.llm.anthropic.requests import (
    REGEX,
    conversation_with,
    deferred_tool,
    referenced_names,
    regex_search,
    user_message,
)
from tests.golden import golden_vectors, load_golden
from tests.support.scripted_model.turn import Turn


def post_message(script: list[Turn], body: dict[str, Any]) -> httpx2.Response:
    known = {"model": "plain-model", "max_tokens": 9, "messages": [user_message("Hi")], **body}
    with conversation_with(script) as conversation:
        return httpx2.post(f"{conversation.server.url}/v1/messages", json=known, timeout=30)


@pytest.mark.parametrize("vector", golden_vectors("anthropic", "regex_vectors"))
def test_regex_matches_recorded_results(vector: dict[str, Any]) -> None:
    tools = load_golden("anthropic")["catalog"]
    script = [Turn(regex_search(vector["pattern"], limit=len(tools))), Turn("Done.")]
    answer = post_message(script, {"tools": [REGEX, *tools]})
    assert answer.status_code == 200
    block = answer.json()["content"][1]
    if "error" in vector["expect"]:
        assert block["content"]["error_code"] == "invalid_tool_input"
        return
    assert referenced_names(block) == vector["expect"]["current_all_fields_ignore_case"]


@pytest.mark.parametrize("vector", golden_vectors("anthropic", "regex_hazards"))
def test_hazardous_regex_is_answered(vector: dict[str, Any]) -> None:
    script = [Turn(regex_search(vector["pattern"])), Turn("Done.")]
    answer = post_message(script, {"tools": [REGEX, deferred_tool("hazard", vector["text"])]})
    content = answer.json()["content"][1]["content"]
    if content["type"] == "tool_search_tool_result_error":
        assert content["error_code"] == "execution_time_exceeded"


@pytest.mark.parametrize("vector", golden_vectors("anthropic", "request_vectors"))
def test_requests_are_refused_as_recorded(vector: dict[str, Any]) -> None:
    names = vector.get("tool_result_references", [])
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    use = {"type": "tool_use", "id": "toolu_1", "name": "find", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": references}
    history = [user_message("Hi"), {"role": "assistant", "content": [use]}]
    messages = [*history, {"role": "user", "content": [result]}] if names else [user_message("Hi")]
    answer = post_message([Turn("Done.")], {"tools": vector["tools"], "messages": messages})
    # The API refused examples in 2025 and accepts them now.
    is_refused = vector["expect"] == "error" and "2025" not in vector["reason"]
    assert answer.status_code == (400 if is_refused else 200), answer.text
