"""How the gateway chooses an upstream, and what it does when one fails."""

from __future__ import annotations

import httpx2
import pytest

from tests.gateway.llm.raw_upstream import ScriptedAnswer, raw_upstream
from tests.gateway.llm.serving import running_llm_gateway
from toolcrib.config.settings import LlmApi, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.gateway import LlmGateway


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("api", "path"), [("messages", "/v1/messages"), ("openai", "/v1/chat/completions"), ("openai", "/v1/responses")]
)
def test_redirect_of_an_upstream_is_an_error_without_the_foreign_address(api: LlmApi, path: str, status: int) -> None:
    redirect = ScriptedAnswer(status=status, headers={"Location": "http://evil.invalid/v1/messages"}, length=0)
    with raw_upstream(redirect) as upstream:
        one = LlmUpstreamConfig("mine", api=api, url=upstream.url)
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((one,)))) as served:
            body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "input": "Hi"}
            response = httpx2.post(f"{served.url}{path}", json=body)
    assert response.status_code == 502
    assert "location" not in response.headers and "evil" not in response.text
    message = response.json()["error"]["message"]
    assert "'mine'" in message and str(status) in message and "`url`" in message
