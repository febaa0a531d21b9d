"""OpenAI's client for Node and Codex, on a model without tool search.

They come from npm, so an environment variable enables these tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.llm.openai_responses.requests import deferred_functions
from tests.gateway.llm.serving_openai import chat_functions, openai_setup
from tests.gateway.serving import server_entry
from tests.support.npm import install_folder, install_packages
from tests.support.scripted_model.server import Request
from tests.support.scripted_model.turn import Raw, ToolCall, Turn

PACKAGES = (
    "openai@6.49.0", "@openai/codex@0.166.0", "opencode-ai@1.18.33", "ai@6.0.326", "@ai-sdk/openai@3.0.141",
)  # fmt: skip

LOOK = ToolCall("search_tools", {"query": "exchange rate of currencies"})
RATE = ToolCall("get_exchange_rate", {"currency": "USD"})


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = install_folder("TOOLCRIB_CLIENTS", tmp_path_factory.mktemp("npm"))
    return install_packages(folder, PACKAGES)


def node(modules: Path, folder: Path, script: str, **values: Any) -> Any:
    """Run a script, which reads the values from `given`, and return the JSON that it prints."""
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


def test_node_client_parses_streamed_search(modules: Path, tmp_path: Path) -> None:
    script = """
    const stream = client.responses.stream({model: 'm', input: 'A dollar?', tools: given.tools});
    const kinds = [];
    for await (const event of stream) kinds.push(event.type);
    const final = await stream.finalResponse();
    console.log(JSON.stringify({kinds, output: final.output}));
    """
    with openai_setup([Turn(LOOK), Turn(RATE)]) as setup:
        printed = node(modules, tmp_path, script, url=setup.url, tools=deferred_functions())
    assert [item["type"] for item in printed["output"]] == ["tool_search_call", "tool_search_output", "function_call"]
    assert printed["output"][2]["namespace"] == "get_exchange_rate"
    assert printed["kinds"][-1] == "response.completed"


def test_node_client_gets_plain_completion(modules: Path, tmp_path: Path) -> None:
    script = """
    const messages = [{role: 'user', content: 'A dollar?'}];
    const ask = {model: 'm', messages, tools: given.tools};
    const whole = await client.chat.completions.create(ask);
    const stream = client.chat.completions.stream(ask);
    const streamed = await stream.finalChatCompletion();
    console.log(JSON.stringify([whole, streamed].map((one) => one.choices[0].message.tool_calls)));
    """
    with openai_setup([Turn(LOOK), Turn(RATE)] * 2, threshold_tools=3) as setup:
        printed = node(modules, tmp_path, script, url=setup.url, tools=chat_functions())
    assert [[call["function"]["name"] for call in calls] for calls in printed] == [
        ["get_exchange_rate"],
        ["get_exchange_rate"],
    ]


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_vercel_client_keeps_the_hidden_searches(modules: Path, tmp_path: Path, api: str) -> None:
    # It rewrites the arguments of calls, and refers to the reasoning that OpenAI has stored.
    script = """
    const { generateText, tool, jsonSchema, stepCountIs } = await import(given.ai);
    const { createOpenAI } = await import(given.provider);
    const provider = createOpenAI({ baseURL: given.url + '/v1', apiKey: 'x' });
    const tools = {};
    for (const { function: { name, description, parameters } } of given.tools) {
      tools[name] = tool({ description, inputSchema: jsonSchema(parameters), execute: async () => '0.9' });
    }
    const options = { model: provider[given.api]('gpt-5.1'), tools, prompt: 'A dollar?', stopWhen: stepCountIs(4) };
    console.log(JSON.stringify((await generateText(options)).text));
    """

    def thought(number: int) -> list[Raw]:
        return [Raw({"type": "reasoning", "id": f"rs_{number}", "summary": []})] if api == "responses" else []

    rate = ToolCall("call_tool", {"tool_name": RATE.name, "tool_input": RATE.arguments})
    turns = [Turn(*thought(1), LOOK), Turn(*thought(2), rate), Turn("0.9 euros.")]
    packages = {"ai": modules / "ai", "provider": modules / "@ai-sdk" / "openai"}
    paths = {name: (folder / "dist" / "index.mjs").as_uri() for name, folder in packages.items()}
    with openai_setup(turns, {"tool_search": "on", "style": "dispatch", "prefetch": False}) as setup:
        given: Any = {"url": setup.url, "api": api, "tools": chat_functions(), **paths}
        assert node(modules, tmp_path, script, **given) == "0.9 euros."
        last = setup.requests[-1].body["input" if api == "responses" else "messages"]
    kinds = [item.get("role") or item["type"] for item in last]
    if api == "chat":
        assert kinds == ["user", "assistant", "tool", "assistant", "tool"]
    else:
        call = ["function_call", "function_call_output"]
        assert kinds == ["user", "item_reference", *call, "item_reference", *call]


def codex(modules: Path, folder: Path, url: str, question: str, **more: Any) -> str:
    """Ask Codex a question through the gateway and return its output; `more` are its settings."""
    program = shutil.which("node")
    assert program, "node is needed"
    settings = {
        "model_provider": "toolcrib",
        "model": "gpt-5.4",
        "model_providers.toolcrib.name": "Toolcrib",
        "model_providers.toolcrib.base_url": f"{url}/v1",
        "model_providers.toolcrib.env_key": "TOOLCRIB_TEST_KEY",
        "model_providers.toolcrib.wire_api": "responses",
        **more,
    }
    options = [part for name in settings for part in ("-c", f"{name}={json.dumps(settings[name])}")]
    script = modules / "@openai" / "codex" / "bin" / "codex.js"
    done = subprocess.run(
        [program, script, "exec", "--skip-git-repo-check", *options, question],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "CODEX_HOME": str(folder), "TOOLCRIB_TEST_KEY": "x"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_codex_works_through_the_gateway(modules: Path, tmp_path: Path) -> None:
    with openai_setup(lambda _: Turn("The answer is four."), {"tool_search": "on"}) as setup:
        answer = codex(modules, tmp_path, setup.url, "What is two and two?")
        assert "The answer is four." in answer
        assert setup.requests
        assert all(request.path == "/v1/responses" for request in setup.requests)


def test_file_tools_of_codex_are_not_deferred(modules: Path, tmp_path: Path) -> None:
    with openai_setup(lambda _: Turn("Four."), {"tool_search": "on", "style": "dispatch"}) as setup:
        codex(modules, tmp_path, setup.url, "What is two and two?", model="plain")
        names = setup.requests[0].tool_names
    assert {"exec_command", "write_stdin", "search_tools", "call_tool"} <= set(names)


def test_file_tools_of_opencode_are_not_deferred(modules: Path, tmp_path: Path) -> None:
    programs = sorted(modules.glob("opencode-linux-*/bin/opencode"))
    with openai_setup(lambda _: Turn("Four."), {"tool_search": "on", "style": "dispatch"}) as setup:
        options = {"baseURL": f"{setup.url}/v1", "apiKey": "x"}
        provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"plain": {}}}
        (tmp_path / "opencode.json").write_text(json.dumps({"provider": {"toolcrib": provider}}))
        done = subprocess.run(
            [programs[0], "run", "--model", "toolcrib/plain", "What is two and two?"],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert "Four." in done.stdout, done.stderr
        names = setup.requests[-1].tool_names
    assert {"bash", "read", "edit", "write", "glob", "grep"} <= set(names)


def test_codex_calls_mcp_tool_that_was_searched(modules: Path, tmp_path: Path) -> None:
    tide = {
        "name": "read_tide",
        "description": "Tell when the water is high",
        "inputSchema": {"type": "object", "properties": {"place": {"type": "string"}}},
        "annotations": {"readOnlyHint": True},
    }
    server = server_entry(tide, "echo")

    def script(request: Request) -> Turn:
        if any("Brest" in result for result in request.results):
            return Turn("High tide is at noon.")
        found = next((name for name in request.tool_names if name.endswith("read_tide")), None)
        if found is None:
            return Turn(ToolCall("search_tools", {"query": "when is the water high"}))
        return Turn(ToolCall(found, {"place": "Brest"}))

    with openai_setup(script, {"tool_search": "on"}) as setup:
        settings = {f"mcp_servers.harbour.{name}": server[name] for name in ("command", "args")}
        answer = codex(modules, tmp_path, setup.url, "When is high tide?", **settings)
        assert "High tide is at noon." in answer
        shown = [request.tool_names for request in setup.requests]
    assert not any(name.endswith("read_tide") for name in shown[0])
    assert any(name.endswith("read_tide") for name in shown[-1])
