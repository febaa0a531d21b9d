"""What is known of the API, asked through the HTTP door."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.gateway.llm.anthropic.requests import REGEX, asking, by_pattern, found, held, says
from tests.golden import golden_vectors, load_golden
from tests.support.scripted_model.turn import Turn


def ask(script: list[Turn], body: dict[str, Any]) -> httpx2.Response:
    known = {"model": "plain-model", "max_tokens": 9, "messages": [says("Hi")], **body}
    with asking(script) as asked:
        return httpx2.post(f"{asked.served.url}/v1/messages", json=known, timeout=30)


@pytest.mark.parametrize("vector", golden_vectors("anthropic", "regex_vectors"))
def test_a_pattern_finds_as_recorded(vector: dict[str, Any]) -> None:
    tools = load_golden("anthropic")["catalog"]
    script = [Turn(by_pattern(vector["pattern"], limit=len(tools))), Turn("Done.")]
    answer = ask(script, {"tools": [REGEX, *tools]})
    assert answer.status_code == 200
    block = answer.json()["content"][1]
    if "error" in vector["expect"]:
        assert block["content"]["error_code"] == "invalid_tool_input"
        return
    assert found(block) == vector["expect"]["current_all_fields_ignore_case"]


@pytest.mark.parametrize("vector", golden_vectors("anthropic", "regex_hazards"))
def test_a_pattern_that_hangs_others_is_answered(vector: dict[str, Any]) -> None:
    script = [Turn(by_pattern(vector["pattern"])), Turn("Done.")]
    answer = ask(script, {"tools": [REGEX, held("hazard", vector["text"])]})
    content = answer.json()["content"][1]["content"]
    if content["type"] == "tool_search_tool_result_error":
        assert content["error_code"] == "execution_time_exceeded"


@pytest.mark.parametrize("vector", golden_vectors("anthropic", "request_vectors"))
def test_a_request_is_refused_or_not_as_recorded(vector: dict[str, Any]) -> None:
    names = vector.get("tool_result_references", [])
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    use = {"type": "tool_use", "id": "toolu_1", "name": "find", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": references}
    history = [says("Hi"), {"role": "assistant", "content": [use]}]
    messages = [*history, {"role": "user", "content": [result]}] if names else [says("Hi")]
    answer = ask([Turn("Done.")], {"tools": vector["tools"], "messages": messages})
    # Examples were refused in 2025; the API that we stand in for takes them.
    is_refused = vector["expect"] == "error" and "2025" not in vector["reason"]
    assert answer.status_code == (400 if is_refused else 200), answer.text
