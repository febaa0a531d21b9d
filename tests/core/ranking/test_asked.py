"""What a query asks for, without what people and models say around it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.ranking.asked import asked, behind_looking


@pytest.mark.parametrize(
    "query",
    [
        "find me a tool that can shrink a photo",
        "I need a tool to shrink a photo",
        "I'm looking for a tool that lets me shrink a photo",
        "Could you please find the right MCP tool to help me shrink a photo",
        "which tool can shrink a photo",
        "What tool should I use to shrink a photo",
        "is there any tool available to shrink a photo",
        "Is there a way to shrink a photo",
        "do you have something that can shrink a photo",
        "search for tools: shrink a photo",
        "Do you have any tools for this: shrink a photo",
        "find tools that can do the following tasks: shrink a photo",
        "tool to shrink a photo",
        "Hi there! Could you help me with something? shrink a photo",
        "Hello, shrink a photo",
        "User request: shrink a photo",
        "Task: shrink a photo",
        "The user wants me to shrink a photo",
        "my goal is to shrink a photo",
        "shrink a photo, thank you!",
        "shrink a photo. Thanks a lot in advance",
        "shrink a photo. Can you help me with that?",
        "shrink a photo ...",
        '"shrink a photo"',
        "“shrink a photo”",
        "  `shrink a photo`  ",
        "Hey! I need a tool to shrink a photo, thanks",
    ],
)
def test_what_is_said_around_a_request_is_left_out(query: str) -> None:
    assert asked(query) == "shrink a photo"


@pytest.mark.parametrize(
    "query",
    [
        "shrink a photo",
        "list tools",
        "list all tools of the server",
        "find the tools I used last week",
        "register a new tool that can shrink photos",
        "find functions that call main in the binary",
        "list services that are down",
        "find an alternative way to the airport",
        "need something to talk about at standup",
        "good morning message to the team",
        "create a task: buy milk",
        "help me plan a trip",
        "send a thank you note to Ann",
        "say thanks",
        'write "thanks" in "general"',
        '"one" and "two"',
        # Nothing would be left.
        "tool for",
        "thanks",
        "hi!",
        '""',
        "''",
        '"',
        "",
    ],
)
def test_what_is_asked_for_is_left_as_it_is(query: str) -> None:
    assert asked(query) == query


def test_where_a_tool_is_looked_for_is_told() -> None:
    text = "a tool to fetch transcripts"
    assert text[behind_looking(text) :] == "fetch transcripts"
    assert behind_looking("Hello, fetch transcripts with the spool") == 0


@given(st.text(max_size=300))
def test_of_any_text_something_is_left(query: str) -> None:
    left = asked(query)
    assert left in query
    assert bool(left.strip()) == bool(query.strip())
