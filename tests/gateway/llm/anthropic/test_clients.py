"""Clients that are not installed by default; an environment variable enables each."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.llm.anthropic.requests import conversation_with
from tests.support.npm import install_folder, install_packages
from tests.support.scripted_model.server import Request
from tests.support.scripted_model.turn import ToolCall, Turn

PACKAGES = ("@anthropic-ai/sdk@1.8.0", "ai@6.0.326", "@ai-sdk/anthropic@3.0.138")
PYTHON = "TOOLCRIB_PYTHON_CLIENTS"


def tide_model(request: Request) -> Turn:
    """Act as a model that searches for its tool, calls it and reports the result."""
    if "read_tide" not in request.tool_names:
        name = next(name for name in request.tool_names if "search" in name.lower())
        key = "pattern" if "regex" in name else "query"
        return Turn("Let me look.", ToolCall(name, {key: "tide"}))
    if any("noon" in text for text in request.results):
        return Turn("High tide is at noon.")
    return Turn(ToolCall("read_tide", {"text": "today"}))


def test_npm_clients_parse_search_blocks(tmp_path: Path) -> None:
    modules = install_packages(install_folder("TOOLCRIB_CLIENTS", tmp_path), PACKAGES)
    script = Path(__file__).with_name("clients.mjs")
    with conversation_with(tide_model) as conversation:
        printed = subprocess.run(
            ["node", str(script), conversation.server.url, str(modules.parent)],
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert printed.returncode == 0, printed.stderr
    output = json.loads(printed.stdout.splitlines()[-1])
    blocks = ["text", "server_tool_use", "tool_search_tool_result", "tool_use"]
    assert output["whole"] == output["streamed"] == blocks
    assert output["generated"] == output["flowing"] == [["toolSearch", True], ["read_tide", False]]


needs_python = pytest.mark.skipif(
    not os.environ.get(PYTHON),
    reason=f"set {PYTHON} where pydantic-ai-slim[anthropic], langchain and langchain-anthropic are installed",
)


@needs_python
@pytest.mark.filterwarnings("default")
def test_pydantic_ai_searches_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    agents: Any = importlib.import_module("pydantic_ai")
    models: Any = importlib.import_module("pydantic_ai.models.anthropic")
    providers: Any = importlib.import_module("pydantic_ai.providers.anthropic")

    def read_tide(text: str) -> str:
        """Tell when the water is high."""
        return "noon"

    with conversation_with(tide_model, tool_search="on") as conversation:
        provider = providers.AnthropicProvider(api_key="secret", base_url=conversation.server.url)
        model = models.AnthropicModel("claude-opus-4-8", provider=provider)
        agent = agents.Agent(model, tools=[agents.Tool(read_tide, defer_loading=True)])
        result = agent.run_sync("When is high tide?")
        names = [item.tool_names for item in conversation.upstream_requests]
    assert result.output == "High tide is at noon."
    assert "read_tide" not in names[0] and "read_tide" in names[-1]
    assert any("tool_search_tool" in name for name in names[0])


@needs_python
@pytest.mark.filterwarnings("default")
def test_langchain_searches_natively() -> None:
    agents: Any = importlib.import_module("langchain.agents")
    middleware: Any = importlib.import_module("langchain.agents.middleware")
    tools: Any = importlib.import_module("langchain_core.tools")
    chat: Any = importlib.import_module("langchain_anthropic")

    @tools.tool  # type: ignore[untyped-decorator]
    def read_tide(text: str) -> str:
        """Tell when the water is high."""
        return "noon"

    with conversation_with(tide_model, tool_search="on") as conversation:
        model = chat.ChatAnthropic(
            model="claude-opus-4-8", base_url=conversation.server.url, api_key="secret", max_retries=0
        )
        searching = middleware.ProviderToolSearchMiddleware(searchable_tools=[read_tide])
        agent = agents.create_agent(model, tools=[read_tide], middleware=[searching])
        result = agent.invoke({"messages": [{"role": "user", "content": "When is high tide?"}]})
        names = [item.tool_names for item in conversation.upstream_requests]
    assert "noon" in str(result["messages"][-1].content)
    assert "read_tide" not in names[0] and "read_tide" in names[-1]
