"""Large and hostile JSON bodies."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from pydantic_core import from_json

from tests.gateway.llm.raw_upstream import ScriptedAnswer, raw_upstream
from tests.gateway.llm.serving import running_llm_gateway
from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.errors import RequestFailed
from toolcrib.gateway.llm import json_body
from toolcrib.gateway.llm.gateway import LlmGateway

every_api = pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses"])


def _create_gateway(url: str) -> LlmGateway:
    upstreams = (
        LlmUpstreamConfig("messages", api="messages", url=url),
        LlmUpstreamConfig("openai", api="openai", url=url),
    )
    return LlmGateway(LlmGatewayConfig(upstreams))


@every_api
def test_body_with_too_many_brackets_is_rejected(path: str) -> None:
    data = b'{"model": "m", "tools": [' + b"[]," * json_body.MAX_BRACKETS + b"[]]}"
    with running_llm_gateway(_create_gateway("http://127.0.0.1:9")) as served:
        answer = httpx2.post(f"{served.url}{path}", content=data, timeout=60)
    assert answer.status_code == 413
    assert "1,000,000 brackets" in answer.json()["error"]["message"]


@every_api
def test_body_with_too_many_values_is_rejected_before_it_is_parsed(path: str) -> None:
    keys = b",".join(b'"%d":1' % number for number in range(json_body.MAX_COMMAS + 3))
    with running_llm_gateway(_create_gateway("http://127.0.0.1:9")) as served:
        answer = httpx2.post(f"{served.url}{path}", content=b"{%b}" % keys, timeout=60)
    assert answer.status_code == 413
    assert "500,000 commas" in answer.json()["error"]["message"]


def test_upstream_body_with_too_many_brackets_is_rejected() -> None:
    data = b'{"tools": [' + b"[]," * json_body.MAX_BRACKETS + b"[]]}"
    with pytest.raises(RequestFailed, match="1,000,000 brackets") as raised:
        json_body.parse_upstream_body(data)
    assert raised.value.status == 502


@every_api
def test_other_requests_are_answered_while_a_large_body_is_parsed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    others_are_answered, is_parsing = threading.Event(), threading.Event()

    def parse_slowly(data: bytes, **options: Any) -> Any:
        if len(data) > json_body.LARGE_BODY_BYTES:
            is_parsing.set()
            assert others_are_answered.wait(30)
        return from_json(data, **options)

    monkeypatch.setattr(json_body, "from_json", parse_slowly)
    reply = b'{"id": "x"}'
    large = {"model": "m", "padding": list(range(90_000)), "messages": [], "input": "Hi"}
    answer = ScriptedAnswer([reply], content_type="application/json", length=len(reply))
    with (
        raw_upstream(always=answer) as model,
        ThreadPoolExecutor(1) as threads,
        running_llm_gateway(_create_gateway(model.url)) as served,
    ):
        url = f"{served.url}{path}"
        waiting = threads.submit(httpx2.post, url, json=large, timeout=60)
        assert is_parsing.wait(30)
        for _ in range(5):
            assert httpx2.post(url, json={"model": "m"}, timeout=30).status_code == 200
        assert not waiting.done()
        others_are_answered.set()
        assert waiting.result(60).status_code == 200
