"""Test that an updated index gives exactly the same ranking as a new one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.search.lexical.fuzzy import FuzzyRanker
from toolcrib.search.lexical.keyword import KeywordRanker
from toolcrib.search.lexical.prefix import PrefixRanker
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.query.parser import ParsedQuery
from toolcrib.search.ranker import Index, Ranker
from toolcrib.search.regex import RegexRanker

WORDS = ["send", "email", "invoice", "refund", "weather", "issue", "list", "sendEmail", "GitHub"]
QUERIES = [
    "send email",
    '"send email"',
    "send AND NOT email",
    "name:send",
    "inv*",
    "-send",
    "emial",
    "issue list",
    "GitHub",
]
RANKERS: list[Ranker] = [
    LexicalRanker(),
    RegexRanker(budget_seconds=60),
    FuzzyRanker(),
    KeywordRanker(),
    PrefixRanker(),
]

_texts = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
_tools = st.builds(
    lambda name, text, server: Tool(name, text, server=server),
    st.sampled_from(["t1", "t2", "t3", "send", "email", "list_issue"]),
    _texts,
    st.sampled_from(["", "mail", "send"]),
)
_steps = st.lists(_tools | st.integers(0, 10), min_size=1, max_size=12)


def _ranked_ids(index: Index, catalog: Catalog, query: str) -> list[tuple[str, float]]:
    ranking = index.rank(ParsedQuery(query))
    assert np.all(np.diff(ranking.slots) > 0)
    found = [catalog.tool_at(slot) for slot in ranking.slots.tolist()]
    ids = [tool.id for tool in found if tool is not None]
    assert len(ids) == len(found)
    for slot in ranking.slots.tolist():
        assert index.reasons(ParsedQuery(query), slot) or query.startswith("-")
    return list(zip(ids, ranking.scores.tolist(), strict=True))


@pytest.mark.parametrize("ranker", RANKERS, ids=lambda ranker: type(ranker).__name__)
@settings(max_examples=60, deadline=None)
@given(first=st.lists(_tools, unique_by=lambda tool: tool.id, max_size=4), steps=_steps)
def test_updated_index_equals_a_new_one(ranker: Ranker, first: list[Tool], steps: list[Tool | int]) -> None:
    catalog = Catalog(first)
    index = ranker.fit(catalog)
    for step in steps:
        if isinstance(step, Tool):
            catalog = catalog.with_tools([step])
        elif len(catalog):
            catalog = catalog.without([list(catalog)[step % len(catalog)].id])
        index = index.with_catalog(catalog)
    rebuilt = Catalog(catalog)
    fitted = ranker.fit(rebuilt)
    for query in QUERIES:
        assert _ranked_ids(index, catalog, query) == _ranked_ids(fitted, rebuilt, query)


@pytest.mark.parametrize("ranker", RANKERS, ids=lambda ranker: type(ranker).__name__)
def test_many_updates_give_the_same_ranking(ranker: Ranker) -> None:
    words = [f"{one} {other}" for one in WORDS for other in WORDS]
    catalog = Catalog(Tool(f"t{n}", words[n % len(words)]) for n in range(40))
    index = ranker.fit(catalog)
    for number in range(700):
        catalog = catalog.with_tools([Tool(f"t{number}", words[(number * 7) % len(words)])])
        if number % 3 == 0:
            catalog = catalog.without([f"t{number // 2}"] if f"t{number // 2}" in catalog else [])
        index = index.with_catalog(catalog)
    rebuilt = Catalog(catalog)
    fitted = ranker.fit(rebuilt)
    for query in QUERIES:
        assert _ranked_ids(index, catalog, query) == _ranked_ids(fitted, rebuilt, query)


def test_older_index_is_unaffected_by_updates() -> None:
    catalog = Catalog([Tool("a", "send email")])
    index = LexicalRanker().fit(catalog)
    before = _ranked_ids(index, catalog, "send email")
    index.with_catalog(catalog.without(["a"])).with_catalog(catalog.with_tools([Tool("b", "send")]))
    assert _ranked_ids(index, catalog, "send email") == before


def test_unrelated_catalog_causes_a_new_fit() -> None:
    other = Catalog([Tool("b", "send a parcel")])
    for ranker in RANKERS:
        index = ranker.fit(Catalog([Tool("a", "send email")])).with_catalog(other)
        assert [id for id, _ in _ranked_ids(index, other, "send")] == ["b"]


def test_catalog_with_empty_slots_can_be_fitted() -> None:
    catalog = Catalog([Tool("a", "send email"), Tool("b", "send")]).without(["a"])
    for ranker in RANKERS:
        assert [id for id, _ in _ranked_ids(ranker.fit(catalog), catalog, "send")] == ["b"]
    index = LexicalRanker().fit(catalog)
    assert [id for id, _ in _ranked_ids(index, catalog, "-email")] == ["b"]


def test_large_catalog_sorted_in_chunks_gives_the_same_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog(Tool(f"t{n}", f"{WORDS[n % 7]} {WORDS[n % 5]}") for n in range(50))
    whole = LexicalRanker().fit(catalog)
    monkeypatch.setattr("toolcrib.search.lexical.analysis.BATCH_TOOLS", 10)
    chunked = LexicalRanker().fit(catalog)
    for query in QUERIES:
        assert _ranked_ids(chunked, catalog, query) == _ranked_ids(whole, catalog, query)


def test_updates_with_only_additions_are_merged() -> None:
    catalog = Catalog([Tool("a", "send email")])
    index = LexicalRanker().fit(catalog)
    for number in range(400):
        catalog = catalog.with_tools([Tool(f"t{number}", WORDS[number % len(WORDS)])])
        index = index.with_catalog(catalog)
    assert _ranked_ids(index, catalog, "refund") == _ranked_ids(LexicalRanker().fit(catalog), catalog, "refund")


def test_later_catalog_may_be_a_list_of_tools(office: Catalog) -> None:
    engine = SearchEngine(office)
    for mode in engine.modes:
        engine.search("rocket", mode=mode)
    later = engine.with_catalog([Tool("rocket", "Fly")])
    assert [hit.tool.name for hit in later.search("")] == ["rocket"]
    for mode in later.modes:
        assert [hit.tool.name for hit in later.search("rocket", mode=mode)] == ["rocket"]
