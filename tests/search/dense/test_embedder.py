"""Test the optional methods of embedders and the validation of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.search.topic_embedder import TOPICS, TopicEmbedder
from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.embedders.fallback import FallbackRanker
from toolcrib.errors import EmbeddingFailed
from toolcrib.search.dense import index as dense_index
from toolcrib.search.dense.embedder import score_service_names, validate_vectors
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.hybrid.ranker import HybridRanker
from toolcrib.search.lexical.ranker import LexicalRanker

OFFICE = Catalog([Tool("send_email", "Send an email."), Tool("get_weather", "Tell the weather.")])
QUERY = "send an email to Bob in Berlin"
ROWS = np.ones((2, len(TOPICS)), np.float32)


class FixedServiceScoreEmbedder(TopicEmbedder):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self._scores = result

    def score_service_names(self, text: str, names: Sequence[str]) -> Any:
        return self._scores


class ProvisionalEmbedder(TopicEmbedder):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self._vectors = result

    def embed_provisional(self, texts: Sequence[str]) -> Any:
        return self._vectors


class UnreadableList:
    """A sequence whose items cannot be read."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, at: int) -> float:
        raise RuntimeError("no longer there")


def _hybrid(embedder: TopicEmbedder) -> HybridRanker:
    return HybridRanker(LexicalRanker(syntax="lenient"), DenseRanker(embedder))


@pytest.mark.parametrize(
    "result",
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
        UnreadableList(),
        (item for item in (0.5, 0.5)),
    ],
)
def test_invalid_service_scores_raise_or_fall_back(result: Any) -> None:
    with pytest.raises(EmbeddingFailed, match=r"2 names; .* one number a name, each from 0 to 1"):
        SearchEngine(OFFICE, {"hybrid": _hybrid(FixedServiceScoreEmbedder(result))}).search(QUERY)
    ranker = FallbackRanker(_hybrid(FixedServiceScoreEmbedder(result)), LexicalRanker())
    assert SearchEngine(OFFICE, {"hybrid": ranker}).search(QUERY).hits
    assert ranker.primary_error is not None


@pytest.mark.parametrize("result", [[0, 1], (0.25, 0.5), np.array([0.25, 0.5], np.float32)])
def test_service_scores_may_be_any_sequence_of_probabilities(result: Any) -> None:
    assert score_service_names(FixedServiceScoreEmbedder(result), QUERY, ["Bob", "Berlin"]) == [
        float(item) for item in result
    ]


@pytest.mark.parametrize("result", [None, (), (ROWS, np.ones(2, np.bool_)), ROWS[:1], [[np.nan] * 4] * 2])
@pytest.mark.parametrize("wrap", [lambda item: item, lambda item: CachedEmbedder(item, "any")])
def test_provisional_vectors_are_validated(result: Any, wrap: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_index, "MAX_ENCODED_ON_FIT", 1)
    with pytest.raises(EmbeddingFailed, match="the embedder returned"):
        DenseRanker(wrap(ProvisionalEmbedder(result))).fit(OFFICE)


@pytest.mark.parametrize("result", [np.ones((1, 8), complex), [np.ones(8, complex)], [[1j] * 8], [[1, 2j]]])
def test_complex_numbers_are_rejected(result: Any) -> None:
    with pytest.raises(EmbeddingFailed, match=r"not a table of numbers .*complex"):
        validate_vectors(result, 1, "the embedder")


@pytest.mark.parametrize("result", [[[1, 2]], [[1.0, 2]], np.array([[1, 2]]), [["1", "2"]]])
def test_anything_that_converts_to_numbers_is_accepted(result: Any) -> None:
    rows = validate_vectors(result, 1, "the embedder")
    assert rows.dtype == np.float32
    assert rows.tolist() == [[1, 2]]
