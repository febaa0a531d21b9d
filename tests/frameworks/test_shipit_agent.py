"""shipit's agent, over the real HTTP API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("shipit_agent", reason="shipit-agent is not installed")

from shipit_agent import Agent
from shipit_agent.llms.openai_adapter import OpenAIChatLLM
from shipit_agent.permissions import PermissionEngine
from shipit_agent.tools.base import ToolContext
from shipit_agent.tools.function import FunctionTool
from shipit_agent.tools.tool_search import ToolSearchTool as ShipitToolSearchTool

from examples import with_shipit_agent
from tests.frameworks.script import REFUND, build_lexical_engine, weather_call
from tests.support.scripted_model.server import Request, ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn
from toolcrib.demo import office
from toolcrib.frameworks.shipit_agent import ToolcribSearchTool

TOOLS = [FunctionTool.from_callable(function) for function in office.tools()]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _search(query: str, **options: Any) -> ToolCall:
    return ToolCall("tool_search", {"query": query, **options})


def _llm(model: ScriptedModel) -> Any:
    return OpenAIChatLLM(model="scripted", base_url=f"{model.url}/v1", api_key="any", max_retries=0)


def _run(turns: Iterable[Turn], **options: Any) -> Sequence[Request]:
    with ScriptedModel(turns) as model:
        llm = _llm(model)
        Agent(llm=llm, tools=[*TOOLS, ToolcribSearchTool(engine=build_lexical_engine)], **options).run(office.TASK)
        return model.requests


def test_example_loads_found_and_called_tools() -> None:
    last = office.COUNTRIES[-1]
    by_need = f"yearly sales in {last}"
    turns = [Turn(_search(by_need, limit=1)), Turn(ToolCall(f"sales_in_{last.lower()}", {"year": 2026})), Turn("Done.")]
    with ScriptedModel(turns) as model:
        agent = with_shipit_agent.agent(_llm(model))
        assert agent.run(office.TASK).output == "Done."
        requests = model.requests
    first = requests[0].tool_names
    assert len(first) == 10
    assert "tool_search" in first
    assert requests[1].tool_names == (*first, f"sales_in_{last.lower()}")
    text = requests[1].results[0]
    assert text.startswith(f"Best tools for '{by_need}' (ranked by relevance):\n1. sales_in_spain")
    assert "now directly callable" in text and "- sales_in_spain(year: " in text
    assert requests[2].results == ("sales in Spain in 2026: 1,000",)


def test_parameters_are_searched_and_search_tool_is_excluded() -> None:
    tool = ToolcribSearchTool(engine=build_lexical_engine)
    assert isinstance(tool, ShipitToolSearchTool)
    described = [{"name": "a", "description": "Do it."}, {"name": "tool_search"}]
    parameters = {"type": "object", "properties": {"postcode": {"type": "string"}}}
    state: dict[str, Any] = {
        "available_tools": described,
        "tool_schemas_by_name": {"a": {"function": {"name": "a", "parameters": parameters}}},
        "deferred_tool_names": {"a"},
        "loaded_tool_names": set(),
    }
    context = ToolContext(prompt="", state=state)
    matches = tool.run(context, query="postcode")
    assert matches.metadata["loaded"] == ["a"]
    assert state["loaded_tool_names"] == {"a"}
    again = tool.run(context, query="postcode")
    assert again.metadata["already_loaded"] == ["a"]
    assert again.text.endswith("Already loaded; call directly without another search: a")
    assert [row["name"] for row in tool.run(context, query="tool_search").metadata["matches"]] == []


def test_no_match_answers_with_text_and_loads_nothing() -> None:
    requests = _run([Turn(_search("quantum knitting")), Turn("No.")])
    assert requests[1].results[0].startswith("No tools matched 'quantum knitting'.")
    assert requests[1].tool_names == requests[0].tool_names


def test_denied_tool_is_neither_found_nor_run() -> None:
    denied = PermissionEngine(deny=["refund_charge"])
    turns = [Turn(_search("money back for a charge")), Turn(REFUND), Turn("No.")]
    requests = _run(turns, permissions=denied)
    assert "refund_charge" not in requests[1].results[0]
    assert all("cents of" not in result for result in requests[2].results)


def test_unrevealed_tool_can_be_called_in_an_event_loop() -> None:
    deferred = [*TOOLS[3:], *TOOLS[:3], ToolcribSearchTool(engine=build_lexical_engine)]
    with ScriptedModel([Turn(weather_call("Rome")), Turn("Sunny.")]) as model:
        agent = Agent(llm=_llm(model), tools=deferred)
        asyncio.run(agent.arun(office.TASK))
        requests = model.requests
    assert "get_weather" not in requests[0].tool_names
    assert requests[1].results == ("sunny in Rome",)
    assert requests[1].tool_names == (*requests[0].tool_names, "get_weather")
