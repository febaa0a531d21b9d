"""Evaluate a boolean query: AND, OR, NOT, +must, -not and boosts over arrays of scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.lexical.postings import Posting
from toolcrib.search.query.expression import And, Boost, FieldNode, MatchAll, Must, Not, PhraseNode, QueryNode, WordNode
from toolcrib.search.ranker import Scores

Mask = NDArray[np.bool_]


class LeafMatch(NamedTuple):
    """The tools that match a leaf of a query, and the score of a perfect match."""

    posting: Posting
    max_score: float


class MaskedScores(NamedTuple):
    """Which slots match, the score of each slot, and the score of a perfect match."""

    matches: Mask
    scores: Scores
    max_score: float


# Returns None for a leaf that consists of stop words.
MatchLeaf = Callable[[WordNode | PhraseNode, str], LeafMatch | None]


def evaluate_query(node: QueryNode, match_leaf: MatchLeaf, occupied: Mask, field: str = "") -> MaskedScores | None:
    """Return the scores of a query; None if it consists of stop words.

    `match_leaf` matches a leaf in a field, or in any field if that is empty.
    """
    match node:
        case WordNode() | PhraseNode():
            match = match_leaf(node, field)
            return None if match is None else _spread_posting(match, len(occupied))
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
            # Each clause is required or excluded.
            clauses = tuple(n if isinstance(n, Not) else Must(n) for n in node.nodes)
            return _combine(clauses, match_leaf, occupied, field)
        case _:
            return _combine(node.nodes, match_leaf, occupied, field)


def _combine(nodes: tuple[QueryNode, ...], match_leaf: MatchLeaf, occupied: Mask, field: str) -> MaskedScores | None:
    """Return the scores of several clauses.

    Required clauses decide what matches; without any, one of the others is enough. Excluded
    slots are removed.
    """
    required: Mask | None = None
    optional: Mask | None = None
    excluded: Mask | None = None
    scores = np.zeros(len(occupied), np.float32)
    max_score = 0.0
    for node in dict.fromkeys(nodes):
        scored = evaluate_query(node.inner if isinstance(node, Not) else node, match_leaf, occupied, field)
        if scored is None:
            continue
        if isinstance(node, Not):
            excluded = scored.matches if excluded is None else excluded | scored.matches
            continue
        scores += np.where(scored.matches, scored.scores, np.float32(0))
        max_score += scored.max_score
        if isinstance(node, Must):
            required = scored.matches if required is None else required & scored.matches
        else:
            optional = scored.matches if optional is None else optional | scored.matches
    matches = required if required is not None else optional
    if matches is None:
        if excluded is None:
            return None
        # A query of exclusions only matches everything else.
        return MaskedScores(occupied & ~excluded, np.ones(len(occupied), np.float32), 1.0)
    return MaskedScores(matches if excluded is None else matches & ~excluded, scores, max_score)


def _spread_posting(match: LeafMatch, span: int) -> MaskedScores:
    matches = np.zeros(span, np.bool_)
    scores = np.zeros(span, np.float32)
    matches[match.posting.slots] = True
    scores[match.posting.slots] = match.posting.impacts
    return MaskedScores(matches, scores, match.max_score)
