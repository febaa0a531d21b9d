from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.search.topic_embedder import ProvisionalTopicEmbedder, TopicEmbedder, Vectors
from toolcrib import Catalog, SearchEngine, SearchResult, Tool
from toolcrib.search.dense.embedder import Embedder
from toolcrib.search.dense.index import MAX_ENCODED_ON_FIT, MAX_ENCODED_PER_QUERY, DenseRanker
from toolcrib.search.hybrid.calibration import DEFAULT_CALIBRATION, Calibration
from toolcrib.search.hybrid.fusion import DEFAULT_WEIGHTS, FusionWeights
from toolcrib.search.hybrid.ranker import HybridRanker
from toolcrib.search.lexical.ranker import LexicalRanker


def _engine(
    catalog: Catalog,
    embedder: Embedder,
    weights: FusionWeights = DEFAULT_WEIGHTS,
    calibration: Calibration = DEFAULT_CALIBRATION,
) -> SearchEngine:
    lexical, dense = LexicalRanker(syntax="lenient"), DenseRanker(embedder)
    return SearchEngine(catalog, {"hybrid": HybridRanker(lexical, dense, weights, calibration)})


def _names(result: SearchResult) -> list[str]:
    return [hit.tool.name for hit in result]


def test_lexical_and_dense_scores_complement_each_other(office: Catalog) -> None:
    engine = _engine(office, TopicEmbedder())
    assert _names(engine.search("salesforce"))[0] == "salesforce_query"
    assert _names(engine.search("will there be rain"))[0] == "get_weather"
    assert _names(engine.search("send_email")) == ["send_email"]


def test_reasons_have_lexical_and_dense_shares(office: Catalog) -> None:
    engine = _engine(office, TopicEmbedder())
    reasons = engine.with_reasons(engine.search("refund my money", limit=1)).hits[0].reasons
    assert {reason.field for reason in reasons} >= {"meaning", "name"}
    assert sum(reason.share for reason in reasons) == pytest.approx(1, abs=0.001)
    meant = engine.with_reasons(engine.search("rain", limit=1)).hits[0].reasons
    assert [(reason.term, reason.field) for reason in meant] == [("rain", "meaning")]
    assert engine.explain("salesforce", "get_weather").reasons == ()


@pytest.mark.parametrize("template", ["find me a tool that can {}", '"{}"', "Hi! Could you help me? {}. Thanks a lot!"])
def test_preamble_does_not_change_the_result(office: Catalog, template: str) -> None:
    engine = _engine(office, TopicEmbedder())
    query = "look whether there will be rain"
    plain, framed = (engine.with_reasons(engine.search(text)) for text in (query, template.format(query)))
    assert framed.hits == plain.hits
    assert framed.confidence == plain.confidence
    assert framed.hits[0].reasons == plain.hits[0].reasons


def test_reason_names_the_segment_that_a_tool_serves(office: Catalog) -> None:
    class FirstSegmentEmbedder(TopicEmbedder):
        """Embeds only the first segment of a query."""

        def embed_queries(self, texts: Sequence[str]) -> Vectors:
            return super().embed_queries([text.partition(" then ")[0] for text in texts])

    engine = _engine(office, FirstSegmentEmbedder())
    query = "pay the bill and then look whether there will be rain"
    result = engine.with_reasons(engine.search(query, limit=9))
    found = {hit.tool.name: hit.reasons for hit in result}
    (reason,) = found["get_weather"]
    assert (reason.field, reason.share) == ("meaning", 1.0)
    assert reason.term == "look whether there will be rain"
    assert engine.explain(query, "get_weather", limit=9).reasons == (reason,)
    assert {reason.term for reason in found["createInvoice"]} >= {query}


def test_purely_lexical_match_has_a_reason(office: Catalog) -> None:
    engine = _engine(office, TopicEmbedder(), FusionWeights(lexical_base=-9.0))
    (hit,) = engine.with_reasons(engine.search("salesforce"))
    assert (hit.reasons[0].field, hit.reasons[0].share) == ("name", 1.0)


def test_foreign_query_matches_english_and_its_own_words(office: Catalog) -> None:
    engine = _engine(office, TopicEmbedder())
    (hit,) = engine.with_reasons(engine.search("sende die Rechnung per Post", limit=1))
    assert {(reason.term, reason.field) for reason in hit.reasons} >= {("send", "name")}
    spoken = Catalog([Tool("a", "Rechnung stellen"), Tool("b", "Create an invoice")])
    found = _engine(spoken, TopicEmbedder(), FusionWeights(lexical_base=0.5)).search("bitte Rechnung stellen", limit=2)
    assert _names(found)[0] == "a"


def test_operators_are_ranked_lexically(office: Catalog) -> None:
    engine = _engine(office, TopicEmbedder())
    assert _names(engine.search("email -send", limit=9)) == ["read_email"]
    (hit,) = engine.with_reasons(engine.search("+invoices", limit=1))
    assert {reason.field for reason in hit.reasons} == {"name"}
    assert "read as plain words" in engine.search('rain "').notes[0]


def test_tools_for_each_segment_are_found(office: Catalog) -> None:
    engine = _engine(office, TopicEmbedder())
    found = _names(engine.search("open a bug ticket, then send a letter by post", limit=4))
    assert {"github_create_issue", "send_email"} <= set(found)


@pytest.mark.parametrize("steps", [2, 3, 4])
def test_best_tool_of_every_step_comes_before_the_third_of_any(steps: int) -> None:
    topics = ("send a letter", "pay the bill", "see whether it will rain", "report a bug")[:steps]
    siblings = [Tool(f"send_letter_{n}", "Send a letter by post and email") for n in range(6)]
    others = [Tool("settle", "Pay a bill"), Tool("forecast", "Rain and sun"), Tool("complain", "A bug ticket")]
    query = ", then ".join(topics)
    engine = _engine(Catalog([*siblings, *others[: steps - 1]]), TopicEmbedder(), FusionWeights(segment_share=0.0))
    found = _names(engine.search(query, limit=5))
    assert {tool.name for tool in others[: steps - 1]} <= set(found)


def test_tool_that_serves_all_steps_comes_first() -> None:
    tools = [
        Tool("letters", "Send a letter by post"),
        Tool("bills", "Pay the bill"),
        Tool("office", "Send a letter by post, pay the bill"),
    ]
    found = _names(_engine(Catalog(tools), TopicEmbedder()).search("send a letter and pay the bill", limit=3))
    assert found[0] == "office"
    assert {"letters", "bills"} == set(found[1:])


def test_tool_of_the_server_that_another_step_needs_comes_first() -> None:
    tools = [
        Tool("pay", "Pay the bill", server="acme"),
        Tool("pay", "Pay the bill", server="office"),
        Tool("send", "Send a letter by post", server="office"),
    ]
    steps = "send a letter, then pay the bill"
    found = [hit.tool.id for hit in _engine(Catalog(tools), TopicEmbedder()).search(steps, limit=2)]
    assert sorted(found) == ["office___pay", "office___send"]
    plain = _engine(Catalog(tools), TopicEmbedder(), FusionWeights(server_bonus=0.0)).search(steps, limit=2)
    assert "acme___pay" in [hit.tool.id for hit in plain]


@pytest.mark.parametrize(
    "steps", ["send a letter with hermes and pay the bill", "send a letter, then pay the bill with Hermes"]
)
def test_step_that_names_no_service_is_about_the_one_of_another_step(steps: str) -> None:
    class NamedServiceEmbedder(TopicEmbedder):
        def score_service_names(self, text: str, names: Sequence[str]) -> list[float]:
            return [float(name.lower() == "hermes") for name in names]

    tools = [
        Tool("pay", "Pay the bill", server="acme"),
        Tool("hermes_pay", "Pay the bill"),
        Tool("send", "Send a letter by post", server="acme"),
        Tool("hermes_send", "Send a letter by post"),
    ]
    named = _engine(Catalog(tools), NamedServiceEmbedder()).search(steps, limit=2)
    assert sorted(_names(named)) == ["hermes_pay", "hermes_send"]
    plain = _engine(Catalog(tools), NamedServiceEmbedder(), FusionWeights(service_bonus=0.0)).search(steps, limit=2)
    assert sorted(_names(plain)) != ["hermes_pay", "hermes_send"]


def test_step_is_about_the_service_that_it_names_itself() -> None:
    class TwoServicesEmbedder(TopicEmbedder):
        def score_service_names(self, text: str, names: Sequence[str]) -> list[float]:
            return [float(name in ("Hermes", "Acme")) for name in names]

    tools = [
        Tool(f"{service}_{verb}", text)
        for service in ("hermes", "acme")
        for verb, text in (("send", "Send a letter by post"), ("pay", "Pay the bill"))
    ]
    result = _engine(Catalog(tools), TwoServicesEmbedder()).search(
        "send a letter with Hermes, pay the bill with Acme", limit=2
    )
    assert sorted(_names(result)) == ["acme_pay", "hermes_send"]


def test_several_steps_may_be_served_by_one_tool() -> None:
    engine = _engine(Catalog([Tool("send", "Send a letter and pay the bill")]), TopicEmbedder())
    assert _names(engine.search("send a letter, then pay the bill")) == ["send"]


def test_request_in_a_long_story_is_found(office: Catalog) -> None:
    idle = "We moved offices last month and half of the boxes are still closed. The plants have arrived by now. "
    engine = _engine(office, TopicEmbedder())
    story, plain = engine.search(idle * 4 + "Check the rain. " + idle * 4), engine.search("Check the rain.")
    assert _names(story)[0] == _names(plain)[0] == "get_weather"
    assert story.confident
    assert engine.with_reasons(story).hits[0].reasons[0].field == "meaning"


def test_several_steps_find_nothing_in_an_empty_catalog() -> None:
    assert _engine(Catalog(), TopicEmbedder()).search("send a letter, then pay the bill").hits == ()


def test_tool_without_the_named_service_gets_less_confidence() -> None:
    catalog = Catalog([Tool("send", "Send an email by post"), Tool("pay", "Pay a bill")])
    engine = _engine(catalog, TopicEmbedder(), calibration=Calibration(missing_service=0.3))
    plain, named = engine.search("send a letter"), engine.search("send a letter with Hermes")
    assert named.confidence < plain.confidence
    assert _names(named)[0] == "send"
    known = Catalog([Tool("send", "Send an email by post with Hermes")])
    with_name = _engine(known, TopicEmbedder(), calibration=Calibration(missing_service=0.3)).search(
        "send a letter with Hermes"
    )
    assert with_name.confidence > named.confidence
    # A stop word is not a name, even if it is capitalized.
    assert engine.search("send a letter OF").hits


def test_names_of_people_cost_no_confidence() -> None:
    class HermesServiceEmbedder(TopicEmbedder):
        def score_service_names(self, text: str, names: Sequence[str]) -> list[float]:
            assert text.startswith("send a letter")
            return [float(name == "Hermes") for name in names]

    catalog = Catalog([Tool("send", "Send an email by post"), Tool("pay", "Pay a bill")])
    engine = _engine(catalog, HermesServiceEmbedder())
    plain = engine.search("send a letter")
    assert engine.search("send a letter to Bob").confidence == plain.confidence
    assert engine.search("send a letter to Hermes").confidence < plain.confidence


def test_unknown_lowercase_word_can_be_a_service_name() -> None:
    class LowercaseServiceEmbedder(TopicEmbedder):
        def score_service_names(self, text: str, names: Sequence[str]) -> list[float]:
            return [{"hermes": 0.9, "parcel": 0.6}.get(name, 0.1) for name in names]

    catalog = Catalog([Tool("send", "Send an email by post"), Tool("pay", "Pay a bill")])
    engine = _engine(catalog, LowercaseServiceEmbedder())
    plain = engine.search("send a letter").confidence
    assert engine.search("send a letter with hermes").confidence < plain
    assert engine.search("Send a letter with hermes").confidence < plain
    # Not if it is improbable, known to a tool, excluded, next to a name, or not scored.
    assert engine.search("send a letter as parcel").confidence == plain
    known = _engine(catalog.with_tools([Tool("hermes", "Call a courier")]), LowercaseServiceEmbedder())
    assert known.search("send a letter with hermes").confidence == plain
    assert engine.search("send a letter -hermes").confidence == plain
    beside = engine.search("send a letter to Bob with hermes").confidence
    assert beside == engine.search("send a letter to Bob").confidence
    untold = _engine(catalog, TopicEmbedder())
    assert untold.search("send a letter with hermes").confidence == plain


def test_longer_request_needs_less_similarity(office: Catalog) -> None:
    engine = _engine(office, TopicEmbedder(), calibration=Calibration(query_length=0.05))
    short, long = engine.search("rain"), engine.search("rain or no rain or what else outside")
    assert short.hits[0].tool == long.hits[0].tool
    plain = _engine(office, TopicEmbedder()).search("rain or no rain or what else outside")
    assert plain.confidence < long.confidence


def test_segment_without_a_service_is_about_the_one_named_before() -> None:
    class HermesOnlyEmbedder(TopicEmbedder):
        def score_service_names(self, text: str, names: Sequence[str]) -> list[float]:
            return [float(name == "Hermes") for name in names]

    catalog = Catalog([Tool("send", "Send an email by post"), Tool("pay", "Pay a bill")])
    engine = _engine(catalog, HermesOnlyEmbedder())
    plain = engine.search("send a letter and pay the bill")
    named = engine.search("send a letter with Hermes and pay the bill")
    assert named.confidence < plain.confidence


def test_larger_catalog_needs_more_similarity(office: Catalog) -> None:
    many = Catalog([*office, *(Tool(f"other_{at}", "Nothing like it.") for at in range(1_000))])
    calibration = Calibration(threshold=0.3, catalog_size=0.1)
    assert _engine(office, TopicEmbedder(), calibration=calibration).search("rain").confident
    assert not _engine(many, TopicEmbedder(), calibration=calibration).search("rain").confident


def test_nothing_fits_below_the_threshold(office: Catalog) -> None:
    for threshold, confident in ((1.1, False), (0.1, True)):
        engine = _engine(office, TopicEmbedder(), calibration=Calibration(threshold))
        assert engine.search("rain").confident == confident
    nothing = _engine(office, TopicEmbedder()).search("zzqxzz")
    assert (len(nothing), nothing.confidence) == (0, 0.0)


def test_uncovered_segments_are_reported(office: Catalog) -> None:
    engine = _engine(office, TopicEmbedder())
    result = engine.search("send a letter and order a pizza, then pay the bill")
    assert result.confident
    assert result.uncovered == ("order a pizza",)
    assert engine.search("send a letter and pay the bill").uncovered == ()
    assert engine.search("order a pizza").uncovered == ()
    # Disallowed tools cover nothing; tools on another page do.
    mail = {"mail___send_email", "mail___read_email"}
    both = "send a letter and pay the bill"
    assert engine.search(both, allowed=mail).uncovered == ("pay the bill",)
    assert engine.search(both, limit=1).uncovered == ()
    assert engine.search(both, limit=1, offset=1).uncovered == ()


def test_best_tool_of_each_segment_precedes_the_third_of_another() -> None:
    letters = [Tool(f"send_letter_{at}", "Send a letter by post, as an email or a mail.") for at in range(8)]
    catalog = Catalog([*letters, Tool("pay_bill", "Pay money for a bill."), Tool("see_sun", "See the weather.")])
    engine = _engine(catalog, TopicEmbedder())
    names = _names(engine.search("send a letter by post, pay the bill and look for rain", limit=10))
    assert max(names.index("pay_bill"), names.index("see_sun")) < 4
    assert len(names) == 10


def test_statements_around_a_request_do_not_change_the_best_tool(office: Catalog) -> None:
    engine = _engine(office, TopicEmbedder())
    idle = "My boss is in a mood today. The coffee has been cold since this morning."
    for query in ("look whether there will be rain", "send a letter and pay the bill"):
        best = _names(engine.search(query, limit=2))
        assert _names(engine.search(f"{idle} {query.capitalize()}. {idle}", limit=2)) == best


def test_best_sentence_of_a_text_without_a_request_counts(office: Catalog) -> None:
    engine = _engine(office, TopicEmbedder())
    idle = (
        "We moved to another street last month and half of the boxes are still closed. Our cat hides in one of them. "
    )
    result = engine.with_reasons(engine.search(f"{idle}There may be rain. {idle}"))
    assert _names(result)[0] == "get_weather"
    assert result.hits[0].reasons


def test_misspelled_word_in_a_longer_query_is_corrected(office: Catalog) -> None:
    engine = _engine(office, TopicEmbedder())
    right = engine.search("please tell me about the weather in the old town")
    result = engine.search("please tell me about the waether in the old town")
    assert result.notes == ("read as another word: waether → weather",)
    assert result.hits == right.hits
    # The words of other languages are translated instead.
    assert not any("read as" in note for note in engine.search("quiero saber el tiempo de esta semana en roma").notes)


def test_no_segment_is_reported_if_none_is_covered(office: Catalog) -> None:
    engine = _engine(office, TopicEmbedder())
    nothing = engine.search("order a pizza and wash the car")
    assert (nothing.confident, nothing.uncovered) == (False, ())
    # Names of tools are covered by these tools.
    assert engine.search("salesforce query and übersetzen").uncovered == ()


def test_best_candidates_of_a_large_catalog_are_encoded() -> None:
    tools = [Tool(f"t{at}", "about the weather") for at in range(MAX_ENCODED_ON_FIT + 1)]
    slow = ProvisionalTopicEmbedder()
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
def test_updated_index_ranks_like_a_new_one(query: str, names: list[str]) -> None:
    texts = dict(zip("abcdef", ("mail", "rain sun", "pay", "bug", "nothing", "post"), strict=True))
    catalog = Catalog([Tool(name, texts[name]) for name in "abc"])
    engine = _engine(catalog, TopicEmbedder())
    engine.search("x")
    later = catalog.with_tools([Tool(name, f"{texts[name]} now") for name in names])
    updated = engine.with_catalog(later).search(query, limit=10)
    assert updated == _engine(later, TopicEmbedder()).search(query, limit=10)


def test_phrase_among_words_is_not_required() -> None:
    tools = [Tool("send", "Send an email at 10:00 sharp"), Tool("pay", "Pay a bill")]
    engine = _engine(Catalog(tools), TopicEmbedder())
    # A purely lexical ranking would find `send`.
    assert _names(engine.search("refund the invoice of 10:00 today"))[0] == "pay"
    assert _names(engine.search("refund (the invoice of 10:00) today^2 I said"))[0] == "pay"
    assert _names(engine.search('"an email at"')) == ["send"]
    assert _names(engine.search("+refund")) == []
