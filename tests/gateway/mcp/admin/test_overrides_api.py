"""`/api/overrides` edits toolcrib.json, keeps its comments, and previews the effect on searches."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.serving import GatewayProcess, environment, running_gateway, server_entry, wait_until
from toolcrib.config.loader import load_config

ADMIN, READER = "the-key-of-the-admin", "the-key-of-the-reader"
BARE = {"name": "bare", "inputSchema": {"type": "object"}}
CONFIG = """{
  // Kept by every edit.
  "mcpServers": {"office": %s},
  "overrides": {
    "office___echo": {"hint": "parrot"} // also kept
  },
  "profiles": {"reader": {}},
  "auth": {"keys": ["%s", {"key": "%s", "profile": "reader"}]}
}
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("overrides-api")
    path = folder / "toolcrib.json"
    path.write_text(CONFIG % (json.dumps(server_entry("echo", "touch", BARE)), ADMIN, READER), encoding="utf-8")
    with running_gateway(folder, "--config", str(path)) as gateway:
        wait_until(lambda: gateway.servers(ADMIN)["office"]["state"] == "started")
        yield gateway


def send(gateway: GatewayProcess, method: str, path: str, body: object = None, key: str = ADMIN) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{gateway.url}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def get_description(gateway: GatewayProcess, name: str) -> str:
    tools = {tool["name"]: tool for tool in send(gateway, "GET", "/api/tools")[1]["tools"]}
    return str(tools[name].get("description", "")) if name in tools else ""


def test_override_is_previewed_saved_applied_and_deleted(gateway: GatewayProcess) -> None:
    config = gateway.log.parent / "toolcrib.json"
    override = {"description": "Mark a document as read.", "tags": ["files"]}
    body = {"pattern": "office___touch", "override": override, "queries": ["mark a document as read"]}
    status, preview = send(gateway, "POST", "/api/overrides/preview", body)
    assert status == 200
    assert preview["tools"][0]["after"]["description"] == "Mark a document as read."
    (compared,) = preview["searches"]
    assert compared["ranks"] == [{"name": "office___touch", "before": 2, "after": 1}]
    assert get_description(gateway, "office___touch") != "Mark a document as read."

    status, saved = send(gateway, "PUT", "/api/overrides/office___touch", {"override": override})
    assert status == 200
    assert '+    "office___touch"' in saved["diff"]
    wait_until(lambda: get_description(gateway, "office___touch") == "Mark a document as read.")
    text = config.read_text(encoding="utf-8")
    assert "// Kept by every edit." in text
    assert "// also kept" in text
    listed = send(gateway, "GET", "/api/overrides")[1]
    assert {one["pattern"]: one["tools"] for one in listed["overrides"]} == {
        "office___echo": ["office___echo"],
        "office___touch": ["office___touch"],
    }
    stale = {"override": override, "revision": "0000"}
    assert send(gateway, "PUT", "/api/overrides/office___touch", stale)[0] == 409

    assert send(gateway, "DELETE", "/api/overrides/office___touch")[0] == 200
    wait_until(lambda: get_description(gateway, "office___touch") != "Mark a document as read.")
    assert send(gateway, "DELETE", "/api/overrides/office___touch")[0] == 404


def test_invalid_overrides_and_keys_with_a_profile_are_refused(gateway: GatewayProcess) -> None:
    before = load_config(gateway.log.parent / "toolcrib.json")
    pattern = urllib.parse.quote("office___*")
    for method, path, body in (
        ("PUT", f"/api/overrides/{pattern}", {"override": {"descripton": "x"}}),
        ("PUT", f"/api/overrides/{pattern}", {"override": {"name": "x"}}),
        ("PUT", f"/api/overrides/{pattern}", {}),
        ("POST", "/api/overrides/preview", {"override": {}}),
    ):
        status, answer = send(gateway, method, path, body)
        assert status == 400, answer
        assert send(gateway, method, path, body, READER)[0] == 403
    assert load_config(gateway.log.parent / "toolcrib.json") == before


def test_lint_command_reads_the_tools_of_the_last_run(gateway: GatewayProcess) -> None:
    command = [sys.executable, "-m", "toolcrib", "lint", "--json"]
    output = subprocess.run(
        command, cwd=gateway.log.parent, env=environment(), capture_output=True, text=True, check=True, timeout=120
    )
    found = json.loads(output.stdout)
    assert found["tools"] == 3
    assert ("office___bare", "no description") in {(one["tool"], one["problem"]) for one in found["findings"]}
