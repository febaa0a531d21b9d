"""Figures and answers as JSON values, for programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from toolcrib.evaluation.eval_query import FACETS
from toolcrib.evaluation.metrics import METRIC_NAMES
from toolcrib.evaluation.runner import EvalResult
from toolcrib.evaluation.summary import EvalSummary, QueryGroup, average_over_sets

_DIGITS = 6


def summary_to_json(summary: EvalSummary) -> dict[str, Any]:
    """All figures of a set."""
    return {
        "set": summary.name,
        "tools": summary.tool_count,
        "modes": list(summary.modes),
        "unread": dict(summary.unsearchable),
        "all": _group_to_json(summary.overall),
        "groups": [
            {"facet": group.facet, "value": group.value, **_group_to_json(group)}
            for group in summary.groups
        ],
    }


def means_to_json(summaries: Sequence[EvalSummary]) -> dict[str, Any]:
    """The means over several sets, by mode and figure."""
    return {
        mode: {figure: _round(value) for figure, value in figures.items()}
        for mode, figures in average_over_sets(summaries).items()
    }


def result_to_json(name: str, mode: str, answer: EvalResult) -> dict[str, Any]:
    """One question of a set, and what a mode answered; `ranks` has null for what was not found."""
    question = answer.query
    found = [id for id, _ in answer.hits]
    figures = zip(METRIC_NAMES, answer.scores or (), strict=False)
    return {
        "set": name,
        "mode": mode,
        "id": question.id,
        "query": question.text,
        **{facet: getattr(question, facet) for facet in FACETS if getattr(question, facet)},
        "needs": [sorted(need) for need in question.targets],
        "ranks": {
            id: found.index(id) + 1 if id in found else None for id in sorted(question.relevant_ids)
        },
        "hits": [{"id": id, "score": _round(score)} for id, score in answer.hits],
        "confidence": _round(answer.confidence),
        "confident": answer.is_confident,
        "figures": {name: _round(value) for name, value in figures if not math.isnan(value)},
        **({"unread": answer.error} if answer.error else {}),
    }


def _group_to_json(group: QueryGroup) -> dict[str, Any]:
    return {
        "answerable": group.answerable_count,
        "impossible": group.impossible_count,
        "figures": {
            mode: {
                figure: {
                    "value": _round(estimate.value),
                    "interval": [_round(estimate.low), _round(estimate.high)],
                }
                for figure, estimate in figures.items()
            }
            for mode, figures in group.figures.items()
        },
        "gains": {
            mode: {
                figure: {
                    "value": _round(gain.value),
                    "interval": [_round(gain.low), _round(gain.high)],
                    "p": _round(gain.p),
                }
                for figure, gain in gains.items()
            }
            for mode, gains in group.gains.items()
        },
    }


def _round(value: float) -> float:
    return round(value, _DIGITS)
