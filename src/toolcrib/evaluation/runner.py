"""Run the queries of an eval set in one mode and score the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolcrib.core.catalog import Catalog
from toolcrib.errors import InvalidQuery, SearchTimeout
from toolcrib.evaluation.eval_set import EvalQuery
from toolcrib.evaluation.metrics import DEPTH, RankingScores, score_ranking
from toolcrib.search.dense.embedder import Embedder
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.search.hybrid.ranker import build_hybrid_ranker
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.ranker import Ranker


@dataclass(frozen=True, slots=True)
class EvalResult:
    """The result of one query.

    `hits` are ids and scores. `scores` is None for an impossible query. `error` is the reason if the
    query was rejected, which counts as a result without hits.
    """

    query: EvalQuery
    hits: tuple[tuple[str, float], ...]
    confidence: float
    confident: bool
    scores: RankingScores | None
    error: str = ""


def build_engine(catalog: Catalog) -> SearchEngine:
    """Return an engine that treats malformed lexical queries as plain words."""
    return SearchEngine(catalog, build_rankers())


def build_rankers(embedder: Embedder | None = None) -> Mapping[str, Ranker]:
    """Return the rankers of `build_engine`, with another embedder than the default one."""
    rankers = {**RANKERS, "lexical": LexicalRanker(syntax="lenient")}
    if embedder is not None:
        rankers |= {"hybrid": build_hybrid_ranker(embedder), "dense": DenseRanker(embedder)}
    return rankers


def run_queries(
    engine: SearchEngine, queries: Iterable[EvalQuery], mode: str
) -> Iterator[EvalResult]:
    """Yield the scored result of each query."""
    for query in queries:
        try:
            result = engine.search(query.text, limit=DEPTH, mode=mode)
        except (InvalidQuery, SearchTimeout) as error:
            yield EvalResult(query, (), 0.0, False, _score(query, ()), str(error))
            continue
        hits = tuple((hit.tool.id, float(hit.score)) for hit in result.hits)
        scores = _score(query, [id for id, _ in hits])
        yield EvalResult(query, hits, result.confidence, result.confident, scores)


def _score(query: EvalQuery, ids: Sequence[str]) -> RankingScores | None:
    return None if query.is_impossible else score_ranking(ids, query)
