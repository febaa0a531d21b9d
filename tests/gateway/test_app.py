from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.gateway.serving import (
    COMMAND,
    GatewayProcess,
    environment,
    running_gateway,
    server_entry,
    wait_until,
    write_json,
)

ADMIN, WRITER = "the-key-of-the-admin", "the-key-of-the-writer"
SECRET = "hunter22"
DRAFT = {
    "name": "draft_letter",
    "description": "Write the first version of a letter.",
    "inputSchema": {"type": "object"},
}
CONFIG: dict[str, Any] = {
    "mcpServers": {
        "office": server_entry("echo", "fail", DRAFT),
        "vault": server_entry("echo", tag="vault"),
        "broken": {
            "command": sys.executable,
            "args": ["-c", "import os; raise SystemExit('no: ' + os.environ['ITS_TOKEN'])"],
            "env": {"ITS_TOKEN": SECRET},
        },
    },
    "toolSearch": {"maxToolsLimit": 2, "mode": "search"},
    "profiles": {"writer": {"servers": ["office"], "confidentFrom": 1.0}},
    "auth": {"keys": [{"key": ADMIN, "name": "admin"}, {"key": WRITER, "name": "writer", "profile": "writer"}]},
}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gateway")


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[GatewayProcess]:
    config = write_json(folder / "toolcrib.json", CONFIG)
    with running_gateway(folder, "--config", str(config), "--json-log") as gateway:
        wait_until(lambda: gateway.servers(ADMIN)["office"]["state"] == "started")
        wait_until(lambda: gateway.servers(ADMIN)["vault"]["state"] == "started")
        wait_until(lambda: gateway.servers(ADMIN)["broken"]["trouble"])
        yield gateway


@pytest.mark.parametrize("path", ["/mcp", "/mcp/p/writer", "/api/servers", "/api/tools", "/metrics", "/openapi.json"])
def test_request_without_a_key_is_rejected(gateway: GatewayProcess, path: str) -> None:
    reply = gateway.request(path)
    assert reply.status == 401
    assert "office" not in reply.text
    assert gateway.request(path, "a-key-of-nobody").status == 401


def test_health_is_public_but_its_reasons_need_a_key(gateway: GatewayProcess) -> None:
    assert gateway.request("/health").json == {"status": "degraded", "reasons": []}
    health = gateway.request("/health", ADMIN).json
    assert health["status"] == "degraded"
    assert [reason for reason in health["reasons"] if reason.startswith("broken is not reachable")]


def test_profile_sees_only_its_own_servers_in_health(gateway: GatewayProcess) -> None:
    assert gateway.request("/health", WRITER).json["reasons"] == []
    reply = gateway.request("/metrics", WRITER)
    assert (reply.status, "vault" in reply.text) == (403, False)


def test_unknown_host_name_is_rejected(gateway: GatewayProcess) -> None:
    assert gateway.request("/api/servers", ADMIN, Host="evil.example").status == 403
    assert gateway.request("/api/servers", ADMIN, Origin="https://evil.example").status == 403


def test_servers_are_listed_with_states_and_tools(gateway: GatewayProcess) -> None:
    office = gateway.servers(ADMIN)["office"]
    assert office["tools"] == 3
    assert office["tokens"] > 0
    assert office["transport"] == "stdio"
    assert gateway.servers(ADMIN)["broken"]["state"] == "configured"


def test_key_with_a_profile_sees_only_its_tools(gateway: GatewayProcess) -> None:
    assert list(gateway.servers(WRITER)) == ["office"]
    tools = gateway.request("/api/tools", WRITER).json
    assert {tool["server"] for tool in tools["tools"]} == {"office"}
    assert gateway.request("/api/stats", WRITER).json["tools"] == tools["total"] == 3
    found = gateway.request("/api/search?query=echo", WRITER).json
    assert [hit["tool"]["name"] for hit in found["hits"]] == ["office___echo"]
    listed = gateway.request("/mcp", WRITER, request("tools/list")).text
    assert "vault" not in listed


def test_profile_sets_the_search_threshold(gateway: GatewayProcess) -> None:
    asked = "/api/search?query=write%20a%20letter"
    found, picky = gateway.request(asked, ADMIN).json, gateway.request(asked, WRITER).json
    assert (found["confident"], picky["confident"]) == (True, False)
    assert found["hits"][0]["tool"] == picky["hits"][0]["tool"]
    assert gateway.request("/api/search?query=echo", WRITER).json["confident"]


def test_key_with_a_profile_cannot_use_another_profile(gateway: GatewayProcess) -> None:
    listed = request("tools/list")
    assert gateway.request("/mcp/p/writer", WRITER, listed).status == 200
    assert gateway.request("/mcp/p/writer", ADMIN, listed).status == 200
    assert gateway.request("/mcp/p/other", WRITER, listed).status == 403


def test_tools_are_listed_in_pages(gateway: GatewayProcess) -> None:
    first = gateway.request("/api/tools?limit=1&offset=1", ADMIN).json
    assert [tool["name"] for tool in first["tools"]] == ["office___fail"]
    assert first["total"] == 4
    assert gateway.request("/api/tools?server=vault", ADMIN).json["total"] == 1


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("search", "`query` is missing"),
        ("search?query=x&limit=100000", "`limit` must be an integer"),
        ("tools?offset=-1", "`offset` must be an integer"),
        ("tools?limit=%D9%A3", "`limit` must be an integer"),
    ],
)
def test_invalid_parameter_is_an_error(gateway: GatewayProcess, query: str, says: str) -> None:
    reply = gateway.request(f"/api/{query}", ADMIN)
    assert reply.status == 400
    assert says in reply.json["error"]


def test_unknown_path_is_a_json_error(gateway: GatewayProcess) -> None:
    reply = gateway.request("/api/nothing", ADMIN)
    assert reply.status == 404
    assert reply.json == {"error": "unknown path; see /openapi.json"}


def test_responses_match_the_openapi_description(gateway: GatewayProcess) -> None:
    described = gateway.request("/openapi.json", ADMIN).json
    assert described["openapi"] == "3.1.0"
    tool = "office___draft_letter"
    for path, operations in described["paths"].items():
        # An entry needs an id, and a stream does not end; they have their own tests.
        if "get" not in operations or "{id}" in path or path.endswith("/stream"):
            continue
        asked = path.replace("{name}", tool if "/tools/" in path else "office")
        if path.startswith("/api/search"):
            asked += f"?query=write%20a%20letter&reasons=true&tool={tool}"
        reply = gateway.request(asked, ADMIN)
        assert reply.status == 200, (path, reply.text)
        content = operations["get"]["responses"]["200"]["content"]
        (kind,) = content
        assert reply.headers["content-type"].startswith(kind)
        if kind == "application/json":
            schema = {**content[kind]["schema"], "components": described["components"]}
            jsonschema_rs.validator_for(schema).validate(reply.json)
    wrong = gateway.request("/api/search", ADMIN)
    error = {"$ref": "#/components/schemas/Error", "components": described["components"]}
    jsonschema_rs.validator_for(error).validate(wrong.json)


def test_prometheus_metrics_count_calls_and_searches(gateway: GatewayProcess) -> None:
    def figures() -> dict[str, float]:
        lines = gateway.request("/metrics", ADMIN).text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    before = figures()
    assert before['toolcrib_servers{state="started"}'] == 2
    assert before["toolcrib_servers_unreachable"] == 1
    assert before['toolcrib_tools{server="office"}'] == 3
    assert before["toolcrib_tools_quarantined"] == 0
    gateway.request("/mcp", ADMIN, request("tools/call", name="office___echo", arguments={"text": "x"}))
    gateway.request("/mcp", ADMIN, request("tools/call", name="office___fail", arguments={}))
    gateway.request("/mcp", ADMIN, request("tools/call", name="search_tools", arguments={"query": "x"}))
    after = figures()
    for name, more in {
        'toolcrib_calls_total{server="office"}': 2,
        'toolcrib_call_failures_total{server="office"}': 1,
        "toolcrib_searches_total": 1,
    }.items():
        assert after[name] - before.get(name, 0) == more
    assert after['toolcrib_call_seconds_total{server="office"}'] > 0
    assert after['toolcrib_http_requests_total{route="/mcp",status="200"}'] >= 3


def test_saved_tokens_are_counted(gateway: GatewayProcess) -> None:
    def counts() -> dict[str, int]:
        counted: dict[str, int] = gateway.request("/api/stats", ADMIN).json["counts"]
        return counted

    before = counts().get("listings", 0)
    gateway.request("/mcp", ADMIN, request("tools/list"))
    wait_until(lambda: counts().get("listings", 0) > before)
    after = counts()
    sent = after["tokens_listed"] + after["tokens_found"]
    assert after["tokens_saved"] == after["tokens_of_all"] - sent


def test_session_belongs_to_the_key_that_opened_it(gateway: GatewayProcess) -> None:
    opened = gateway.request("/mcp", ADMIN, HELLO)
    session = opened.headers["mcp-session-id"]
    marks = {"mcp_session_id": session, "mcp_protocol_version": "2025-11-25"}
    assert gateway.request("/mcp", ADMIN, request("tools/list"), **marks).status == 200
    stolen = gateway.request("/mcp", WRITER, request("tools/list"), **marks)
    assert stolen.status == 404
    assert "echo" not in stolen.text


def test_log_is_json_without_secrets(gateway: GatewayProcess) -> None:
    wait_until(lambda: "last line on stderr" in (gateway.servers(ADMIN)["broken"]["trouble"] or ""))
    events: list[dict[str, Any]] = []

    def is_admin_request_logged() -> bool:
        lines = gateway.read_log().splitlines()
        events[:] = [json.loads(line) for line in lines if line.startswith("{")]
        return any(
            event["message"].startswith("GET /api/tools") and event["principal"] == "admin" and event["request_id"]
            for event in events
        )

    gateway.request("/api/tools", ADMIN)
    wait_until(is_admin_request_logged)
    # The standard error of a server has its own file.
    assert "no: [redacted]" in (gateway.log.parent / "toolcrib.logs" / "broken.log").read_text(encoding="utf-8")
    assert ADMIN not in gateway.read_log()
    assert SECRET not in gateway.read_log()
    assert SECRET not in gateway.request("/health", ADMIN).text
    assert "last line on stderr: no: [redacted]" in gateway.servers(ADMIN)["broken"]["trouble"]


def _is_rejected(gateway: GatewayProcess, key: str) -> bool:
    return gateway.request("/api/stats", key).status == 401


def test_configuration_change_takes_effect_immediately(gateway: GatewayProcess, folder: Path) -> None:
    path = folder / "toolcrib.json"
    gateway.request("/mcp", ADMIN, request("tools/call", name="office___echo", arguments={"text": "x"}))
    servers = {"office": CONFIG["mcpServers"]["office"], "new": server_entry("ping", tag="new")}
    write_json(path, {**CONFIG, "mcpServers": servers})
    wait_until(lambda: gateway.servers(ADMIN).get("new", {}).get("state") == "started")
    assert list(gateway.servers(ADMIN)) == ["office", "new"]
    assert gateway.servers(ADMIN)["office"]["calls"] >= 1, "it was left alone"
    assert gateway.request("/api/search?query=new___ping", ADMIN).json["hits"]
    assert "added new" in gateway.read_log()

    # A change of the keys takes effect immediately; a change that needs a restart is reported.
    keys = [*CONFIG["auth"]["keys"], {"key": "the-key-of-a-guest", "name": "guest"}]
    http = {"port": 1, "maxSessions": 7}
    says = "import os; raise SystemExit('I was given ' + os.environ['ITS_KEY'])"
    leaky = {"command": sys.executable, "args": ["-c", says], "env": {"ITS_KEY": "a-later-secret"}}
    later = {**servers, "leaky": leaky}
    edited = {**CONFIG, "mcpServers": later, "auth": {"keys": keys}, "http": http}
    write_json(path, edited)
    wait_until(lambda: gateway.request("/api/stats", "the-key-of-a-guest").status == 200)
    notice = "restart the gateway to apply the changes of http"
    assert gateway.request("/api/stats", ADMIN).json["notices"] == [notice]
    assert notice in gateway.request("/health", ADMIN).json["reasons"]
    assert gateway.request("/health", WRITER).json["reasons"] == []
    shown = subprocess.run(
        [*COMMAND, "status", "--url", gateway.url, "--key", ADMIN], env=environment(), capture_output=True, text=True
    )
    assert f"! {notice}" in shown.stdout, shown.stderr
    assert notice in gateway.read_log()
    wait_until(lambda: "I was given" in gateway.read_log())
    assert "a-later-secret" not in gateway.read_log()
    write_json(path, {**edited, "mcpServers": servers, "auth": CONFIG["auth"], "http": {}})
    wait_until(lambda: _is_rejected(gateway, "the-key-of-a-guest"))
    assert gateway.request("/api/stats", ADMIN).json["notices"] == []

    path.write_text("{ this is no JSON", encoding="utf-8")
    wait_until(lambda: "the edited configuration is not used" in gateway.read_log())
    assert list(gateway.servers(ADMIN)) == ["office", "new"]
    (notice,) = gateway.request("/api/stats", ADMIN).json["notices"]
    assert notice.startswith("the edited configuration is not used")

    write_json(path, {**CONFIG, "mcpServers": {"office": server_entry("echo", "other", tag="office")}})
    wait_until(lambda: list(gateway.servers(ADMIN)) == ["office"])
    wait_until(lambda: gateway.servers(ADMIN)["office"]["tools"] == 2)
    assert gateway.request("/api/search?query=new___ping", ADMIN).json["confident"] is False
