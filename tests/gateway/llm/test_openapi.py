"""The description of `/v1` is valid, is told, and holds: no request that it allows is stumbled over.

The validator and the fuzzer come with the extra `fuzz`; fuzzing takes minutes and is asked for.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from typing import Any

import httpx2
import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings

from tests.gateway.llm.serving import RunningLlmGateway, running_llm_gateway
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib.config.settings import LlmApi, LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.openapi import description
from toolcrib.gateway.llm.routes import build_llm_routes

FUZZ = "TOOLCRIB_FUZZ"
APIS: tuple[LlmApi, ...] = ("messages", "openai")
# A gateway may say these; 500 is none of them. 501 is the scripted model's, for what it does not do.
FORESEEN = {200, 400, 404, 405, 406, 413, 415, 422, 501, 502, 504}


def searching(request: Request) -> Turn:
    """A model that searches once, if it can."""
    name = next((name for name in request.tool_names if "search" in name), None)
    if name is None or request.results:
        return Turn("Hi.")
    return Turn(ToolCall(name, {"query": "x", "pattern": "x"}))


@pytest.fixture(scope="module")
def served() -> Iterator[RunningLlmGateway]:
    with ScriptedModel(searching) as model:
        upstreams = tuple(LlmUpstreamConfig(api, api=api, url=model.url, retries=0) for api in APIS)
        with running_llm_gateway(LlmGateway(LlmGatewayConfig(upstreams, threshold_tools=2))) as one:
            yield one


def test_the_description_is_told_and_names_every_path_there_is(served: RunningLlmGateway) -> None:
    told = httpx2.get(f"{served.url}/v1/openapi.json", timeout=30).json()
    assert told == json.loads(json.dumps(description()))
    paths = {getattr(one, "path", "") for one in build_llm_routes(served.gateway)}
    aside = {"/v1/openapi.json", "/v1/models/{model:path}", "/v1/responses/{rest:path}"}
    assert {path for path in told["paths"] if "{" not in path} == paths - aside


def test_every_schema_is_one_and_requests_of_the_apis_fit(served: RunningLlmGateway) -> None:
    told = description()
    for name in told["components"]["schemas"]:
        jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", **told})
    tools: list[dict[str, Any]] = [
        {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
        {"name": "a", "input_schema": {}, "defer_loading": True},
    ]
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    known = {"$ref": "#/components/schemas/MessagesRequest", **told}
    assert jsonschema_rs.is_valid(known, {**body, "tools": tools})
    assert not jsonschema_rs.is_valid(known, {"model": "m"})
    answer = httpx2.post(f"{served.url}/v1/messages", json={**body, "tools": tools}, timeout=30)
    reply = {"$ref": "#/components/schemas/MessagesReply", **told}
    assert answer.status_code == 200 and jsonschema_rs.is_valid(reply, answer.json())
    refused = httpx2.post(f"{served.url}/v1/messages", content=b"{", timeout=30)
    fault = {"$ref": "#/components/schemas/MessagesError", **told}
    assert refused.status_code == 400 and jsonschema_rs.is_valid(fault, refused.json())


def test_the_description_is_valid_openapi() -> None:
    reason = "install toolcrib[fuzz] to have the description validated"
    validator: Any = pytest.importorskip("openapi_spec_validator", reason=reason)
    validator.validate(description())


@pytest.mark.skipif(
    not os.environ.get(FUZZ), reason=f"takes minutes; install toolcrib[fuzz] and set {FUZZ} to 1"
)
@pytest.mark.filterwarnings("default")
def test_fuzzing_over_the_description_finds_no_failure(served: RunningLlmGateway) -> None:
    schemathesis: Any = importlib.import_module("schemathesis")
    schema = schemathesis.openapi.from_dict(description())
    schema.config.update(base_url=served.url)
    examples = int(os.environ[FUZZ]) if os.environ[FUZZ].isdigit() else 1
    seen: set[int] = set()
    for result in schema.get_all_operations():

        @settings(
            max_examples=max(25, examples),
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=result.ok().as_strategy())
        def run(case: Any) -> None:
            answer = case.call(timeout=60)
            seen.add(answer.status_code)
            assert answer.status_code in FORESEEN, answer.text

        run()
    assert {200, 400, 404} <= seen
