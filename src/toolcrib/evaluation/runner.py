"""Run the queries of an eval set in one mode, score the results, and explain the tools that are never found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from toolcrib.errors import InvalidQuery, SearchTimeout
from toolcrib.evaluation.eval_set import EvalQuery
from toolcrib.search.dense.embedder import Embedder
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.search.hybrid.ranker import build_hybrid_ranker
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.ranker import Ranker

DEPTH: Final = 10
TOP: Final = 5

# The usual names of the metrics, in the order of the fields.
METRIC_NAMES: Final = ("hit@1", "hit@5", "hit@10", "recall@1", "recall@5", "recall@10", "nDCG@10", "MRR", "all-steps@5")
# Each tool costs one search.
MAX_EXPLAINED_TOOLS: Final = 200


class RankingScores(NamedTuple):
    """The metrics of one ranked list, from 0 to 1; higher is better.

    `all_steps_5` is NaN for a query without steps.
    """

    hit_1: float
    hit_5: float
    hit_10: float
    recall_1: float
    recall_5: float
    recall_10: float
    ndcg_10: float
    mrr: float
    all_steps_5: float


def score_ranking(ids: Sequence[str], query: EvalQuery) -> RankingScores:
    """Return the metrics of a ranked list of ids for a query that is not impossible.

    Each tool counts for one target and each target counts once; the matching is the best possible.
    Only `all_steps_5` lets one tool cover several steps. The best possible list scores 1, even if
    there are fewer tools than targets.
    """
    targets = query.targets
    ranks = _gaining_ranks(ids[:DEPTH], targets)
    reachable = len(_gaining_ranks(sorted(query.relevant_ids), targets))
    ideal = sum(_discounted_gain(rank) for rank in range(min(reachable, DEPTH)))
    depths = (1, TOP, DEPTH)
    top = set(ids[:TOP])
    return RankingScores._make(
        (
            *(float(bool(ranks) and ranks[0] < depth) for depth in depths),
            *(sum(rank < depth for rank in ranks) / reachable for depth in depths),
            sum(map(_discounted_gain, ranks)) / ideal,
            1 / (ranks[0] + 1) if ranks else 0.0,
            float(all(top & target for target in targets)) if query.has_steps else math.nan,
        )
    )


def _gaining_ranks(ids: Sequence[str], targets: Sequence[frozenset[str]]) -> list[int]:
    """Return the ranks (from 0) at which one more target can be matched than before."""
    matching = _TargetMatching(targets)
    return [rank for rank, id in enumerate(ids) if matching.try_match(id)]


class _TargetMatching:
    """A maximum bipartite matching of tools and targets, extended one tool at a time.

    A matched tool stays matched but may move to another target (an augmenting path).
    """

    def __init__(self, targets: Sequence[frozenset[str]]) -> None:
        self._targets_by_id: dict[str, list[int]] = {}
        for target, ids in enumerate(targets):
            for id in ids:
                self._targets_by_id.setdefault(id, []).append(target)
        self._id_by_target: dict[int, str] = {}
        self._target_by_id: dict[str, int] = {}

    def try_match(self, id: str) -> bool:
        """Match the tool with a target if possible, and return whether it was."""
        # Breadth-first search for a free target; maps each visited target to its new tool.
        new_ids: dict[int, str] = {}
        queue = [] if id in self._target_by_id else [id]
        for candidate in queue:
            for target in self._targets_by_id.get(candidate, ()):
                if target in new_ids:
                    continue
                new_ids[target] = candidate
                if target not in self._id_by_target:
                    self._reassign(target, new_ids)
                    return True
                queue.append(self._id_by_target[target])
        return False

    def _reassign(self, free_target: int, new_ids: Mapping[int, str]) -> None:
        """Move tools along the path that ends at a free target."""
        target: int | None = free_target
        while target is not None:
            id = new_ids[target]
            previous = self._target_by_id.get(id)
            self._id_by_target[target], self._target_by_id[id] = id, target
            target = previous


def _discounted_gain(rank: int) -> float:
    return 1 / math.log2(rank + 2)


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


def build_rankers(embedder: Embedder | None = None) -> Mapping[str, Ranker]:
    """Return rankers that treat malformed lexical queries as plain words, with the default embedder or another."""
    rankers = {**RANKERS, "lexical": LexicalRanker(syntax="lenient")}
    if embedder is not None:
        rankers |= {"hybrid": build_hybrid_ranker(embedder), "dense": DenseRanker(embedder)}
    return rankers


def run_queries(engine: SearchEngine, queries: Iterable[EvalQuery], mode: str) -> Iterator[EvalResult]:
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


class NeverFoundTool(NamedTuple):
    """A tool that no query for it finds among the first hits, and the reason for one of them."""

    id: str
    query_count: int
    query: str
    verdict: str
    first_hit: str


def list_never_found(engine: SearchEngine, results: Iterable[EvalResult], mode: str) -> list[NeverFoundTool]:
    """Return the tools that no query finds among the first five, those with most queries first.

    A query that accepts one of several tools counts for a tool only if it finds none of the others.
    """
    missed: dict[str, list[EvalResult]] = {}
    found: set[str] = set()
    for result in results:
        top = {id for id, _ in result.hits[:TOP]}
        for target in result.query.targets:
            found |= target & top
            if not target & top:
                for id in target:
                    missed.setdefault(id, []).append(result)
    never = sorted(missed.keys() - found, key=lambda id: (-len(missed[id]), id))
    return [_explain(engine, id, missed[id], mode) for id in never[:MAX_EXPLAINED_TOOLS]]


def _explain(engine: SearchEngine, id: str, results: list[EvalResult], mode: str) -> NeverFoundTool:
    result = results[0]
    first_hit = result.hits[0][0] if result.hits else ""
    try:
        verdict = engine.explain(result.query.text, id, limit=TOP, mode=mode).verdict
    except (InvalidQuery, SearchTimeout) as error:
        verdict = str(error)
    return NeverFoundTool(id, len(results), result.query.text, verdict, first_hit)
