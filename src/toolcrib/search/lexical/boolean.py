"""How the parts of a query combine: AND, OR, NOT, +must, -not and boosts over arrays of scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.lexical.postings import Posting
from toolcrib.search.query.expression import (
    And,
    Boost,
    FieldNode,
    MatchAll,
    Must,
    Not,
    PhraseNode,
    QueryNode,
    WordNode,
)
from toolcrib.search.ranker import Scores

Mask = NDArray[np.bool_]


class LeafMatch(NamedTuple):
    """What a leaf of the query finds, and the score that a perfect match of it would get."""

    posting: Posting
    max_score: float


class MaskedScores(NamedTuple):
    """Which slots match, what each scores, and the score that a perfect match would get."""

    matches: Mask
    scores: Scores
    max_score: float


# A leaf is answered with None when it asks nothing, as a query's "the" does.
MatchLeaf = Callable[[WordNode | PhraseNode, str], LeafMatch | None]


def evaluate_query(
    node: QueryNode, match_leaf: MatchLeaf, occupied: Mask, field: str = ""
) -> MaskedScores | None:
    """Answer a query over these slots, its leaves by `ask`. None: the query asks nothing."""
    match node:
        case WordNode() | PhraseNode():
            answer = match_leaf(node, field)
            return None if answer is None else _spread_posting(answer, len(occupied))
        case MatchAll():
            return MaskedScores(occupied, np.ones(len(occupied), np.float32), 1.0)
        case FieldNode():
            return evaluate_query(node.inner, match_leaf, occupied, node.field)
        case Must():
            return evaluate_query(node.inner, match_leaf, occupied, field)
        case Boost():
            inner = evaluate_query(node.inner, match_leaf, occupied, field)
            if inner is None:
                return None
            factor = np.float32(node.factor)
            return MaskedScores(inner.matches, inner.scores * factor, inner.max_score * node.factor)
        case Not():
            return _combine((node,), match_leaf, occupied, field)
        case And():
            # All of these: each is a must, or a must not.
            clauses = tuple(n if isinstance(n, Not) else Must(n) for n in node.nodes)
            return _combine(clauses, match_leaf, occupied, field)
        case _:
            return _combine(node.nodes, match_leaf, occupied, field)


def _combine(
    nodes: tuple[QueryNode, ...], ask: MatchLeaf, everyone: Mask, field: str
) -> MaskedScores | None:
    """Clauses side by side: musts decide, then the others; what must not match is taken away."""
    needed: Mask | None = None
    wanted: Mask | None = None
    refused: Mask | None = None
    scores = np.zeros(len(everyone), np.float32)
    ideal = 0.0
    for node in dict.fromkeys(nodes):
        scored = evaluate_query(node.inner if isinstance(node, Not) else node, ask, everyone, field)
        if scored is None:
            continue
        if isinstance(node, Not):
            refused = scored.matches if refused is None else refused | scored.matches
            continue
        scores += np.where(scored.matches, scored.scores, np.float32(0))
        ideal += scored.max_score
        if isinstance(node, Must):
            needed = scored.matches if needed is None else needed & scored.matches
        else:
            wanted = scored.matches if wanted is None else wanted | scored.matches
    matches = needed if needed is not None else wanted
    if matches is None:
        if refused is None:
            return None
        # Nothing but NOT: everything else.
        return MaskedScores(everyone & ~refused, np.ones(len(everyone), np.float32), 1.0)
    return MaskedScores(matches if refused is None else matches & ~refused, scores, ideal)


def _spread_posting(answer: LeafMatch, span: int) -> MaskedScores:
    matches = np.zeros(span, np.bool_)
    scores = np.zeros(span, np.float32)
    matches[answer.posting.slots] = True
    scores[answer.posting.slots] = answer.posting.impacts
    return MaskedScores(matches, scores, answer.max_score)
