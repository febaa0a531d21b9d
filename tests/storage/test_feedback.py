"""Lessons are shared by processes, and nobody's are overwritten unseen."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from toolcrib.storage import open_store
from toolcrib.storage.feedback import Lesson
from toolcrib.storage.store import Store

ANN = Lesson("c", "ann", "00ff", {"mail___send": 1.5, "mail___read": 0.25})
BOB = Lesson("c", "bob", "00aa", {"mail___send": 2.0})


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = "sqlite://" if request.param == "memory" else f"sqlite:///{tmp_path / 'toolcrib.db'}"
    with closing(open_store(url)) as opened:
        yield opened


def test_lessons_come_back_in_the_order_of_their_hashes(store: Store) -> None:
    assert store.lessons.load("salt") == (0, [])
    number = store.lessons.put([BOB, ANN], 0, "salt")
    assert number == store.lessons.number() == 1
    assert store.lessons.load("salt") == (1, [ANN, BOB])
    assert store.lessons.tools() == {"mail___read": 1, "mail___send": 2}


def test_who_has_not_seen_what_others_wrote_writes_nothing(store: Store) -> None:
    assert store.lessons.put([ANN], 0, "salt") == 1
    assert store.lessons.put([BOB], 0, "salt") is None
    assert store.lessons.load("salt") == (1, [ANN])
    assert store.lessons.put([BOB], 1, "salt") == 2


def test_a_lesson_without_weights_drops_the_one_that_was_kept(store: Store) -> None:
    store.lessons.put([ANN, BOB], 0, "salt")
    store.lessons.put([Lesson("c", "ann", "00ff", {})], 1, "salt")
    assert store.lessons.load("salt") == (2, [BOB])


def test_under_another_salt_everything_begins_anew(store: Store) -> None:
    store.lessons.put([ANN], 0, "salt")
    assert store.lessons.load("other") == (1, [])
    store.lessons.put([BOB], 1, "other")
    assert store.lessons.load("other") == (2, [BOB])
    assert store.lessons.load("salt") == (2, [])


def test_one_tool_is_forgotten_or_all_are(store: Store) -> None:
    store.lessons.put([ANN, BOB], 0, "salt")
    store.lessons.forget("mail___send")
    assert store.lessons.load("salt") == (2, [Lesson("c", "ann", "00ff", {"mail___read": 0.25})])
    store.lessons.forget()
    assert store.lessons.load("salt") == (3, [])
    assert store.lessons.tools() == {}


@pytest.mark.parametrize(
    "said", ["", "nonsense", "[1]", "1", '{"a": "b"}', '{"a": -1}', '{"a": true}', "[" * 5000, 7]
)
def test_a_row_that_says_something_else_is_passed_over(tmp_path: Path, said: object) -> None:
    path = tmp_path / "toolcrib.db"
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.lessons.put([BOB], 0, "salt")
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("INSERT INTO lessons VALUES ('c', 'eve', '1', ?)", (said,))
        assert store.lessons.load("salt") == (1, [BOB])
        assert store.lessons.tools() == {"mail___send": 1}


def test_a_store_of_before_learns_from_now_on(tmp_path: Path) -> None:
    path = tmp_path / "toolcrib.db"
    with closing(open_store(f"sqlite:///{path}")) as store:
        store.add_stats({"searches": 3})
    with closing(sqlite3.connect(path)) as old, old:
        old.execute("DROP TABLE lessons")
        old.execute("DROP TABLE lessons_state")
        old.execute("PRAGMA user_version = 1")
    with closing(open_store(f"sqlite:///{path}")) as store:
        assert store.stats() == {"searches": 3}
        assert store.lessons.put([ANN], 0, "salt") == 1
