"""The MCP Inspector and the official SDKs work with the gateway.

Each client lists, searches and calls over standard input and output and over HTTP. Set
TOOLCRIB_CLIENTS to 1 to run these tests, or to a folder that caches the npm packages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.support.gateway_process import REPOSITORY, run_gateway, stdio_command, write_config
from tests.support.npm import NODE, install_folder, install_packages, node_binary

INSPECTOR: Final = "@modelcontextprotocol/inspector"
SDK: Final = "@modelcontextprotocol/sdk"
PACKAGES: Final = (f"{INSPECTOR}@2.12.0", f"{SDK}@1.32.2", f"{NODE}@latest")
TRANSPORTS: Final = ("stdio", "http")
CLIENT_SECONDS: Final = 600
MAX_ATTEMPTS: Final = 3
SEARCH: Final = {"query": "tool that shows a picture"}
CALL: Final[dict[str, Any]] = {"name": "everything___test_simple_text", "arguments": {}}
GATEWAY_TOOLS: Final = ["search_tools", "describe_tool", "call_tool", "read_result"]
TYPESCRIPT: Final = """
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
const [target, search, call] = process.argv.slice(2).map(JSON.parse);
const transport = target.url
  ? new StreamableHTTPClientTransport(new URL(target.url))
  : new StdioClientTransport(target);
const client = new Client({ name: "test", version: "1" });
const options = { timeout: 600000 };
await client.connect(transport, options);
const results = [
  await client.listTools({}, options),
  await client.callTool({ name: "search_tools", arguments: search }, undefined, options),
  await client.callTool({ name: "call_tool", arguments: call }, undefined, options),
];
console.log(JSON.stringify(results));
await client.close();
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = install_folder("TOOLCRIB_CLIENTS", tmp_path_factory.mktemp("npm"))
    return install_packages(folder, PACKAGES)


@pytest.fixture(scope="module")
def targets(modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Yield the client settings of each transport."""
    folder = tmp_path_factory.mktemp("gateway")
    server = {
        "command": sys.executable,
        "args": ["-m", "tests.support.everything"],
        "cwd": str(REPOSITORY),
        "connectSeconds": 600,
    }
    config = {"mcpServers": {"everything": server}, "toolSearch": {"mode": "search"}}
    # The stdio gateway knows the tools from the store of the HTTP gateway.
    path = write_config(folder, {**config, "store": f"sqlite:///{folder / 'store.db'}"})
    command, *args = stdio_command(path)
    with run_gateway(path, servers=1) as address:
        yield {"stdio": {"command": command, "args": args}, "http": {"url": f"{address}/mcp"}}


def check_results(listed: Any, found: Any, called: Any) -> None:
    """Check the results that every client must receive."""
    assert [tool["name"] for tool in listed["tools"]] == GATEWAY_TOOLS
    assert "everything___test_image_content" in json.dumps(found["content"])
    assert found["structuredContent"]["tools"]
    assert called["content"] == [{"type": "text", "text": "Something."}]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_inspector(modules: Path, targets: dict[str, Any], tmp_path: Path, transport: str) -> None:
    config = tmp_path / "inspector.json"
    target = dict(targets[transport])
    target["type"] = "streamable-http" if transport == "http" else "stdio"
    config.write_text(json.dumps({"mcpServers": {"toolcrib": target}}), encoding="utf-8")
    launcher = modules / INSPECTOR / "clients" / "launcher" / "build" / "index.js"

    def inspect(*arguments: str) -> Any:
        command = [node_binary(modules), str(launcher), "--cli", "--config", str(config)]
        # The inspector waits 60 seconds for a response, also for that of a gateway that it has just started. No option
        # changes that, and on a busy machine the start takes longer.
        for _ in range(MAX_ATTEMPTS):
            done = subprocess.run(
                [*command, "--server", "toolcrib", "--connect-timeout", "600000", *arguments],
                capture_output=True,
                text=True,
                timeout=CLIENT_SECONDS,
                env={**os.environ, "HOME": str(tmp_path)},
            )
            if "Request timed out" not in done.stderr + done.stdout:
                break
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    check_results(
        inspect("--method", "tools/list", "--strict"),
        inspect(
            *("--method", "tools/call", "--tool-name", "search_tools"), *("--tool-arg", f"query={SEARCH['query']}")
        ),
        inspect(
            *("--method", "tools/call", "--tool-name", "call_tool"),
            *("--tool-arg", f"name={CALL['name']}", "--tool-arg", "arguments={}"),
        ),
    )


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_typescript_sdk(modules: Path, targets: dict[str, Any], transport: str) -> None:
    # Node resolves packages relative to the program.
    program = modules.parent / "toolcrib-client.mjs"
    program.write_text(TYPESCRIPT, encoding="utf-8")
    arguments = [json.dumps(value) for value in (targets[transport], SEARCH, CALL)]
    done = subprocess.run(
        [node_binary(modules), str(program), *arguments], capture_output=True, text=True, timeout=CLIENT_SECONDS
    )
    assert done.returncode == 0, done.stderr
    check_results(*json.loads(done.stdout))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_python_sdk(targets: dict[str, Any], transport: str, mode: str) -> None:
    settings = targets[transport]
    target = settings["url"] if transport == "http" else StdioServerParameters(**settings)

    async def run_client() -> list[Any]:
        async with Client(target, mode=mode, read_timeout_seconds=CLIENT_SECONDS) as client:
            results = [
                await client.list_tools(),
                await client.call_tool("search_tools", SEARCH),
                await client.call_tool("call_tool", CALL),
            ]
        return [result.model_dump(by_alias=True, mode="json", exclude_none=True) for result in results]

    check_results(*anyio.run(run_client))
