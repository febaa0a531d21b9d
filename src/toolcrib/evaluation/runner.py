"""Asking an engine every question of a set in one mode, and scoring what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolcrib.core.catalog import Catalog
from toolcrib.errors import InvalidQuery, SearchTimeout
from toolcrib.evaluation.eval_query import Question
from toolcrib.evaluation.metrics import DEPTH, Scores, scores
from toolcrib.search.dense.embedder import Embedder
from toolcrib.search.dense.index import Dense
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.search.hybrid.fusion import hybrid_with
from toolcrib.search.lexical.ranker import Lexical
from toolcrib.search.ranker import Ranker
from toolcrib.search.results import SearchResult


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search answered to one question.

    `confidence` orders answers by how sure the engine is that something fits. `scores` is None
    for an impossible question. `fault` says why the question could not be searched, if so; that
    counts as an answer without hits.
    """

    question: Question
    found: tuple[tuple[str, float], ...]
    confidence: float
    confident: bool
    scores: Scores | None
    fault: str = ""


def engine_for(catalog: Catalog) -> SearchEngine:
    """The engine as one would use it on whatever people and models write."""
    return SearchEngine(catalog, rankers_for())


def rankers_for(reader: Embedder | None = None) -> Mapping[str, Ranker]:
    """The rankers of that engine, with our encoder, or with what remembers for it."""
    rankers = {**RANKERS, "lexical": Lexical(syntax="lenient")}
    if reader is not None:
        rankers |= {"hybrid": hybrid_with(reader), "dense": Dense(reader)}
    return rankers


def answers(engine: SearchEngine, questions: Iterable[Question], mode: str) -> Iterator[Answer]:
    """The engine's answers, one after the other."""
    for question in questions:
        try:
            result = engine.search(question.text, limit=DEPTH, mode=mode)
        except (InvalidQuery, SearchTimeout) as fault:
            yield Answer(question, (), 0.0, False, _scores(question, ()), str(fault))
        else:
            yield _answer(question, result)


def _answer(question: Question, result: SearchResult) -> Answer:
    found = tuple((hit.tool.id, float(hit.score)) for hit in result.hits)
    scored = _scores(question, [id for id, _ in found])
    return Answer(question, found, result.confidence, result.confident, scored)


def _scores(question: Question, found: Sequence[str]) -> Scores | None:
    return None if question.impossible else scores(found, question)
