from __future__ import annotations

import math

from toolcrib import Catalog, Tool
from toolcrib.cli.catalog.eval_report import means_to_json, result_to_json, summary_to_json
from toolcrib.evaluation.eval_set import EvalQuery, build_targets
from toolcrib.evaluation.runner import EvalResult, build_rankers, run_queries
from toolcrib.evaluation.summary import summarize
from toolcrib.search.engine import SearchEngine

CATALOG = Catalog([Tool("send_email", "Send an email to someone."), Tool("read_email", "Read the newest email.")])
SINGLE = EvalQuery(id="1", text="send an email", targets=build_targets(["send_email"]), kind="one")
STEPS = EvalQuery(
    id="2",
    text="read the newest email, then send an answer",
    targets=build_targets(["read_email", "send_email"], [["read_email"], ["send_email"]]),
    has_steps=True,
    kind="multi",
    lang="en",
)


def test_summary_as_json() -> None:
    engine = SearchEngine(CATALOG, build_rankers())
    results = {mode: list(run_queries(engine, [SINGLE, STEPS], mode)) for mode in ("lexical", "regex")}
    summary = summarize("office", 2, results)
    document = summary_to_json(summary)
    assert document["all"]["figures"]["lexical"]["hit@5"] == {"value": 1.0, "interval": [1.0, 1.0]}
    assert set(document["all"]["gains"]["regex"]["hit@5"]) == {"value", "interval", "p"}
    assert document["groups"][0]["value"] == "one"
    assert means_to_json([summary])["lexical"]["hit@5"] == 1.0


def test_result_as_json() -> None:
    hits = (("read_email", 0.5), ("x", 0.25))
    row = result_to_json("office", "lexical", EvalResult(STEPS, hits, 0.5, True, None))
    assert row["ranks"] == {"read_email": 1, "send_email": None}
    assert row["needs"] == [["read_email"], ["send_email"]]
    assert row["hits"] == [{"id": "read_email", "score": 0.5}, {"id": "x", "score": 0.25}]
    assert (row["kind"], row["lang"], row["confident"]) == ("multi", "en", True)
    assert "subset" not in row and "unread" not in row


def test_scores_as_json_leave_out_nan() -> None:
    (result,) = run_queries(SearchEngine(CATALOG, build_rankers()), [SINGLE], "lexical")
    figures = result_to_json("office", "lexical", result)["figures"]
    assert figures["hit@1"] == 1.0
    assert not any(math.isnan(value) for value in figures.values())


def test_rejected_query_as_json_has_its_error() -> None:
    query = EvalQuery(id="1", text="(", targets=build_targets(["send_email"]))
    (result,) = run_queries(SearchEngine(CATALOG, build_rankers()), [query], "regex")
    assert result.error
    assert result_to_json("s", "regex", result)["unread"] == result.error
