"""What an embedder may leave out, and what it must keep to where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.search.meaning import MEANINGS, Words
from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.embedders.fallback import FallbackRanker
from toolcrib.errors import EmbeddingFailed
from toolcrib.search.dense.embedder import score_service_names
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.dense.vector_checks import validate_vectors
from toolcrib.search.dense.vector_table import MIN_ROTATED_SLOTS
from toolcrib.search.hybrid.fusion import HybridRanker
from toolcrib.search.lexical.ranker import LexicalRanker

OFFICE = Catalog([Tool("send_email", "Send an email."), Tool("get_weather", "Tell the weather.")])
ASKED = "send an email to Bob in Berlin"
ROWS = np.ones((2, len(MEANINGS)), np.float32)


class Naming(Words):
    def __init__(self, told: Any) -> None:
        super().__init__()
        self._told = told

    def score_service_names(self, text: str, names: Sequence[str]) -> Any:
        return self._told


class Prompt(Words):
    def __init__(self, given: Any) -> None:
        super().__init__()
        self._given = given

    def embed_provisional(self, texts: Sequence[str]) -> Any:
        return self._given


class Failing:
    """Something with a length that cannot be read."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, at: int) -> float:
        raise RuntimeError("no longer there")


def _hybrid(embedder: Words) -> HybridRanker:
    return HybridRanker(LexicalRanker(syntax="lenient"), DenseRanker(embedder))


@pytest.mark.parametrize(
    "told",
    [
        [0.5],
        [0.5] * 3,
        None,
        0.5,
        [float("nan"), 0.5],
        [-0.1, 0.5],
        [0.5, 1.1],
        [float("inf"), 0],
        [0.5, "likely"],
        [0.5, 1j],
        [None, None],
        Failing(),
        (one for one in (0.5, 0.5)),
    ],
)
def test_what_are_no_services_is_told_with_the_cure(told: Any) -> None:
    with pytest.raises(EmbeddingFailed, match=r"2 names; .* one number a name, each from 0 to 1"):
        SearchEngine(OFFICE, {"hybrid": _hybrid(Naming(told))}).search(ASKED)
    ranker = FallbackRanker(_hybrid(Naming(told)), LexicalRanker())
    assert SearchEngine(OFFICE, {"hybrid": ranker}).search(ASKED).hits
    assert ranker.primary_error is not None


@pytest.mark.parametrize("told", [[0, 1], (0.25, 0.5), np.array([0.25, 0.5], np.float32)])
def test_services_may_be_any_numbers_from_0_to_1(told: Any) -> None:
    assert score_service_names(Naming(told), ASKED, ["Bob", "Berlin"]) == [
        float(one) for one in told
    ]


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        None,
        (),
        (ROWS,),
        [ROWS, np.ones(2, np.bool_)],
        (ROWS, [True, True]),
        (ROWS, None),
        (ROWS, np.ones(1, np.bool_)),
        (ROWS, np.ones((2, 1), np.bool_)),
        (ROWS, np.ones(2, np.float32)),
        (ROWS, np.ones(2, np.bool_), 3),
    ],
)
@pytest.mark.parametrize("around", [lambda one: one, lambda one: CachedEmbedder(one, "any")])
def test_what_is_no_answer_at_once_is_told_with_the_cure(given: Any, around: Any) -> None:
    with pytest.raises(
        EmbeddingFailed, match=r"at once for 2 texts; .* should give a tuple of two"
    ):
        DenseRanker(around(Prompt(given))).fit(OFFICE)


def test_the_vectors_of_an_answer_at_once_are_looked_at_too() -> None:
    for around in (lambda one: one, lambda one: CachedEmbedder(one, "any")):
        with pytest.raises(EmbeddingFailed, match=r"vectors of the shape \(1, 4\) for 2 texts"):
            DenseRanker(around(Prompt((ROWS[:1], np.ones(2, np.bool_))))).fit(OFFICE)


@pytest.mark.parametrize(
    "found", [np.ones((1, 8), complex), [np.ones(8, complex)], [[1j] * 8], [[1, 2j]]]
)
def test_complex_numbers_are_refused_and_not_cut(found: Any) -> None:
    with pytest.raises(EmbeddingFailed, match=r"no table of numbers .*complex"):
        validate_vectors(found, 1, "the embedder")


@pytest.mark.parametrize("found", [[[1, 2]], [[1.0, 2]], np.array([[1, 2]]), [["1", "2"]]])
def test_whatever_can_be_read_as_numbers_is(found: Any) -> None:
    rows = validate_vectors(found, 1, "the embedder")
    assert rows.dtype == np.float32
    assert rows.tolist() == [[1, 2]]


def test_what_fails_along_axes_is_told() -> None:
    class Rough(Words):
        def build_projected_embedder(self, axes: Any) -> Any:
            raise KeyError("axes")

    tools = [Tool(f"tool_{number}", "Rain") for number in range(MIN_ROTATED_SLOTS)]
    with pytest.raises(EmbeddingFailed, match="the embedder raised KeyError"):
        DenseRanker(Rough()).fit(Catalog(tools))
