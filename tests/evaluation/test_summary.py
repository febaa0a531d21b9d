from __future__ import annotations

import pytest

from toolcrib import Catalog, Tool
from toolcrib.evaluation.eval_set import EvalQuery, build_targets
from toolcrib.evaluation.runner import EvalResult, build_rankers, run_queries
from toolcrib.evaluation.summary import (
    AUC,
    MAX_FACET_VALUES,
    EvalSummary,
    average_over_sets,
    find_best_modes,
    summarize,
)
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.search.regex import RegexRanker

CATALOG = Catalog(
    [
        Tool("send_email", "Send an email to someone."),
        Tool("read_email", "Read the newest email."),
        Tool("book_table", "Reserve a table in a restaurant."),
    ]
)
QUERIES = [
    EvalQuery(id="1", text="send an email", targets=build_targets(["send_email"]), kind="exact"),
    EvalQuery(id="2", text="reserve a table", targets=build_targets(["book_table"]), kind="exact"),
    EvalQuery(
        id="3",
        text="read the newest email, then send an result",
        targets=build_targets(["read_email", "send_email"], [["read_email"], ["send_email"]]),
        has_steps=True,
        kind="multi",
        lang="en",
    ),
    EvalQuery(id="4", text="fly to Oslo", targets=(), kind="impossible"),
]


def summarize_modes(*modes: str, queries: list[EvalQuery] = QUERIES) -> EvalSummary:
    engine = SearchEngine(CATALOG, build_rankers())
    return summarize("office", 3, {mode: list(run_queries(engine, queries, mode)) for mode in modes})


def test_every_query_is_run_and_scored() -> None:
    results = list(run_queries(SearchEngine(CATALOG, build_rankers()), QUERIES, "lexical"))
    assert [result.query for result in results] == QUERIES
    first, *_, last = results
    assert first.hits[0][0] == "send_email"
    assert 0.5 < first.confidence <= 1
    assert first.confident and first.scores is not None and first.scores.hit_1 == 1
    assert (last.hits, last.confidence, last.confident, last.scores) == ((), 0.0, False, None)


def test_rejected_query_counts_as_not_found() -> None:
    engine = SearchEngine(CATALOG, {**RANKERS, "regex": RegexRanker()})
    query = EvalQuery(id="1", text="(", targets=build_targets(["send_email"]))
    (result,) = run_queries(engine, [query], "regex")
    assert result.scores is not None and result.scores.hit_10 == 0
    assert result.error
    assert summarize("s", 3, {"regex": [result]}).unsearchable == {"regex": 1}


def test_words_that_look_like_operators_are_plain_words() -> None:
    query = EvalQuery(id="1", text='send "email', targets=build_targets(["send_email"]))
    (result,) = run_queries(SearchEngine(CATALOG, build_rankers()), [query], "lexical")
    assert not result.error
    assert result.scores is not None and result.scores.hit_1 == 1


def test_metrics_overall_and_per_facet_value() -> None:
    summary = summarize_modes("lexical")
    overall = summary.overall
    assert (overall.answerable_count, overall.impossible_count) == (3, 1)
    metrics = overall.metrics["lexical"]
    assert metrics["hit@5"].value == metrics["all-steps@5"].value == 1
    assert metrics["recall@1"].value == pytest.approx(2.5 / 3)
    assert metrics[AUC] == (1, 1, 1)
    assert (metrics["wrongly refused"].value, metrics["rightly refused"].value) == (0, 1)
    assert metrics["refusal precision"].value == 1
    assert [(group.facet, group.value, group.answerable_count, group.impossible_count) for group in summary.groups] == [
        ("kind", "exact", 2, 0),
        ("kind", "multi", 1, 0),
        ("kind", "impossible", 0, 1),
        ("lang", "en", 1, 0),
    ]
    exact, multi, impossible, _ = summary.groups
    assert "all-steps@5" not in exact.metrics["lexical"]
    assert multi.metrics["lexical"]["all-steps@5"].value == 1
    # The AUC of a group compares with all impossible queries of the set.
    assert exact.metrics["lexical"][AUC].value == 1
    # The refusal precision is left out if all queries are impossible, or none.
    assert list(impossible.metrics["lexical"]) == ["rightly refused"]
    assert "refusal precision" not in summarize_modes("regex").groups[0].metrics["regex"]


def test_modes_are_compared_with_the_first() -> None:
    summary = summarize_modes("lexical", "regex")
    assert list(summary.overall.gains) == ["regex"]
    gains = summary.overall.gains["regex"]
    metrics = summary.overall.metrics
    for metric in ("hit@1", "nDCG@10"):
        difference = metrics["regex"][metric].value - metrics["lexical"][metric].value
        assert gains[metric].value == pytest.approx(difference)
        assert gains[metric].value < 0
    assert "refusal precision" not in gains
    assert find_best_modes(summary.overall, "nDCG@10") == {"lexical"}
    assert find_best_modes(summary.overall, "wrongly refused") == {"lexical"}
    same = summarize_modes("lexical", "keyword", queries=QUERIES[:1]).overall
    assert find_best_modes(same, "hit@1") == frozenset()


def test_auc_is_compared_only_with_enough_queries_of_both_kinds() -> None:
    def gain(answerable: int, impossible: int) -> float | None:
        targets = [build_targets(["send_email"])] * answerable + [()] * impossible
        queries = [EvalQuery(id=str(n), text="?", targets=each) for n, each in enumerate(targets)]
        results = {
            mode: [EvalResult(query, (), float(query.is_impossible == swapped), True, None) for query in queries]
            for mode, swapped in (("right", False), ("wrong", True))
        }
        overall = summarize("office", 3, results).overall
        assert overall.metrics["wrong"][AUC].value == 0
        difference = overall.gains["wrong"].get(AUC)
        return None if difference is None else difference.value

    assert gain(3, 1) is gain(19, 50) is gain(50, 19) is None
    assert gain(20, 20) == -1


def test_average_over_the_sets_that_have_a_metric() -> None:
    full = summarize_modes("lexical")
    easy = summarize_modes("lexical", queries=QUERIES[:1])
    means = average_over_sets([full, easy])["lexical"]
    assert means["recall@1"] == pytest.approx((2.5 / 3 + 1) / 2)
    assert means[AUC] == 1
    alone = average_over_sets([easy])["lexical"]
    assert AUC not in alone and "refusal precision" not in alone


def test_shared_facet_is_left_out_and_number_of_values_limited() -> None:
    shared = [EvalQuery(id=str(n), text="email", targets=(), kind="same") for n in range(3)]
    assert summarize_modes("lexical", queries=shared).groups == ()
    many = [EvalQuery(id=str(n), text="email", targets=(), subset=f"s{n}") for n in range(MAX_FACET_VALUES + 5)]
    assert len(summarize_modes("lexical", queries=many).groups) == MAX_FACET_VALUES


def test_long_facet_value_does_not_increase_memory() -> None:
    # As a fixed-width numpy array these strings would take 80 GB.
    long = EvalQuery(id="long", text="email", targets=(), kind="x" * 10_000_000)
    others = [EvalQuery(id=str(n), text="email", targets=(), kind="b") for n in range(2_000)]
    results = [EvalResult(query, (), 0.0, False, None) for query in (long, *others)]
    summary = summarize("office", 3, {"lexical": results})
    assert [(len(group.value), group.impossible_count) for group in summary.groups] == [(10_000_000, 1), (1, 2_000)]
