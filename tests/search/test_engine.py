from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib import Catalog, SearchEngine, SearchResult, Tool, ToolcribError, Where
from toolcrib.errors import InvalidConfig, InvalidLimit, InvalidQuery, QueryTooLong, UnknownTool
from toolcrib.search.engine import RANKERS
from toolcrib.search.lexical.postings import EMPTY_POSTING
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.query.expression import MAX_QUERY_CHARS
from toolcrib.search.ranker import MatchReason, Ranking

# The modes without an encoder: these tests are about the engine, not about a ranker.
WORDS = {mode: RANKERS[mode] for mode in ("lexical", "regex", "fuzzy", "keyword", "prefix")}


def _lexical_engine(catalog: Catalog) -> SearchEngine:
    return SearchEngine(catalog, WORDS)


def _names(result: SearchResult) -> list[str]:
    return [hit.tool.name for hit in result]


@pytest.fixture
def engine(office: Catalog) -> SearchEngine:
    return _lexical_engine(office)


def test_search_returns_the_best_tools_with_scores_and_reasons(engine: SearchEngine) -> None:
    result = engine.with_reasons(engine.search("bill a customer", limit=1))
    assert _names(result) == ["createInvoice"]
    assert len(result) == 1
    assert result.has_more
    assert result.confident
    assert result.mode == "lexical"
    hit = result.hits[0]
    assert 0 < hit.score < 1
    assert {reason.term for reason in hit.reasons} == {"bill", "customer"}
    assert hit == engine.search("bill a customer").hits[0]
    assert len({hit, engine.search("bill a customer").hits[0]}) == 1
    assert hit != "createInvoice"
    assert repr(hit) == f"Hit('books___createInvoice', score={hit.score:.3f}, confidence={hit.confidence:.2f})"


def test_every_mode_searches_and_unknown_mode_lists_the_modes(engine: SearchEngine) -> None:
    assert engine.modes == ("lexical", "regex", "fuzzy", "keyword", "prefix")
    for mode in engine.modes:
        assert "send_email" in _names(engine.search("send_email", mode=mode))
    with pytest.raises(InvalidQuery, match="no mode 'psychic'; the modes are lexical, regex"):
        engine.search("x", mode="psychic")


def test_exact_name_wins_in_any_case_style(engine: SearchEngine) -> None:
    for query in ("send_email", "sendEmail", '"send_email"', "mail___send_email", "Send-Email"):
        result = engine.with_reasons(engine.search(query))
        assert _names(result) == ["send_email"]
        assert result.hits[0].score == 1.0
        assert result.hits[0].reasons == (MatchReason(query, "name", 1.0),)


def test_name_written_as_words_comes_first(engine: SearchEngine) -> None:
    result = engine.search("send email")
    assert _names(result)[0] == "send_email"
    assert result.hits[0].score == 1.0
    assert len(result) > 1
    assert all(hit.score < 1 for hit in result.hits[1:])
    assert engine.with_reasons(result).hits[1].reasons


def test_name_of_a_filtered_tool_is_treated_as_words(office: Catalog) -> None:
    engine = _lexical_engine(office)
    without = _lexical_engine(office.without("mail___send_email"))
    expected = _names(without.search("send_email"))
    assert expected
    refused = engine.search("send_email", allowed=lambda tool: tool.name != "send_email")
    assert _names(refused) == expected
    assert "send_message" in _names(engine.search("send_email", where=Where(server="chat")))
    explanation = engine.explain("send_email", "chat___send_message", where=Where(server="chat"))
    assert explanation.is_returned


def test_engine_can_return_to_a_smaller_catalog(office: Catalog) -> None:
    longer = office.with_tools([Tool("rocket", "Fly", server="mail")])
    engine = SearchEngine(longer)
    for mode in engine.modes:
        assert "rocket" in _names(engine.search("rocket", mode=mode, where=Where(server="mail")))
    back = engine.with_catalog(office)
    for mode in back.modes:
        found = back.search("rocket", mode=mode, where=Where(server="mail"))
        assert "rocket" not in _names(found)


def test_index_fitted_during_an_update_is_harmless(office: Catalog) -> None:
    class ConcurrentRanker:
        syntax = "pattern"

        def fit(self, catalog: Catalog) -> Any:
            return self

        def rank(self, query: str) -> Ranking:
            return Ranking(*EMPTY_POSTING)

        def with_catalog(self, catalog: Catalog) -> Any:
            searched.search("email", mode="lexical")
            return self

    rankers: Any = {"meddling": ConcurrentRanker(), "lexical": LexicalRanker()}
    searched = SearchEngine(office, rankers)
    searched.search("email")
    assert searched.with_catalog(office).search("email", mode="lexical").hits


def test_blank_is_a_pattern_but_not_a_query(engine: SearchEngine) -> None:
    assert len(engine.search(" ", limit=50)) == 12
    assert len(engine.search(" ", limit=50, mode="regex")) == 12
    assert len(engine.search("  ", limit=50, mode="regex")) == 0
    assert len(engine.search("", limit=50, mode="regex")) == 12


def test_star_returns_all_tools_with_confidence(engine: SearchEngine) -> None:
    result = engine.search(" * ", limit=50)
    assert len(result) == 12
    assert result.confident


def test_several_names_return_exactly_those_tools(engine: SearchEngine) -> None:
    assert _names(engine.search("send_email, createInvoice")) == ["send_email", "createInvoice"]


def test_rights_are_applied_before_the_page_is_cut(engine: SearchEngine) -> None:
    everyone = [hit.tool.id for hit in engine.search("message email", limit=50)]
    assert len(everyone) > 2
    for allowed in (
        {everyone[-1]},
        [everyone[-1]],
        lambda tool: tool.id == everyone[-1],
        dict.fromkeys([everyone[-1]]),
    ):
        result = engine.search("message email", limit=1, allowed=allowed)
        assert [hit.tool.id for hit in result] == [everyone[-1]]
        assert not result.has_more


def test_rights_hold_for_names_pages_and_every_mode(engine: SearchEngine) -> None:
    def may_not_mail(tool: Tool) -> bool:
        return tool.server != "mail"

    assert "send_email" not in _names(engine.search("send_email", allowed=may_not_mail))
    for mode in engine.modes:
        for query in ("send_email", "email", ""):
            found = engine.search(query, mode=mode, limit=50, allowed=may_not_mail)
            assert all(hit.tool.server != "mail" for hit in found)


def test_predicate_is_called_until_the_page_is_full() -> None:
    catalog = Catalog(Tool(f"t{number}", "same words") for number in range(500))
    engine = _lexical_engine(catalog)
    result = engine.search("words", limit=3, allowed=lambda tool: tool.id in ("t7", "t400", "t499"))
    assert _names(result) == ["t7", "t400", "t499"]
    assert not result.has_more


def test_filters_are_applied_before_the_cut_and_note_when_nothing_matches(engine: SearchEngine) -> None:
    assert _names(engine.search("email message", where=Where(server="chat"))) == ["send_message"]
    assert _names(engine.search("", where=Where(category="money"))) == ["createInvoice", "list-invoices", "refund"]
    nobody = engine.search("email", where=Where(server="nobody", read_only=True))
    assert nobody.notes == ("no tool at all has server nobody, read_only",)
    assert not nobody.confident


def test_empty_query_pages_through_the_catalog(office: Catalog, engine: SearchEngine) -> None:
    names = [tool.name for tool in office]
    pages = [engine.search("  ", limit=5, offset=offset) for offset in (0, 5, 10)]
    assert [name for page in pages for name in _names(page)] == names
    assert [page.has_more for page in pages] == [True, True, False]
    assert _names(engine.search("", offset=12)) == []
    holes = engine.with_catalog(office.without([tool.id for tool in office][:11]))
    assert _names(holes.search("")) == ["search"]


def test_pages_of_a_search_are_consecutive(engine: SearchEngine) -> None:
    whole = _names(engine.search("email message issue", limit=50))
    pages = [engine.search("email message issue", limit=2, offset=at) for at in range(0, 10, 2)]
    assert [name for page in pages for name in _names(page)] == whole


def test_best_hits_of_a_large_catalog_are_complete() -> None:
    words = [f"w{number}" for number in range(40)]
    tools = [Tool(f"t{n}", " ".join(words[: n * 7919 % 41])) for n in range(3_000)]
    engine = _lexical_engine(Catalog(tools))
    everything = engine.search("w3 w17 w30", limit=3_000)
    assert len(everything) > 2_000
    for limit in (1, 7, 50, 600):
        assert engine.search("w3 w17 w30", limit=limit).hits == everything.hits[:limit]


def test_equal_scores_are_in_catalog_order() -> None:
    catalog = Catalog(Tool(f"t{number}", "same words") for number in range(100))
    assert _names(_lexical_engine(catalog).search("words", limit=3)) == ["t0", "t1", "t2"]


def test_updated_engine_reflects_changes_in_every_mode(office: Catalog, engine: SearchEngine) -> None:
    for mode in engine.modes:
        engine.search("email", mode=mode, where=Where(server="mail"))
    rocket = Tool("launch_rocket", "Fly to orbit", server="space")
    later = engine.with_catalog(office.with_tools([rocket]).without(["mail___send_email"]))
    assert _names(later.search("orbit")) == ["launch_rocket"]
    assert _names(later.search("launchRocket")) == ["launch_rocket"]
    assert _names(later.search("", where=Where(server="space"))) == ["launch_rocket"]
    for mode in engine.modes:
        assert "launch_rocket" in _names(later.search("launch_rocket", mode=mode))
        assert "send_email" not in _names(later.search("email", mode=mode, limit=50))
        assert "send_email" in _names(engine.search("email", mode=mode, limit=50))


def test_engine_accepts_other_rankers(office: Catalog) -> None:
    lenient = SearchEngine(office, {**WORDS, "lexical": LexicalRanker(syntax="lenient")})
    assert "send_email" in _names(lenient.search("email AND"))
    with pytest.raises(InvalidQuery):
        _lexical_engine(office).search("email AND")


@pytest.mark.parametrize("limit", [0, -1, 10_001, True, 2.5, "3", None])
def test_invalid_limit_is_rejected(engine: SearchEngine, limit: Any) -> None:
    with pytest.raises(InvalidLimit, match="from 1 to 10,000"):
        engine.search("x", limit=limit)


@pytest.mark.parametrize("offset", [-1, True, "3"])
def test_invalid_offset_is_rejected(engine: SearchEngine, offset: Any) -> None:
    with pytest.raises(InvalidLimit, match="offset must be a whole number from 0"):
        engine.search("x", offset=offset)


def test_query_must_be_text_within_the_length_limit(engine: SearchEngine) -> None:
    with pytest.raises(QueryTooLong, match="the limit is 4,000; say what the tool should do"):
        engine.search("x" * (MAX_QUERY_CHARS + 1))
    bad: Any = 5
    with pytest.raises(InvalidQuery, match="must be text, not int"):
        engine.search(bad)


def test_no_match_is_a_result(engine: SearchEngine) -> None:
    result = engine.search("quantum chromodynamics")
    assert result.hits == ()
    assert not result.confident


def test_explain_says_why_a_tool_was_returned(engine: SearchEngine) -> None:
    explanation = engine.explain("bill a customer", "books___createInvoice")
    assert explanation.is_returned
    assert explanation.rank == 1
    assert explanation.score == engine.search("bill a customer").hits[0].score
    assert explanation.verdict.startswith("returned: number 1 of ")
    assert explanation.reasons


def test_explain_says_why_a_tool_was_not_returned(engine: SearchEngine) -> None:
    low = engine.explain("email message", "chat___send_message", limit=1)
    assert not low.is_returned
    assert low.rank is not None
    assert low.rank > 1
    assert "the last of the 1 returned is" in low.verdict
    unmatched = engine.explain("weather", "mail___send_email")
    assert unmatched.rank is None
    assert unmatched.verdict == "does not match 'weather' in mode lexical"
    partly = engine.explain("email AND newest", "mail___send_email")
    assert partly.verdict == "does not match 'email AND newest' in mode lexical, though it has email"
    assert {reason.term for reason in partly.reasons} == {"email"}
    filtered = engine.explain("email", "mail___send_email", where=Where(server="chat", read_only=True))
    assert filtered.verdict == "left out by the filter: server 'chat', read_only"
    other = engine.explain("send_email", "mail___read_email")
    assert other.verdict == "the query is the name of another tool: mail___send_email"


def test_messages_do_not_reveal_tools_that_are_not_allowed() -> None:
    engine = _lexical_engine(Catalog([Tool("send_email", "Post", server="mail"), Tool("get_refund", server="secret")]))
    mail = {"mail___send_email"}
    explanation = engine.explain("get_refund", "mail___send_email", allowed=mail)
    assert explanation.verdict == "does not match 'get_refund' in mode lexical"
    assert engine.search("refnud").notes
    assert engine.search("refnud", allowed=mail).notes == ()
    hidden = engine.search("email", where=Where(server="secret"), allowed=mail)
    nowhere = engine.search("email", where=Where(server="secret"), allowed=set())
    assert hidden.notes == nowhere.notes == ("no tool at all has server secret",)
    assert engine.search("email", where=Where(server="secret")).notes == ()


def test_spelling_note_names_only_words_of_allowed_tools() -> None:
    engine = _lexical_engine(Catalog([Tool("read_cart"), Tool("secret_card")]))
    result = engine.search("carx", allowed={"read_cart"})
    assert result.notes == ("no tool contains this word, so a similar one was used: carx → cart",)
    assert [reason.term for reason in engine.with_reasons(result).hits[0].reasons] == ["carx → cart"]
    assert len(engine.search("carx").notes) == 2


@pytest.mark.parametrize("bad", [[], 5, None])
def test_query_of_another_type_is_rejected(engine: SearchEngine, bad: Any) -> None:
    if bad is not None:
        with pytest.raises(InvalidQuery, match="must be text"):
            Where(server=bad)
    with pytest.raises(UnknownTool):
        engine.explain("x", bad)
    if bad:
        with pytest.raises(InvalidQuery, match="no mode"):
            engine.search("x", mode=bad)


@pytest.mark.parametrize("bad", [{"server": "mail"}, None, "mail"])
def test_invalid_filter_error_says_what_to_write(engine: SearchEngine, bad: Any) -> None:
    for query in ("email", ["email"], ""):
        with pytest.raises(InvalidQuery, match=r"such as Where\(server='mail'\), not"):
            engine.search(query, where=bad)
    with pytest.raises(InvalidQuery, match="leave it out to search everywhere"):
        engine.explain("email", "refund", where=bad)


@pytest.mark.parametrize("bad", [5, 0, [["mail___send_email"]]])
def test_invalid_rights_error_says_what_to_write(engine: SearchEngine, bad: Any) -> None:
    with pytest.raises(InvalidQuery, match="must be the ids of tools, or a function"):
        engine.search("email", allowed=bad)
    with pytest.raises(InvalidQuery, match="must be the ids of tools, or a function"):
        engine.explain("email", "mail___send_email", allowed=bad)


def test_iterator_of_ids_applies_to_every_query(engine: SearchEngine) -> None:
    once: Any = iter(["mail___send_email", "books___refund"])
    assert len(engine.search(["send an email", "refund money"], allowed=once)) == 2


def test_engine_without_rankers_is_rejected() -> None:
    with pytest.raises(InvalidConfig, match="leave `rankers` out"):
        SearchEngine(Catalog(), {})


def test_single_id_or_tag_may_be_a_string(engine: SearchEngine) -> None:
    tags: Any = "message"
    assert len(engine.search("", where=Where(tags=tags))) == 3
    assert _names(engine.search("email", allowed="mail___send_email")) == ["send_email"]


def test_operator_before_a_name_is_an_operator(engine: SearchEngine) -> None:
    assert "send_email" not in _names(engine.search("-send_email", limit=50))
    assert "refund" not in _names(engine.search("-refund", limit=50))
    assert _names(engine.search("read_email -send_email")) == ["read_email"]
    assert _names(engine.search("email -send_email")) == ["read_email"]
    assert _names(engine.search("+send_email message")) == ["send_email"]


def test_exact_names_win_in_a_mode_of_any_name(office: Catalog) -> None:
    engine = SearchEngine(office, {"words": LexicalRanker()})
    assert _names(engine.search("sendEmail")) == ["send_email"]


def test_explain_takes_a_name_without_its_server(engine: SearchEngine) -> None:
    assert engine.explain("bill a customer", "createInvoice").tool.id == "books___createInvoice"
    assert engine.explain("bill a customer", "create invoice").tool.id == "books___createInvoice"
    twins = SearchEngine([Tool("forecast", server=server) for server in ("sky", "sun")], {"lexical": LexicalRanker()})
    with pytest.raises(UnknownTool, match=r"2 tools are called 'forecast'; .* sky___forecast, sun___forecast"):
        twins.explain("weather", "forecast")
    assert twins.explain("weather", "forecast", allowed={"sun___forecast"}).tool.server == "sun"
    with pytest.raises(UnknownTool, match="given by its id, not by int"):
        twins.explain("weather", 7)  # type: ignore[arg-type]


def test_async_search_returns_the_same_result(engine: SearchEngine) -> None:
    found = asyncio.run(engine.async_search("bill a customer", limit=2, where=Where(server="books")))
    assert found == engine.search("bill a customer", limit=2, where=Where(server="books"))


def test_letters_and_emoji_are_not_confident() -> None:
    tools = [Tool("rocket", "Launch a 🚀 rocket with x and y."), Tool("x_ray", "Make an x ray."), Tool("c")]
    engine = SearchEngine(tools)
    for mode in ("hybrid", "fast", "lexical", "fuzzy", "keyword", "prefix"):
        for query in ("🚀", "🚀🚀 🔥", "x", "x y", "?", "_"):
            result = engine.search(query, mode=mode)
            assert not result.confident and result.fitting_hits == (), (mode, query)
        # The exact name of a tool is confident, however short.
        assert engine.search("c", mode=mode).confident, mode
    assert engine.search("x", mode="regex").confident
    assert SearchEngine([Tool("weather", "天気 天 を調べる")]).search("天", mode="lexical").confident


def test_explain_treats_a_tool_that_is_not_allowed_as_unknown(engine: SearchEngine) -> None:
    with pytest.raises(UnknownTool) as unknown:
        engine.explain("email", "nobody")
    with pytest.raises(UnknownTool) as refused:
        engine.explain("email", "mail___send_email", allowed={"nobody"})
    assert str(refused.value).replace("mail___send_email", "nobody") == str(unknown.value)
    assert engine.explain("email", "mail___send_email", allowed={"mail___send_email"}).is_returned


_pieces = st.sampled_from(
    [
        "send",
        "email",
        "invoice",
        '"',
        "(",
        ")",
        "*",
        "-",
        "+",
        "name:",
        "AND",
        "^2",
        " ",
        "emial",
        "sendEmail",
        "send_email",
        "\\",
        "[a-",
        "(?i)",
        "\n",
        "\x00",
        "翻訳",
        "é",
        "😀",
        "{1,",
    ]
)
_queries = st.lists(_pieces, max_size=8).map("".join) | st.text(max_size=30)


@settings(max_examples=300, deadline=None)
@given(
    query=_queries,
    mode=st.sampled_from(sorted(WORDS)),
    limit=st.integers(1, 5),
    refused=st.sets(st.integers(0, 11)),
    where=st.sampled_from([Where(), Where(server="mail"), Where(read_only=True)]),
)
def test_any_query_returns_allowed_hits_within_the_limit_or_a_toolcrib_error(
    office: Catalog, query: str, mode: str, limit: int, refused: set[int], where: Where
) -> None:
    ids = [tool.id for slot, tool in enumerate(office) if slot not in refused]
    engine = _lexical_engine(office)
    try:
        result = engine.search(query, mode=mode, limit=limit, where=where, allowed=set(ids))
    except ToolcribError:
        return
    assert len(result) <= limit
    assert all(hit.tool.id in ids for hit in result)
    assert not any(where.unmet_conditions(hit.tool) for hit in result)
    assert all(0 <= hit.score <= 1 for hit in result)
    scores = [hit.score for hit in result]
    assert scores == sorted(scores, reverse=True)
    again = engine.search(query, mode=mode, limit=limit, where=where, allowed=lambda tool: tool.id in ids)
    assert again == result
    for hit in engine.with_reasons(result):
        assert hit.reasons or mode == "lexical" or not query.strip()


_SCRIPT = """
from toolcrib import Catalog, SearchEngine, Tool
tools = [Tool(f"{v}_{o}", f"{v} the {o} of a {w}", tags=(w,))
         for v in ("send", "list", "draw") for o in ("email", "file", "issue") for w in ("day",)]
engine = SearchEngine(Catalog(tools))
for mode in engine.modes:
    for query in ("send email", "fil", "issue of a day", "lsit file"):
        for hit in engine.with_reasons(engine.search(query, mode=mode, limit=9)):
            print(mode, query, hit)
            print(hit.reasons)
print(engine.catalog.version)
"""


def test_results_do_not_depend_on_the_hash_seed() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "12345")
    }
    assert len(outputs) == 1
    assert outputs.pop()


@given(
    st.lists(st.sampled_from(["send", "a", "mail", "to", "bob", "ticket", "12", "über"]), min_size=1, max_size=320),
    st.sampled_from(list("\"()[]{}'`")),
    st.integers(0, 320),
)
def test_lexical_mode_accepts_words_with_a_stray_sign(words: list[str], sign: str, place: int) -> None:
    engine = SearchEngine(Catalog([Tool("send_mail", "Send a mail.")]))
    words.insert(place, sign)
    assert engine.search(" ".join(words), mode="lexical").mode == "lexical"
