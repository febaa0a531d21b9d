"""How well a ranked list answers a question."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from toolcrib.evaluation.question import Question

DEPTH: Final = 10
TOP: Final = 5


class Scores(NamedTuple):
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
NAMES: Final = (
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


def scores(found: Sequence[str], question: Question) -> Scores:
    """The figures of the ids that were found, best first, for a question that has an answer.

    A tool meets one need, and a need is met once: a second tool for it gains nothing. Only for
    `all_steps_5` may one tool serve several steps.
    """
    needs = question.needs
    places = _places(found[:DEPTH], needs)
    ideal = sum(_gain(place) for place in range(min(len(needs), DEPTH)))
    depths = (1, TOP, DEPTH)
    top = set(found[:TOP])
    return Scores._make(
        (
            *(float(bool(places) and places[0] < depth) for depth in depths),
            *(sum(place < depth for place in places) / len(needs) for depth in depths),
            sum(map(_gain, places)) / ideal,
            1 / (places[0] + 1) if places else 0.0,
            float(all(top & need for need in needs)) if question.in_steps else math.nan,
        )
    )


def _places(found: Sequence[str], needs: tuple[frozenset[str], ...]) -> list[int]:
    """Where in the list a need is met that was not met before."""
    unmet = list(needs)
    places = []
    for place, id in enumerate(found):
        met = next((need for need in unmet if id in need), None)
        if met is not None:
            unmet.remove(met)
            places.append(place)
    return places


def _gain(place: int) -> float:
    return 1 / math.log2(place + 2)
