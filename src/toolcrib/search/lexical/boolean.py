"""How the parts of a query combine: AND, OR, NOT, +must, -not and boosts over arrays of scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from toolcrib.search.lexical.postings import Posting
from toolcrib.search.query.parser import (
    And,
    Boost,
    Everything,
    Field,
    Must,
    Node,
    Not,
    Phrase,
    Word,
)
from toolcrib.search.ranker import Scores

Mask = NDArray[np.bool_]


class Answer(NamedTuple):
    """What a leaf of the query finds, and the score that a perfect match of it would get."""

    found: Posting
    ideal: float


class Scored(NamedTuple):
    """Which slots match, what each scores, and the score that a perfect match would get."""

    matches: Mask
    scores: Scores
    ideal: float


# A leaf is answered with None when it asks nothing, as a query's "the" does.
Ask = Callable[[Word | Phrase, str], Answer | None]


def evaluate(node: Node, ask: Ask, everyone: Mask, field: str = "") -> Scored | None:
    """Answer a query over these slots, its leaves by `ask`. None: the query asks nothing."""
    match node:
        case Word() | Phrase():
            answer = ask(node, field)
            return None if answer is None else _spread(answer, len(everyone))
        case Everything():
            return Scored(everyone, np.ones(len(everyone), np.float32), 1.0)
        case Field():
            return evaluate(node.inner, ask, everyone, node.field)
        case Must():
            return evaluate(node.inner, ask, everyone, field)
        case Boost():
            inner = evaluate(node.inner, ask, everyone, field)
            if inner is None:
                return None
            factor = np.float32(node.factor)
            return Scored(inner.matches, inner.scores * factor, inner.ideal * node.factor)
        case Not():
            return _combined((node,), ask, everyone, field)
        case And():
            # All of these: each is a must, or a must not.
            clauses = tuple(n if isinstance(n, Not) else Must(n) for n in node.nodes)
            return _combined(clauses, ask, everyone, field)
        case _:
            return _combined(node.nodes, ask, everyone, field)


def _combined(nodes: tuple[Node, ...], ask: Ask, everyone: Mask, field: str) -> Scored | None:
    """Clauses side by side: musts decide, then the others; what must not match is taken away."""
    needed: Mask | None = None
    wanted: Mask | None = None
    refused: Mask | None = None
    scores = np.zeros(len(everyone), np.float32)
    ideal = 0.0
    for node in dict.fromkeys(nodes):
        scored = evaluate(node.inner if isinstance(node, Not) else node, ask, everyone, field)
        if scored is None:
            continue
        if isinstance(node, Not):
            refused = scored.matches if refused is None else refused | scored.matches
            continue
        scores += np.where(scored.matches, scored.scores, np.float32(0))
        ideal += scored.ideal
        if isinstance(node, Must):
            needed = scored.matches if needed is None else needed & scored.matches
        else:
            wanted = scored.matches if wanted is None else wanted | scored.matches
    matches = needed if needed is not None else wanted
    if matches is None:
        if refused is None:
            return None
        # Nothing but NOT: everything else.
        return Scored(everyone & ~refused, np.ones(len(everyone), np.float32), 1.0)
    return Scored(matches if refused is None else matches & ~refused, scores, ideal)


def _spread(answer: Answer, span: int) -> Scored:
    matches = np.zeros(span, np.bool_)
    scores = np.zeros(span, np.float32)
    matches[answer.found.slots] = True
    scores[answer.found.slots] = answer.found.impacts
    return Scored(matches, scores, answer.ideal)
