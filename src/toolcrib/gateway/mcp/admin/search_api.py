"""`/api/search`: searches as a person looks at them, with reasons, segments, duplicates and explanations.

`/api/tests`: saved queries with the right tools, and how well each mode finds them.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from toolcrib.core.prompts import NOTES_FOR_PEOPLE
from toolcrib.errors import InvalidQuery, RequestFailed, UnknownTool
from toolcrib.evaluation.eval_set import EvalQuery, build_targets
from toolcrib.evaluation.runner import METRIC_NAMES, EvalResult, run_queries
from toolcrib.gateway.mcp.admin.api_routes import ApiCall, ApiRoutes
from toolcrib.hub.view import AccessView
from toolcrib.search.filters import Where
from toolcrib.search.query.expression import MAX_QUERY_CHARS
from toolcrib.search.query.parser import parse_query
from toolcrib.search.results import Hit, SearchResult
from toolcrib.session.turn import DEFAULT_LIMIT, MAX_LIMIT
from toolcrib.storage.definitions import SavedQuery

MAX_SEGMENTS: Final = 8
MAX_EXAMPLES: Final = 3
MAX_EXAMPLE_WORDS: Final = 8
MAX_EXAMPLE_CHARS: Final = 80
DEMO_EXAMPLES: Final = (
    "convert miles to kilometres",
    "how many days until a date",
    "compare two texts, then count their words",
)
_PATTERN_MODE: Final = "regex"
MAX_TOOLS_PER_TEST: Final = 50
MAX_EVALUATED_MODES: Final = 8
_SHOWN_METRICS: Final = ("hit@1", "hit@5", "hit@10", "nDCG@10", "MRR")


def add_search_routes(routes: ApiRoutes) -> None:
    """Add the routes of searches."""
    routes.add("GET", "/api/search", _search_tools)
    routes.add("GET", "/api/search/options", _list_options)
    routes.add("GET", "/api/search/explain", _explain_tool)


def select_view(call: ApiCall) -> AccessView:
    """Return the view of the caller, or of the `profile` that a caller with full access names."""
    profile = call.text("profile")
    if not profile or profile == call.view.profile.name:
        return call.view
    if call.view.profile.name:
        raise RequestFailed("only a key with full access can search as another access profile", 403)
    return call.router.hub.get_view(profile)


def _read_filter(call: ApiCall) -> Where:
    return Where(
        server=call.router.tool_handlers.resolve_server_id(call.text("server")),
        category=call.text("category"),
        tags=tuple(call.request.query_params.getlist("tag")),
        read_only=call.flag("read_only"),
    )


def _read_query(call: ApiCall) -> str:
    query = call.text("query")
    if not query:
        raise InvalidQuery("`query` is missing; describe what is needed")
    return query


def _search_tools(call: ApiCall) -> dict[str, Any]:
    view, query, where, mode = select_view(call), _read_query(call), _read_filter(call), call.text("mode")
    result = view.search(query, call.integer("limit", DEFAULT_LIMIT, MAX_LIMIT), where, mode)
    explain = call.flag("reasons")
    if explain:
        result = view.engine.with_reasons(result)
    entries = [view.entries[hit.tool.id] for hit in result]
    # For each near-duplicate, the name of the better hit that it repeats.
    groups = view.engine.group_hits(result)
    leaders = {other.tool.id: group.best.tool.id for group in groups for other in group.others}
    segments = _find_segments(view, result, where) if explain else []
    hits = []
    for hit, entry in zip(result, entries, strict=True):
        rendered: dict[str, Any] = {
            "score": round(hit.score, 6),
            "confidence": hit.confidence,
            "tool": {**entry.wire_definition, "server": entry.server},
            "duplicateOf": leaders.get(hit.tool.id),
        }
        if explain:
            rendered["reasons"] = [asdict(reason) for reason in hit.reasons]
            rendered["segment"] = _find_best_segment(hit, segments)
        hits.append(rendered)
    notes = call.router.tool_handlers.render_search_notes(view, entries, result.confident, NOTES_FOR_PEOPLE)
    return {
        "query": query,
        "mode": result.mode,
        "confident": result.confident,
        "confidence": result.confidence,
        "threshold": result.confidence_threshold,
        "segments": [
            {"text": text, "covered": text not in result.uncovered, "best": next(iter(scores), None)}
            for text, scores in segments
        ],
        "hits": hits,
        "more": bool(result.has_more),
        "notes": [*result.notes, *notes],
    }


def _find_segments(view: AccessView, result: SearchResult, where: Where) -> list[tuple[str, Mapping[str, float]]]:
    """Return the segments of a query, each with the scores of its own best tools."""
    if result.mode == _PATTERN_MODE:
        return []
    texts = [segment.text for segment in parse_query(result.query, "lenient").request.segments]
    segments: list[tuple[str, Mapping[str, float]]] = []
    for text in texts[:MAX_SEGMENTS]:
        found = view.search(text, MAX_LIMIT, where, result.mode)
        segments.append((text, {hit.tool.id: hit.score for hit in found}))
    return segments


def _find_best_segment(hit: Hit, segments: list[tuple[str, Mapping[str, float]]]) -> int | None:
    """Return the number of the segment that a hit fits best, or None without segments."""
    scores = [scores.get(hit.tool.id, 0.0) for _, scores in segments]
    best = max(scores, default=0.0)
    return scores.index(best) if best else None


def _explain_tool(call: ApiCall) -> dict[str, Any]:
    view = select_view(call)
    explanation = view.engine.explain(
        _read_query(call),
        call.text("tool"),
        limit=call.integer("limit", DEFAULT_LIMIT, MAX_LIMIT),
        mode=call.text("mode"),
        where=_read_filter(call),
        allowed=view.tool_ids,
    )
    return {
        "tool": explanation.tool.id,
        "returned": explanation.is_returned,
        "rank": explanation.rank,
        "score": explanation.score,
        "verdict": explanation.verdict,
        "reasons": [asdict(reason) for reason in explanation.reasons],
    }


def _list_options(call: ApiCall) -> dict[str, Any]:
    """Return what a search can be filtered by."""
    view = select_view(call)
    tools = [entry.tool for entry in view.entries.values()]
    profiles = [] if call.view.profile.name else list(call.router.hub.profiles)
    return {
        "modes": list(view.engine.modes),
        "servers": list(dict.fromkeys(entry.server for entry in view.entries.values())),
        "tags": sorted({tag for tool in tools for tag in tool.tags}),
        "categories": sorted({tool.category for tool in tools if tool.category}),
        "profiles": profiles,
        "tools": len(tools),
        "examples": _list_examples(call, view),
    }


def _list_examples(call: ApiCall, view: AccessView) -> list[str]:
    """Return queries to start with: the first words of descriptions, of different servers if possible."""
    if call.router.hub.config.path is None:
        return list(DEMO_EXAMPLES)
    first: dict[str, str] = {}
    for entry in view.entries.values():
        words = re.split(r"[.\n]", entry.tool.description)[0].split()
        if words and len(first) < MAX_EXAMPLES:
            first.setdefault(entry.server, " ".join(words[:MAX_EXAMPLE_WORDS])[:MAX_EXAMPLE_CHARS])
    return list(first.values())


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
