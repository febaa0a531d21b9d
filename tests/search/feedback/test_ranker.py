from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import Catalog, SearchEngine, Tool, Where
from toolcrib.errors import InvalidConfig
from toolcrib.search.engine import RANKERS
from toolcrib.search.feedback.experience import Experience, Use
from toolcrib.search.feedback.ranker import BOOST, MAX_BOOST, MOST_RAISED, Experienced
from toolcrib.search.lexical.ranker import Lexical
from toolcrib.search.ranker import Ranking, Reason
from toolcrib.search.regex.ranker import Regex

SALT = b"sixteen bytes or more"
ROUNDING = 1e-6
DIESEL = "burn the least diesel"

WORDS = "send read email message bill customer weather issue stops diesel file"
queries = st.lists(st.sampled_from(WORDS.split()), min_size=1, max_size=5).map(" ".join)


@pytest.fixture
def experience() -> Experience:
    return Experience(SALT)


@pytest.fixture
def engine(office: Catalog, experience: Experience) -> SearchEngine:
    return SearchEngine(office, {"lexical": Experienced(Lexical(), experience)})


def _used(experience: Experience, query: str, tool_id: str, times: int = 1) -> None:
    for _ in range(times):
        experience.record(Use(query, tool_id))


def _scores(ranking: Ranking) -> Mapping[int, float]:
    assert ranking.slots.tolist() == sorted(set(ranking.slots.tolist()))
    return dict(zip(ranking.slots.tolist(), ranking.scores.tolist(), strict=True))


# A busy machine must not be what stops a pattern.
PATIENT = {**RANKERS, "regex": Regex(budget_seconds=60)}


@pytest.mark.parametrize("mode", PATIENT)
def test_a_cold_start_answers_as_the_ranker_does_to_the_bit(
    office: Catalog, experience: Experience, mode: str
) -> None:
    _used(experience, "zebra", "mail___send_email")
    plain = PATIENT[mode].fit(office)
    index = Experienced(PATIENT[mode], experience).fit(office)
    for query in ("bill a customer", "message", "translate this"):
        expected, found = plain.rank(query), index.rank(query)
        assert found.slots.tobytes() == expected.slots.tobytes()
        assert found.scores.tobytes() == expected.scores.tobytes()
        assert found.scores.dtype == expected.scores.dtype
        assert found.notes == expected.notes
        for slot in found.slots.tolist():
            assert index.reasons(query, slot) == plain.reasons(query, slot)


def test_a_tool_that_served_before_rises(engine: SearchEngine, experience: Experience) -> None:
    before = engine.search("post a message to somebody")
    assert before.hits[0].tool.name == "send_message"
    _used(experience, "a message to somebody", "mail___send_email", 3)
    after = engine.search("a message to somebody")
    assert after.hits[0].tool.name == "send_email"


def test_a_tool_is_found_by_words_that_it_does_not_have(
    engine: SearchEngine, experience: Experience
) -> None:
    assert engine.search(DIESEL).hits == ()
    _used(experience, DIESEL, "crm___salesforce_query", 2)
    result = engine.search(DIESEL)
    assert [hit.tool.id for hit in result] == ["crm___salesforce_query"]
    assert 0 < result.hits[0].score <= BOOST
    assert not result.confident
    assert [(reason.term, reason.field) for reason in result.hits[0].reasons] == [
        ("burn", "use"),
        ("least", "use"),
        ("diesel", "use"),
    ]
    assert engine.explain(DIESEL, "crm___salesforce_query").returned


def test_weak_evidence_alone_finds_nothing(engine: SearchEngine, experience: Experience) -> None:
    _used(experience, DIESEL, "crm___salesforce_query")
    asked = "diesel prices Oslo harbour morning"
    assert engine.search(asked).hits == ()
    assert engine.explain(asked, "crm___salesforce_query").reasons == ()


def test_reasons_say_what_was_learned_and_add_up(
    engine: SearchEngine, experience: Experience
) -> None:
    _used(experience, "chase an unpaid customer", "books___createInvoice")
    (hit,) = (h for h in engine.search("chase the customer") if h.tool.name == "createInvoice")
    assert {(reason.term, reason.field) for reason in hit.reasons} >= {
        ("chase", "use"),
        ("customer", "use"),
        ("customer", "parameter"),
    }
    assert sum(reason.share for reason in hit.reasons) == pytest.approx(1, abs=0.001)
    shares = [reason.share for reason in hit.reasons]
    assert shares == sorted(shares, reverse=True)


def test_a_slot_without_a_tool_has_nothing_learned(office: Catalog, experience: Experience) -> None:
    _used(experience, "message", "mail___send_email")
    later = office.without("mail___send_email")
    index = Experienced(Lexical(), experience).fit(office).updated(later)
    slot = office.slot("mail___send_email")
    assert slot is not None
    assert index.reasons("message", slot) == Lexical().fit(office).reasons("message", slot)
    assert slot not in index.rank("message").slots


def test_an_exact_name_stays_first(engine: SearchEngine, experience: Experience) -> None:
    for query in ("send email", "send_email", "email"):
        _used(experience, query, "mail___read_email", 50)
    assert [hit.tool.name for hit in engine.search("send_email")] == ["send_email"]
    first, second, *_ = engine.search("send email").hits
    assert (first.tool.name, first.score) == ("send_email", 1.0)
    assert (second.tool.name, second.score < 1) == ("read_email", True)


@pytest.mark.parametrize("query", ["+diesel", "diesel AND least", "name:diesel", '"least diesel"'])
def test_operators_are_obeyed_whatever_was_learned(
    engine: SearchEngine, experience: Experience, query: str
) -> None:
    _used(experience, DIESEL, "crm___salesforce_query", 4)
    assert engine.search(query).hits == ()


def test_a_pattern_finds_what_it_matches_and_nothing_else(
    office: Catalog, experience: Experience
) -> None:
    _used(experience, "email", "crm___salesforce_query", 4)
    engine = SearchEngine(office, {"regex": Experienced(PATIENT["regex"], experience)})
    assert {hit.tool.name for hit in engine.search("email")} == {"send_email", "read_email"}


def test_filters_and_rights_hold(engine: SearchEngine, experience: Experience) -> None:
    _used(experience, DIESEL, "crm___salesforce_query", 4)
    assert engine.search(DIESEL, where=Where(server="mail")).hits == ()
    assert engine.search(DIESEL, allowed={"mail___send_email"}).hits == ()
    assert engine.search(DIESEL, allowed=lambda tool: tool.server != "crm").hits == ()


def test_only_the_tools_that_most_says_something_for_rise(experience: Experience) -> None:
    tools = [Tool(f"tool_{at}", f"Do thing {at}.") for at in range(MOST_RAISED + 3)]
    # What was used last counts most.
    for tool in reversed(tools):
        _used(experience, "zebra crossing", tool.id, times=4)
    index = Experienced(Lexical(), experience).fit(Catalog(tools))
    assert index.rank("zebra crossing").slots.tolist() == list(range(MOST_RAISED))


def test_it_can_be_switched_off(office: Catalog, experience: Experience) -> None:
    _used(experience, DIESEL, "crm___salesforce_query", 4)
    engine = SearchEngine(office, {"lexical": Experienced(Lexical(), experience, boost=0)})
    assert engine.search(DIESEL).hits == ()


@pytest.mark.parametrize("boost", [-0.1, 0.51, float("nan"), "much"])
def test_a_boost_out_of_bounds_is_refused(experience: Experience, boost: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"boost must be from 0 \(learn nothing\) to 0.5"):
        Experienced(Lexical(), experience, boost)


def test_what_was_learned_of_tools_outlives_the_catalog(
    engine: SearchEngine, office: Catalog, experience: Experience
) -> None:
    _used(experience, DIESEL, "routes___plan", 4)
    assert engine.search(DIESEL).hits == ()
    later = engine.updated(office.with_tools([Tool("plan", "Order stops", server="routes")]))
    assert [hit.tool.name for hit in later.search(DIESEL)] == ["plan"]


@given(
    st.lists(st.tuples(queries, st.integers(0, 12), st.booleans(), st.integers(1, 8)), max_size=20),
    queries,
    st.sampled_from([0.05, BOOST, 0.5]),
)
def test_whatever_is_recorded_scores_rise_within_the_bound_and_nothing_else_moves(
    office: Catalog, recorded: list[tuple[str, int, bool, int]], query: str, boost: float
) -> None:
    experience = Experience(SALT)
    ids = [*(tool.id for tool in office), "not in the catalog"]
    for asked, tool, succeeded, times in recorded:
        for _ in range(times):
            experience.record(Use(asked, ids[tool], succeeded))
    before = Lexical().fit(office).rank(query)
    after = Experienced(Lexical(), experience, boost).fit(office).rank(query)
    plain, learned = _scores(before), _scores(after)
    assert plain.keys() <= learned.keys()
    for slot, score in learned.items():
        assert plain.get(slot, 0.0) <= score <= plain.get(slot, 0.0) + boost + ROUNDING
        assert score <= 1
    supported = {office.slot(tool_id) for tool_id in experience.support(query)}
    untouched = [slot for slot in plain if slot not in supported]
    assert [plain[slot] for slot in untouched] == [learned[slot] for slot in untouched]
    assert set(learned) - set(plain) <= supported
    # However high others rise: a tool stays ahead of all that were behind it by more than the bound.
    for slot, score in plain.items():
        for other, less in plain.items():
            assert less + boost + ROUNDING >= score or learned[slot] > learned[other]
    assert np.isfinite(after.scores).all()


@pytest.mark.parametrize("boost", [BOOST, 0.3, MAX_BOOST])
def test_what_was_learned_never_makes_a_result_confident_whatever_the_boost(
    office: Catalog, experience: Experience, boost: float
) -> None:
    # One that words do not find at all, and one that they find, but not well enough to fit.
    weak = "a message about nine stops and where to burn the least diesel today"
    plain = SearchEngine(office, {"lexical": Lexical()})
    learned = SearchEngine(office, {"lexical": Experienced(Lexical(), experience, boost)})
    for query, tool_id in ((DIESEL, "crm___salesforce_query"), (weak, "mail___send_email")):
        assert not plain.search(query).confident
        _used(experience, query, tool_id, 20)
        result = learned.search(query)
        assert tool_id in [hit.tool.id for hit in result]
        assert not result.confident
    # What fits by its words goes on fitting, as well as before.
    fitting = "bill a customer"
    _used(experience, fitting, "books___createInvoice", 20)
    assert learned.search(fitting).hits[0].score > plain.search(fitting).hits[0].score
    assert learned.search(fitting).confidence == plain.search(fitting).confidence > 0.5


class _Empty:
    """A ranker that finds nothing, and measures fitting by itself, as the default one does."""

    names_win = True

    def fit(self, catalog: Catalog) -> _Empty:
        return self

    def rank(self, query: str) -> Ranking:
        none = np.empty(0, np.float32)
        return Ranking(np.empty(0, np.int32), none, floor=0.3, fits=lambda _: [])

    def reasons(self, query: str, slot: int) -> tuple[Reason, ...]:
        return ()

    def updated(self, catalog: Catalog) -> _Empty:
        return self


def test_what_only_use_has_found_never_claims_to_fit(
    office: Catalog, experience: Experience
) -> None:
    _used(experience, DIESEL, "crm___salesforce_query", 1000)
    result = SearchEngine(office, {"other": Experienced(_Empty(), experience)}).search(DIESEL)
    assert [hit.tool.id for hit in result] == ["crm___salesforce_query"]
    assert not result.confident
