"""What use teaches a gateway is kept, shared, bounded, and nobody else's business."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from toolcrib.config.settings import Config, Profile, Server, ToolSearch
from toolcrib.hub import feedback as module
from toolcrib.hub.feedback import Lessons
from toolcrib.hub.hub import Service, manifest_of
from toolcrib.hub.startup import SALT, open_service
from toolcrib.search.feedback.experience import Use
from toolcrib.search.lexical.ranker import Lexical
from toolcrib.storage import open_store
from toolcrib.storage.feedback import Lesson

QUERY = "nine stops with little diesel"
SERVER = Server("van", command="van")
TOOLS = [
    {"name": "optimize_route", "description": "Find a short tour.", "inputSchema": {}},
    {"name": "fuel_prices", "description": "What diesel costs.", "inputSchema": {}},
]
USE = Use(QUERY, "van___optimize_route")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    profiles = {name: Profile(name) for name in ("drivers", "guests")}
    return Config({"van": SERVER}, profiles=profiles, path=tmp_path / "toolcrib.json")


def _opened(config: Config) -> Service:
    """A service that searches by words alone, which is quick."""
    service = open_service(config)
    service._engine = service._engine.__class__(service.engine.catalog, {"lexical": Lexical()})
    service.learn(SERVER, manifest_of(SERVER, TOOLS, {}))
    service._rebuild()
    return service


@pytest.fixture
def service(config: Config) -> Iterator[Service]:
    with closing(_opened(config)) as opened:
        yield opened


def _found(service: Service, profile: str | None = None) -> list[str]:
    return [hit.tool.id for hit in service.view(profile).engine.search(QUERY)]


def _use(service: Service, times: int = 2, profile: str | None = None, who: str = "ann") -> None:
    for _ in range(times):
        service.note_use(profile, who, USE)
    service.flush()


def test_what_was_called_is_found_by_words_it_does_not_have(service: Service) -> None:
    assert _found(service) == ["van___fuel_prices"]
    _use(service)
    assert set(_found(service)) == {"van___fuel_prices", "van___optimize_route"}
    hits = service.view().engine.search(QUERY).hits
    learned = next(hit for hit in hits if hit.tool.id == USE.tool_id)
    assert {reason.field for reason in learned.reasons} == {"use"}
    assert service.learned()["tools"] == 1


def test_it_outlasts_the_process_also_one_that_is_killed(service: Service, config: Config) -> None:
    _use(service)
    # Nothing is closed: this is what a kill leaves behind.
    with closing(_opened(config)) as later:
        assert _found(later) == _found(service)
        assert later.learned() == service.learned()


def test_processes_that_share_a_store_share_what_they_learn(
    service: Service, config: Config
) -> None:
    with closing(_opened(config)) as other:
        _use(service, times=1)
        other.note_use(None, "bob", Use("cheap fuel", "van___fuel_prices"))
        other.flush()
        service.flush()
        assert service.learned() == other.learned()
        assert service.learned()["tools"] == 2


def test_one_profile_hears_nothing_of_another(service: Service) -> None:
    before = service.view("guests").engine.search(QUERY)
    _use(service, profile="drivers")
    assert USE.tool_id in _found(service, "drivers")
    for profile in ("guests", None):
        assert service.view(profile).engine.search(QUERY) == before
    assert service.learned("guests") == {"tools": 0, "words": 0}
    assert service.learned("drivers") == service.learned() != service.learned("guests")


def test_one_caller_out_of_many_cannot_say_as_much_as_all(service: Service) -> None:
    def score() -> float:
        hits = service.view().engine.search(QUERY).hits
        return next(hit.score for hit in hits if hit.tool.id == USE.tool_id)

    _use(service, times=1000, who="mallory")
    alone = score()
    _use(service, times=5, who="ann")
    _use(service, times=5, who="bob")
    assert alone < score()


def test_switched_off_nothing_is_kept_and_nothing_is_used(config: Config) -> None:
    with closing(_opened(config)) as before:
        _use(before)
        kept = before.store.lessons.tools()
    off = replace(config, tool_search=ToolSearch(learn=False))
    with closing(_opened(off)) as service:
        assert _found(service) == ["van___fuel_prices"]
        _use(service, times=50)
        assert service.store.lessons.tools() == kept
        assert service.learned() == {"tools": 0, "words": 0}
        service.reconfigure(config)
        assert USE.tool_id in _found(service)


def test_who_never_learns_makes_no_secret(config: Config, tmp_path: Path) -> None:
    with closing(_opened(replace(config, tool_search=ToolSearch(learn=False)))) as service:
        _found(service)
        _use(service)
    assert not (tmp_path / f"toolcrib{SALT}").exists()


def test_the_store_tells_no_word_no_caller_and_no_profile(service: Service, tmp_path: Path) -> None:
    _use(service, profile="drivers", who="ann of accounts")
    files = [path for path in tmp_path.iterdir() if path.name.startswith("toolcrib.db")]
    kept = b"".join(path.read_bytes() for path in files)
    assert b"optimize_route" in kept
    # Words of the query that no definition has, the caller, and the profile.
    for told in (b"nine", b"stop", b"little", b"accounts", b"drivers"):
        assert told not in kept
    salt = tmp_path / f"toolcrib{SALT}"
    assert salt.read_bytes() not in kept
    if os.name == "posix":
        assert salt.stat().st_mode & 0o077 == 0


def test_without_its_salt_it_is_the_first_day(config: Config, tmp_path: Path) -> None:
    with closing(_opened(config)) as service:
        _use(service)
    (tmp_path / f"toolcrib{SALT}").unlink()
    with closing(_opened(config)) as service:
        assert _found(service) == ["van___fuel_prices"]
        _use(service)
        assert USE.tool_id in _found(service)


def test_with_a_damaged_salt_nothing_is_learned_and_all_else_works(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"toolcrib{SALT}").write_bytes(b"short")
    with closing(_opened(config)) as service:
        _use(service)
        assert _found(service) == ["van___fuel_prices"]
        assert service.store.lessons.tools() == {}
    assert "delete it to begin anew" in caplog.text


def test_with_a_salt_that_cannot_be_read_all_else_works(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"toolcrib{SALT}").mkdir()
    with closing(_opened(config)) as service:
        _use(service)
        assert _found(service) == ["van___fuel_prices"]
    assert "nothing is learned from use" in caplog.text


def test_what_is_forgotten_is_forgotten_by_a_gateway_that_runs(service: Service) -> None:
    _use(service)
    service.store.lessons.forget()
    service.flush()
    assert _found(service) == ["van___fuel_prices"]
    assert service.learned() == {"tools": 0, "words": 0}


def test_a_store_in_memory_learns_as_long_as_it_lasts() -> None:
    with closing(_opened(Config({"van": SERVER}, store="sqlite://"))) as service:
        _use(service)
        assert USE.tool_id in _found(service)


def test_of_too_much_the_circle_that_learned_longest_ago_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_PAIRS", 10)
    with closing(open_store("sqlite://")) as store:
        lessons = Lessons(store.lessons, lambda: b"sixteen bytes or more")
        for circle in ("a", "b", "a", "c"):
            lessons.note((circle,), "ann", Use("red green blue yellow", "tool"))
            lessons.flush()
        assert lessons.known("b") is None
        assert lessons.told()["words"] <= 10
        assert lessons.told("a")["words"] == lessons.told("c")["words"] == 4
        _, kept = store.lessons.load(lessons._check)
        assert len(kept) == 8


def test_words_that_nobody_could_have_written_are_passed_over() -> None:
    with closing(open_store("sqlite://")) as store:
        lessons = Lessons(store.lessons, lambda: b"sixteen bytes or more")
        lessons.note(("a",), "ann", USE)
        lessons.flush()
        known = lessons.told()
        bad = [
            Lesson("x", "y", "no number", {"tool": 1.0}),
            Lesson("x", "y", "1", {"tool": float("inf"), "": 1.0, "x" * 999: 1.0}),
            Lesson("x", "y", "2", {"huge": 1e300}),
        ]
        store.lessons.put(bad, 1, lessons._check)
        lessons.flush()
        assert lessons.told() == {"tools": known["tools"] + 1, "words": known["words"] + 1}


def test_where_others_are_always_faster_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with closing(open_store("sqlite://")) as store:
        lessons = Lessons(store.lessons, lambda: b"sixteen bytes or more")
        lessons.teacher("a")

        class Busy:
            """A store that somebody else has always just written to."""

            def __getattr__(self, name: str) -> object:
                return getattr(store.lessons, name)

            def put(self, *given: object) -> None:
                return None

        lessons._store = Busy()  # type: ignore[assignment]
        lessons.note(("a",), "ann", USE)
        lessons.flush()
    assert "1 lessons were lost" in caplog.text
