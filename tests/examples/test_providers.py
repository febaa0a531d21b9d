"""The example of each provider, with its official client, against a scripted model."""

from __future__ import annotations

import asyncio
import base64
import sys
from contextlib import AsyncExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from examples import on_gemini, on_mcp
from tests.frameworks.script import TURNS, assert_conversation
from tests.support.scripted_model.server import ScriptedModel
from tests.support.scripted_model.turn import Raw, Turn
from tests.support.scripted_page import run_page_model
from toolcrib.demo import office

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(ROOT.glob("examples/on_*.py"))
PROVIDERS = ["on_anthropic", "on_openai_chat", "on_openai_responses", "on_gemini"]
every_provider = pytest.mark.parametrize("name", PROVIDERS)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_page_contains_the_example(example: Path) -> None:
    slug = example.stem.removeprefix("on_").replace("_", "-")
    page = (ROOT / "docs" / "how-to" / "providers" / f"{slug}.md").read_text(encoding="utf-8")
    assert f"```python\n{example.read_text(encoding='utf-8')}```" in page


def test_there_is_an_example_for_every_wire() -> None:
    wires = import_module("toolcrib.adapters.wire_formats").WIRE_FORMATS
    assert {path.stem for path in EXAMPLES} == {f"on_{wire}" for wire in wires}


def _create_client(name: str, monkeypatch: pytest.MonkeyPatch, model: ScriptedModel) -> Any:
    """Return the official client, created as in the example."""
    for variable, value in (
        ("ANTHROPIC_BASE_URL", model.url),
        ("OPENAI_BASE_URL", f"{model.url}/v1"),
        ("GOOGLE_GEMINI_BASE_URL", model.url),
        *((f"{maker}_API_KEY", "any") for maker in ("ANTHROPIC", "OPENAI", "GEMINI")),
    ):
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    module = import_module(f"examples.{name}")
    kind = {"on_anthropic": "anthropic.Anthropic", "on_gemini": "genai.Client"}
    package, _, client = kind.get(name, "openai.OpenAI").partition(".")
    return getattr(getattr(module, package), client)()


@every_provider
def test_own_loop_searches_calls_and_receives_errors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedModel(TURNS) as model, _create_client(name, monkeypatch, model) as client:
        text = import_module(f"examples.{name}").run_loop(client, office.TASK)
    assert text == "It is sunny."
    assert_conversation(model.requests)
    assert not any(request.streams for request in model.requests)


@every_provider
def test_agent_streams_the_same_conversation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedModel(TURNS) as model, _create_client(name, monkeypatch, model) as client:
        texts = list(import_module(f"examples.{name}").stream_agent(client, office.TASK))
    assert "".join(texts) == "It is sunny."
    assert len(texts) > 1
    assert_conversation(model.requests)
    assert all(request.streams for request in model.requests)


@every_provider
def test_endless_loop_raises(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        ScriptedModel(lambda request: TURNS[0]) as model,
        _create_client(name, monkeypatch, model) as client,
        pytest.raises(RuntimeError, match="not done after 10 steps"),
    ):
        import_module(f"examples.{name}").run_loop(client, office.TASK)


@every_provider
def test_program_runs(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = "<!-- model:\nOne.\nTwo.\n-->\n"
    with run_page_model(page, monkeypatch):
        import_module(f"examples.{name}").main()
    assert capsys.readouterr().out == "One.\nTwo."


def test_unused_turns_of_a_page_script_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(AssertionError, match="turns that were not requested"),
        run_page_model("<!-- model:\nOne.\n-->\n", monkeypatch),
    ):
        pass


def test_own_loop_sends_gemini_signature_back_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    signature = base64.urlsafe_b64encode(bytes(range(250, 256)) * 3).decode()
    call = {"functionCall": {"name": "get_weather", "args": {"city": "Bern"}, "id": "1"}}
    turns = [Turn(Raw({**call, "thoughtSignature": signature})), Turn("Done.")]
    with ScriptedModel(turns) as model, _create_client("on_gemini", monkeypatch, model) as client:
        assert on_gemini.run_loop(client, "x") == "Done."
    assert model.requests[1].body["contents"][1]["parts"][0]["thoughtSignature"] == signature


SERVER = StdioServerParameters(command=sys.executable, args=["-m", "examples.on_mcp"], cwd=str(ROOT))


@pytest.mark.parametrize("served", ["in memory", "standard input and output"])
def test_mcp_server_lists_two_tools_and_finds_the_others(served: str) -> None:
    async def main() -> list[Any]:
        of = on_mcp.build_server(office.tools()) if served == "in memory" else SERVER
        async with Client(of) as client:
            tools_list = await client.list_tools()
            names = [tool.name for tool in tools_list.tools]
            searched = await client.call_tool("search_tools", {"query": "weather forecast"})
            rome = {"tool_name": "get_weather", "tool_input": {"city": "Rome"}}
            called = await client.call_tool("execute_dynamic_tool", rome)
            wrong = await client.call_tool("execute_dynamic_tool", {"tool_name": "get_weather"})
            return [names, searched, called, wrong]

    names, searched, called, wrong = asyncio.run(main())
    assert names == ["search_tools", "execute_dynamic_tool"]
    assert '"name":"get_weather"' in searched.content[0].text
    assert (called.content[0].text, called.is_error) == ("sunny in Rome", False)
    assert wrong.is_error and "`tool_input` is missing" in wrong.content[0].text


def test_tools_of_mcp_servers_are_called_under_their_server_names() -> None:
    async def main() -> list[Any]:
        async with AsyncExitStack() as stack:
            clients = {name: await stack.enter_async_context(Client(_build_server(name))) for name in ("a", "b")}
            session = (await on_mcp.collect_tools(clients)).session()
            call = {"id": "1", "function": {"name": "b___greet", "arguments": '{"who": "Ann"}'}}
            reply = {"choices": [{"message": {"role": "assistant", "tool_calls": [call]}}]}
            messages = session.handle("openai_chat", reply)
            answers = await on_mcp.call_pending(session, clients)
            return [session.tools("openai_chat"), *messages, *session.answer("openai_chat", answers)]

    tools, _, result = asyncio.run(main())
    assert [tool["function"]["name"] for tool in tools] == ["a___greet", "b___greet"]
    assert result["content"] == "b greets Ann"


def _build_server(name: str) -> Any:
    """Return a plain MCP server with one tool."""
    from mcp.server.mcpserver import MCPServer

    server = MCPServer(name)

    @server.tool()
    def greet(who: str) -> str:
        """Greet a person."""
        return f"{name} greets {who}"

    return server
