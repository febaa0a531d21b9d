"""Run the snippets of a docs page against a scripted model that the page defines in a comment.

    <!-- model:
    search_tools {"query": "weather"}
    get_weather {"city": "Bern"}
    Take an umbrella.
    -->

Each line is one turn: calls, or text. Environment variables direct the official clients to the
scripted model, so the snippets need no changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.scripted_model.server import ScriptedModel
from tests.support.scripted_model.turn import ToolCall, Turn

_SCRIPT = re.compile(r"^<!-- model:\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"(\w+) (?=\{)")


@contextmanager
def run_page_model(page: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the model of a page while its snippets run; fail if a turn is not requested."""
    lines = [line for script in _SCRIPT.findall(page) for line in script.splitlines()]
    if not lines:
        yield
        return
    with ScriptedModel(map(parse_turn, lines)) as model:
        for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"):
            monkeypatch.setenv(name, "any")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{model.url}/v1")
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", model.url)
        monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
        yield
    assert len(model.requests) == len(lines), "the page's model has turns that were not requested"


def parse_turn(line: str) -> Turn:
    """Return the turn of a line: calls with their arguments, or text."""
    calls = []
    rest = line.strip()
    while called := _CALL.match(rest):
        arguments, end = json.JSONDecoder().raw_decode(rest, called.end())
        calls.append(ToolCall(called[1], arguments))
        rest = rest[end:].strip()
    return Turn(*calls, *([rest] if rest else []))
