"""How well a ranked list answers a question."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

DEPTH = 10
TOP = 5


class Question(NamedTuple):
    """A query and, for each thing it needs, the tools any of which will do."""

    text: str
    needs: tuple[frozenset[str], ...]


class Quality(NamedTuple):
    """Means over a set's questions."""

    ndcg: float
    recall: float
    mrr: float


def needs(row: Mapping[str, Any]) -> tuple[frozenset[str], ...]:
    """What a row of an eval set asks for: each need a set of tools any of which will do."""
    relevant = [str(id) for id in row["relevant"]]
    if row.get("groups"):
        return tuple(frozenset(map(str, group)) for group in row["groups"])
    if row.get("any_of") and relevant:
        return (frozenset(relevant),)
    return tuple(frozenset((id,)) for id in relevant)


def score(found: Sequence[str], needs: tuple[frozenset[str], ...]) -> Quality:
    """nDCG@10, recall@5 and the reciprocal rank of the first hit; a need is met once."""
    open_needs = list(needs)
    places = []
    for place, id in enumerate(found[:DEPTH]):
        met = next((need for need in open_needs if id in need), None)
        if met is not None:
            open_needs.remove(met)
            places.append(place)
    ideal = sum(1 / math.log2(place + 2) for place in range(min(len(needs), DEPTH)))
    return Quality(
        sum(1 / math.log2(place + 2) for place in places) / ideal,
        sum(place < TOP for place in places) / len(needs),
        1 / (places[0] + 1) if places else 0.0,
    )
