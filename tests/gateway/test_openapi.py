"""The OpenAPI descriptions are valid, complete and match what the gateway accepts.

The validator and the fuzzer come with the extra `fuzz`. Fuzzing takes minutes and runs on request.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from typing import Any, Literal, get_args

import httpx2
import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings

from tests.gateway.llm.serving import RunningLlmGateway, running_llm_gateway
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib import __version__
from toolcrib.config.settings import GatewayConfig, LlmApi, LlmGatewayConfig, LlmSearchSwitch, LlmUpstreamConfig
from toolcrib.gateway.audit import AuditLog
from toolcrib.gateway.browser_sessions import BrowserSessions
from toolcrib.gateway.keys import KeyRing
from toolcrib.gateway.llm.gateway import LlmGateway
from toolcrib.gateway.llm.routes import build_llm_routes
from toolcrib.gateway.login import LoginApi
from toolcrib.gateway.mcp.admin.access_api import add_access_routes
from toolcrib.gateway.mcp.admin.activity_api import add_activity_routes
from toolcrib.gateway.mcp.admin.api import add_admin_routes
from toolcrib.gateway.mcp.admin.api_routes import ApiRoutes
from toolcrib.gateway.mcp.admin.catalog_api import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE
from toolcrib.gateway.mcp.admin.llm_api import add_llm_routes
from toolcrib.gateway.mcp.admin.overview_api import add_overview_routes
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.openapi import load_openapi
from toolcrib.hub.hub import Hub
from toolcrib.profiles.claude import VARIANTS
from toolcrib.session.turn import DEFAULT_LIMIT, MAX_LIMIT
from toolcrib.storage import open_store

FUZZ = "TOOLCRIB_FUZZ"
APIS: tuple[LlmApi, ...] = ("messages", "openai")
# Status 500 is never expected. The scripted model sends 501 for features that it does not have.
EXPECTED_STATUSES = {200, 400, 404, 405, 406, 413, 415, 422, 501, 502, 504}


def search_once(request: Request) -> Turn:
    """Search once if the request has a search tool."""
    name = next((name for name in request.tool_names if "search" in name), None)
    if name is None or request.results:
        return Turn("Hi.")
    return Turn(ToolCall(name, {"query": "x", "pattern": "x"}))


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningLlmGateway]:
    with ScriptedModel(search_once) as model:
        upstreams = tuple(LlmUpstreamConfig(api, api=api, url=model.url, retries=0) for api in APIS)
        gateway = LlmGateway(LlmGatewayConfig(upstreams, threshold_tools=2))
        with running_llm_gateway(gateway) as running:
            yield running


def test_served_description_names_every_path(gateway: RunningLlmGateway) -> None:
    description = httpx2.get(f"{gateway.url}/v1/openapi.json", timeout=30).json()
    assert description == load_openapi("llm")
    assert description["info"]["version"] == __version__
    paths = {getattr(route, "path", "") for route in build_llm_routes(gateway.gateway)}
    described = {path for path in paths if "{" not in path} - {"/v1/openapi.json"}
    assert {path for path in description["paths"] if "{" not in path} == described


def test_admin_description_names_every_route() -> None:
    hub = Hub(GatewayConfig(), open_store("sqlite://"))
    routes = ApiRoutes(lambda: McpRouter(hub))
    for add_routes in (add_admin_routes, add_overview_routes, add_activity_routes, add_llm_routes):
        add_routes(routes)
    add_access_routes(routes, hub, KeyRing(hub))
    login = LoginApi(BrowserSessions(), tuple, AuditLog(hub))
    served = {
        (route.path.replace(":path}", "}"), method.lower())
        for route in (*routes.routes, *login.routes())
        for method in route.methods or ()
        if method != "HEAD"
    }
    paths = load_openapi("admin")["paths"]
    described = {(path, method) for path in paths if path.startswith("/api/") for method in paths[path]}
    assert described == served
    hub.close()


def test_descriptions_have_the_values_of_the_code() -> None:
    llm = load_openapi("llm")["components"]
    search_tool = llm["schemas"]["MessagesTool"]["anyOf"][0]["properties"]
    assert search_tool["type"]["enum"] == sorted(VARIANTS)
    assert search_tool["name"]["enum"] == sorted({each.name for each in VARIANTS.values()})
    assert llm["parameters"]["ToolSearch"]["schema"]["enum"] == list(get_args(LlmSearchSwitch))
    paths = load_openapi("admin")["paths"]
    for path, default, maximum in (
        ("/api/tools", DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE),
        ("/api/search", DEFAULT_LIMIT, MAX_LIMIT),
    ):
        parameters = {each["name"]: each["schema"] for each in paths[path]["get"]["parameters"]}
        limit = parameters["limit"]
        assert (limit["default"], limit["maximum"]) == (default, maximum)


@pytest.mark.parametrize("api", ["admin", "llm"])
def test_every_component_schema_is_valid(api: Literal["admin", "llm"]) -> None:
    description = load_openapi(api)
    for name in description["components"]["schemas"]:
        jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", **description})


def test_requests_and_responses_match_the_schemas(gateway: RunningLlmGateway) -> None:
    description = load_openapi("llm")

    def matches(schema: str, value: object) -> bool:
        reference = {"$ref": f"#/components/schemas/{schema}", **description}
        return jsonschema_rs.is_valid(reference, value)

    tools: list[dict[str, Any]] = [
        {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
        {"name": "a", "input_schema": {}, "defer_loading": True},
    ]
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    assert matches("MessagesRequest", {**body, "tools": tools})
    assert not matches("MessagesRequest", {"model": "m"})
    reply = httpx2.post(f"{gateway.url}/v1/messages", json={**body, "tools": tools}, timeout=30)
    assert reply.status_code == 200 and matches("MessagesReply", reply.json())
    rejection = httpx2.post(f"{gateway.url}/v1/messages", content=b"{", timeout=30)
    assert rejection.status_code == 400 and matches("MessagesError", rejection.json())


@pytest.mark.parametrize("api", ["admin", "llm"])
def test_description_is_valid_openapi(api: Literal["admin", "llm"]) -> None:
    reason = "`pip install --group fuzz` to validate the descriptions"
    validator: Any = pytest.importorskip("openapi_spec_validator", reason=reason)
    validator.validate(load_openapi(api))


@pytest.mark.skipif(not os.environ.get(FUZZ), reason=f"takes minutes; `pip install --group fuzz` and set {FUZZ} to 1")
@pytest.mark.filterwarnings("default")
def test_fuzzing_finds_no_unexpected_status(gateway: RunningLlmGateway) -> None:
    schemathesis: Any = importlib.import_module("schemathesis")
    schema = schemathesis.openapi.from_dict(load_openapi("llm"))
    schema.config.update(base_url=gateway.url)
    examples = int(os.environ[FUZZ]) if os.environ[FUZZ].isdigit() else 1
    statuses: set[int] = set()
    for operation in schema.get_all_operations():

        @settings(max_examples=max(25, examples), deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.ok().as_strategy())
        def run(case: Any) -> None:
            response = case.call(timeout=60)
            statuses.add(response.status_code)
            assert response.status_code in EXPECTED_STATUSES, response.text

        run()
    assert {200, 400, 404} <= statuses
