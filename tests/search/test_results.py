"""Test searches for several queries, and the grouping of duplicate hits."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from threading import Barrier, Thread

import pytest

from tests.search.topic_embedder import ProvisionalTopicEmbedder, TopicEmbedder, Vectors
from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.errors import InvalidQuery
from toolcrib.search.dense import index as dense_index
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.engine import MAX_LIMIT, MAX_QUERIES
from toolcrib.search.hybrid.ranker import HybridRanker
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.results import Hit, SearchResult


@pytest.fixture
def lexical_engine(office: Catalog) -> SearchEngine:
    return SearchEngine(office, {"lexical": LexicalRanker()})


def test_each_query_gets_a_hit_before_any_gets_two(lexical_engine: SearchEngine) -> None:
    needs = ["send an email", "weather forecast", "bill a customer"]
    result = lexical_engine.search(needs, limit=3)
    best = [lexical_engine.search(need).hits[0].tool.name for need in needs]
    assert sorted(hit.tool.name for hit in result) == sorted(best)
    assert [part.query for part in result.parts] == needs
    assert result.has_more
    assert result.confidence == max(part.confidence for part in result.parts)


def test_best_hit_of_a_weak_query_precedes_the_second_of_a_strong_one() -> None:
    tools = [Tool(name, "Send an email") for name in ("send_email", "email_send", "send_bulk_email")]
    engine = SearchEngine(Catalog([*tools, Tool("forecast", "The weather")]), {"any": LexicalRanker()})
    vague = "plan by the weather what we do on our trip to some mountains"
    first, second, third = engine.search(["send an email", vague], limit=3)
    assert [first.tool.name, second.tool.name] == ["send_email", "forecast"]
    assert second.score < third.score


def test_blank_queries_are_ignored(lexical_engine: SearchEngine) -> None:
    result = lexical_engine.search(["", "weather", " \n"])
    assert result.hits == lexical_engine.search("weather").hits
    assert [part.query for part in result.parts] == ["weather"]
    assert lexical_engine.search([" ", ""], limit=3).hits == lexical_engine.search("", limit=3).hits
    with pytest.raises(InvalidQuery, match="must be text"):
        lexical_engine.search(["weather", 5])  # type: ignore[list-item]


def test_uncovered_queries_are_reported_if_another_is_covered(lexical_engine: SearchEngine) -> None:
    both = lexical_engine.search(["send email", "zzqxzz", "send email"])
    assert (both.confident, both.uncovered) == (True, ("zzqxzz",))
    neither = lexical_engine.search(["zzqxzz", "qqzzxq"])
    assert (neither.confident, neither.uncovered) == (False, ())


def test_result_can_have_another_confidence_threshold(lexical_engine: SearchEngine) -> None:
    result = lexical_engine.search(["email zzqxzz", "zzqxzz"])
    assert 0.5 < result.confidence < 1
    strict, lenient = result.with_threshold(1.0), result.with_threshold(0.0)
    assert (strict.confident, result.confident, lenient.confident) == (False, True, True)
    assert [part.confident for part in result.parts] == [True, False]
    assert [part.confident for part in strict.parts] == [False, False]
    assert (strict.uncovered, result.uncovered, lenient.uncovered) == ((), ("zzqxzz",), ("zzqxzz",))
    assert strict.hits == result.hits
    assert not lexical_engine.search("zzqxzz").with_threshold(0.0).confident


def test_query_is_covered_if_its_best_hit_reaches_the_threshold(lexical_engine: SearchEngine) -> None:
    result = lexical_engine.search(["send email", "email zzqxzz qqzzxq vvkkqz zqxxq vkqzz xxqzv qzkvx"])
    assert result.uncovered == ("email zzqxzz qqzzxq vvkkqz zqxxq vkqzz xxqzv qzkvx",)
    assert result.with_threshold(0.0).uncovered == ()


@pytest.mark.parametrize("mode", ["hybrid", "fast", "lexical", "dense"])
def test_exact_name_has_full_confidence(office: Catalog, mode: str) -> None:
    for name in ("send_email", "send email"):
        assert SearchEngine(office).search(name, mode=mode).confidence == 1.0


def test_several_queries_can_use_the_largest_page(lexical_engine: SearchEngine) -> None:
    assert lexical_engine.search(["email"], limit=MAX_LIMIT, offset=1).hits == lexical_engine.search("email").hits[1:]


def test_tool_found_by_two_queries_is_returned_once(lexical_engine: SearchEngine) -> None:
    result = lexical_engine.search(("send an email", "email somebody"), limit=20)
    names = [hit.tool.name for hit in result]
    assert len(names) == len(set(names))
    assert not result.has_more
    pages = [lexical_engine.search(["email", "weather"], limit=2, offset=at).hits for at in (0, 2)]
    assert (*pages[0], *pages[1]) == lexical_engine.search(["email", "weather"], limit=4).hits


@pytest.mark.parametrize("needs", [[], ["rain"] * (MAX_QUERIES + 1)])
def test_number_of_queries_is_limited(lexical_engine: SearchEngine, needs: list[str]) -> None:
    with pytest.raises(InvalidQuery, match="queries at once"):
        lexical_engine.search(needs)


def test_duplicates_on_several_servers_are_grouped() -> None:
    catalog = Catalog(
        [
            Tool("forecast", "The weather of tomorrow", server="sky"),
            Tool("forecast", "The weather of tomorrow", server="sun"),
            Tool("forecast_again", "The weather of tomorrow", server="sky"),
            Tool("send_email", "Send an email about the weather", server="mail"),
        ]
    )
    for ranker in (DenseRanker(TopicEmbedder()), HybridRanker(LexicalRanker(), DenseRanker(TopicEmbedder()))):
        engine = SearchEngine(catalog, {"meaning": ranker})
        groups = engine.group_hits(engine.search("weather"))
        same = next(group for group in groups if group.others)
        servers = [one.tool.server for one in (same.best, *same.others)]
        assert sorted(servers) == ["sky", "sun"]
        assert sum(1 + len(group.others) for group in groups) == len(engine.search("weather"))


def test_tools_with_the_same_text_are_duplicates_on_any_server() -> None:
    servers = ("mail", "money")
    catalog = Catalog([Tool("send", "Send a ticket", server=server) for server in servers])
    engine = SearchEngine(catalog, {"meaning": HybridRanker(LexicalRanker(), DenseRanker(TopicEmbedder()))})
    (group,) = engine.group_hits(engine.search("send a ticket"))
    assert len(group.others) == 1
    for said in ("Send", ""):
        hit = Hit(Tool("send", said), 1.0, 0)
        assert not group.best.has_same_text(hit)
    # Two empty descriptions are not the same text.
    assert not hit.has_same_text(hit)


def test_nothing_is_grouped_without_vectors(lexical_engine: SearchEngine) -> None:
    result = lexical_engine.search("email")
    assert [group.best for group in lexical_engine.group_hits(result)] == list(result)
    assert not any(group.others for group in lexical_engine.group_hits(result))
    assert lexical_engine.warm_up() == 0
    assert DenseRanker(TopicEmbedder()).fit(Catalog()).pairwise_similarity([0, 1]).tolist() == [[1, 0], [0, 1]]


def test_concurrent_encoding_keeps_both_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_index, "MAX_ENCODED_ON_FIT", 10)
    catalog = Catalog([Tool(f"t{at}", f"about the weather {at}") for at in range(40)])
    together = Barrier(2)

    class Meeting(ProvisionalTopicEmbedder):
        def embed_tools(self, texts: Sequence[str]) -> Vectors:
            together.wait(10)
            return super().embed_tools(texts)

    index = DenseRanker(Meeting()).fit(catalog)
    vectors = index.embed_queries(["rain"])
    readers = [Thread(target=index.compare_encoded, args=(vectors, slots)) for slots in (range(10), range(10, 20))]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert index.warm_up(0) == 20
    read = DenseRanker(TopicEmbedder()).fit(catalog)
    assert index.compare_encoded(vectors, range(20)).keys() == set(range(20))
    expected = read.compare(vectors).rows[0, :20]
    assert [row[0] for row in index.compare_encoded(vectors, range(20)).values()] == expected.tolist()


def test_with_reasons_explains_each_hit_by_its_own_query(lexical_engine: SearchEngine) -> None:
    result = lexical_engine.search(["send an email", "weather forecast"], limit=4)
    assert all(hit.reasons == () for hit in result)
    explained = lexical_engine.with_reasons(result)
    assert explained.hits == result.hits
    assert explained.confidence == result.confidence
    terms = {hit.tool.name: {reason.term for reason in hit.reasons} for hit in explained}
    assert terms["send_email"] >= {"email"}
    assert terms["get_weather"] == {"weather"}
    assert [hit.confidence for hit in explained] == [hit.confidence for hit in result]


def test_results_are_plain_data(lexical_engine: SearchEngine) -> None:
    result = lexical_engine.with_reasons(lexical_engine.search(["send an email", "weather forecast"], limit=3))
    restored = pickle.loads(pickle.dumps(result))
    assert restored == result and restored.hits[0].reasons == result.hits[0].reasons
    document = json.loads(json.dumps(result.to_dict()))
    assert document["confident"] == result.confident
    assert document["hits"][0]["tool"]["id"] == result.hits[0].tool.id
    assert document["hits"][0]["reasons"][0].keys() == {"term", "field", "share"}
    assert [part["query"] for part in document["parts"]] == ["send an email", "weather forecast"]
    assert result.hits[0].tool.id in repr(result) and "confident" in repr(result)


def test_notebooks_show_a_table_with_escaped_texts() -> None:
    engine = SearchEngine([Tool("send", "Send <script>alert(1)</script> an email.")], {"lexical": LexicalRanker()})
    page = engine.search("send <b>email</b>")._repr_html_()
    assert "<td><code>send</code></td>" in page
    assert "<script>" not in page and "<b>" not in page
    assert "No tool fits well" in engine.search("send a large number of other things by ship tomorrow")._repr_html_()
    nothing = engine.search("trombone")._repr_html_()
    assert "0 hits" in nothing and "nearest" not in nothing


def test_fitting_hits_are_confident_and_near_the_best() -> None:
    tools = [Tool(f"t{number}") for number in range(4)]
    hits = [
        Hit(tools[0], 0.8, 0, 0.9),
        Hit(tools[1], 0.7, 1, 0.4),
        Hit(tools[2], 0.41, 2, 0.6),
        Hit(tools[3], 0.39, 3, 0.9),
    ]
    result = SearchResult("q", "lexical", tuple(hits), confidence=0.9)
    assert [hit.tool.name for hit in result.fitting_hits] == ["t0", "t2"]
    assert [hit.tool.name for hit in result.with_threshold(0.7).fitting_hits] == ["t0"]
    assert result.with_threshold(0.95).fitting_hits == ()
