from __future__ import annotations

from typing import Any

import pytest

from toolcrib.adapters.mcp import is_tool_entry, tools_from_wire
from toolcrib.errors import InvalidTool

ISSUE: dict[str, Any] = {
    "name": "create_issue",
    "title": "Create an issue",
    "description": "Open a new issue.",
    "inputSchema": {"type": "object", "properties": {"title": {"type": "string"}}},
    "outputSchema": {"type": "object"},
    "annotations": {"title": "New issue", "readOnlyHint": False},
    "icons": [],
    "_meta": {"vendor/cost": 1},
}


def test_tool_keeps_title_schemas_and_annotations() -> None:
    (tool,) = tools_from_wire(ISSUE)
    assert tool.id == "create_issue"
    assert tool.title == "Create an issue"
    assert tool.description == "Open a new issue."
    assert tool.input_schema == ISSUE["inputSchema"]
    assert tool.output_schema == {"type": "object"}
    assert tool.annotations == ISSUE["annotations"]
    assert tool.policy == "automatic"


def test_title_falls_back_to_the_annotation() -> None:
    assert tools_from_wire(ISSUE | {"title": None})[0].title == "New issue"


def test_tools_of_a_list_get_its_server() -> None:
    listing = {"tools": [ISSUE, {"name": "close_issue", "inputSchema": {}}], "nextCursor": None}
    tools = tools_from_wire(listing, server="github", server_description="Issues and code.")
    assert [tool.id for tool in tools] == ["github___create_issue", "github___close_issue"]
    assert {tool.server_description for tool in tools} == {"Issues and code."}


def test_always_load_tool_is_never_deferred() -> None:
    assert tools_from_wire(ISSUE | {"_meta": {"anthropic/alwaysLoad": True}})[0].policy == "never"


def test_read_only_hint_is_kept() -> None:
    assert tools_from_wire(ISSUE | {"annotations": {"readOnlyHint": True}})[0].read_only


@pytest.mark.parametrize("entry", [ISSUE, {"tools": [ISSUE]}, {"tools": []}])
def test_tools_and_lists_are_recognised(entry: dict[str, Any]) -> None:
    assert is_tool_entry(entry)


@pytest.mark.parametrize(
    "entry", [{"name": "a", "input_schema": {}}, {"tools": [{"name": "a"}]}, {"tools": [7]}, {"tools": 7}]
)
def test_other_formats_are_not_recognised(entry: dict[str, Any]) -> None:
    assert not is_tool_entry(entry)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "an object with name, title, .*: name is missing"),
        ({"name": 7}, "name must be text, not a number"),
        ({"inputSchema": True}, "'create_issue': inputSchema must be an object, not true"),
        ({"outputSchema": "none"}, "outputSchema must be an object, not text"),
        ({"annotations": []}, "annotations must be an object, not a list"),
        ({"annotations": {"title": 1}, "title": ""}, r"annotations\.title must be text"),
    ],
)
def test_wrong_field_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTool, match=message):
        tools_from_wire(ISSUE | fields)
