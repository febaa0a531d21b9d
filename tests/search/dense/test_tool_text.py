from __future__ import annotations

from toolcrib import Tool
from toolcrib.search.dense.tool_text import MAX_DESCRIPTION_WORDS, MAX_PARAMETERS, build_tool_text


def _schema(*names: str) -> dict[str, object]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


def test_text_has_server_name_description_and_parameters() -> None:
    tool = Tool("createIssue", "Open an issue.", _schema("repoName"), server="github-mcp-server")
    assert build_tool_text(tool) == "github create Issue: Open an issue.  (repo Name)".replace("  ", " ")


def test_title_is_included_if_it_adds_words_to_the_name() -> None:
    assert build_tool_text(Tool("get_user", title="Get User")) == "get user: "
    assert build_tool_text(Tool("get_user", title="Fetch a member")) == "get user Fetch a member: "


def test_long_descriptions_and_parameter_lists_are_cut() -> None:
    text = build_tool_text(Tool("x", "word " * 500, _schema(*(f"p{at}" for at in range(99)))))
    assert text.count("word") == MAX_DESCRIPTION_WORDS
    assert text.count(",") == MAX_PARAMETERS - 1
