"""OpenAI's clients for node, and Codex, before a model without tool search.

They come from npm, so this is asked for by an environment variable.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.gateways.model.responses.asking import deferred
from tests.gateways.model.serving_openai import bench, chat_functions
from tests.support.npm import folder_of, install
from tests.support.scripted_model.server import Request
from tests.support.scripted_model.turn import ToolCall, Turn

PACKAGES = ("openai@6.49.0", "@openai/codex@0.166.0")

LOOK = ToolCall("search_tools", {"query": "exchange rate of currencies"})
RATE = ToolCall("get_exchange_rate", {"currency": "USD"})


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = folder_of("TOOLCRIB_CLIENTS", tmp_path_factory.mktemp("npm"))
    return install(folder, PACKAGES)


def node(modules: Path, folder: Path, script: str, **values: Any) -> Any:
    """What a script prints, as JSON; it has the values as `given`."""
    path = folder / "script.mjs"
    module = modules / "openai" / "index.mjs"
    path.write_text(
        f"import OpenAI from {json.dumps(module.as_uri())};\n"
        f"const given = {json.dumps(values)};\n"
        "const client = new OpenAI({baseURL: given.url + '/v1', apiKey: 'x', maxRetries: 0});\n"
        f"{script}\n"
    )
    program = shutil.which("node")
    assert program, "node is needed"
    done = subprocess.run([program, path], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_node_client_rebuilds_a_streamed_search(modules: Path, tmp_path: Path) -> None:
    script = """
    const stream = client.responses.stream({model: 'm', input: 'A dollar?', tools: given.tools});
    const kinds = [];
    for await (const event of stream) kinds.push(event.type);
    const final = await stream.finalResponse();
    console.log(JSON.stringify({kinds, output: final.output}));
    """
    with bench([Turn(LOOK), Turn(RATE)]) as one:
        told = node(modules, tmp_path, script, url=one.url, tools=deferred())
    assert [item["type"] for item in told["output"]] == [
        "tool_search_call",
        "tool_search_output",
        "function_call",
    ]
    assert told["output"][2]["namespace"] == "get_exchange_rate"
    assert told["kinds"][-1] == "response.completed"


def test_the_node_client_sees_an_ordinary_completion(modules: Path, tmp_path: Path) -> None:
    script = """
    const messages = [{role: 'user', content: 'A dollar?'}];
    const ask = {model: 'm', messages, tools: given.tools};
    const whole = await client.chat.completions.create(ask);
    const stream = client.chat.completions.stream(ask);
    const streamed = await stream.finalChatCompletion();
    console.log(JSON.stringify([whole, streamed].map((one) => one.choices[0].message.tool_calls)));
    """
    with bench([Turn(LOOK), Turn(RATE)] * 2, threshold_tools=3) as one:
        told = node(modules, tmp_path, script, url=one.url, tools=chat_functions())
    assert [[call["function"]["name"] for call in calls] for calls in told] == [
        ["get_exchange_rate"],
        ["get_exchange_rate"],
    ]


def test_codex_works_through_the_gateway(modules: Path, tmp_path: Path) -> None:
    def script(request: Request) -> Turn:
        return Turn("The answer is four.")

    program = shutil.which("node")
    assert program, "node is needed"
    with bench(script, {"tool_search": "on"}) as one:
        provider = {
            "name": "Toolcrib",
            "base_url": f"{one.url}/v1",
            "env_key": "TOOLCRIB_TEST_KEY",
            "wire_api": "responses",
        }
        settings = ["-c", "model_provider=toolcrib", "-c", "model=gpt-5.4"]
        for name, value in provider.items():
            settings += ["-c", f"model_providers.toolcrib.{name}={json.dumps(value)}"]
        done = subprocess.run(
            [
                program,
                modules / "@openai" / "codex" / "bin" / "codex.js",
                "exec",
                "--skip-git-repo-check",
                *settings,
                "What is two and two?",
            ],
            cwd=tmp_path,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "CODEX_HOME": str(tmp_path),
                "TOOLCRIB_TEST_KEY": "x",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert "The answer is four." in done.stdout, done.stderr
        assert one.requests
        assert all(request.path == "/v1/responses" for request in one.requests)
