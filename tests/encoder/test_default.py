from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.encoder import default
from toolcrib.encoder.default import DEFAULT_ENCODER, DefaultEncoder
from toolcrib.encoder.transformer import Array, ServiceNameProbe, TransformerEncoder
from toolcrib.search.dense.embedder import ProvisionalEmbedder
from training.data import read_examples, read_rows, sort_words

TOOLS = [
    "maps optimize route: Order the stops of a trip so that it is shortest (stops)",
    "mail send email: Send an email (to, subject, body)",
    "bank refund charge: Give the money of a charge back (charge)",
]
QUERIES = [
    "the delivery van has nine stops, put them in the order that burns the least diesel",
    "write to my boss that I am ill",
    "the customer is angry and wants her money back",
]


def test_queries_are_most_similar_to_the_matching_tools() -> None:
    for embedder in (DEFAULT_ENCODER, DEFAULT_ENCODER.static_embedder):
        similarity = embedder.embed_queries(QUERIES) @ embedder.embed_tools(TOOLS).T
        assert similarity.argmax(axis=1).tolist() == [0, 1, 2]


def test_provisional_vectors_are_similar_to_exact_ones() -> None:
    encoder = DefaultEncoder()
    assert isinstance(encoder, ProvisionalEmbedder)
    provisional = encoder.embed_provisional(TOOLS)
    assert (provisional * encoder.embed_tools(TOOLS)).sum(axis=1).min() > 0.5


def _record_encoded(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    encoded: list[Sequence[str]] = []
    original = TransformerEncoder.encode

    def record(self: TransformerEncoder, texts: Sequence[str]) -> Array:
        encoded.append(texts)
        return original(self, texts)

    monkeypatch.setattr(TransformerEncoder, "encode", record)
    return encoded


def test_tool_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default, "MAX_CACHED_TOOLS", 2)
    encoded = _record_encoded(monkeypatch)
    encoder = DefaultEncoder()
    for texts in (TOOLS[:2], TOOLS[2:], TOOLS[2:], TOOLS):
        encoder.embed_tools(texts)
    assert encoded == [TOOLS[:2], TOOLS[2:], TOOLS[:2]]


def test_service_names_score_higher_than_other_names() -> None:
    query = "post this with Mailchimp to everyone who met Bob in Berlin"
    encoder = DefaultEncoder()
    mailchimp, bob, berlin = encoder.score_service_names(query, ["Mailchimp", "Bob", "Berlin"])
    assert mailchimp > 0.5 > max(bob, berlin)
    # The score does not depend on whether the query was embedded before.
    encoder.embed_queries([query, "a"])
    assert encoder.score_service_names(query, ["Mailchimp"]) == [pytest.approx(mailchimp, abs=1e-4)]


def test_name_beyond_the_token_limit_scores_zero() -> None:
    query = "and on " * 100 + "to Mailchimp"
    assert DefaultEncoder().score_service_names(query, ["Mailchimp"]) == [0.0]


def test_probe_outputs_are_reused_and_their_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default, "MAX_CACHED_QUERIES", 1)
    encoded: list[Sequence[str]] = []
    original = TransformerEncoder.encode_and_probe

    def record(self: TransformerEncoder, texts: Sequence[str], probe: ServiceNameProbe) -> tuple[Array, list[Array]]:
        encoded.append(texts)
        return original(self, texts, probe)

    monkeypatch.setattr(TransformerEncoder, "encode_and_probe", record)
    encoder = DefaultEncoder()
    encoder.embed_queries(["email Bob"])
    encoder.score_service_names("email Bob", ["Bob"])
    assert encoded == [["email Bob"]]
    encoder.embed_queries(["another query"])
    encoder.score_service_names("email Bob", ["Bob"])
    assert encoded == [["email Bob"], ["another query"], ["email Bob"]]


def test_repeated_queries_come_from_the_cache_and_equal_a_new_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default, "MAX_CACHED_QUERIES", 2)
    encoder = DefaultEncoder()
    first = encoder.embed_queries(QUERIES)
    assert encoder.embed_queries(list(QUERIES)) is first
    assert not first.flags.writeable
    encoder.embed_queries(QUERIES[:1])
    encoder.embed_queries(QUERIES[1:])
    again = encoder.embed_queries(QUERIES)
    assert again is not first
    assert np.array_equal(again, first)


_OPENED_AT_IMPORT = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import toolcrib.search.engine, toolcrib.encoder.default
print([path for path in opened if path.endswith((".npz", ".tsv", ".txt"))])
"""


def test_import_does_not_load_the_model() -> None:
    command = [sys.executable, "-c", _OPENED_AT_IMPORT]
    completed = subprocess.run(command, capture_output=True, check=True, text=True)
    assert completed.stdout.strip() == "[]"


def test_default_engine_searches_by_meaning() -> None:
    tools = [Tool("optimize_route", "Order the stops of a trip so that it is shortest")]
    tools += [Tool(f"make_{thing}", f"Make a new {thing}") for thing in ("note", "list", "poll")]
    result = SearchEngine(Catalog(tools)).search(QUERIES[0])
    assert result.mode == "hybrid"
    assert result.hits[0].tool.name == "optimize_route"


def test_no_query_of_an_eval_set_is_in_the_training_data() -> None:
    data = Path(os.environ.get("TOOLCRIB_DATA") or Path(__file__).parents[3] / "shared" / "data")
    if not data.is_dir():
        pytest.skip("the folder of data sets is missing; set TOOLCRIB_DATA")

    files = read_examples(data).values()
    trained = {sort_words(query) for examples in files for example in examples for query in example.queries}
    for path in data.glob("*/queries.jsonl"):
        evaluated = {sort_words(row["query"]) for row in read_rows(path)}
        assert trained & evaluated == set(), path.parent.name


def test_training_words_ignore_order_but_count_repetitions() -> None:
    assert sort_words("Create_a Linear, cycle!") == sort_words("linear cycle: create a")
    assert sort_words("create a cycle") != sort_words("create a cycle cycle")


def test_clear_cache_drops_all_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = _record_encoded(monkeypatch)
    encoder = DefaultEncoder()
    encoder.embed_tools(TOOLS)
    first = encoder.embed_queries(QUERIES)
    encoder.clear_cache()
    encoder.embed_tools(TOOLS)
    assert encoded == [TOOLS, TOOLS]
    assert encoder.embed_queries(QUERIES) is not first
