"""`/api/tests`: saved queries with the right tools, and how well each mode finds them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Final

from toolcrib.errors import InvalidQuery, UnknownTool
from toolcrib.evaluation.eval_set import EvalQuery, build_targets
from toolcrib.evaluation.runner import METRIC_NAMES, EvalResult, run_queries
from toolcrib.gateway.mcp.admin.api_routes import ApiCall, ApiRoutes
from toolcrib.search.query.expression import MAX_QUERY_CHARS
from toolcrib.storage.definitions import SavedQuery

MAX_TOOLS_PER_TEST: Final = 50
MAX_EVALUATED_MODES: Final = 8
_SHOWN_METRICS: Final = ("hit@1", "hit@5", "hit@10", "nDCG@10", "MRR")


def add_eval_routes(routes: ApiRoutes) -> None:
    """Add the routes of saved tests."""
    routes.add("GET", "/api/tests", _list_tests, needs_full_access=True)
    routes.add("POST", "/api/tests", _save_test, needs_full_access=True)
    routes.add("DELETE", "/api/tests", _delete_test, needs_full_access=True)
    routes.add("POST", "/api/tests/evaluate", _evaluate, needs_full_access=True)


def _list_tests(call: ApiCall) -> dict[str, Any]:
    saved = call.router.hub.store.list_saved_queries()
    return {"tests": [{"query": each.query, "tools": list(each.tools), "createdAt": each.created_at} for each in saved]}


def _save_test(call: ApiCall) -> dict[str, Any]:
    query, tools = call.body.get("query"), call.body.get("tools")
    if not isinstance(query, str) or not query.strip() or len(query) > MAX_QUERY_CHARS:
        raise InvalidQuery(f"`query` must be text of up to {MAX_QUERY_CHARS:,} characters")
    if not isinstance(tools, list) or len(tools) > MAX_TOOLS_PER_TEST or not all(isinstance(t, str) for t in tools):
        raise InvalidQuery(f"`tools` must be a list of up to {MAX_TOOLS_PER_TEST} tool names")
    unknown = [name for name in tools if name not in call.view.entries]
    if unknown:
        raise UnknownTool(f"there is no tool {unknown[0]!r:.200}; choose one of the catalog")
    call.router.hub.store.put_saved_query(SavedQuery(query.strip(), tuple(dict.fromkeys(tools)), time.time()))
    return _list_tests(call)


def _delete_test(call: ApiCall) -> dict[str, Any]:
    query = call.body.get("query")
    if not isinstance(query, str) or not call.router.hub.store.delete_saved_query(query):
        raise UnknownTool("there is no saved test with this query")
    return _list_tests(call)


def _evaluate(call: ApiCall) -> dict[str, Any]:
    """Run all saved tests in some modes. A tool that is gone counts as not found."""
    engine = call.view.engine
    modes = call.body.get("modes") or [engine.modes[0]]
    if not isinstance(modes, list) or len(modes) > MAX_EVALUATED_MODES or not set(modes) <= set(engine.modes):
        raise InvalidQuery(f"`modes` must be a list of modes: {', '.join(engine.modes)}")
    saved = call.router.hub.store.list_saved_queries()
    queries = [
        EvalQuery(id=each.query, text=each.query, targets=build_targets(each.tools, any_of=True)) for each in saved
    ]
    return {"modes": [_summarize(mode, list(run_queries(engine, queries, mode))) for mode in modes]}


def _summarize(mode: str, results: Sequence[EvalResult]) -> dict[str, Any]:
    scored = [result.scores for result in results if result.scores is not None]
    metrics: dict[str, float | None] = {}
    for number, name in enumerate(METRIC_NAMES):
        if name in _SHOWN_METRICS:
            values = [scores[number] for scores in scored if not math.isnan(scores[number])]
            metrics[name] = round(sum(values) / len(values), 4) if values else None
    return {"mode": mode, "metrics": metrics, "results": list(map(_render_result, results))}


def _render_result(result: EvalResult) -> dict[str, Any]:
    ranks = [rank for rank, (id, _) in enumerate(result.hits, 1) if id in result.query.relevant_ids]
    is_right = not result.confident if result.query.is_impossible else bool(ranks) and ranks[0] == 1
    return {
        "query": result.query.text,
        "tools": sorted(result.query.relevant_ids),
        "rank": min(ranks, default=None),
        "right": is_right,
        "confident": result.confident,
        "found": [id for id, _ in result.hits[:3]],
        "error": result.error,
    }
