"""Callers learn from one another, and no single one of them decides what all are shown."""

from __future__ import annotations

import pytest

from toolcrib import Catalog, SearchEngine, Tool, Where
from toolcrib.search.engine import RANKERS
from toolcrib.search.feedback import circle as module
from toolcrib.search.feedback.circle import Circle
from toolcrib.search.feedback.experience import MAX_WEIGHT, SATURATION, Experience, Use
from toolcrib.search.feedback.ranker import BOOST, MOST_RAISED

SALT = b"sixteen bytes or more"
QUERY = "nine stops today"
CATALOG = Catalog(
    [
        Tool("optimize_route", "Find the shortest tour through several places."),
        Tool("fuel_prices", "What diesel costs at stations nearby."),
        Tool("book_van", "Rent a van for a day.", server="rental"),
        *(Tool(f"tour_{number}", f"Guided tour number {number}.") for number in range(8)),
    ]
)


def _said(circle: Circle, voice: str, tool_id: str, times: int = 1, query: str = QUERY) -> None:
    for _ in range(times):
        circle.record(voice, Use(query, tool_id))


def _strongest(weight: float) -> float:
    return weight / (SATURATION + weight)


def test_a_circle_in_which_nobody_has_spoken_knows_nothing() -> None:
    circle = Circle(SALT)
    assert circle.support(QUERY) == {}
    assert circle.words_for(QUERY, "optimize_route") == {}
    assert (circle.pairs, circle.tool_ids, dict(circle.voices)) == (0, frozenset(), {})


def test_one_voice_says_what_an_experience_alone_would_say() -> None:
    circle, alone = Circle(SALT), Experience(SALT)
    _said(circle, "ann", "optimize_route")
    alone.record(Use(QUERY, "optimize_route"))
    assert circle.support(QUERY) == alone.support(QUERY)
    assert circle.words_for(QUERY, "optimize_route") == alone.words_for(QUERY, "optimize_route")
    assert circle.words_for(QUERY, "book_van") == {}
    mixed = f"{QUERY} unheard of"
    assert circle.support(mixed) == alone.support(mixed)


def test_a_thousand_claims_of_one_voice_count_for_no_more_than_its_part() -> None:
    circle = Circle(SALT)
    _said(circle, "mallory", "fuel_prices", 1000)
    alone = circle.support(QUERY)["fuel_prices"]
    assert alone <= _strongest(module.MAX_WEIGHT_A_VOICE) + 1e-9
    for voice in ("ann", "bob"):
        _said(circle, voice, "fuel_prices", 10)
    assert alone < circle.support(QUERY)["fuel_prices"] <= _strongest(MAX_WEIGHT) + 1e-9


def test_what_others_have_taught_does_not_fade_by_a_flood() -> None:
    circle = Circle(SALT)
    _said(circle, "ann", "optimize_route", 3)
    before = circle.voices["ann"].rows
    _said(circle, "mallory", "fuel_prices", 1000)
    assert circle.voices["ann"].rows == before


def test_a_voice_has_room_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PAIRS_A_VOICE", 6)
    circle = Circle(SALT)
    _said(circle, "ann", "optimize_route")
    for number in range(20):
        _said(circle, "mallory", f"tour_{number}")
    assert circle.voices["mallory"].pairs <= 6
    assert circle.voices["ann"].tool_ids == {"optimize_route"}


def test_of_too_many_voices_the_one_silent_longest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VOICES", 2)
    circle = Circle(SALT)
    _said(circle, "ann", "optimize_route")
    _said(circle, "bob", "book_van")
    _said(circle, "ann", "optimize_route")
    _said(circle, "eve", "fuel_prices")
    assert list(circle.voices) == ["ann", "eve"]
    circle.silence("eve")
    assert circle.tool_ids == {"optimize_route"}


def test_a_voice_with_nothing_to_say_takes_no_place() -> None:
    circle = Circle(SALT)
    circle.record("ann", Use(QUERY, "book_van", succeeded=False))
    circle.record("bob", Use("", "book_van"))
    assert dict(circle.voices) == {}


def test_what_was_taught_comes_back_from_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    circle, later = Circle(SALT), Circle(SALT)
    _said(circle, "ann", "optimize_route", 2)
    _said(circle, "bob", "book_van")
    for voice, known in circle.voices.items():
        later.restore(voice, known.rows)
    assert later.support(QUERY) == circle.support(QUERY)
    assert later.pairs == circle.pairs
    monkeypatch.setattr(module, "MAX_PAIRS_A_VOICE", 3)
    later.restore("ann", {**circle.voices["ann"].rows, 1: {"book_van": 1.0}})
    assert later.voices["ann"].pairs <= 3


@pytest.mark.parametrize("mode", ["lexical", "hybrid", "fuzzy", "keyword"])
def test_an_engine_that_was_taught_nothing_answers_to_the_bit_as_before(mode: str) -> None:
    engine = SearchEngine(CATALOG)
    taught = engine.taught_by(Circle(SALT))
    for query in ("tour", "rent a van", "guided tour number 3", "book_van", "", "zebra"):
        for where in (Where(), Where(server="rental")):
            expected = engine.search(query, mode=mode, where=where)
            found = taught.search(query, mode=mode, where=where)
            assert found == expected
            assert [hit.reasons for hit in found] == [hit.reasons for hit in expected]


def test_what_is_taught_counts_at_once_and_for_nobody_else() -> None:
    engine = SearchEngine(CATALOG, {"lexical": RANKERS["lexical"]})
    circle = Circle(SALT)
    taught = engine.taught_by(circle)
    assert taught.search(QUERY).hits == ()
    _said(circle, "ann", "optimize_route", 2)
    (hit,) = taught.search(QUERY).hits
    assert hit.tool.name == "optimize_route"
    assert {reason.field for reason in hit.reasons} == {"use"}
    assert engine.search(QUERY).hits == ()


def test_an_engine_stays_taught_over_a_later_catalog() -> None:
    circle = Circle(SALT)
    _said(circle, "ann", "optimize_route", 2)
    engine = SearchEngine(CATALOG, {"lexical": RANKERS["lexical"]}).taught_by(circle)
    engine.search(QUERY)
    later = engine.updated(CATALOG.without("optimize_route").with_tools([Tool("x", "stops")]))
    assert [hit.tool.name for hit in later.search(QUERY)] == ["x"]
    again = later.updated(CATALOG)
    assert [hit.tool.name for hit in again.search(QUERY)] == ["optimize_route"]


def test_a_thousand_hostile_successes_hide_nothing_and_push_the_best_out_of_no_page() -> None:
    """Whatever is claimed, by however many, the best of the ranker stays within the first few."""
    engine = SearchEngine(CATALOG)
    asked = "find the shortest tour through several places"
    cold = {hit.tool.id: hit.score for hit in engine.search(asked, limit=len(CATALOG))}
    best = engine.search(asked).hits[0].tool.id
    circle = Circle(SALT)
    for number in range(1000):
        victim = f"tour_{number % 8}"
        _said(circle, f"voice {number % 50}", victim, query=asked)
    taught = engine.taught_by(circle)
    hot = {hit.tool.id: hit.score for hit in taught.search(asked, limit=len(CATALOG))}
    assert cold.keys() <= hot.keys()
    assert all(cold[id] <= hot[id] <= cold[id] + BOOST + 1e-6 for id in cold)
    assert sum(hot[id] > cold.get(id, 0.0) + 1e-6 for id in hot) <= MOST_RAISED
    first = [hit.tool.id for hit in taught.search(asked, limit=MOST_RAISED + 1)]
    assert best in first
