"""`toolcrib forget` shows what was learned from use, and drops what it is told to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolcrib.cli.main import toolcrib
from toolcrib.storage import open_store
from toolcrib.storage.feedback import Lesson
from toolcrib.storage.store import Store


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'toolcrib.db'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """The store of a gateway that runs while the command does."""
    with closing(open_store(url)) as opened:
        lessons = [
            Lesson("c", "ann", "01", {"mail___send": 1.0, "mail\x1b___read": 1.0, "#1234": 1.0}),
            Lesson("c", "ann", "02", {"mail___send": 1.0}),
            Lesson("c", "bob", "02", {"mail___send": 1.0}),
        ]
        opened.lessons.put(lessons, 0, "salt")
        yield opened


def _run(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(toolcrib, ["forget", "--store", url, *arguments])


def test_without_a_name_it_lists_and_forgets_nothing(url: str, store: Store) -> None:
    known = store.lessons.tools()
    assert _run(url).output.splitlines() == [
        "     1 word   mail\\x1b___read",
        "     2 words  mail___send",
        "and 1 tool of the model gateway's clients",
        "Forget one with: toolcrib forget NAME; everything with: toolcrib forget --all",
    ]
    assert json.loads(_run(url, "--json").output) == {"known": known, "forgotten": {}}
    assert store.lessons.tools() == known


def test_one_tool_is_forgotten_and_the_others_stay(url: str, store: Store) -> None:
    assert _run(url, "mail___send").output == "What 2 words said of 1 tool is forgotten.\n"
    assert set(store.lessons.tools()) == {"mail\x1b___read", "#1234"}


def test_everything_is_forgotten_when_told(url: str, store: Store) -> None:
    assert _run(url, "--all").output == "What 4 words said of 3 tools is forgotten.\n"
    assert store.lessons.tools() == {}
    for arguments in ([], ["--all"]):
        assert _run(url, *arguments).output == "Nothing was learned.\n"


def test_an_unknown_name_is_refused_and_nothing_is_forgotten(url: str, store: Store) -> None:
    result = _run(url, "mail___send", "mail___sent")
    assert result.exit_code == 1
    assert "nothing was learned of a tool 'mail___sent'" in result.output
    assert "something was of mail\\x1b___read, mail___send" in result.output
    assert len(store.lessons.tools()) == 3
    store.lessons.forget()
    assert "nothing was of any" in _run(url, "mail___send").output


def test_where_there_is_no_store_none_is_made(url: str, tmp_path: Path) -> None:
    result = _run(url)
    assert result.exit_code == 1
    assert "start the gateway once" in result.output
    assert list(tmp_path.iterdir()) == []
