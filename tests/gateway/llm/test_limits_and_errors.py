"""Limits and error bodies that are the same for all APIs."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2
import openai
import pytest

from tests.gateway.llm.serving import running_llm_gateway
from toolcrib.config.settings import LlmApi, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm import gateway as gateway_module
from toolcrib.gateway.llm.gateway import LlmGateway

SCHEMA = {"type": "object", "properties": {}}
APIS: dict[str, tuple[LlmApi, Any]] = {
    "/v1/messages": ("messages", lambda name: {"name": name, "input_schema": SCHEMA}),
    "/v1/chat/completions": ("openai", lambda name: {"type": "function", "function": {"name": name}}),
    "/v1/responses": ("openai", lambda name: {"type": "function", "name": name, "parameters": SCHEMA}),
}


def post_tools(path: str, count: int, **settings: Any) -> httpx2.Response:
    """Send a request with tools to a gateway without a reachable upstream."""
    api, make_tool = APIS[path]
    upstream = LlmUpstreamConfig("one", api=api, url="http://127.0.0.1:9", retries=0)
    config = LlmGatewayConfig((upstream,), threshold_tools=2, **settings)
    messages = [{"role": "user", "content": "Hi"}]
    body = {"model": "m", "messages": messages, "input": "Hi", "tools": [make_tool(f"t{i}") for i in range(count)]}
    with running_llm_gateway(LlmGateway(config)) as served:
        return httpx2.post(f"{served.url}{path}", json=body, headers={"x-toolcrib-tool-search": "on"})


@pytest.mark.parametrize("path", APIS)
def test_number_and_size_of_tools_are_limited_on_every_api(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    many = post_tools(path, 5, max_tools=4)
    assert many.status_code == 400
    assert "the request has 5 tools; the limit is 4" in many.json()["error"]["message"]
    monkeypatch.setattr(gateway_module, "MAX_TOOLS_BYTES", 30)
    large = post_tools(path, 5)
    assert large.status_code == 400
    assert "the limit is 30" in large.json()["error"]["message"]


def test_own_errors_have_the_id_of_the_request() -> None:
    with running_llm_gateway(LlmGateway(LlmGatewayConfig())) as served:
        client = anthropic.Anthropic(base_url=served.url, api_key="k", max_retries=0)
        with client, pytest.raises(anthropic.NotFoundError) as raised:
            client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
        body = raised.value.body
        assert isinstance(body, dict)
        assert raised.value.request_id and raised.value.request_id == body["request_id"]
        other = openai.OpenAI(base_url=f"{served.url}/v1", api_key="k", max_retries=0)
        with other, pytest.raises(openai.NotFoundError) as failed:
            other.responses.create(model="m", input="Hi")
        assert failed.value.response.headers["request-id"] != raised.value.request_id
