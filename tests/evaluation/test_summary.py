from __future__ import annotations

import math

import pytest

from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.evaluation.eval_query import EvalQuery, build_targets
from toolcrib.evaluation.json_report import means_to_json, result_to_json, summary_to_json
from toolcrib.evaluation.runner import EvalResult, build_engine, run_queries
from toolcrib.evaluation.summary import (
    AUC,
    MAX_FACET_VALUES,
    EvalSummary,
    average_over_sets,
    find_best_modes,
    summarize,
)
from toolcrib.search.engine import RANKERS
from toolcrib.search.regex.ranker import RegexRanker

CATALOG = Catalog(
    [
        Tool("send_email", "Send an email to someone."),
        Tool("read_email", "Read the newest email."),
        Tool("book_table", "Reserve a table in a restaurant."),
    ]
)
QUESTIONS = [
    EvalQuery(id="1", text="send an email", targets=build_targets(["send_email"]), kind="exact"),
    EvalQuery(id="2", text="reserve a table", targets=build_targets(["book_table"]), kind="exact"),
    EvalQuery(
        id="3",
        text="read the newest email, then send an answer",
        targets=build_targets(["read_email", "send_email"], [["read_email"], ["send_email"]]),
        has_steps=True,
        kind="multi",
        lang="en",
    ),
    EvalQuery(id="4", text="fly to Oslo", targets=(), kind="impossible"),
]


def summarised(*modes: str, questions: list[EvalQuery] = QUESTIONS) -> EvalSummary:
    engine = build_engine(CATALOG)
    return summarize(
        "office", 3, {mode: list(run_queries(engine, questions, mode)) for mode in modes}
    )


def test_an_engine_is_asked_every_question_through_its_public_face() -> None:
    found = list(run_queries(build_engine(CATALOG), QUESTIONS, "lexical"))
    assert [answer.query for answer in found] == QUESTIONS
    first, *_, last = found
    assert first.hits[0][0] == "send_email"
    assert 0.5 < first.confidence < 1
    assert first.is_confident and first.scores is not None and first.scores.hit_1 == 1
    assert (last.hits, last.confidence, last.is_confident, last.scores) == ((), 0.0, False, None)


def test_a_question_that_cannot_be_searched_counts_as_not_found() -> None:
    engine = SearchEngine(CATALOG, {**RANKERS, "regex": RegexRanker()})
    question = EvalQuery(id="1", text="(", targets=build_targets(["send_email"]))
    (answer,) = run_queries(engine, [question], "regex")
    assert answer.scores is not None and answer.scores.hit_10 == 0
    assert answer.error
    assert summarize("s", 3, {"regex": [answer]}).unsearchable == {"regex": 1}
    assert result_to_json("s", "regex", answer)["unread"] == answer.error


def test_words_that_look_like_operators_are_searched_as_words() -> None:
    question = EvalQuery(id="1", text='send "email', targets=build_targets(["send_email"]))
    (answer,) = run_queries(build_engine(CATALOG), [question], "lexical")
    assert not answer.error
    assert answer.scores is not None and answer.scores.hit_1 == 1


def test_figures_are_given_over_all_and_for_each_kind() -> None:
    found = summarised("lexical")
    overall = found.overall
    assert (overall.answerable_count, overall.impossible_count) == (3, 1)
    figures = overall.figures["lexical"]
    assert figures["hit@5"].value == figures["all-steps@5"].value == 1
    assert figures["recall@1"].value == pytest.approx(2.5 / 3)
    assert figures[AUC] == (1, 1, 1)
    assert (figures["wrongly refused"].value, figures["rightly refused"].value) == (0, 1)
    assert figures["refusal precision"].value == 1
    assert [
        (one.facet, one.value, one.answerable_count, one.impossible_count) for one in found.groups
    ] == [
        ("kind", "exact", 2, 0),
        ("kind", "multi", 1, 0),
        ("kind", "impossible", 0, 1),
        ("lang", "en", 1, 0),
    ]
    exact, multi, impossible, _ = found.groups
    assert "all-steps@5" not in exact.figures["lexical"]
    assert multi.figures["lexical"]["all-steps@5"].value == 1
    # Each kind is told from all impossible questions of the set.
    assert exact.figures["lexical"][AUC].value == 1
    # Where all are impossible, or none, every refusal is right, or none: that tells nothing.
    assert list(impossible.figures["lexical"]) == ["rightly refused"]
    assert "refusal precision" not in summarised("regex").groups[0].figures["regex"]


def test_modes_are_compared_with_the_first() -> None:
    found = summarised("lexical", "regex")
    assert list(found.overall.gains) == ["regex"]
    gains = found.overall.gains["regex"]
    figures = found.overall.figures
    for figure in ("hit@1", "nDCG@10"):
        difference = figures["regex"][figure].value - figures["lexical"][figure].value
        assert gains[figure].value == pytest.approx(difference)
        assert gains[figure].value < 0
    assert "refusal precision" not in gains
    assert find_best_modes(found.overall, "nDCG@10") == {"lexical"}
    assert find_best_modes(found.overall, "wrongly refused") == {"lexical"}
    same = summarised("lexical", "keyword", questions=QUESTIONS[:1]).overall
    assert find_best_modes(same, "hit@1") == frozenset()


def test_the_auc_is_compared_only_where_enough_are_on_both_sides() -> None:
    def gain(answerable: int, impossible: int) -> float | None:
        needed = [build_targets(["send_email"])] * answerable + [()] * impossible
        questions = [EvalQuery(id=str(n), text="?", targets=need) for n, need in enumerate(needed)]
        given = {
            mode: [
                EvalResult(one, (), float(one.is_impossible == swapped), True, None)
                for one in questions
            ]
            for mode, swapped in (("right", False), ("wrong", True))
        }
        overall = summarize("office", 3, given).overall
        assert overall.figures["wrong"][AUC].value == 0
        told = overall.gains["wrong"].get(AUC)
        return None if told is None else told.value

    assert gain(3, 1) is gain(19, 50) is gain(50, 19) is None
    assert gain(20, 20) == -1


def test_sets_count_alike_in_the_mean_and_only_those_that_have_the_figure() -> None:
    whole = summarised("lexical")
    easy = summarised("lexical", questions=QUESTIONS[:1])
    means = average_over_sets([whole, easy])["lexical"]
    assert means["recall@1"] == pytest.approx((2.5 / 3 + 1) / 2)
    assert means[AUC] == 1
    alone = average_over_sets([easy])["lexical"]
    assert AUC not in alone and "refusal precision" not in alone


def test_a_facet_that_all_share_or_that_has_too_many_values_is_cut() -> None:
    alike = [EvalQuery(id=str(n), text="email", targets=(), kind="same") for n in range(3)]
    assert summarised("lexical", questions=alike).groups == ()
    many = [
        EvalQuery(id=str(n), text="email", targets=(), subset=f"s{n}")
        for n in range(MAX_FACET_VALUES + 5)
    ]
    assert len(summarised("lexical", questions=many).groups) == MAX_FACET_VALUES


def test_one_long_value_takes_no_more_memory_than_it_has() -> None:
    # As an array of texts of one length these would take 80 GB.
    long = EvalQuery(id="long", text="email", targets=(), kind="x" * 10_000_000)
    others = [EvalQuery(id=str(n), text="email", targets=(), kind="b") for n in range(2_000)]
    answered = [EvalResult(question, (), 0.0, False, None) for question in (long, *others)]
    found = summarize("office", 3, {"lexical": answered})
    assert [(len(one.value), one.impossible_count) for one in found.groups] == [
        (10_000_000, 1),
        (1, 2_000),
    ]


def test_documents_hold_the_figures_and_every_answer() -> None:
    found = summarised("lexical", "regex")
    document = summary_to_json(found)
    assert document["all"]["figures"]["lexical"]["hit@5"] == {"value": 1.0, "interval": [1.0, 1.0]}
    assert set(document["all"]["gains"]["regex"]["hit@5"]) == {"value", "interval", "p"}
    assert document["groups"][0]["value"] == "exact"
    assert means_to_json([found])["lexical"]["hit@5"] == 1.0
    hits = (("read_email", 0.5), ("x", 0.25))
    answer = EvalResult(QUESTIONS[2], hits, 0.5, True, None)
    row = result_to_json("office", "lexical", answer)
    assert row["ranks"] == {"read_email": 1, "send_email": None}
    assert row["needs"] == [["read_email"], ["send_email"]]
    assert row["hits"] == [{"id": "read_email", "score": 0.5}, {"id": "x", "score": 0.25}]
    assert (row["kind"], row["lang"], row["confident"]) == ("multi", "en", True)
    assert "subset" not in row and "unread" not in row
    (scored,) = run_queries(build_engine(CATALOG), QUESTIONS[:1], "lexical")
    figures = result_to_json("office", "lexical", scored)["figures"]
    assert figures["hit@1"] == 1.0
    assert not any(math.isnan(value) for value in figures.values())
