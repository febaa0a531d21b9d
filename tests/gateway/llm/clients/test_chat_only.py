"""Claude Code and Codex in front of an upstream that has only Chat Completions.

They come from npm, so an environment variable enables these tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.gateway.llm.clients.test_claude_code import PACKAGE as CLAUDE_CODE
from tests.gateway.llm.clients.test_claude_code import TIDE, ask_claude_code
from tests.gateway.llm.clients.test_claude_code import VERSION as CLAUDE_CODE_VERSION
from tests.gateway.llm.clients.test_openai_node import codex
from tests.gateway.llm.serving import running_llm_gateway
from tests.support.npm import install_folder, install_packages
from tests.support.scripted_model.server import Request, Script, ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib.config.settings import LlmGatewayConfig, LlmUpstreamConfig
from toolcrib.gateway.llm.gateway import LlmGateway


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = install_folder("TOOLCRIB_CLIENTS", tmp_path_factory.mktemp("npm"))
    return install_packages(folder, (f"{CLAUDE_CODE}@{CLAUDE_CODE_VERSION}", "@openai/codex@0.166.0"))


@contextmanager
def chat_upstream(script: Script) -> Iterator[tuple[str, ScriptedModel]]:
    with ScriptedModel(script) as model:
        upstream = LlmUpstreamConfig("local", api="chat", url=model.url, tool_search="off")
        with running_llm_gateway(LlmGateway(LlmGatewayConfig((upstream,)))) as served:
            yield served.url, model
    assert model.requests and all(request.path == "/v1/chat/completions" for request in model.requests)


def test_claude_code_completes_a_task(modules: Path, tmp_path: Path) -> None:
    def work(request: Request) -> Turn:
        if any("Brest" in result for result in request.results):
            return Turn("High tide is at noon.")
        return Turn(ToolCall(TIDE, {"place": "Brest"})) if TIDE in request.tool_names else Turn("Hello.")

    program = sorted(modules.glob(f"{CLAUDE_CODE}-*/claude"))[0]
    with chat_upstream(work) as (url, _):
        answer = ask_claude_code(program, url, tmp_path, ENABLE_TOOL_SEARCH="false")
    assert answer["result"] == "High tide is at noon."


def test_codex_completes_a_task(modules: Path, tmp_path: Path) -> None:
    def work(request: Request) -> Turn:
        if any("two and two" in result for result in request.results):
            return Turn("The answer is four.")
        return Turn(ToolCall("exec_command", {"cmd": "echo two and two"}))

    with chat_upstream(work) as (url, model):
        answer = codex(modules, tmp_path, url, "What is two and two?", model="plain", web_search="disabled")
    assert "The answer is four." in answer
    assert len(model.requests) >= 2
