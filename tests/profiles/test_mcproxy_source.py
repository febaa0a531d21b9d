from __future__ import annotations

import pytest
import tantivy

from tests.profiles.test_mcproxy import BOTH, FARM, config, found_names, search_text
from toolcrib.profiles import mcproxy_source
from toolcrib.profiles.mcproxy_source import SourceToolSearch


@pytest.mark.parametrize(
    ("query", "read_as"),
    [
        ("hay", "hay"),
        ("hay*", "hay"),
        ("feed_cow", '"feed_cow"'),
        ("'feed cow'", '"feed cow"'),
        ("name:feed-cow^2", 'name:"feed-cow"^2'),
        ("+hay -cow", "+hay NOT cow"),
        ("hay AND (cow OR NOT gate)", "hay AND (cow NOT gate)"),
        ("*", "*"),
        ('"milk the co"*', '"milk the co"*'),
    ],
)
def test_query_is_parsed_like_tantivy(query: str, read_as: str) -> None:
    question = mcproxy_source.parse_tantivy_query(query)
    assert question is not None
    assert (str(question.node), question.quoted) == (read_as, False)


@pytest.mark.parametrize(
    "query", ["(cow", "title:cow", "-cow", "cow - hay", "cow:", "12:30", "`cow`", "[cow]", "<cow>"]
)
def test_invalid_query_is_parsed_as_a_phrase(query: str) -> None:
    question = mcproxy_source.parse_tantivy_query(query)
    assert question is not None
    assert question.quoted


@pytest.mark.parametrize("query", ['cow "', "x" * 5_000])
def test_query_invalid_even_as_phrase_finds_nothing(query: str) -> None:
    assert mcproxy_source.parse_tantivy_query(query) is None
    assert found_names(query, SourceToolSearch) == []


def test_terms_are_split_like_tantivy() -> None:
    source = "Read_File v2.1 Übersetzt हिन्दी " + "x" * 40 + " " + "y" * 39 + " ß" + "ü" * 19
    terms = mcproxy_source.split_terms(source)
    assert terms == ["read", "file", "v2", "1", "übersetzt", "हिन", "दी", "y" * 39]


def test_phrase_prefix_scores_its_complete_words() -> None:
    search = SourceToolSearch(FARM, config())
    item = search_text(search, '"milk co"*').matches
    assert [(tool.name, score) for tool, score in item] == [("barn___milk_cow", 1.0)]
    assert search_text(search, '"barn milk co"*').matches == search_text(search, '"barn milk"').matches
    assert search_text(search, '"barn milk ha"*').matches == ()
    alone = mcproxy_source.parse_tantivy_query('"co"*')
    assert alone is not None
    assert alone.quoted


QUERIES = [
    "cow", "cow hay", "hay AND cow", "cow -hay", "+cow hay", '"the cow"', "feed_cow", "name:cow",
    "server:barn hay", 'description:"the ground"', "server:(barn field)", "cow^2 hay",
    "hay AND (cow OR meadow)", "hay AND cow OR gate", "gate OR hay AND cow", "*", '"to the co"*',
    "(hay OR gate) AND (cow OR lock)", "+(hay gate) bell", "Mow, the meadow!", "plough", "'the cow'",
]  # fmt: skip


def tantivy_scores(search: SourceToolSearch, query: str) -> dict[str, float]:
    """Return the tools that Tantivy finds with their scores, best first."""
    builder = tantivy.SchemaBuilder()
    for field in mcproxy_source.FIELDS:
        builder.add_text_field(field, stored=field == "name")
    index = tantivy.Index(builder.build())
    writer = index.writer(num_threads=1)
    for tool in search.catalog:
        texts = {field: text(tool) for field, text in mcproxy_source.FIELDS.items()}
        writer.add_document(tantivy.Document(**texts))
    writer.commit()
    index.reload()
    searcher = index.searcher()
    parsed = index.parse_query(query, [mcproxy_source.DEFAULT_FIELD])
    hits = searcher.search(parsed, len(search.catalog)).hits
    return {searcher.doc(address)["name"][0]: score for score, address in hits}


@pytest.mark.parametrize("query", QUERIES)
def test_source_scores_match_tantivy(query: str) -> None:
    search = SourceToolSearch(FARM, config())
    ours = {tool.name: score for tool, score in search_text(search, query).matches}
    theirs = tantivy_scores(search, query)
    assert ours == pytest.approx(theirs, abs=5e-5)
    assert list(ours) == list(theirs)


def test_and_not_excludes_tools() -> None:
    assert tantivy_scores(SourceToolSearch(FARM), "cow AND NOT hay") == {}
    for kind in BOTH:
        assert found_names("cow AND NOT hay", kind) == ["barn___milk_cow"]
