"""The LLM APIs of `toolcrib serve`, with authentication."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.gateway.llm.anthropic.requests import BM25, HARBOUR
from tests.gateway.llm.serving_openai import chat_functions, functions
from tests.gateway.serving import COMMAND, GatewayProcess, environment, running_gateway, wait_until, write_json
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn

ADMIN, PLAIN = "the-key-of-the-admin", "the-key-of-the-plain"
PINNED: dict[str, Any] = {
    "key": "the-key-with-pins",
    "name": "pinned",
    "style": "dispatch",
    "alwaysExpose": ["send_*", "book_flight"],
    "thresholdTools": 6,
}
LIMITED = "the-key-of-the-limited"
SEARCHING = "the-key-of-the-searching"
THEIRS = "a-key-for-the-upstream"


def sailor(request: Request) -> Turn:
    """Search, then call a tool that was found."""
    wanted = {"read_tide": {"text": "today"}, "get_exchange_rate": {"currency": "USD"}}
    found = next((name for name in wanted if name in request.tool_names), None)
    if found is not None:
        return Turn(ToolCall(found, wanted[found]))
    name = next((name for name in request.tool_names if "search" in name), None)
    return Turn(ToolCall(name, {"query": "tide or exchange rate"})) if name else Turn("No tools.")


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel(sailor) as one:
        yield one


@pytest.fixture(scope="module")
def gateway(model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("models")
    config = {
        "models": {
            "sea": {"api": "messages", "url": model.url, "search": "exact"},
            "land": {"api": "openai", "url": model.url, "key": "own-key-of-land", "style": "reveal"},
            "gemini": {"url": model.url, "key": "own-key-of-gemini"},
        },
        "profiles": {"limited": {}, "searching": {"searchesPerMinute": 1}},
        "modelGateway": {"thresholdTools": 3},
        "auth": {
            "keys": [
                {"key": ADMIN, "name": "admin"},
                {"key": PLAIN, "name": "plain", "toolSearch": "off"},
                {"key": LIMITED, "name": "limited", "profile": "limited"},
                {"key": SEARCHING, "name": "searching", "profile": "searching"},
                PINNED,
            ]
        },
    }
    path = write_json(folder / "toolcrib.json", config)
    with running_gateway(folder, "--config", str(path), "--json-log") as gateway:
        yield gateway


@pytest.mark.parametrize(
    "path",
    [
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/responses/resp_1",
        "/v1/models",
        "/v1/openapi.json",
    ],
)
def test_llm_request_without_a_key_is_rejected(gateway: GatewayProcess, model: ScriptedModel, path: str) -> None:
    asked = len(model.requests)
    is_asked_for = path in ("/v1/models", "/v1/openapi.json", "/v1/responses/resp_1")
    body = None if is_asked_for else {"model": "m"}
    for key in ("", "a-key-of-nobody"):
        reply = gateway.request(path, key, body)
        assert reply.status == 401
        assert reply.json["error"]["type"] == "authentication_error"
    assert len(model.requests) == asked


def test_key_in_the_url_is_refused_and_the_error_names_the_header(gateway: GatewayProcess) -> None:
    reply = gateway.request(f"/v1beta/models/m:generateContent?key={ADMIN}", "", {"contents": []})
    assert reply.status == 401
    assert "`x-goog-api-key`" in reply.json["error"]["message"] and "`?key=…`" in reply.json["error"]["message"]


def test_base_url_with_a_missing_or_a_second_version_is_explained(gateway: GatewayProcess) -> None:
    messages: Any = [{"role": "user", "content": "Hi"}]
    with (
        openai.OpenAI(base_url=gateway.url, api_key=ADMIN, max_retries=0) as missing,
        pytest.raises(openai.NotFoundError, match="add /v1 to the base URL"),
    ):
        missing.chat.completions.create(model="m", messages=messages)
    with (
        anthropic.Anthropic(base_url=f"{gateway.url}/v1", api_key=ADMIN, max_retries=0) as doubled,
        pytest.raises(anthropic.NotFoundError, match="has the version twice"),
    ):
        doubled.messages.create(model="m", max_tokens=9, messages=messages)


def test_official_clients_search_and_the_gateway_key_is_not_forwarded(
    gateway: GatewayProcess, model: ScriptedModel
) -> None:
    model.requests.clear()
    headers = {"api-key": THEIRS}
    with anthropic.Anthropic(base_url=gateway.url, api_key=ADMIN, max_retries=0) as client:
        said: Any = client.messages.create(
            model="m",
            max_tokens=9,
            messages=[{"role": "user", "content": "Tide?"}],
            tools=[BM25, *HARBOUR],  # type: ignore[list-item]
            extra_headers=headers,
        )
    assert [block.type for block in said.content] == ["server_tool_use", "tool_search_tool_result", "tool_use"]
    assert said.content[0].caller.type == "direct"
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=ADMIN, max_retries=0) as client2:
        tools: Any = functions()
        made = client2.responses.create(model="m", input="A dollar?", tools=tools)
        assert [item.type for item in made.output] == ["function_call"]
        chat_tools: Any = chat_functions()
        chat: Any = client2.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "A dollar?"}], tools=chat_tools
        )
        assert chat.choices[0].message.tool_calls[0].function.name == "get_exchange_rate"
    sent = [request.headers for request in model.requests]
    assert ADMIN not in json.dumps([dict(one) for one in sent])
    keys = [one.get("api-key") or one.get("authorization") for one in sent]
    assert set(keys) == {THEIRS, "Bearer own-key-of-land"}
    assert ADMIN not in gateway.read_log() and THEIRS not in gateway.read_log()


def test_tool_search_switch_of_a_key_is_overridden_by_the_request(
    gateway: GatewayProcess, model: ScriptedModel
) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "A dollar?"}], "tools": chat_functions()}
    treated = [
        gateway.request("/v1/chat/completions", key, body, **headers).headers["x-toolcrib-treatment"]
        for key, headers in ((ADMIN, {}), (PLAIN, {}), (PLAIN, {"x_toolcrib_tool_search": "on"}))
    ]
    assert treated == ["transparent", "off", "transparent"]


def test_searches_count_for_the_quota_of_the_access_profile(gateway: GatewayProcess, model: ScriptedModel) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "A dollar?"}], "tools": chat_functions()}
    # The third request is needed only if a new minute begins between the first two.
    replies = [gateway.request("/v1/chat/completions", SEARCHING, body) for _ in range(3)]
    assert replies[0].status == 200
    refused = next(reply for reply in replies if reply.status != 200)
    assert (refused.status, refused.json["error"]["code"]) == (429, "quota_exceeded")
    assert "searchesPerMinute" in refused.json["error"]["message"]
    assert int(refused.headers["retry-after"]) in range(1, 61) and refused.headers["x-should-retry"] == "true"
    # A request without a search needs none, and other profiles have their own.
    assert gateway.request("/v1/chat/completions", SEARCHING, body, x_toolcrib_tool_search="off").status == 200
    assert gateway.request("/v1/chat/completions", ADMIN, body).status == 200


def test_key_overrides_how_tools_are_exposed(gateway: GatewayProcess, model: ScriptedModel) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "A dollar?"}], "tools": chat_functions()}
    answered = gateway.request("/v1/chat/completions", PINNED["key"], body)
    assert answered.headers["x-toolcrib-style"] == "dispatch"
    assert answered.headers["x-toolcrib-style-reason"] == "as configured"
    assert model.requests[-1].tool_names == ("send_email", "book_flight", "search_tools", "call_tool")
    other = gateway.request("/v1/chat/completions", ADMIN, body)
    assert other.headers["x-toolcrib-style"] == "reveal"


def test_saved_tokens_are_in_the_metrics_and_the_status(gateway: GatewayProcess, tmp_path: Path) -> None:
    body = {"model": "m", "input": "A dollar?", "tools": functions()}
    saved = int(gateway.request("/v1/responses", ADMIN, body).headers["x-toolcrib-tokens-saved"])
    assert saved > 0
    lines = gateway.request("/metrics", ADMIN).text.splitlines()
    figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(figures['toolcrib_model_tokens_saved_total{upstream="land"}']) >= saved
    counted = 'toolcrib_model_requests_total{treatment="transparent",upstream="land"}'
    assert float(figures[counted]) >= 1
    counts = gateway.request("/api/stats", ADMIN).json["counts"]
    assert counts["model_tokens_saved"] >= saved
    done = subprocess.run(
        [*COMMAND, "status", "--url", gateway.url, "--key", ADMIN],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    line = r"^LLM clients: \d+ requests? with deferred tools, about [\d,]+ tokens saved\.$"
    assert re.search(line, done.stdout, re.MULTILINE)
    assert "LLMs today: " in done.stdout
    usage = gateway.request("/api/llm", ADMIN).json
    assert usage["keys"][0]["key"] == "admin"
    assert usage["total"]["input_tokens"] > 0 and usage["total"]["saved_tokens"] >= saved
    assert float(figures['toolcrib_llm_tokens_total{key="admin",kind="input",model="m"}']) > 0


def test_token_count_and_openapi_are_served(gateway: GatewayProcess) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Tide?"}], "tools": [BM25, *HARBOUR]}
    shown = {**body, "tools": [{**tool, "defer_loading": False} for tool in HARBOUR]}
    held, all_shown = (
        gateway.request("/v1/messages/count_tokens", ADMIN, one).json["input_tokens"]
        for one in (body, {**shown, "tools": [BM25, *shown["tools"]]})
    )
    assert held < all_shown
    assert gateway.request("/v1/openapi.json", ADMIN).json["openapi"].startswith("3.")
    wrong = gateway.request("/v1/messages", ADMIN)
    assert wrong.status == 405
    # The error body has the fields of both APIs.
    assert wrong.json["type"] == "error" and wrong.json["error"]["type"] == "invalid_request_error"
    assert wrong.json["error"]["code"] is None
    assert wrong.json["error"]["message"].startswith("GET is not allowed here")


@pytest.mark.parametrize("header", ["x_api_key", "api_key", "x_goog_api_key"])
def test_gateway_key_in_any_header_is_accepted_and_never_forwarded(
    gateway: GatewayProcess, model: ScriptedModel, header: str
) -> None:
    model.requests.clear()
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    reply = gateway.request("/v1/messages", "", body, **{header: ADMIN}, x_copy=f"key={ADMIN}", x_other="kept")
    assert reply.status == 200
    assert ADMIN not in json.dumps(dict(model.requests[0].headers))
    assert model.requests[0].headers["x-other"] == "kept"


def test_edited_models_are_used_without_a_restart(gateway: GatewayProcess, model: ScriptedModel) -> None:
    path = gateway.log.parent / "toolcrib.json"
    config = json.loads(path.read_text())
    config["models"]["swift"] = "land/qwen3"
    write_json(path, config)
    body = {"model": "swift", "messages": [{"role": "user", "content": "Hi"}]}
    wait_until(lambda: "changed models" in gateway.read_log())
    model.requests.clear()
    assert gateway.request("/v1/chat/completions", ADMIN, body).status == 200
    assert model.requests[0].body["model"] == "qwen3"


def test_every_turn_of_a_conversation_is_recorded_with_its_tools(gateway: GatewayProcess) -> None:
    question = {"role": "user", "content": "How much is a dollar today?"}
    tools: Any = chat_functions()
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=ADMIN, max_retries=0) as client:
        messages: list[Any] = [question]
        for _ in range(2):
            chat: Any = client.chat.completions.create(model="m", messages=messages, tools=tools)
            call = chat.choices[0].message
            messages += [call, {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "1.1"}]
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Another one."}], tools=tools)
    conversations = gateway.request("/api/llm/conversations", ADMIN).json["conversations"]
    found = next(each for each in conversations if each["turns"] == 2)
    assert (found["upstream"], found["model"], found["key"], found["client"]) == ("land", "m", "admin", "OpenAI")
    assert "dollar" not in json.dumps(conversations)
    turns = gateway.request(f"/api/llm/conversations/{found['id']}", ADMIN).json["turns"]
    assert [turn["outcome"] for turn in turns] == ["ok", "ok"]
    first = turns[0]["details"]
    assert first["treatment"] == "transparent" and first["searches"] >= 1
    assert first["tools_total"] == len(tools) > first["tools_count"]
    assert "get_exchange_rate" in first["tools_sent"] and first["tokens_in"] > 0
    series = gateway.request("/api/timeseries", ADMIN).json["total"]
    assert series["llm_requests"] >= 3 and series["tokens_in"] > 0


def test_failed_request_is_recorded_with_its_error(gateway: GatewayProcess) -> None:
    reply = gateway.request("/v1/chat/completions", ADMIN, {"model": "m", "messages": 3}, User_Agent="failing/1")
    assert reply.status >= 400
    rows = gateway.request("/api/activity?action=llm&client=failing", ADMIN).json["rows"]
    assert [row["outcome"] for row in rows] == ["error"]


def test_key_with_a_profile_cannot_use_what_the_account_of_the_gateway_has_stored(gateway: GatewayProcess) -> None:
    body = {"model": "m", "input": "Hi"}
    for path in ("/v1/files", "/v1/batches", "/v1beta/cachedContents", "/v1beta/files"):
        refused = gateway.request(path, LIMITED, None if "files" in path else body)
        assert refused.status == 403 and "access profile" in refused.json["error"]["message"], path
    # The scripted model has no embeddings, but it is asked.
    assert gateway.request("/v1/embeddings", LIMITED, body).status == 404
    assert gateway.request("/v1/files", ADMIN).status == 501
