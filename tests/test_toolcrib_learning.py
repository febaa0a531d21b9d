"""A crib that was given an experience teaches it, and is taught by it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolcrib import SearchEngine, Tool, Toolcrib
from toolcrib.core.calls import CallResult
from toolcrib.core.catalog import Catalog
from toolcrib.search.feedback.experience import Experience
from toolcrib.search.lexical.ranker import Lexical
from toolcrib.session.disclosure import Activation, Disclosure

QUERY = "diesel for nine stops"


def fuel_prices() -> str:
    """What diesel costs."""
    return "1.80"


def optimize_route(stops: int) -> str:
    """Find a short tour through many stops."""
    if stops > 9:
        raise ValueError("too many")
    return "done"


ELSEWHERE = {
    "type": "function",
    "function": {"name": "book_van", "description": "Rent a van and diesel.", "parameters": {}},
}


def _words(catalog: Catalog) -> SearchEngine:
    return SearchEngine(catalog, {"lexical": Lexical()})


@pytest.fixture
def experience() -> Experience:
    return Experience(b"sixteen bytes or more")


def _crib(experience: Experience | None) -> Toolcrib:
    return Toolcrib(
        [fuel_prices, optimize_route, ELSEWHERE],
        disclosure=Disclosure(Activation(tools=1)),
        engine=_words,
        experience=experience,
    )


def _reply(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    made = [
        {
            "id": f"{name} {number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for number, (name, arguments) in enumerate(calls)
    ]
    return {"choices": [{"message": {"role": "assistant", "tool_calls": made}}]}


SEARCH = _reply(("search_tools", {"query": QUERY}))


def test_a_search_and_a_call_that_serves_are_learned(experience: Experience) -> None:
    crib = _crib(experience)
    session = crib.session()
    session.handle("openai_chat", _reply(("optimize_route", {"stops": 3})))
    assert experience.pieces == 0
    session.handle("openai_chat", SEARCH)
    session.handle("openai_chat", _reply(("optimize_route", {"stops": 3})))
    assert experience.tool_ids == {"optimize_route"}
    hit = next(hit for hit in crib.engine.search(QUERY) if hit.tool.name == "optimize_route")
    assert "use" in {reason.field for reason in hit.reasons}


def test_a_call_that_fails_is_not_and_neither_is_one_that_nobody_answers(
    experience: Experience,
) -> None:
    session = _crib(experience).session()
    session.handle("openai_chat", SEARCH)
    session.handle("openai_chat", _reply(("optimize_route", {"stops": 10})))
    session.handle("openai_chat", _reply(("book_van", {})))
    session.answer("openai_chat")
    assert experience.tool_ids == frozenset()


def test_calls_that_the_caller_runs_are_learned_from_his_answers(experience: Experience) -> None:
    session = _crib(experience).session()
    session.handle("openai_chat", SEARCH)
    session.handle("openai_chat", _reply(("book_van", {})))
    session.answer("openai_chat", {"book_van 0": CallResult("no van left", is_error=True)})
    assert experience.tool_ids == frozenset()
    session.handle("openai_chat", SEARCH)
    session.handle("openai_chat", _reply(("book_van", {})))
    session.answer("openai_chat", {"book_van 0": "booked"})
    assert experience.tool_ids == {"book_van"}


def test_it_goes_on_over_a_later_catalog(experience: Experience) -> None:
    crib = _crib(experience)
    session = crib.session()
    crib.update(crib.catalog.with_tools([Tool("sell_diesel", "Sell diesel.")]))
    session.handle("openai_chat", SEARCH)
    session.handle("openai_chat", _reply(("fuel_prices", {})))
    assert experience.tool_ids == {"fuel_prices"}


def test_without_an_experience_everything_is_as_ever(experience: Experience) -> None:
    plain, taught = _crib(None), _crib(experience)
    assert plain.experience is None
    assert plain.engine.search(QUERY) == taught.engine.search(QUERY)
    for crib in (plain, taught):
        said = crib.session().handle("openai_chat", SEARCH)
        assert said == plain.session().handle("openai_chat", SEARCH)
