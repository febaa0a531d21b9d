from __future__ import annotations

import pytest

from toolcrib import Catalog, Tool
from toolcrib.errors import InvalidQuery
from toolcrib.search.lexical.fields import MAX_FIELD_TERMS
from toolcrib.search.lexical.ranker import MAX_CACHED_MATCHES, MAX_RESOLVED_QUERIES, LexicalIndex, LexicalRanker
from toolcrib.search.query.expression import PhraseNode, WordNode
from toolcrib.search.query.parser import ParsedQuery


def _find(index: LexicalIndex, query: str) -> list[str]:
    ranking = index.rank(ParsedQuery(query))
    pairs = zip(ranking.slots.tolist(), ranking.scores.tolist(), strict=True)
    ordered = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
    tools = [index.catalog.tool_at(slot) for slot, _ in ordered]
    return [tool.name for tool in tools if tool]


@pytest.fixture
def index(office: Catalog) -> LexicalIndex:
    return LexicalRanker().fit(office)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("bill a customer", "createInvoice"),
        ("invoices unpaid", "list-invoices"),
        ("sending emails", "send_email"),
        ("give the money back please", "refund"),
        ("postcode", "get_weather"),
        ("disputes", "refund"),
        ("UBERSETZEN", "übersetzen"),
        ("翻訳", "übersetzen"),
    ],
)
def test_words_find_tools_in_any_form_and_field(index: LexicalIndex, query: str, first: str) -> None:
    assert _find(index, query)[0] == first


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("email AND newest", {"read_email"}),
        ("email NOT newest", {"send_email"}),
        ("email -send", {"read_email"}),
        ("+newest money", {"read_email"}),
        ("invoice* AND (bill OR unpaid)", {"createInvoice", "list-invoices"}),
        ("name:email", {"send_email", "read_email"}),
        ("tags:inbox", {"read_email"}),
        ("server:books AND charge", {"refund"}),
        ("category:money", {"createInvoice", "list-invoices", "refund"}),
        ("parameter:amount", {"createInvoice"}),
        ("parameter_text:pays", {"createInvoice"}),
        ("title:issue", {"github_create_issue"}),
        ("hint:disputes", {"refund"}),
        ('"open an issue"', {"github_create_issue", "github_list_issues"}),
        ('"issue open"', set()),
        ('"github issue"', {"get_weather"}),
        ('"create issue"', {"github_create_issue"}),
        ('"customer data"*', {"salesforce_query"}),
        ('name:"send mess"*', {"send_message"}),
        ('description:"send email"', {"send_email"}),
        ("notifications*", set()),
        ("customers*", {"createInvoice", "salesforce_query"}),
        ("git*", {"get_weather", "github_create_issue", "github_list_issues"}),
        ("email AND the", {"send_email", "read_email"}),
        ("NOT (email OR message)", 9),
        ("*", 12),
        ("", set()),
        ("the", set()),
        ("the AND of", set()),
        ("-the", set()),
        ("email AND description:the", {"send_email", "read_email"}),
        ("email -send_email", {"read_email"}),
        ("email AND nosuchword", set()),
        ('""', set()),
        ("name:(send AND email)^2 refund", {"send_email", "refund"}),
        ("the^2", set()),
    ],
)
def test_query_language_finds_the_expected_tools(index: LexicalIndex, query: str, names: set[str] | int) -> None:
    found = _find(index, query)
    assert (len(found) if isinstance(names, int) else set(found)) == names


def test_scores_are_between_0_and_1_and_change_with_a_boost(index: LexicalIndex) -> None:
    for query in ("email", "email message", "email^5 message", "email message^5", "*", "-email"):
        assert all(0 < score <= 1 for score in index.rank(ParsedQuery(query)).scores.tolist())
    assert _find(index, "refund^9 weather")[0] == "refund"
    assert _find(index, "refund weather^9")[0] == "get_weather"


def test_malformed_query_raises_in_strict_and_notes_in_lenient_syntax(office: Catalog) -> None:
    with pytest.raises(InvalidQuery, match="ends where a word was expected"):
        LexicalRanker().fit(office).rank(ParsedQuery("email AND"))
    lenient = LexicalRanker(syntax="lenient").fit(office)
    assert set(_find(lenient, "email AND")) == {"send_email", "read_email"}
    assert lenient.rank(ParsedQuery("email AND")).notes[0].text.startswith("read as plain words: the query ends")


def test_lenient_syntax_reads_and_in_an_uppercase_query_as_a_word(office: Catalog) -> None:
    lenient, strict = LexicalRanker(syntax="lenient").fit(office), LexicalRanker().fit(office)
    query = "REFUND AND NEWEST OR ELSE"
    assert set(_find(lenient, query)) == set(_find(strict, query.lower())) != set()
    assert lenient.is_unrestricted(ParsedQuery(query))
    assert _find(strict, query) == []
    # AND stays an operator if other words are lowercase or have no letter case.
    for other in ("refund AND newest", "送信 AND 12", "EMAIL -NEWEST", "+EMAIL REFUND"):
        assert _find(lenient, other) == _find(strict, other)
        assert not lenient.is_unrestricted(ParsedQuery(other))


def test_lenient_syntax_does_not_read_list_numbers_as_parentheses(office: Catalog) -> None:
    lenient, strict = LexicalRanker(syntax="lenient").fit(office), LexicalRanker().fit(office)
    query = "1) send an email\n2) refund it b) newest"
    assert lenient.rank(ParsedQuery(query)).notes == ()
    assert lenient.is_unrestricted(ParsedQuery(query))
    assert set(_find(lenient, query)) == set(_find(strict, query.replace(")", "")))
    assert strict.rank(ParsedQuery(query)).notes[0].text.startswith("read as plain words: the closing parenthesis")
    # Groups still work, and any other unmatched parenthesis is noted.
    assert _find(lenient, "email (newest OR b)") == _find(strict, "email (newest OR b)")
    assert lenient.rank(ParsedQuery("send an email)")).notes


@pytest.mark.parametrize("query", ["http://localhost:3000", "issue:12", "email -a", "email -xzf", "+49 170 email"])
def test_lenient_syntax_ignores_apparent_operators(office: Catalog, query: str) -> None:
    assert LexicalRanker(syntax="lenient").fit(office).is_unrestricted(ParsedQuery(query))


def test_lenient_syntax_drops_exclusions_that_match_nothing(office: Catalog) -> None:
    lenient, strict = LexicalRanker(syntax="lenient").fit(office), LexicalRanker().fit(office)
    assert not strict.is_unrestricted(ParsedQuery("email -xzf"))
    assert _find(lenient, "email -xzf") == _find(strict, "email -xzf") == _find(strict, "email")
    assert not lenient.is_unrestricted(ParsedQuery("email -newest"))
    assert _find(lenient, "email -newest") == _find(strict, "email -newest")
    # A query of exclusions only returns all other tools, even if the exclusions match nothing.
    assert _find(lenient, "-xzf -vvkk") == _find(strict, "-xzf -vvkk") != []
    for query in ("ema*", '"newest ema"*'):
        assert not lenient.is_unrestricted(ParsedQuery(query))


def test_lenient_syntax_reads_unknown_phrases_as_words(office: Catalog) -> None:
    lenient, strict = LexicalRanker(syntax="lenient").fit(office), LexicalRanker().fit(office)
    assert _find(strict, '"email newest"') == []
    assert set(_find(lenient, '"email newest"')) == set(_find(strict, "email newest")) != set()


@pytest.mark.parametrize(
    ("query", "first", "note"),
    [
        ("emial", "send_email", "emial → email"),
        ("wether", "get_weather", "wether → weather"),
        ("recieve invocie", "list-invoices", "invocie → invoic"),
        ("translaation", "übersetzen", "translaation → translat"),
        ("sales", "salesforce_query", "sales → salesforc"),
    ],
)
def test_typo_is_corrected_with_a_note(index: LexicalIndex, query: str, first: str, note: str) -> None:
    assert _find(index, query)[0] == first
    assert any(note in other.text for other in index.rank(ParsedQuery(query)).notes)


def test_short_words_and_long_queries_are_not_corrected(index: LexicalIndex) -> None:
    assert _find(index, "emi") == []
    assert index.rank(ParsedQuery("wether one two three four five six seven")).notes == ()


def test_unknown_phrase_in_a_sentence_is_read_as_words(index: LexicalIndex) -> None:
    assert "refund" in _find(index, 'please "refund the nice charge" now')
    assert _find(index, '"give me back all the money of my last charge"')[0] == "refund"
    assert _find(index, '"refund the charge"') == []
    assert _find(index, 'pay "ask the customer database"')[0] == "salesforce_query"


def test_compound_is_found_whole_and_in_parts(index: LexicalIndex) -> None:
    assert _find(index, "createInvoice")[0] == "createInvoice"
    assert _find(index, "create_invoice")[0] == "createInvoice"
    assert "createInvoice" in _find(index, "CREATEINVOICE")
    assert "github_create_issue" in _find(index, "GitHub")


def test_reasons_add_up_and_name_term_and_field(office: Catalog, index: LexicalIndex) -> None:
    for query in ("bill the customer", "emial", '"open an issue" github', "name:email^2 newest"):
        ranking = index.rank(ParsedQuery(query))
        for slot, score in zip(ranking.slots.tolist(), ranking.scores.tolist(), strict=True):
            reasons = index.reasons(ParsedQuery(query), slot)
            assert score > 0
            assert sum(reason.share for reason in reasons) == pytest.approx(1, abs=2e-3)
            assert [r.share for r in reasons] == sorted((r.share for r in reasons), reverse=True)
    slot = office.slot("books___createInvoice")
    assert slot is not None
    found = {(reason.term, reason.field) for reason in index.reasons(ParsedQuery("bill the customer"), slot)}
    assert found == {("bill", "description"), ("customer", "description"), ("customer", "parameter")}
    assert index.reasons(ParsedQuery("weather"), slot) == ()


def test_leaf_matches_exactly(index: LexicalIndex) -> None:
    match = index.match_leaf(WordNode("email"))
    assert match is not None
    assert match.posting.slots.tolist() == [0, 1]
    unmatched = index.match_leaf(WordNode("emial"))
    assert unmatched is not None
    assert unmatched.posting.slots.tolist() == []
    assert index.match_leaf(PhraseNode("")) is None
    assert index.match_leaf(WordNode("the")) is None


@pytest.mark.parametrize("query", ["bill the customer", "emial", "email -send", "email OR", "", "zzqx"])
def test_scores_by_slot_are_those_of_the_ranking(office: Catalog, query: str) -> None:
    index = LexicalRanker(syntax="lenient").fit(office)
    ranking, spread = index.rank(ParsedQuery(query)), index.score_slots(ParsedQuery(query))
    assert spread.scores.nonzero()[0].tolist() == ranking.slots.tolist()
    assert spread.scores[ranking.slots] == pytest.approx(ranking.scores)
    assert [note.text for note in spread.notes] == [note.text for note in ranking.notes]


def test_very_long_description_is_truncated() -> None:
    book = Tool("book", "word " * (MAX_FIELD_TERMS + 50) + "epilogue")
    index = LexicalRanker().fit(Catalog([book, Tool("note", "a word")]))
    assert set(_find(index, "word")) == {"note", "book"}
    assert _find(index, "epilogue") == []


def test_empty_catalog_can_be_searched() -> None:
    index = LexicalRanker().fit(Catalog())
    for query in ("x", "x AND y", '"x y"', "x*", "-x", "*", "name:x"):
        assert _find(index, query) == []
    assert _find(index.with_catalog(index.catalog.with_tools([Tool("x")])), "x") == ["x"]


def test_phrase_of_stop_words_or_longer_than_the_text_finds_nothing() -> None:
    index = LexicalRanker().fit(Catalog([Tool("send")]))
    assert _find(index, '"send send"') == []
    assert _find(index, '"of the"') == []


def test_cached_matches_are_bounded_and_correct(office: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.search.lexical.ranker.MAX_CACHED_MATCHES", 2)
    index = LexicalRanker().fit(office)
    for query in ("email message invoice refund weather", "email", "refund", "email"):
        assert _find(index, query) == _find(LexicalRanker().fit(office), query)
        assert 0 < index.cached_entries <= 2


@pytest.mark.parametrize("query", ["™*", "㎐*", "a-\u0301*", '"Ⓐ Ⓐ"*', "-\u0301*", "😀*"])
def test_unusual_characters_before_a_star_are_accepted(index: LexicalIndex, query: str) -> None:
    for fitted in (index, LexicalRanker().fit(Catalog())):
        assert isinstance(_find(fitted, query), list)


def test_phrase_may_end_in_a_prefix_of_a_stop_word() -> None:
    tools = [Tool("total_cost"), Tool("send_note", "send to anyone"), Tool("send_total", "x")]
    index = LexicalRanker().fit(Catalog(tools))
    assert _find(index, '"send to"*') == ["send_total"]


def test_terms_of_removed_tools_are_discarded_eventually() -> None:
    catalog = Catalog([Tool("x")])
    index = LexicalRanker().fit(catalog)
    for number in range(0, 30_000, 1_500):
        words = " ".join(f"w{n}" for n in range(number, number + 1_500))
        catalog = catalog.with_tools([Tool("x", words)])
        index = index.with_catalog(catalog)
    assert index.vocabulary_size < 15_000
    assert _find(index, "w29999") == ["x"]


def test_shared_server_description_finds_all_its_tools() -> None:
    tools = [Tool(name, server="s", server_description="Everything about orchids") for name in "ab"]
    assert _find(LexicalRanker().fit(Catalog(tools)), "orchids") == ["a", "b"]


def test_resolved_queries_are_bounded() -> None:
    index = LexicalRanker().fit(Catalog([Tool("send_email"), Tool("read_email")]))
    for number in range(2 * MAX_RESOLVED_QUERIES + MAX_CACHED_MATCHES):
        assert len(index.rank(ParsedQuery(f"email NOT word{number}")).slots) == 2
    assert 0 < index.cached_entries <= MAX_RESOLVED_QUERIES + MAX_CACHED_MATCHES


def test_mentions_of_a_name_are_rated_by_field() -> None:
    tools = [Tool("send", server="qa"), Tool("send", "For QA.", server="b"), Tool("send", server="qatar-mcp")]
    index = LexicalRanker().fit(Catalog(tools))
    rated = index.rate_mentions("QA")
    assert rated is not None and rated.tolist() == [1.0, 0.5, 0.0]
    longer = index.rate_mentions("Qatar")
    assert longer is not None and longer.tolist() == [0.0, 0.0, 1.0]
    assert index.rate_mentions("the") is None
