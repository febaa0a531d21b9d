"""Test that a result depends on the query and the catalog alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.encoder.default import DefaultEncoder
from toolcrib.search.dense import index as dense_index
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.engine import RANKERS
from toolcrib.search.hybrid.ranker import build_fast_ranker, build_hybrid_ranker
from toolcrib.search.ranker import Ranker

VERBS = ("send", "read", "delete", "translate")
THINGS = ("email", "invoice", "calendar event", "photo", "weather report")
TOOLS = [
    Tool(f"{verb}_{thing.replace(' ', '_')}", f"{verb.title()} the {thing} of a customer.", server=f"{thing}-server")
    for thing in THINGS
    for verb in VERBS
]
QUERIES = (
    "write to my boss",
    "will I need an umbrella",
    "get rid of a picture, then bill the client",
    "Hermes parcel",
    "invoice",
    "x",
)
MODES = ("hybrid", "fast", "dense", "lexical")
ENCODER = DefaultEncoder()


def _rankers(encoder: DefaultEncoder, path: Path | None = None) -> dict[str, Ranker]:
    cache = encoder if path is None else CachedEmbedder(encoder, encoder.version, path)
    return {
        "hybrid": build_hybrid_ranker(cache),
        "fast": build_fast_ranker(encoder.static_embedder),
        "dense": DenseRanker(cache),
        "lexical": RANKERS["lexical"],
    }


def _render(engine: SearchEngine, query: str, mode: str) -> bytes:
    result = engine.with_reasons(engine.search(query, mode=mode))
    hits = [(hit.tool.id, hit.score, hit.confidence, hit.reasons) for hit in result]
    return repr((hits, result.confidence, result.notes, result.uncovered, result.fully_encoded)).encode()


def _render_all(engine: SearchEngine) -> list[bytes]:
    return [_render(engine, query, mode) for mode in MODES for query in QUERIES]


# Each example removes and adds some tools, in several updates, with searches and warm-ups in between.
_steps = st.lists(
    st.tuples(st.sampled_from(("add", "remove", "search", "warm")), st.integers(0, len(TOOLS) - 1)), max_size=12
)


@pytest.mark.parametrize("max_encoded", [200, 5], ids=["small catalog", "large catalog"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_steps, is_cached=st.booleans())
def test_result_does_not_depend_on_earlier_searches_updates_and_caches(
    max_encoded: int, steps: list[tuple[str, int]], is_cached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense_index, "MAX_ENCODED_ON_FIT", max_encoded)
    path = tmp_path / "vectors.db" if is_cached else None
    engine = SearchEngine(Catalog(TOOLS[:12]), _rankers(ENCODER, path))
    for action, number in steps:
        catalog, tool = engine.catalog, TOOLS[number]
        if action == "search":
            _render(engine, QUERIES[number % len(QUERIES)], MODES[number % len(MODES)])
        elif action == "warm" and engine.warm_up("hybrid", 1) > 1:
            # Only as long as something is left, because a complete warm-up makes the results better.
            engine.warm_up("dense", 1)
        elif action == "add":
            engine = engine.with_catalog(catalog.with_tools([tool]))
        elif len(catalog) > 8:
            engine = engine.with_catalog(catalog.without([tool.id] if tool.id in catalog else []))
    fresh = SearchEngine(Catalog(engine.catalog), _rankers(DefaultEncoder()))
    if engine.search("x").fully_encoded:
        fresh.warm_up("hybrid")
    if engine.search("x", mode="dense").fully_encoded:
        fresh.warm_up("dense")
    assert _render_all(engine) == _render_all(fresh)


def test_result_does_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_index, "MAX_ENCODED_ON_FIT", 5)
    expected = dict(zip(QUERIES, _render_all(SearchEngine(Catalog(TOOLS), _rankers(DefaultEncoder()))), strict=False))
    shared = SearchEngine(Catalog(TOOLS), _rankers(DefaultEncoder()))

    def work(number: int) -> tuple[str, bytes]:
        if number % 3 == 0:
            shared.warm_up("dense", 2)
        query = QUERIES[number % len(QUERIES)]
        return query, _render(shared, query, MODES[0])

    with ThreadPoolExecutor(8) as pool:
        for query, rendered in pool.map(work, range(24)):
            assert rendered == expected[query]


def test_warm_up_is_named_in_the_result_and_kept_by_small_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_index, "MAX_ENCODED_ON_FIT", 5)
    engine = SearchEngine(Catalog(TOOLS), _rankers(ENCODER))
    before = _render(engine, QUERIES[0], "hybrid")
    assert not engine.search(QUERIES[0]).fully_encoded
    assert not engine.search([QUERIES[0], QUERIES[0]]).fully_encoded
    assert engine.warm_up(max_tools=3) == len(TOOLS) - 3 - dense_index.MAX_ENCODED_PER_QUERY
    assert _render(engine, QUERIES[0], "hybrid") == before
    assert engine.warm_up() == 0 == engine.warm_up()
    assert engine.search(QUERIES[0]).fully_encoded
    # A few new tools are encoded immediately, many are not.
    few, many = ([Tool(f"paint_{n}", "Paint a fence.") for n in range(count)] for count in (2, 6))
    assert engine.with_catalog(engine.catalog.with_tools(few)).search("paint").fully_encoded
    later = engine.with_catalog(engine.catalog.with_tools(many))
    assert later.warm_up(max_tools=0) == len(many)
    assert not later.search("paint").fully_encoded
    small = later.with_catalog(later.catalog.without([tool.id for tool in (*TOOLS[2:], *many[3:])]))
    assert small.search("paint").fully_encoded


def test_stored_vectors_give_the_same_result_as_new_ones(tmp_path: Path) -> None:
    expected = _render_all(SearchEngine(Catalog(TOOLS), _rankers(DefaultEncoder())))
    for _ in range(2):
        assert _render_all(SearchEngine(Catalog(TOOLS), _rankers(DefaultEncoder(), tmp_path / "v.db"))) == expected


@settings(max_examples=25, deadline=None)
@given(texts=st.lists(st.sampled_from(QUERIES) | st.text(max_size=40), min_size=1, max_size=12))
def test_vector_of_a_text_does_not_depend_on_the_texts_beside_it(texts: Sequence[str]) -> None:
    for embed in (ENCODER.embed_queries, ENCODER.embed_tools, ENCODER.embed_provisional):
        ENCODER.clear_cache()
        together = embed(texts)
        ENCODER.clear_cache()
        assert np.array_equal(together, np.concatenate([embed([text]) for text in texts]))
