"""How well a ranked list answers a question."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from toolcrib.evaluation.eval_query import EvalQuery

DEPTH: Final = 10
TOP: Final = 5


class RankingScores(NamedTuple):
    """The figures of one list, or their means over many; from 0 to 1, more is better.

    `all_steps_5` is not a number where the question does not tell its steps apart.
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


# As people call them, in the order of the fields.
METRIC_NAMES: Final = (
    "hit@1",
    "hit@5",
    "hit@10",
    "recall@1",
    "recall@5",
    "recall@10",
    "nDCG@10",
    "MRR",
    "all-steps@5",
)


def score_ranking(found: Sequence[str], question: EvalQuery) -> RankingScores:
    """The figures of the ids that were found, best first, for a question that has an answer.

    A tool meets one need, and a need is met once: a second tool for it gains nothing. Only for
    `all_steps_5` may one tool serve several steps. The best that there is scores 1, also where
    the needs have fewer tools than there are needs.
    """
    needs = question.targets
    places = _gaining_ranks(found[:DEPTH], needs)
    reachable = len(_gaining_ranks(sorted(question.relevant_ids), needs))
    ideal = sum(_discounted_gain(place) for place in range(min(reachable, DEPTH)))
    depths = (1, TOP, DEPTH)
    top = set(found[:TOP])
    return RankingScores._make(
        (
            *(float(bool(places) and places[0] < depth) for depth in depths),
            *(sum(place < depth for place in places) / reachable for depth in depths),
            sum(map(_discounted_gain, places)) / ideal,
            1 / (places[0] + 1) if places else 0.0,
            float(all(top & need for need in needs)) if question.has_steps else math.nan,
        )
    )


def _gaining_ranks(found: Sequence[str], needs: Sequence[frozenset[str]]) -> list[int]:
    """Where in the list one more need is met than by all that stands before."""
    assignment = _TargetMatching(needs)
    return [place for place, id in enumerate(found) if assignment.try_match(id)]


class _TargetMatching:
    """Which tool meets which need; as many needs are met as the tools can meet together.

    A tool that was assigned stays so, but may go over to another need to make room for the next.
    """

    def __init__(self, needs: Sequence[frozenset[str]]) -> None:
        self._needs_of: dict[str, list[int]] = {}
        for need, ids in enumerate(needs):
            for id in ids:
                self._needs_of.setdefault(id, []).append(need)
        self._tool_of: dict[int, str] = {}
        self._need_of: dict[str, int] = {}

    def try_match(self, id: str) -> bool:
        """Whether there is a need for this tool too, which it then meets."""
        # Who would go over to each need that can be had, found breadth first.
        comer_of: dict[int, str] = {}
        ids = [] if id in self._need_of else [id]
        for mover in ids:
            for need in self._needs_of.get(mover, ()):
                if need in comer_of:
                    continue
                comer_of[need] = mover
                if need not in self._tool_of:
                    self._reassign(need, comer_of)
                    return True
                ids.append(self._tool_of[need])
        return False

    def _reassign(self, free: int, comer_of: Mapping[int, str]) -> None:
        """Fill a free need, and what that leaves free, back to the tool that has none yet."""
        need: int | None = free
        while need is not None:
            mover = comer_of[need]
            left = self._need_of.get(mover)
            self._tool_of[need], self._need_of[mover] = mover, need
            need = left


def _discounted_gain(place: int) -> float:
    return 1 / math.log2(place + 2)
