"""Figures and answers as JSON values, for programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from toolcrib.evaluation.eval_query import FACETS
from toolcrib.evaluation.metrics import NAMES
from toolcrib.evaluation.runner import Answer
from toolcrib.evaluation.summary import Group, Summary, means_over_sets

_DIGITS = 6


def summary_document(summary: Summary) -> dict[str, Any]:
    """All figures of a set."""
    return {
        "set": summary.name,
        "tools": summary.tools,
        "modes": list(summary.modes),
        "unread": dict(summary.unread),
        "all": _group(summary.overall),
        "groups": [
            {"facet": group.facet, "value": group.value, **_group(group)}
            for group in summary.groups
        ],
    }


def means_document(summaries: Sequence[Summary]) -> dict[str, Any]:
    """The means over several sets, by mode and figure."""
    return {
        mode: {figure: _rounded(value) for figure, value in figures.items()}
        for mode, figures in means_over_sets(summaries).items()
    }


def answer_document(name: str, mode: str, answer: Answer) -> dict[str, Any]:
    """One question of a set, and what a mode answered; `ranks` has null for what was not found."""
    question = answer.question
    found = [id for id, _ in answer.found]
    figures = zip(NAMES, answer.scores or (), strict=False)
    return {
        "set": name,
        "mode": mode,
        "id": question.id,
        "query": question.text,
        **{facet: getattr(question, facet) for facet in FACETS if getattr(question, facet)},
        "needs": [sorted(need) for need in question.needs],
        "ranks": {
            id: found.index(id) + 1 if id in found else None for id in sorted(question.relevant)
        },
        "hits": [{"id": id, "score": _rounded(score)} for id, score in answer.found],
        "confidence": _rounded(answer.confidence),
        "confident": answer.confident,
        "figures": {name: _rounded(value) for name, value in figures if not math.isnan(value)},
        **({"unread": answer.fault} if answer.fault else {}),
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "answerable": group.answerable,
        "impossible": group.impossible,
        "figures": {
            mode: {
                figure: {
                    "value": _rounded(estimate.value),
                    "interval": [_rounded(estimate.low), _rounded(estimate.high)],
                }
                for figure, estimate in figures.items()
            }
            for mode, figures in group.figures.items()
        },
        "gains": {
            mode: {
                figure: {
                    "value": _rounded(gain.value),
                    "interval": [_rounded(gain.low), _rounded(gain.high)],
                    "p": _rounded(gain.p),
                }
                for figure, gain in gains.items()
            }
            for mode, gains in group.gains.items()
        },
    }


def _rounded(value: float) -> float:
    return round(value, _DIGITS)
