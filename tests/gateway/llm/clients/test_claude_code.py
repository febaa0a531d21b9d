"""Claude Code with an MCP server, through the gateway, on a model without tool search.

It comes from npm, so an environment variable enables this test.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.gateway.llm.serving import gateway_for_upstream
from tests.gateway.serving import server_entry
from tests.support.npm import install_folder, install_packages
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn

PACKAGE: Final = "@anthropic-ai/claude-code"
VERSION: Final = "2.1.197"
TIDE: Final = "mcp__harbour__read_tide"
QUESTION: Final = "When is high tide?"
SECONDS: Final = 300
READ_TIDE: Final[dict[str, Any]] = {
    "name": "read_tide",
    "description": "Tell when the water is high",
    "inputSchema": {"type": "object", "properties": {"place": {"type": "string"}}},
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of Claude Code, which npm has in one package per platform."""
    folder = install_folder("TOOLCRIB_CLIENTS", tmp_path_factory.mktemp("npm"))
    modules = install_packages(folder, [f"{PACKAGE}@{VERSION}"])
    found = sorted(modules.glob(f"{PACKAGE}-*/claude"))
    if not found:
        pytest.skip(f"{PACKAGE} has no program for this machine")
    return found[0]


def ask_claude_code(program: Path, url: str, folder: Path, **more: str) -> dict[str, Any]:
    """Return the answer of Claude Code, which has an MCP server that echoes its input."""
    server = {name: server_entry(READ_TIDE, "echo")[name] for name in ("command", "args")}
    servers = folder / "servers.json"
    servers.write_text(json.dumps({"mcpServers": {"harbour": server}}), encoding="utf-8")
    options = ["--mcp-config", str(servers), "--strict-mcp-config", "--allowedTools", TIDE]
    done = subprocess.run(
        [program, "-p", QUESTION, "--model", "plain-model", *options, "--output-format", "json"],
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "sk-ant-test",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # The first request has to have the tools of the MCP server, however busy the machine is.
            "MCP_TIMEOUT": "120000",
            "MCP_CONNECTION_NONBLOCKING": "0",
            **more,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def build_tide_model(search: ToolCall) -> Any:
    """Return a model that searches with this call, calls the tool and reports the result."""

    def turn(request: Request) -> Turn:
        if any("Brest" in result for result in request.results):
            return Turn("High tide is at noon.")
        if TIDE in request.tool_names:
            return Turn(ToolCall(TIDE, {"place": "Brest"}))
        return Turn(search) if search.name in request.tool_names else Turn("Hello.")

    return turn


def test_own_search_of_claude_code_loads_tools(program: Path, tmp_path: Path) -> None:
    search = ToolCall("ToolSearch", {"query": f"select:{TIDE}", "max_results": 5})
    with ScriptedModel(build_tide_model(search)) as model, gateway_for_upstream(model.url) as served:
        answer = ask_claude_code(program, served.url, tmp_path, ENABLE_TOOL_SEARCH="true")
    assert answer["result"] == "High tide is at noon."
    shown = [item.tool_names for item in model.requests if "ToolSearch" in item.tool_names]
    assert TIDE not in shown[0] and TIDE in shown[-1]
    assert shown[-1][: len(shown[0])] == shown[0], "what is found comes after, so caches hold"
    sent = json.dumps([item.body for item in model.requests])
    assert "defer_loading" not in sent and '"tool_reference"' not in sent


def answer_through_call_tool(request: Request) -> Turn:
    """Search, call the tool that was found through `call_tool`, and report the result."""
    if any("Brest" in result for result in request.results):
        return Turn("High tide is at noon.")
    if any('"input_schema"' in result for result in request.results):
        return Turn(ToolCall("call_tool", {"tool_name": TIDE, "tool_input": {"place": "Brest"}}))
    if "call_tool" in request.tool_names:
        return Turn(ToolCall("search_tools", {"query": "when is the water high"}))
    return Turn("Hello.")


def test_transparent_search_for_claude_code(program: Path, tmp_path: Path) -> None:
    with ScriptedModel(answer_through_call_tool) as model, gateway_for_upstream(model.url, prefetch=False) as served:
        answer = ask_claude_code(
            program,
            served.url,
            tmp_path,
            ENABLE_TOOL_SEARCH="false",
            ANTHROPIC_CUSTOM_HEADERS="x-toolcrib-tool-search: on",
        )
    assert answer["result"] == "High tide is at noon."
    shown = [item.tool_names for item in model.requests if "call_tool" in item.tool_names]
    assert len(shown) >= 3 and len(set(shown)) == 1, "the list of tools never changes"
    assert {"Bash", "Read", "Edit", "Write"} <= set(shown[0]), "file tools are not deferred"
    assert TIDE not in shown[0]
