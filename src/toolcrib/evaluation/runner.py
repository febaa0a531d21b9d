"""Asking an engine every question of a set in one mode, and scoring what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolcrib.core.catalog import Catalog
from toolcrib.errors import InvalidQuery, SearchTimeout
from toolcrib.evaluation.eval_query import EvalQuery
from toolcrib.evaluation.metrics import DEPTH, RankingScores, score_ranking
from toolcrib.search.dense.embedder import Embedder
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.search.hybrid.fusion import build_hybrid_ranker
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.ranker import Ranker
from toolcrib.search.results import SearchResult


@dataclass(frozen=True, slots=True)
class EvalResult:
    """What a search answered to one question.

    `confidence` orders answers by how sure the engine is that something fits. `scores` is None
    for an impossible question. `fault` says why the question could not be searched, if so; that
    counts as an answer without hits.
    """

    query: EvalQuery
    hits: tuple[tuple[str, float], ...]
    confidence: float
    is_confident: bool
    scores: RankingScores | None
    error: str = ""


def build_engine(catalog: Catalog) -> SearchEngine:
    """The engine as one would use it on whatever people and models write."""
    return SearchEngine(catalog, build_rankers())


def build_rankers(embedder: Embedder | None = None) -> Mapping[str, Ranker]:
    """The rankers of that engine, with our encoder, or with what remembers for it."""
    rankers = {**RANKERS, "lexical": LexicalRanker(syntax="lenient")}
    if embedder is not None:
        rankers |= {"hybrid": build_hybrid_ranker(embedder), "dense": DenseRanker(embedder)}
    return rankers


def run_queries(
    engine: SearchEngine, queries: Iterable[EvalQuery], mode: str
) -> Iterator[EvalResult]:
    """The engine's answers, one after the other."""
    for question in queries:
        try:
            result = engine.search(question.text, limit=DEPTH, mode=mode)
        except (InvalidQuery, SearchTimeout) as fault:
            yield EvalResult(question, (), 0.0, False, _score(question, ()), str(fault))
        else:
            yield _build_result(question, result)


def _build_result(question: EvalQuery, result: SearchResult) -> EvalResult:
    found = tuple((hit.tool.id, float(hit.score)) for hit in result.hits)
    scored = _score(question, [id for id, _ in found])
    return EvalResult(question, found, result.confidence, result.is_confident, scored)


def _score(question: EvalQuery, found: Sequence[str]) -> RankingScores | None:
    return None if question.is_impossible else score_ranking(found, question)
