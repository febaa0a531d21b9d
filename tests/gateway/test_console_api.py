"""The API of the console over HTTP: activity, sessions, time series, access, overview and LLM traffic."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.gateway.serving import GatewayProcess, HttpReply, running_gateway, server_entry, wait_until, write_json
from toolcrib.gateway.openapi import load_openapi
from toolcrib.storage import open_store
from toolcrib.storage.audit import AuditRow
from toolcrib.storage.llm_usage import LlmUsage

ADMIN, READER = "the-key-of-the-admin", "the-key-of-the-reader"
CONFIG: dict[str, Any] = {
    "mcpServers": {
        "office": server_entry("echo", "ask"),
        "vault": server_entry("echo", tag="vault"),
        "broken": {"command": "no-such-program", "connectSeconds": 5},
    },
    "profiles": {"reader": {"servers": ["office"]}},
    "auth": {"keys": [{"key": ADMIN, "name": "admin"}, {"key": READER, "name": "reader", "profile": "reader"}]},
    "models": {"openai": {"url": "http://127.0.0.1:9", "key": "an-upstream-key"}},
    "toolSearch": {"mode": "search"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def gateway(folder: Path) -> Iterator[GatewayProcess]:
    config = write_json(folder / "toolcrib.json", CONFIG)
    with running_gateway(folder, "--config", str(config)) as gateway:
        wait_until(lambda: gateway.servers(ADMIN)["vault"]["tools"] and gateway.servers(ADMIN)["office"]["tools"])
        yield gateway


def call_tool(gateway: GatewayProcess, name: str, key: str = ADMIN, **arguments: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    return gateway.request("/mcp", key, body, User_Agent="tester/1.0").json


def get(gateway: GatewayProcess, path: str, key: str = ADMIN) -> Any:
    """Return the JSON of a path, which matches the OpenAPI description."""
    reply = gateway.request(path, key)
    assert reply.status == 200, reply.text
    description = load_openapi("admin")
    template = _find_template(description, path.partition("?")[0])
    schema = description["paths"][template]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema_rs.validator_for({**schema, "components": description["components"]}).validate(reply.json)
    return reply.json


def _find_template(description: dict[str, Any], path: str) -> str:
    if path in description["paths"]:
        return path
    parent = path.rpartition("/")[0]
    return next(str(each) for each in description["paths"] if "{" in each and each.rpartition("/")[0] == parent)


def send(gateway: GatewayProcess, method: str, path: str, body: object = None, key: str = ADMIN) -> HttpReply:
    request = urllib.request.Request(
        f"{gateway.url}{path}",
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return HttpReply(response.status, {}, response.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return HttpReply(error.code, {}, error.read().decode())


@pytest.mark.parametrize(
    "path",
    [
        "/api/activity",
        "/api/activity/1",
        "/api/activity/stream",
        "/api/sessions",
        "/api/timeseries",
        "/api/savings",
        "/api/keys",
        "/api/profiles",
        "/api/llm",
        "/api/llm/conversations",
    ],
)
def test_key_with_a_profile_is_refused(gateway: GatewayProcess, path: str) -> None:
    reply = gateway.request(path, READER)
    assert reply.status == 403 and "full access" in reply.json["error"]
    assert gateway.request(path).status == 401


def test_activity_is_filtered_and_paged(gateway: GatewayProcess) -> None:
    for number in range(5):
        call_tool(gateway, "office___echo", text=str(number))
    call_tool(gateway, "vault___nothing")
    call_tool(gateway, "office___echo", READER, text="x")
    page = get(gateway, "/api/activity?limit=3&client=tester&server=office")
    assert len(page["rows"]) == 3 and page["next"] == page["rows"][-1]["id"]
    rest = get(gateway, f"/api/activity?client=tester&server=office&before={page['next']}")
    ids = [row["id"] for row in [*page["rows"], *rest["rows"]]]
    assert ids == sorted(ids, reverse=True) and len(ids) >= 6
    assert page["rows"][0]["key"] == "reader" and page["rows"][0]["profile"] == "reader"
    assert page["rows"][1]["key"] == "admin" and page["rows"][1]["request_id"]
    refused = get(gateway, "/api/activity?outcome=refused")["rows"]
    assert {row["tool"] for row in refused} == {"vault___nothing"}
    for query in ("outcome=odd", "action=odd", "limit=501", "limit=x", "before=-1"):
        assert gateway.request(f"/api/activity?{query}", ADMIN).status == 400


def test_one_entry_shows_what_followed_a_search(gateway: GatewayProcess) -> None:
    call_tool(gateway, "search_tools", query="echo the text")
    call_tool(gateway, "office___echo", text="after the search")
    call_tool(gateway, "office___echo", READER, text="of another key")
    search = get(gateway, "/api/activity?action=search&limit=1")["rows"][0]
    assert search["details"]["query"] == "echo the text"
    entry = get(gateway, f"/api/activity/{search['id']}")
    assert [(row["tool"], row["key"]) for row in entry["following"]] == [("office___echo", "admin")]
    called = entry["following"][0]
    assert get(gateway, f"/api/activity/{called['id']}")["search"]["id"] == search["id"]
    assert gateway.request("/api/activity/999999999", ADMIN).status == 404
    assert gateway.request("/api/activity/x", ADMIN).status == 400


def read_events(gateway: GatewayProcess, query: str = "", last_id: str = "") -> Iterator[dict[str, str]]:
    """Yield the events of the stream as dicts of their fields."""
    headers = {"Authorization": f"Bearer {ADMIN}", **({"Last-Event-ID": last_id} if last_id else {})}
    request = urllib.request.Request(f"{gateway.url}/api/activity/stream{query}", headers=headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        event: dict[str, str] = {}
        for line in response:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                event[name] = value
            elif event:
                yield event
                event = {}


def test_stream_has_new_rows_and_continues_after_a_lost_connection(gateway: GatewayProcess) -> None:
    events = read_events(gateway, "?server=office&action=call")
    start = next(events)
    call_tool(gateway, "vault___echo", text="not selected")
    call_tool(gateway, "office___echo", text="first")
    first = next(events)
    assert first["event"] == "row" and json.loads(first["data"])["tool"] == "office___echo"
    assert int(first["id"]) > int(start["id"])
    events.close()  # type: ignore[attr-defined]
    call_tool(gateway, "office___echo", text="while away")
    again = read_events(gateway, "?server=office&action=call", last_id=first["id"])
    next(again)
    missed = next(again)
    assert json.loads(missed["data"])["id"] > int(first["id"])
    again.close()  # type: ignore[attr-defined]
    assert gateway.request("/api/activity/stream", ADMIN, Last_Event_ID="x").status == 400


def test_stream_skips_rows_when_it_is_far_behind(gateway: GatewayProcess, folder: Path) -> None:
    store = open_store(f"sqlite:///{folder / 'toolcrib.db'}")
    before = get(gateway, "/api/activity?limit=1")["rows"][0]["id"]
    # Rows of another process reach the stream too.
    store.append_audit([AuditRow("call", at=time.time(), tool=f"other {number}") for number in range(1_500)])
    store.close()
    events = read_events(gateway, last_id=str(before))
    next(events)
    skipped = next(events)
    assert skipped["event"] == "skipped" and json.loads(skipped["data"])["rows"] >= 500
    assert json.loads(next(events)["data"])["tool"].startswith("other")
    events.close()  # type: ignore[attr-defined]


def test_sessions_show_connected_clients_with_their_mode(gateway: GatewayProcess) -> None:
    info = {"name": "cursor", "version": "9.9"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    reply = gateway.request("/mcp", ADMIN, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    session = {name.lower(): value for name, value in reply.headers.items()}["mcp-session-id"]
    headers = {"Mcp_Session_Id": session, "Mcp_Protocol_Version": "2025-11-25"}
    gateway.request("/mcp", ADMIN, {"jsonrpc": "2.0", "method": "notifications/initialized"}, **headers)
    gateway.request("/mcp", ADMIN, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, **headers)
    found = next(each for each in get(gateway, "/api/sessions")["sessions"] if each["client"] == "cursor")
    assert (found["version"], found["mode"], found["key"]) == ("9.9", "search", "admin")
    assert found["shown"][:3] == ["search_tools", "describe_tool", "call_tool"]
    assert found["tokens_full"] > 0 and found["tokens_sent"] > 0 and found["mode_reason"]
    send(gateway, "DELETE", "/mcp", key=ADMIN)
    request = urllib.request.Request(
        f"{gateway.url}/mcp",
        headers={"Authorization": f"Bearer {ADMIN}", "Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-11-25"},
        method="DELETE",
    )
    urllib.request.urlopen(request, timeout=60).close()
    wait_until(lambda: "cursor" not in [each["client"] for each in get(gateway, "/api/sessions")["sessions"]])


@pytest.mark.parametrize(("name", "points"), [("hour", 60), ("day", 24), ("month", 30)])
def test_time_series_have_points_of_equal_distance(gateway: GatewayProcess, name: str, points: int) -> None:
    call_tool(gateway, "office___echo", text="x")
    series = get(gateway, f"/api/timeseries?range={name}")
    times = [point["at"] for point in series["points"]]
    assert len(times) == points and {b - a for a, b in pairwise(times)} == {series["step"]}
    assert series["total"]["calls"] >= 1 and series["total"]["p50"] > 0
    assert sum(point["calls"] for point in series["points"]) == series["total"]["calls"]
    assert get(gateway, f"/api/timeseries?range={name}&client=nobody")["total"]["calls"] == 0
    assert gateway.request("/api/timeseries?range=odd", ADMIN).status == 400


def test_savings_are_counted_by_day_and_client(gateway: GatewayProcess) -> None:
    gateway.request("/mcp", ADMIN, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, User_Agent="saver/1")
    savings = get(gateway, "/api/savings")
    client = next(each for each in savings["clients"] if each["client"] == "saver")
    assert client["tokens_saved"] == client["tokens_full"] - client["tokens_sent"] and client["lists"] == 1
    assert sum(day["tokens_full"] for day in savings["days"]) == savings["total"]["tokens_full"]


def test_overview_puts_servers_with_problems_first(gateway: GatewayProcess) -> None:
    wait_until(lambda: get(gateway, "/api/overview")["decisions"])
    overview = get(gateway, "/api/overview")
    assert overview["servers"][0]["name"] == "broken"
    assert [(each["kind"], each["server"]) for each in overview["decisions"]] == [("server", "broken")]
    assert overview["tools"] == 3 and not overview["is_demo"]
    limited = get(gateway, "/api/overview", READER)
    assert [server["name"] for server in limited["servers"]] == ["office"]
    assert limited["config_file"] == "" and limited["decisions"] == []


def test_setup_has_a_text_for_every_client(gateway: GatewayProcess) -> None:
    setup = get(gateway, "/api/setup")
    texts = {client["name"]: client["text"] for client in setup["clients"]}
    assert list(texts) == ["Claude Code", "Claude Desktop", "Cursor", "VS Code", "Codex", "Gemini CLI", "opencode"]
    assert setup["needs_key"]
    for name, text in texts.items():
        assert name == "Claude Desktop" or (f"{gateway.url}/mcp" in text and "Bearer YOUR_KEY" in text), name
    assert json.loads(texts["Claude Desktop"])["mcpServers"]["toolcrib"]["args"][:3] == ["-m", "toolcrib", "stdio"]
    limited = get(gateway, "/api/setup", READER)
    assert limited["url"] == f"{gateway.url}/mcp/p/reader"
    assert "Claude Desktop" not in [client["name"] for client in limited["clients"]]


def test_keys_are_created_used_and_revoked_at_run_time(gateway: GatewayProcess) -> None:
    created = send(gateway, "POST", "/api/keys", {"name": "laptop", "profile": "reader"}).json
    secret = created["key"]
    assert secret.startswith("toolcrib_") and len(secret) > 40
    assert list(gateway.servers(secret)) == ["office"]
    listed = {key["name"]: key for key in get(gateway, "/api/keys")["keys"]}
    assert listed["laptop"]["profile"] == "reader" and listed["laptop"]["last_used"] > 0
    assert listed["laptop"]["created_by"] == "admin" and listed["admin"]["created_by"] == "toolcrib.json"
    assert listed["admin"]["requests"] > 0 and not listed["admin"]["id"]
    # Neither the secrets nor their hashes are shown again.
    assert (
        secret not in gateway.request("/api/keys", ADMIN).text
        and "hash" not in gateway.request("/api/keys", ADMIN).text
    )
    assert send(gateway, "POST", "/api/keys", {"name": "laptop"}).status == 400
    assert send(gateway, "POST", "/api/keys", {"name": "x", "profile": "none"}).status == 400
    for body in ({}, {"name": ""}, {"name": "a\nb"}, {"name": 3}, {"name": "x" * 100}, {"name": "y", "profile": 3}):
        assert send(gateway, "POST", "/api/keys", body).status == 400
    assert send(gateway, "DELETE", f"/api/keys/{created['id']}").json == {"revoked": "laptop"}
    assert gateway.request("/api/servers", secret).status == 401
    assert send(gateway, "DELETE", f"/api/keys/{created['id']}").status == 404
    rows = get(gateway, "/api/activity?action=key&limit=2")["rows"]
    assert [(row["details"]["change"], row["details"]["name"], row["key"]) for row in rows] == [
        ("revoked", "laptop", "admin"),
        ("created", "laptop", "admin"),
    ]
    own = send(gateway, "POST", "/api/keys", {"name": "own"}).json
    assert send(gateway, "DELETE", f"/api/keys/{own['id']}", key=own["key"]).json == {"revoked": "own"}
    assert send(gateway, "GET", "/api/stats", key=own["key"]).status == 401


def test_key_that_revokes_itself_gets_the_response(gateway: GatewayProcess) -> None:
    created = send(gateway, "POST", "/api/keys", {"name": "own"}).json
    assert send(gateway, "DELETE", f"/api/keys/{created['id']}", key=created["key"]).json == {"revoked": "own"}
    assert gateway.request("/api/servers", created["key"]).status == 401
    assert "Traceback" not in gateway.read_log()


def test_profiles_are_created_and_deleted_at_run_time(gateway: GatewayProcess) -> None:
    reply = send(gateway, "POST", "/api/profiles", {"name": "vault-only", "servers": ["vault"], "recordContent": True})
    assert reply.status == 200 and reply.json["tools"] == 1 and reply.json["sample"] == ["vault___echo"]
    key = send(gateway, "POST", "/api/keys", {"name": "vault key", "profile": "vault-only"}).json
    assert list(gateway.servers(key["key"])) == ["vault"]
    call_tool(gateway, "vault___echo", key["key"], text="recorded", password="hidden")
    row = get(gateway, "/api/activity?key=vault%20key&limit=1")["rows"][0]
    assert row["details"]["arguments"]["text"] == "recorded" and "hidden" not in str(row)
    profiles = {profile["name"]: profile for profile in get(gateway, "/api/profiles")["profiles"]}
    assert profiles["vault-only"]["source"] == "store" and profiles["vault-only"]["keys"] == ["vault key"]
    assert profiles["reader"]["source"] == "toolcrib.json" and profiles[""]["tools"] == 3
    for body in ({"name": "reader"}, {"name": "a b"}, {"name": "x", "servers": ["none"]}, {"name": "x", "odd": 1}, {}):
        assert send(gateway, "POST", "/api/profiles", body).status == 400
    assert send(gateway, "DELETE", "/api/profiles/vault-only").status == 409
    own = {
        "servers": ["vault"],
        "overrides": {"vault___echo": {"description": "Say it."}},
        "pins": {"vault___echo": "0" * 32},
    }
    changed = send(gateway, "PUT", "/api/profiles/vault-only", own)
    assert changed.status == 200 and changed.json["tools"] == 0
    assert changed.json["settings"]["overrides"] == own["overrides"] and changed.json["settings"]["pins"] == own["pins"]
    assert send(gateway, "PUT", "/api/profiles/vault-only", {"pins": {"vault___echo": "x"}}).status == 400
    assert send(gateway, "PUT", "/api/profiles/reader", {}).status == 404
    send(gateway, "DELETE", f"/api/keys/{key['id']}")
    assert send(gateway, "DELETE", "/api/profiles/vault-only").json == {"deleted": "vault-only"}
    assert send(gateway, "DELETE", "/api/profiles/reader").status in (404, 409)


def test_llm_traffic_is_summed_and_followed_turn_by_turn(gateway: GatewayProcess, folder: Path) -> None:
    store = open_store(f"sqlite:///{folder / 'toolcrib.db'}")
    day = time.strftime("%Y-%m-%d", time.gmtime())
    store.add_llm_usage(
        [LlmUsage(day, "admin", "gpt-x", 2, 100, 20, 50, 900), LlmUsage(day, "", "gpt-y", 1, 1, 1, 0, 0)]
    )
    turns = [
        AuditRow("llm", "ok", time.time(), server="openai", tool="gpt-x", session="c1", details={"tools_sent": [name]})
        for name in ("first", "second", "second")
    ]
    store.append_audit([*turns, AuditRow("llm", "error", time.time(), server="openai", tool="gpt-x", session="c2")])
    store.close()
    llm = get(gateway, "/api/llm")
    assert llm["upstreams"][0]["name"] == "openai" and llm["upstreams"][0]["errors"] == 1
    assert "an-upstream-key" not in json.dumps(llm)
    assert {model["model"]: model["requests"] for model in llm["models"]} == {"gpt-x": 2, "gpt-y": 1}
    assert llm["total"]["input_tokens"] == 101 and llm["total"]["saved_tokens"] == 900
    conversations = get(gateway, "/api/llm/conversations")["conversations"]
    assert [(each["id"], each["turns"], each["errors"]) for each in conversations] == [("c2", 1, 1), ("c1", 3, 0)]
    assert llm["prefix"] == conversations[1]["prefix"] == {"turns": 2, "kept": 1}
    conversation = get(gateway, "/api/llm/conversations/c1")
    assert [turn["details"]["tools_sent"] for turn in conversation["turns"]] == [["first"], ["second"], ["second"]]
    assert [turn["details"]["tools_kept"] for turn in conversation["turns"]] == [False, False, True]
    assert gateway.request("/api/llm/conversations/none", ADMIN).status == 404


def test_edit_of_the_configuration_is_recorded(gateway: GatewayProcess, folder: Path) -> None:
    without_broken = {name: entry for name, entry in CONFIG["mcpServers"].items() if name != "broken"}
    write_json(folder / "toolcrib.json", {**CONFIG, "mcpServers": without_broken})
    wait_until(lambda: get(gateway, "/api/activity?action=config&client=toolcrib.json")["rows"])
    row = get(gateway, "/api/activity?action=config&client=toolcrib.json")["rows"][0]
    assert row["details"]["change"] == "removed broken"
