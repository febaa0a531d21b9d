"""An index from stored arrays ranks exactly like a new one, also after changes of the catalog."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.search.topic_embedder import TopicEmbedder
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.errors import EmbeddingFailed
from toolcrib.search.dense.embedder import Vectors
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.dense.tool_text import build_tool_text
from toolcrib.search.engine import SearchEngine
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.query.parser import ParsedQuery
from toolcrib.search.ranker import MAX_CHANGES_OF_STORED, MIN_STORED_TOOLS, STORED_FORMAT

WORDS = ["send", "GitHub", "issue", "weather", "rain", "file", "the", "über", "createFile", "bug", "refund", "x_1"]
QUERIES = ["send file", "github issue", '"weather rain"', "issu", "refund -bug", "über*", "name:createFile", "tool_7"]


class ArrayMemory:
    """Keeps the arrays in memory, and counts how often they were written."""

    def __init__(self) -> None:
        self.arrays: Mapping[str, NDArray[Any]] | None = None
        self.writes = 0

    def read(self) -> Mapping[str, NDArray[Any]] | None:
        return None if self.arrays is None else {name: array.copy() for name, array in self.arrays.items()}

    def write(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.arrays, self.writes = dict(arrays), self.writes + 1


def build_tool(number: int, version: int = 0) -> Tool:
    words = Random(f"{number} {version}").choices([*WORDS, f"only{number}"], k=6)
    name, title, *description = words
    return Tool(f"{name}_tool_{number}", " ".join(description), title=title, server=f"server{number // 100}")


TOOLS = [build_tool(number) for number in range(MIN_STORED_TOOLS + 100)]


@cache
def _store_once() -> ArrayMemory:
    store = ArrayMemory()
    LexicalRanker(store=store).fit(Catalog(TOOLS))
    return store


def store_tools() -> ArrayMemory:
    """Return a store to which the index of all tools was written."""
    return copy(_store_once())


def search_all(catalog: Catalog, store: ArrayMemory | None) -> list[object]:
    engine = SearchEngine(catalog, {"lexical": LexicalRanker(syntax="lenient", store=store)})
    results = [engine.with_reasons(engine.search(query, limit=50)) for query in QUERIES]
    later = engine.with_catalog(catalog.without([catalog.tool_at(5).id]).with_tools([Tool("later", "rain bug")]))  # type: ignore[union-attr]
    return [*results, *(later.search(query, limit=50) for query in QUERIES)]


def test_stored_index_is_used_and_equals_a_new_one() -> None:
    catalog, store = Catalog(TOOLS), ArrayMemory()
    expected = search_all(catalog, None)
    assert search_all(catalog, store) == expected
    assert search_all(Catalog(TOOLS), store) == expected
    assert store.writes == 1


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_stored_index_of_another_catalog_is_updated(random: Random, removed: int, changed: int, added: int) -> None:
    store = store_tools()
    numbers = random.sample(range(len(TOOLS)), removed + changed)
    tools: list[Tool | None] = [*TOOLS]
    for number in numbers:
        tools[number] = None
    for number in numbers[removed:]:
        tools[number] = build_tool(number, version=1)
    for number in range(added):
        tools.insert(random.randrange(len(tools)), build_tool(10_000 + number))
    catalog = Catalog([tool for tool in tools if tool])
    assert search_all(catalog, store) == search_all(catalog, None)
    assert store.writes == 1


def test_index_is_built_again_if_the_order_or_many_tools_have_changed() -> None:
    store = store_tools()
    for writes, tools in enumerate(
        (TOOLS[::-1], [build_tool(number, version=1) for number in range(MIN_STORED_TOOLS)]), start=2
    ):
        assert search_all(Catalog(tools), store) == search_all(Catalog(tools), None)
        assert store.writes == writes


def test_small_catalog_is_not_stored() -> None:
    store = ArrayMemory()
    LexicalRanker(store=store).fit(Catalog(TOOLS[:100]))
    assert store.writes == 0


def test_catalog_with_empty_slots_and_without_words_can_be_stored() -> None:
    catalog = Catalog([Tool(f"{'_' * (number + 1)}") for number in range(500)])
    catalog = Catalog([*catalog, *TOOLS]).without([f"{'_' * 7}", TOOLS[3].id])
    store = ArrayMemory()
    for _ in range(2):
        assert search_all(catalog, store) == search_all(catalog, None)
    assert store.writes == 1
    nameless = Catalog([Tool("?" * (number % 500 + 1), server=f"!{number // 500}") for number in range(1_500)])
    for _ in range(2):
        assert len(LexicalRanker(store=store).fit(nameless).rank(ParsedQuery("rain")).slots) == 0
    assert store.writes == 2


class StoringEmbedder(TopicEmbedder):
    """Has stored the vectors of all texts but those that contain "unknown", and counts what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.read_texts: list[str] = []

    def embed_provisional(self, texts: Sequence[str]) -> Vectors:
        return super().embed_tools(texts)

    def read_stored(self, texts: Sequence[str]) -> Vectors | None:
        self.read_texts += texts
        return None if any("unknown" in text for text in texts) else super().embed_tools(texts)


def rank_all(catalog: Catalog, store: ArrayMemory | None) -> tuple[list[tuple[bytes, bytes, bool]], int]:
    embedder = StoringEmbedder()
    index = DenseRanker(embedder, store).fit(catalog)
    rankings = [index.rank(ParsedQuery(query)) for query in ("rain", "bug", "refund")]
    found = [(one.slots.tobytes(), one.scores.tobytes(), one.fully_encoded) for one in rankings]
    return found, len(embedder.read_texts)


def test_stored_vectors_are_not_read_one_by_one() -> None:
    catalog, store = Catalog(TOOLS), ArrayMemory()
    expected = rank_all(catalog, None)
    assert expected[1] == len(TOOLS)
    assert rank_all(catalog, store) == expected
    assert rank_all(Catalog(TOOLS), store) == (expected[0], 0)
    assert store.writes == 1


def test_vectors_of_changed_tools_are_read() -> None:
    store = ArrayMemory()
    rank_all(Catalog(TOOLS), store)
    changed = Catalog([build_tool(5_000), *reversed(TOOLS[60:]), *TOOLS[:49], build_tool(49, version=1)])
    assert rank_all(changed, store) == (rank_all(changed, None)[0], 2)
    fewer = Catalog(TOOLS[20:])
    assert rank_all(fewer, store) == (rank_all(fewer, None)[0], 0)
    assert store.writes == 1
    many = Catalog([*TOOLS, *(build_tool(2_000 + number) for number in range(MAX_CHANGES_OF_STORED + 1))])
    assert rank_all(many, store) == (rank_all(many, None)[0], MAX_CHANGES_OF_STORED + 1)
    assert store.writes == 2


def test_vectors_are_provisional_if_one_is_not_stored() -> None:
    store = ArrayMemory()
    rank_all(Catalog(TOOLS), store)
    catalog = Catalog([*TOOLS, Tool("unknown", "rain")])
    assert rank_all(catalog, store)[0] == rank_all(catalog, None)[0]
    assert not rank_all(catalog, store)[0][0][2]


def test_vectors_of_another_width_are_refused() -> None:
    store = ArrayMemory()
    rank_all(Catalog(TOOLS), store)
    assert store.arrays is not None
    store.arrays = {**store.arrays, "vectors": np.ones((len(TOOLS), 7), np.float32)}
    with pytest.raises(EmbeddingFailed, match="7"):
        rank_all(Catalog([*TOOLS, build_tool(5_000)]), store)


# Tools with everything that the analysis of texts treats differently.
VARIED_TOOLS = [
    Tool(
        "createPullRequest_v2",
        "Opens pull-requests (PRs) on GitHub; e.g. for the user's 2nd branch. See https://example.com/docs?a=1.",
        {
            "type": "object",
            "properties": {
                "baseBranch": {"type": "string", "description": "The branch, such as main.", "enum": ["main", "dev"]},
                "labels": {"type": "array", "items": {"type": "object", "properties": {"colour": {"type": "string"}}}},
            },
        },
        title="Create a pull request",
        server="git_hub",
        examples=["merge my changes"],
    ),
    Tool("Überweisung", "Löscht Straßen, naïve cafés und 3,14 Büros.", server="bank-eu"),
    Tool("天气预报", "查询北京的天气。", title="Wetter & Co."),
    Tool("x", ""),
]


def test_another_index_of_the_same_tools_has_another_format() -> None:
    arrays = LexicalRanker().fit(Catalog(VARIED_TOOLS)).to_arrays()
    impacts = np.rint(arrays.pop("impacts") * 1_000).astype(np.int64)
    parts = [f"{name} {array.dtype} {array.tolist()}" for name, array in sorted(arrays.items())]
    texts = [build_tool_text(tool) for tool in VARIED_TOOLS]
    digest = hashlib.sha256(repr((parts, impacts.tolist(), texts)).encode()).hexdigest()[:16]
    # If the digest differs, files of earlier versions are not valid: set another `STORED_FORMAT`, and both values here.
    assert (STORED_FORMAT, digest) == ("1", "47822709f7727a4b")
