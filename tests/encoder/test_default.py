from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.encoder import default
from toolcrib.encoder.default import DEFAULT_ENCODER, DefaultEncoder
from toolcrib.search.dense.embedder import ProjectableEmbedder, ProvisionalEmbedder
from training.data import rows, taught, words

TOOLS = [
    "maps optimize route: Order the stops of a trip so that it is shortest (stops)",
    "mail send email: Send an email (to, subject, body)",
    "bank refund charge: Give the money of a charge back (charge)",
]
NEEDS = [
    "the delivery van has nine stops, put them in the order that burns the least diesel",
    "write to my boss that I am ill",
    "the customer is angry and wants her money back",
]


def test_needs_are_nearest_to_the_tools_that_serve_them() -> None:
    for embedder in (DEFAULT_ENCODER, DEFAULT_ENCODER.static_embedder):
        likeness = embedder.embed_queries(NEEDS) @ embedder.embed_tools(TOOLS).T
        assert likeness.argmax(axis=1).tolist() == [0, 1, 2]


def test_queries_are_sketched_along_axes_as_they_are_as_a_whole() -> None:
    sketches = DEFAULT_ENCODER.static_embedder
    assert isinstance(sketches, ProjectableEmbedder)
    whole = sketches.embed_queries(NEEDS)
    axes = np.linalg.qr(whole.T)[0]
    along = sketches.build_projected_embedder(axes)(NEEDS)
    lengths = np.linalg.norm(along, axis=1, keepdims=True)
    assert np.allclose(along / lengths, whole @ axes, atol=1e-5)


def test_a_tool_is_sketched_until_it_has_been_read() -> None:
    model = DefaultEncoder()
    assert isinstance(model, ProvisionalEmbedder)
    rough, is_read = model.embed_provisional(TOOLS)
    assert not is_read.any()
    read = model.embed_tools(TOOLS[:1])
    again, is_read = model.embed_provisional(TOOLS)
    assert is_read.tolist() == [True, False, False]
    assert np.array_equal(again[:1], read)
    assert np.array_equal(again[1:], rough[1:])
    assert (rough * model.embed_tools(TOOLS)).sum(axis=1).min() > 0.5


def test_only_so_much_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(default, "MAX_CACHED_TOOLS", 2)
    model = DefaultEncoder()
    model.embed_tools(TOOLS[:2])
    model.embed_tools(TOOLS[2:])
    assert model.embed_provisional(TOOLS)[1].tolist() == [False, False, True]


def test_services_are_told_from_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "post this with Mailchimp to everyone who met Bob in Berlin"
    model = DefaultEncoder()
    mailchimp, bob, berlin = model.score_service_names(asked, ["Mailchimp", "Bob", "Berlin"])
    assert mailchimp > 0.5 > max(bob, berlin)
    # What was told while the query was read is the same, and is not kept for ever.
    monkeypatch.setattr(default, "MAX_CACHED_QUERIES", 1)
    model.embed_queries([asked, "a"])
    assert model.score_service_names(asked, ["Mailchimp"]) == [pytest.approx(mailchimp, abs=1e-4)]
    model.embed_queries(["b"])
    assert list(vars(model)["_named"]) == ["b"]
    # A text is read so far and no further.
    assert model.score_service_names("and on " * 100 + "to Mailchimp", ["Mailchimp"]) == [0.0]


def test_what_was_asked_before_is_not_read_again_and_means_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(default, "MAX_CACHED_QUERIES", 2)
    model = DefaultEncoder()
    first = model.embed_queries(NEEDS)
    assert model.embed_queries(list(NEEDS)) is first
    assert not first.flags.writeable
    model.embed_queries(NEEDS[:1])
    model.embed_queries(NEEDS[1:])
    again = model.embed_queries(NEEDS)
    assert again is not first
    assert np.array_equal(again, first)


def test_importing_loads_no_model() -> None:
    code = "import toolcrib.search.engine, toolcrib.encoder.default as s; print(vars(s.SHIPPED))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "{'_read': {}, '_asked': {}, '_named': {}}"


def test_the_default_engine_understands() -> None:
    tools = [Tool("optimize_route", "Order the stops of a trip so that it is shortest")]
    tools += [Tool(f"make_{thing}", f"Make a new {thing}") for thing in ("note", "list", "poll")]
    result = SearchEngine(Catalog(tools)).search(NEEDS[0])
    assert result.mode == "hybrid"
    assert result.hits[0].tool.name == "optimize_route"


def test_no_question_of_an_evaluation_set_was_trained_on() -> None:
    data = Path(os.environ.get("TOOLCRIB_DATA") or Path(__file__).parents[3] / "shared" / "data")
    if not data.is_dir():
        pytest.skip("the folder of data sets is not here; name it in TOOLCRIB_DATA")

    trained = {
        words(query)
        for lessons in taught(data).values()
        for lesson in lessons
        for query in lesson.queries
    }
    for path in data.glob("*/queries.jsonl"):
        asked = {words(row["query"]) for row in rows(path)}
        assert trained & asked == set(), path.parent.name


def test_words_in_another_order_are_the_same_words() -> None:
    assert words("Create_a Linear, cycle!") == words("linear cycle: create a")
    assert words("create a cycle") != words("create a cycle cycle")
