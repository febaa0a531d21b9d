"""Clients of other makers at our counter: the MCP Inspector and the official SDKs.

Each lists, searches and calls, by standard input and output and by HTTP. Set TOOLCRIB_CLIENTS to 1
to run it, or to a folder in which the npm packages are kept for the next time.
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
SEARCH: Final = {"query": "tool that shows a picture"}
CALL: Final[dict[str, Any]] = {"name": "everything___test_simple_text", "arguments": {}}
OWN: Final = ["search_tools", "describe_tool", "call_tool"]
TYPESCRIPT: Final = """
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
const [target, search, call] = process.argv.slice(2).map(JSON.parse);
const transport = target.url
  ? new StreamableHTTPClientTransport(new URL(target.url))
  : new StdioClientTransport(target);
const client = new Client({ name: "test", version: "1" });
const patient = { timeout: 600000 };
await client.connect(transport, patient);
const said = [
  await client.listTools({}, patient),
  await client.callTool({ name: "search_tools", arguments: search }, undefined, patient),
  await client.callTool({ name: "call_tool", arguments: call }, undefined, patient),
];
console.log(JSON.stringify(said));
await client.close();
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = install_folder("TOOLCRIB_CLIENTS", tmp_path_factory.mktemp("npm"))
    return install_packages(folder, PACKAGES)


@pytest.fixture(scope="module")
def targets(modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """How the gateway is reached by each transport."""
    folder = tmp_path_factory.mktemp("gateway")
    server = {
        "command": sys.executable,
        "args": ["-m", "tests.support.everything"],
        "cwd": str(REPOSITORY),
        "connectSeconds": 600,
    }
    config = {"mcpServers": {"everything": server}, "toolSearch": {"mode": "search"}}
    # The store is kept, so that a gateway that has just been started knows the tools already.
    path = write_config(folder, {**config, "store": f"sqlite:///{folder / 'store.db'}"})
    command, *args = stdio_command(path)
    with run_gateway(path, servers=1) as address:
        yield {"stdio": {"command": command, "args": args}, "http": {"url": f"{address}/mcp"}}


def held(listed: Any, found: Any, called: Any) -> None:
    """What every client has to have been told."""
    assert [tool["name"] for tool in listed["tools"]] == OWN
    assert "everything___test_image_content" in json.dumps(found["content"])
    assert found["structuredContent"]["tools"]
    assert called["content"] == [{"type": "text", "text": "Something."}]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_inspector(
    modules: Path, targets: dict[str, Any], tmp_path: Path, transport: str
) -> None:
    config = tmp_path / "inspector.json"
    target = dict(targets[transport])
    target["type"] = "streamable-http" if transport == "http" else "stdio"
    config.write_text(json.dumps({"mcpServers": {"toolcrib": target}}), encoding="utf-8")
    launcher = modules / INSPECTOR / "clients" / "launcher" / "build" / "index.js"

    def inspect(*arguments: str) -> Any:
        command = [node_binary(modules), str(launcher), "--cli", "--config", str(config)]
        done = subprocess.run(
            [*command, "--server", "toolcrib", "--connect-timeout", "600000", *arguments],
            capture_output=True,
            text=True,
            timeout=CLIENT_SECONDS,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    held(
        inspect("--method", "tools/list", "--strict"),
        inspect(
            *("--method", "tools/call", "--tool-name", "search_tools"),
            *("--tool-arg", f"query={SEARCH['query']}"),
        ),
        inspect(
            *("--method", "tools/call", "--tool-name", "call_tool"),
            *("--tool-arg", f"name={CALL['name']}", "--tool-arg", "arguments={}"),
        ),
    )


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_sdk_for_typescript(modules: Path, targets: dict[str, Any], transport: str) -> None:
    # Node looks for packages from where the program lies.
    program = modules.parent / "toolcrib-client.mjs"
    program.write_text(TYPESCRIPT, encoding="utf-8")
    given = [json.dumps(one) for one in (targets[transport], SEARCH, CALL)]
    done = subprocess.run(
        [node_binary(modules), str(program), *given],
        capture_output=True,
        text=True,
        timeout=CLIENT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    held(*json.loads(done.stdout))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_sdk_for_python(targets: dict[str, Any], transport: str, mode: str) -> None:
    given = targets[transport]
    target = given["url"] if transport == "http" else StdioServerParameters(**given)

    async def talk() -> list[Any]:
        async with Client(target, mode=mode, read_timeout_seconds=CLIENT_SECONDS) as client:
            said = [
                await client.list_tools(),
                await client.call_tool("search_tools", SEARCH),
                await client.call_tool("call_tool", CALL),
            ]
        return [one.model_dump(by_alias=True, mode="json", exclude_none=True) for one in said]

    held(*anyio.run(talk))
