"""Find the tools of an eval set that no query finds, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from toolcrib.errors import InvalidQuery, SearchTimeout
from toolcrib.evaluation.runner import TOP, EvalResult
from toolcrib.search.engine import SearchEngine

# Each tool costs one search.
MAX_EXPLAINED_TOOLS: Final = 200


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
