"""Reports of `toolcrib eval`: tables with a row per metric and a column per mode, and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from toolcrib.cli.printing import format_count, pad, sanitize, terminal_width, truncate, wrap
from toolcrib.evaluation.eval_set import FACETS
from toolcrib.evaluation.runner import METRIC_NAMES, EvalResult, NeverFoundTool
from toolcrib.evaluation.summary import (
    AUC,
    CONFIDENCE_LEVEL,
    LOWER_IS_BETTER,
    METRICS,
    MIN_AUC_QUERIES,
    REFUSAL_PRECISION,
    RIGHTLY_REFUSED,
    WRONGLY_REFUSED,
    EvalSummary,
    QueryGroup,
    average_over_sets,
    find_best_modes,
    find_best_values,
)

SIGNIFICANCE_LEVEL: Final = 0.05
MAX_GROUPS: Final = 30
# How many tools that no query finds are printed.
MAX_PRINTED_TOOLS: Final = 10

_LABEL_COLUMNS = 36
_MIN_LABEL_COLUMNS = 20
_CELL_COLUMNS = 18
_JSON_DIGITS = 6
_GROUP_METRICS = ("hit@5", "nDCG@10", "all-steps@5")
_COMPARED_METRICS = ("hit@5", "nDCG@10", "all-steps@5", AUC)
_DEFINITIONS = {
    "hit@": "hit@k: a right tool is among the first k.",
    "recall@": "recall@k: the share of the needed tools among the first k.",
    "nDCG@": "nDCG@10: 100 if the right tools come first, less if they rank lower.",
    "MRR": "MRR: 1 divided by the rank of the first right tool, 0 after rank 10.",
    "all-steps@": "all-steps@5: every step of the task has a tool among the first 5.",
    AUC: "AUC: how often a query with an answer gets a higher confidence than one without; 50 is chance.",
    WRONGLY_REFUSED: "wrongly refused: there is an answer, but the result is not confident.",
    RIGHTLY_REFUSED: "rightly refused: no tool fits, and the result is not confident.",
    REFUSAL_PRECISION: "refusal precision: the share of refusals that are right.",
}


def print_summary(summary: EvalSummary) -> None:
    """Print the metrics of one eval set."""
    _print_rows("all queries", summary.overall, METRICS)
    for group in summary.groups[:MAX_GROUPS]:
        metrics = _GROUP_METRICS if group.answerable_count else (RIGHTLY_REFUSED,)
        _print_rows(_format_title(group), group, metrics)
    others = len(summary.groups) - MAX_GROUPS
    if others > 0:
        click.echo(wrap(f"… and {others:,} more groups; --json has them all."))
    base, *modes = summary.modes
    if modes:
        click.echo()
    for mode in modes:
        click.echo(wrap(_format_comparison(mode, base, summary.overall)))


def print_means(summaries: Sequence[EvalSummary]) -> None:
    """Print nDCG@10 per set, and the means of all metrics over the sets."""
    modes = summaries[0].modes
    for block in _split_columns(modes):
        _print_head("nDCG@10 by set", block)
        for summary in summaries:
            if _has_metric(summary.overall, "nDCG@10"):
                _print_row(sanitize(summary.name), summary.overall, "nDCG@10", block)
    means = average_over_sets(summaries)
    for block in _split_columns(modes):
        _print_head(f"means of {len(summaries)} sets", block)
        for metric in METRICS:
            values = {mode: means[mode][metric] for mode in modes if metric in means[mode]}
            if values:
                _print_mean(metric, values, block)


def print_legend(summaries: Sequence[EvalSummary]) -> None:
    """Print the definitions of the metrics and signs in the tables."""
    legend = f"Percent, with {CONFIDENCE_LEVEL:.0%} intervals (bootstrap over the queries)."
    base, *others = summaries[0].modes
    if others:
        legend += (
            f" * is the best of a row; ▲ and ▼ are better and worse than {base}, "
            f"p < {SIGNIFICANCE_LEVEL} (paired permutation test)."
        )
    printed = [metric for metric in METRICS if any(_has_metric(summary.overall, metric) for summary in summaries)]
    definitions = [
        text for prefix, text in _DEFINITIONS.items() if any(metric.startswith(prefix) for metric in printed)
    ]
    click.echo()
    click.secho(wrap(" ".join([legend, *definitions])), dim=True)


def _print_rows(title: str, group: QueryGroup, metrics: Iterable[str]) -> None:
    available = [metric for metric in metrics if _has_metric(group, metric)]
    for block in _split_columns(tuple(group.metrics)):
        _print_head(title, block)
        for metric in available:
            _print_row(metric, group, metric, block)


def _print_head(title: str, modes: Sequence[str]) -> None:
    heads = "".join(pad(truncate(mode, _CELL_COLUMNS - 2), _CELL_COLUMNS) for mode in modes)
    columns = _label_columns()
    click.echo()
    click.secho(f"{pad(truncate(title, columns - 1), columns)}{heads}".rstrip(), bold=True)


def _print_row(label: str, group: QueryGroup, metric: str, modes: Sequence[str]) -> None:
    best = find_best_modes(group, metric)
    cells = "".join(_format_cell(group, metric, mode, best) for mode in modes)
    click.echo(f"{_format_label(label, metric)}{cells}".rstrip())


def _print_mean(metric: str, values: Mapping[str, float], modes: Sequence[str]) -> None:
    """Print a row without intervals: the sets are not a random sample."""
    best = find_best_values(metric, values)
    cells = (
        _style_cell(f"{100 * values[mode]:5.1f}", "", mode in best) if mode in values else " " * _CELL_COLUMNS
        for mode in modes
    )
    click.echo(f"{_format_label(metric, metric)}{''.join(cells)}".rstrip())


def _format_label(label: str, metric: str) -> str:
    note = " (lower is better)" if metric in LOWER_IS_BETTER else ""
    columns = _label_columns()
    return pad(f"  {truncate(label + note, columns - 3)}", columns)


def _format_cell(group: QueryGroup, metric: str, mode: str, best: frozenset[str]) -> str:
    estimate = group.metrics[mode].get(metric)
    if estimate is None:
        return "    –".ljust(_CELL_COLUMNS)
    interval = f"{100 * estimate.low:.0f}–{100 * estimate.high:.0f}"
    gain = group.gains.get(mode, {}).get(metric)
    sign = ""
    if gain is not None and gain.p < SIGNIFICANCE_LEVEL:
        sign = "▲" if (gain.value > 0) != (metric in LOWER_IS_BETTER) else "▼"
    return _style_cell(f"{100 * estimate.value:5.1f}", f" {interval:6}{sign}", mode in best)


def _style_cell(value: str, rest: str, is_best: bool) -> str:
    """Return a cell, with a star after the best value for output without colours."""
    cell = f"{value}{'*' if is_best else ' '}{rest}".rstrip()
    gap = " " * (_CELL_COLUMNS - len(cell))
    return f"{click.style(cell, fg='green', bold=True) if is_best else cell}{gap}"


def _split_columns(modes: Sequence[str]) -> list[Sequence[str]]:
    """Split the modes into blocks that fit into the width of the terminal."""
    room = max(1, (terminal_width() - _label_columns() + 1) // _CELL_COLUMNS)
    return [modes[start : start + room] for start in range(0, len(modes), room)]


def _format_comparison(mode: str, base: str, group: QueryGroup) -> str:
    gains = group.gains[mode]
    parts = [
        f"{metric} {100 * gain.value:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f}, {_format_p(gain.p)})"
        for metric in _COMPARED_METRICS
        if (gain := gains.get(metric)) is not None
    ]
    if AUC not in gains and _has_metric(group, AUC):
        parts.append(
            f"AUC not compared: it needs {MIN_AUC_QUERIES} queries with an answer and {MIN_AUC_QUERIES} without"
        )
    return f"{mode} compared with {base}: {', '.join(parts) or 'no metrics in common'}."


def _format_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _has_metric(group: QueryGroup, metric: str) -> bool:
    return any(metric in metrics for metrics in group.metrics.values())


def _format_title(group: QueryGroup) -> str:
    """Return the facet value of a group, truncated, with the number of queries."""
    count = f" ({group.answerable_count or group.impossible_count:,})"
    name = truncate(f"{group.facet} {sanitize(group.value)}", _label_columns() - 1 - len(count))
    return f"{name}{count}"


def _label_columns() -> int:
    """Return the width of the first column; a narrow terminal must have room for one mode."""
    return max(_MIN_LABEL_COLUMNS, min(_LABEL_COLUMNS, terminal_width() - _CELL_COLUMNS))


def summary_to_json(summary: EvalSummary) -> dict[str, Any]:
    """Return all metrics of an eval set."""
    return {
        "set": summary.name,
        "tools": summary.tool_count,
        "modes": list(summary.modes),
        "unread": dict(summary.unsearchable),
        "all": _group_to_json(summary.overall),
        "groups": [{"facet": group.facet, "value": group.value, **_group_to_json(group)} for group in summary.groups],
    }


def means_to_json(summaries: Sequence[EvalSummary]) -> dict[str, Any]:
    """Return the means over several sets, by mode and metric."""
    return {
        mode: {metric: round(value, _JSON_DIGITS) for metric, value in means.items()}
        for mode, means in average_over_sets(summaries).items()
    }


def result_to_json(set_name: str, mode: str, result: EvalResult) -> dict[str, Any]:
    """Return one query with the result of a mode. The rank of a missing tool is null."""
    query = result.query
    ids = [id for id, _ in result.hits]
    scores = zip(METRIC_NAMES, result.scores or (), strict=False)
    return {
        "set": set_name,
        "mode": mode,
        "id": query.id,
        "query": query.text,
        **{facet: getattr(query, facet) for facet in FACETS if getattr(query, facet)},
        "needs": [sorted(target) for target in query.targets],
        "ranks": {id: ids.index(id) + 1 if id in ids else None for id in sorted(query.relevant_ids)},
        "hits": [{"id": id, "score": round(score, _JSON_DIGITS)} for id, score in result.hits],
        "confidence": round(result.confidence, _JSON_DIGITS),
        "confident": result.confident,
        "figures": {metric: round(value, _JSON_DIGITS) for metric, value in scores if not math.isnan(value)},
        **({"unread": result.error} if result.error else {}),
    }


def _group_to_json(group: QueryGroup) -> dict[str, Any]:
    def to_json(value: float, low: float, high: float, **others: float) -> dict[str, Any]:
        interval = [round(low, _JSON_DIGITS), round(high, _JSON_DIGITS)]
        rounded = {name: round(other, _JSON_DIGITS) for name, other in others.items()}
        return {"value": round(value, _JSON_DIGITS), "interval": interval, **rounded}

    return {
        "answerable": group.answerable_count,
        "impossible": group.impossible_count,
        "figures": {
            mode: {metric: to_json(*estimate) for metric, estimate in metrics.items()}
            for mode, metrics in group.metrics.items()
        },
        "gains": {
            mode: {metric: to_json(*gain[:3], p=gain.p) for metric, gain in gains.items()}
            for mode, gains in group.gains.items()
        },
    }


def print_never_found(mode: str, tools: Sequence[NeverFoundTool]) -> None:
    """Print the tools that no query finds, and why."""
    if not tools:
        return
    click.echo(f"never found in mode {mode} by their own queries: {format_count(len(tools), 'tool')}")
    for tool in tools[:MAX_PRINTED_TOOLS]:
        first = f"; {tool.first_hit} is first" if tool.first_hit else ""
        click.echo(wrap(sanitize(f"{tool.id}: {tool.query!r} {tool.verdict}{first}"), "  "))
    if len(tools) > MAX_PRINTED_TOOLS:
        click.echo(f"  and {len(tools) - MAX_PRINTED_TOOLS:,} more; --json lists them")
