from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.meaning import Slow, Vectors, Words
from toolcrib import Catalog, SearchEngine, SearchResult, Tool
from toolcrib.search.dense.embedder import Embedder
from toolcrib.search.dense.index import MAX_ENCODED_PER_QUERY, DenseRanker
from toolcrib.search.hybrid.fusion import FusionWeights, HybridRanker
from toolcrib.search.lexical.ranker import LexicalRanker


def _engine(catalog: Catalog, embedder: Embedder, **fusion: float) -> SearchEngine:
    ranker = HybridRanker(
        LexicalRanker(syntax="lenient"), DenseRanker(embedder), FusionWeights(**fusion)
    )
    return SearchEngine(catalog, {"hybrid": ranker})


def _names(result: SearchResult) -> list[str]:
    return [hit.tool.name for hit in result]


def test_words_find_what_meaning_does_not_know_and_meaning_what_words_do_not_say(
    office: Catalog,
) -> None:
    engine = _engine(office, Words())
    assert _names(engine.search("salesforce"))[0] == "salesforce_query"
    assert _names(engine.search("will there be rain"))[0] == "get_weather"
    assert _names(engine.search("send_email")) == ["send_email"]


def test_reasons_say_what_was_said_and_what_was_meant(office: Catalog) -> None:
    engine = _engine(office, Words())
    reasons = engine.search("refund my money", limit=1).hits[0].reasons
    assert {reason.field for reason in reasons} >= {"meaning", "name"}
    assert sum(reason.share for reason in reasons) == pytest.approx(1, abs=0.001)
    meant = engine.search("rain", limit=1).hits[0].reasons
    assert [(reason.term, reason.field) for reason in meant] == [("rain", "meaning")]
    assert engine.explain("salesforce", "get_weather").reasons == ()


@pytest.mark.parametrize(
    "said", ["find me a tool that can {}", '"{}"', "Hi! Could you help me? {}. Thanks a lot!"]
)
def test_what_is_said_around_a_request_changes_nothing(office: Catalog, said: str) -> None:
    engine = _engine(office, Words())
    query = "look whether there will be rain"
    plain, framed = engine.search(query), engine.search(said.format(query))
    assert framed.hits == plain.hits
    assert framed.confidence == plain.confidence
    assert framed.hits[0].reasons == plain.hits[0].reasons


def test_a_tool_for_one_need_alone_says_which(office: Catalog) -> None:
    class Whole(Words):
        """Of a query as a whole it knows nothing but the first thing."""

        def embed_queries(self, texts: Sequence[str]) -> Vectors:
            return super().embed_queries([text.partition(" then ")[0] for text in texts])

    engine = _engine(office, Whole())
    query = "pay the bill and then look whether there will be rain"
    found = {hit.tool.name: hit.reasons for hit in engine.search(query, limit=9)}
    (reason,) = found["get_weather"]
    assert (reason.field, reason.share) == ("meaning", 1.0)
    assert reason.term == "look whether there will be rain"
    assert engine.explain(query, "get_weather", limit=9).reasons == (reason,)
    assert {reason.term for reason in found["createInvoice"]} >= {query}


def test_a_tool_that_counts_for_its_words_alone_has_a_reason_too(office: Catalog) -> None:
    (hit,) = _engine(office, Words(), words=-9.0).search("salesforce")
    assert (hit.reasons[0].field, hit.reasons[0].share) == ("name", 1.0)


def test_a_query_in_another_language_is_looked_for_in_english_and_in_its_own_words(
    office: Catalog,
) -> None:
    engine = _engine(office, Words())
    hit = engine.search("sende die Rechnung per Post", limit=1).hits[0]
    assert {(reason.term, reason.field) for reason in hit.reasons} >= {("send", "name")}
    spoken = Catalog([Tool("a", "Rechnung stellen"), Tool("b", "Create an invoice")])
    found = _engine(spoken, Words(), words=0.5).search("bitte Rechnung stellen", limit=2)
    assert _names(found)[0] == "a"


def test_operators_are_asked_of_the_words(office: Catalog) -> None:
    engine = _engine(office, Words())
    assert _names(engine.search("email -send", limit=9)) == ["read_email"]
    hit = engine.search("+invoices", limit=1).hits[0]
    assert {reason.field for reason in hit.reasons} == {"name"}
    assert "read as plain words" in engine.search('rain "').notes[0]


def test_several_needs_are_covered(office: Catalog) -> None:
    engine = _engine(office, Words())
    found = _names(engine.search("open a bug ticket, then send a letter by post", limit=4))
    assert {"github_create_issue", "send_email"} <= set(found)


def test_a_tool_that_lacks_a_service_fits_less() -> None:
    catalog = Catalog([Tool("send", "Send an email by post"), Tool("pay", "Pay a bill")])
    engine = _engine(catalog, Words(), unknown_service=0.3)
    plain, named = engine.search("send a letter"), engine.search("send a letter with Hermes")
    assert named.confidence < plain.confidence
    assert _names(named)[0] == "send"
    known = Catalog([Tool("send", "Send an email by post with Hermes")])
    with_name = _engine(known, Words(), unknown_service=0.3).search("send a letter with Hermes")
    assert with_name.confidence > named.confidence
    # A stop word is no name, whatever its capital.
    assert engine.search("send a letter OF").hits


def test_a_name_that_is_no_services_takes_nothing() -> None:
    class Telling(Words):
        def score_service_names(self, text: str, names: Sequence[str]) -> list[float]:
            assert text.startswith("send a letter")
            return [float(name == "Hermes") for name in names]

    catalog = Catalog([Tool("send", "Send an email by post"), Tool("pay", "Pay a bill")])
    engine = _engine(catalog, Telling())
    plain = engine.search("send a letter")
    assert engine.search("send a letter to Bob").confidence == plain.confidence
    assert engine.search("send a letter to Hermes").confidence < plain.confidence


def test_without_capitals_a_strange_word_that_surely_names_a_service_is_a_name() -> None:
    class Telling(Words):
        def score_service_names(self, text: str, names: Sequence[str]) -> list[float]:
            return [{"hermes": 0.9, "parcel": 0.6}.get(name, 0.1) for name in names]

    catalog = Catalog([Tool("send", "Send an email by post"), Tool("pay", "Pay a bill")])
    engine = _engine(catalog, Telling())
    plain = engine.search("send a letter").confidence
    assert engine.search("send a letter with hermes").confidence < plain
    assert engine.search("Send a letter with hermes").confidence < plain
    # Not sure enough, ruled out, known to some tool, beside a name, or not told at all.
    assert engine.search("send a letter as parcel").confidence == plain
    known = _engine(catalog.with_tools([Tool("hermes", "Call a courier")]), Telling())
    assert known.search("send a letter with hermes").confidence == plain
    assert engine.search("send a letter -hermes").confidence == plain
    beside = engine.search("send a letter to Bob with hermes").confidence
    assert beside == engine.search("send a letter to Bob").confidence
    untold = _engine(catalog, Words())
    assert untold.search("send a letter with hermes").confidence == plain


def test_the_floor_grows_with_the_catalog_up_to_a_point() -> None:
    fusion = FusionWeights(threshold=0.3, threshold_growth=0.1)
    floors = [round(fusion.threshold_for(tools), 3) for tools in (0, 100, 1_000, 10_000, 10**6)]
    assert floors == [0.3, 0.3, 0.53, 0.761, 0.761]
    assert FusionWeights(threshold=0.3).threshold_for(5_000) == 0.3


def test_among_many_tools_more_likeness_is_needed(office: Catalog) -> None:
    many = Catalog([*office, *(Tool(f"other_{at}", "Nothing like it.") for at in range(1_000))])
    likeness = {"floor": 0.6, "floor_many": 0.1}
    assert _engine(office, Words(), **likeness).search("rain").is_confident
    assert not _engine(many, Words(), **likeness).search("rain").is_confident


def test_nothing_fits_below_the_floor(office: Catalog) -> None:
    assert not _engine(office, Words(), floor=1.1).search("rain").is_confident
    assert _engine(office, Words(), floor=0.1).search("rain").is_confident
    nothing = _engine(office, Words()).search("zzqxzz")
    assert (len(nothing), nothing.confidence) == (0, 0.0)


def test_a_need_that_no_hit_fits_is_told(office: Catalog) -> None:
    engine = _engine(office, Words())
    result = engine.search("send a letter and order a pizza, then pay the bill")
    assert result.is_confident
    assert result.uncovered == ("order a pizza",)
    assert engine.search("send a letter and pay the bill").uncovered == ()
    assert engine.search("order a pizza").uncovered == ()
    # What the asker may not use serves nothing; what is on another page does.
    mail = {"mail___send_email", "mail___read_email"}
    both = "send a letter and pay the bill"
    assert engine.search(both, allowed=mail).uncovered == ("pay the bill",)
    assert engine.search(both, limit=1).uncovered == ()
    assert engine.search(both, limit=1, offset=1).uncovered == ()


def test_where_no_need_is_served_the_whole_is_judged(office: Catalog) -> None:
    engine = _engine(office, Words())
    nothing = engine.search("order a pizza and wash the car")
    assert (nothing.is_confident, nothing.uncovered) == (False, ())
    # The names of tools are served by these, whatever they mean.
    assert engine.search("salesforce query and übersetzen").uncovered == ()


def test_tools_are_read_as_they_are_found() -> None:
    tools = [Tool(f"t{at}", "about the weather") for at in range(2 * MAX_ENCODED_PER_QUERY)]
    slow = Slow()
    engine = _engine(Catalog(tools), slow)
    assert engine.warm_up("hybrid", 0) == len(tools)
    engine.search("rain")
    assert len(slow.read) == MAX_ENCODED_PER_QUERY
    assert engine.warm_up(max_tools=2) == len(tools) - MAX_ENCODED_PER_QUERY - 2
    assert engine.warm_up() == 0
    engine.search("sun")
    assert len(slow.read) == len(tools)
    assert SearchEngine(Catalog(tools), {"lexical": LexicalRanker()}).warm_up() == 0


@given(query=st.text(max_size=60), names=st.lists(st.sampled_from("abcdef"), unique=True))
def test_an_updated_index_ranks_as_one_fitted_anew(query: str, names: list[str]) -> None:
    texts = dict(zip("abcdef", ("mail", "rain sun", "pay", "bug", "nothing", "post"), strict=True))
    catalog = Catalog([Tool(name, texts[name]) for name in "abc"])
    engine = _engine(catalog, Words())
    engine.search("x")
    later = catalog.with_tools([Tool(name, f"{texts[name]} now") for name in names])
    updated = engine.with_catalog(later).search(query, limit=10)
    assert updated == _engine(later, Words()).search(query, limit=10)


def test_a_phrase_among_words_does_not_bind() -> None:
    tools = [Tool("send", "Send an email at 10:00 sharp"), Tool("pay", "Pay a bill")]
    engine = _engine(Catalog(tools), Words())
    # By its words alone this would find what sends.
    assert _names(engine.search("refund the invoice of 10:00 today"))[0] == "pay"
    assert _names(engine.search("refund (the invoice of 10:00) today^2 I said"))[0] == "pay"
    assert _names(engine.search('"an email at"')) == ["send"]
    assert _names(engine.search("+refund")) == []
