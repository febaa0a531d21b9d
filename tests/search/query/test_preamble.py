"""Greetings, thanks and phrases such as "I need a tool to" are stripped from a query."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.search.query.preamble import find_request_start, strip_preamble


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
        "Hello!\n\nshrink a photo",
        "the user's question: shrink a photo",
        "Good morning everyone. Would you help us out with this? shrink a photo",
        "Task:\nshrink a photo",
        "  The customer wants to shrink a photo",
        "I would like a good tool that is capable of shrink a photo",
    ],
)
def test_preamble_and_closing_words_are_stripped(query: str) -> None:
    assert strip_preamble(query) == "shrink a photo"


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
        # The query is about the tools themselves.
        "list all tools that are deprecated",
        "list tools for the filesystem server",
        "list all mcp tools available to me",
        "show me the tools that failed in the last run",
        "which tools can be removed",
        "what tools can I use",
        "list tools: name and description",
        "find a tool for me",
        "what tool would be best for resizing images",
        "is there a way to the beach from here",
        "is there a way to Rome",
        "do you have anything that I can eat",
        # The label, greeting or thanks is part of the request.
        "query: SELECT * FROM users",
        "task: 1234 status",
        "request: 404",
        "prompt: a cat in space",
        "the user wants a refund",
        "good morning routine: suggest one",
        "hi res photos, upscale them",
        "Hello Fresh: cancel my subscription",
        "say thank you very much",
        "text to speech: Thank you very much.",
        "draft a Slack message - could you help me out?",
        "go test ./...",
        # Operators, and quoted text that contains operators.
        "-tools for shrinking",
        "+tool for shrinking",
        "(tool to shrink a photo)",
        '"email AND calendar"',
        '"email -newest"',
        "good morning message to the team",
        "create a task: buy milk",
        "help me plan a trip",
        "send a thank you note to Ann",
        "say thanks",
        'write "thanks" in "general"',
        '"one" and "two"',
        # The query has no text except the preamble.
        "tool for",
        "thanks",
        "hi!",
        '""',
        "''",
        '"',
        "",
    ],
)
def test_request_without_preamble_is_unchanged(query: str) -> None:
    assert strip_preamble(query) == query


def test_quotes_are_stripped_and_a_lone_greeting_stays() -> None:
    assert strip_preamble('"hello, world"') == "hello, world"


def test_request_start_follows_the_tool_phrase() -> None:
    text = "a tool to fetch transcripts"
    assert text[find_request_start(text) :] == "fetch transcripts"
    assert find_request_start("Hello, fetch transcripts with the spool") == 0


@given(st.text(max_size=300))
def test_stripping_never_empties_a_text(query: str) -> None:
    request = strip_preamble(query)
    assert request in query
    assert bool(request.strip()) == bool(query.strip())


@pytest.mark.parametrize(
    "query",
    [
        "could you please shrink a photo",
        "Can you shrink a photo",
        "it would be great if you could shrink a photo",
        "I'd like you to shrink a photo",
        "```\nshrink a photo\n```",
        "```text\nshrink a photo```",
        '{"query": "shrink a photo", "limit": 5}',
        '```json\n{"task": "shrink a photo", "lang": "en"}\n```',
    ],
)
def test_polite_phrases_code_fences_and_json_are_removed(query: str) -> None:
    assert strip_preamble(query) == "shrink a photo"


@pytest.mark.parametrize(
    "query", ['{"query": 5}', "{broken", "{}", "`code", '{"a": " "}', "[1]", "{" * 3_000, "can you"]
)
def test_text_that_only_looks_wrapped_stays(query: str) -> None:
    assert strip_preamble(query) == query


@pytest.mark.parametrize(
    "query",
    [
        '{"messages": [{"role": "user", "content": "hi"}, {"role": "user", "content": "book a hotel in Rome"}]}',
        '[{"type": "text", "text": "book a hotel in Rome"}]',
        '["book a hotel in Rome", 5]',
        "Here is the task:\n```\nbook a hotel in Rome\n```",
    ],
)
def test_request_is_found_inside_json_and_after_a_heading(query: str) -> None:
    assert strip_preamble(query) == "book a hotel in Rome"


def test_fence_after_a_request_is_part_of_it() -> None:
    query = "Explain this:\n```\nx = 1\n```"
    assert strip_preamble(query) == query
