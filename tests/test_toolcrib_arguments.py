"""Arguments of `Toolcrib` and its sessions that a new user passes by mistake."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib import SearchEngine, Tool, Toolcrib
from toolcrib.errors import InvalidConfig, InvalidQuery

TOOLS = [Tool("send_email", "Send an email."), Tool("get_weather", "Tell the weather.")]


@pytest.mark.parametrize("engine", [None, 5, SearchEngine(TOOLS)])
def test_engine_is_a_function(engine: Any) -> None:
    with pytest.raises(InvalidConfig, match="engine is a function that returns a SearchEngine for a catalog, not"):
        Toolcrib(TOOLS, engine=engine)


@pytest.mark.parametrize("tools", [TOOLS, set(TOOLS)])
def test_tools_in_place_of_ids_are_rejected(tools: Any) -> None:
    with pytest.raises(InvalidQuery, match=r"write \{tool.id for tool in tools\}"):
        Toolcrib(TOOLS).session(allowed=tools)


def test_model_is_text() -> None:
    model: Any = 5
    with pytest.raises(InvalidConfig, match="model is the id of a model, such as 'claude-sonnet-5', not 5"):
        Toolcrib(TOOLS).session(native="auto", model=model)


@pytest.mark.parametrize("wire", [None, [], {}, "openai"])
def test_unknown_wire_format_lists_the_formats(wire: Any) -> None:
    with pytest.raises(InvalidConfig, match="the formats are anthropic, openai_chat"):
        Toolcrib(TOOLS).session().tools(wire)


def test_repr_has_the_number_of_tools_and_calls() -> None:
    toolcrib = Toolcrib(TOOLS)
    session = toolcrib.session()
    call = {"type": "tool_use", "id": "1", "name": "get_weather", "input": {}}
    session.handle("anthropic", {"role": "assistant", "content": [call]})
    assert repr(toolcrib) == "Toolcrib(2 tools)"
    assert repr(session) == "ToolcribSession(2 tools shown, 1 calls pending)"
