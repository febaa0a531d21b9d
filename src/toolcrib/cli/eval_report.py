"""How the figures of an evaluation are printed: a row for each figure, a column for each mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import click

from toolcrib.cli.printing import pad, sanitize, terminal_width, truncate, wrap
from toolcrib.evaluation.statistics import CONFIDENCE_LEVEL, MIN_AUC_QUERIES
from toolcrib.evaluation.summary import (
    AUC,
    FIGURES,
    LOWER_IS_BETTER,
    REFUSAL_PRECISION,
    RIGHTLY_REFUSED,
    WRONGLY_REFUSED,
    EvalSummary,
    QueryGroup,
    average_over_sets,
    find_best_modes,
)

SIGNIFICANCE_LEVEL: Final = 0.05
MAX_GROUPS: Final = 30

_LABEL_COLUMNS = 36
_MIN_LABEL_COLUMNS = 20
_CELL_COLUMNS = 18
_GROUP_FIGURES = ("hit@5", "nDCG@10", "all-steps@5")
_COMPARED_FIGURES = ("hit@5", "nDCG@10", "all-steps@5", AUC)
_MEANINGS = {
    "hit@": "hit@k: a right tool is among the first k.",
    "recall@": "recall@k: how much of what is needed is among the first k.",
    "nDCG@": "nDCG@10: 100 if the right tools come first, less the lower they stand.",
    "MRR": "MRR: 1 divided by the place of the first right tool, 0 beyond the tenth.",
    "all-steps@": "all-steps@5: every step of the task has a tool among the first 5.",
    AUC: "AUC: how often a query with an answer gets more confidence than one without; 50 is a "
    "guess.",
    WRONGLY_REFUSED: "wrongly refused: there is an answer, but the result is not confident.",
    RIGHTLY_REFUSED: "rightly refused: nothing fits, and the result is not confident.",
    REFUSAL_PRECISION: "refusal precision: how many of the refusals were right.",
}


def print_summary(summary: EvalSummary) -> None:
    """Everything worth seeing about one set."""
    _print_rows("all queries", summary.overall, FIGURES)
    for group in summary.groups[:MAX_GROUPS]:
        figures = _GROUP_FIGURES if group.answerable_count else (RIGHTLY_REFUSED,)
        _print_rows(_format_title(group), group, figures)
    others = len(summary.groups) - MAX_GROUPS
    if others > 0:
        click.echo(wrap(f"… and {others:,} groups more, which --json has."))
    base, *modes = summary.modes
    if modes:
        click.echo()
    for mode in modes:
        click.echo(wrap(_format_comparison(mode, base, summary.overall)))


def print_means(summaries: Sequence[EvalSummary]) -> None:
    """One line a set, and the means over the sets."""
    modes = summaries[0].modes
    shown = [(one.name, one.overall) for one in summaries if _has_figure(one.overall, "nDCG@10")]
    for block in _split_columns(modes):
        _print_head("nDCG@10 by set", block)
        for name, group in shown:
            _print_row(sanitize(name), group, "nDCG@10", block)
    means = average_over_sets(summaries)
    for block in _split_columns(modes):
        _print_head(f"means of {len(summaries)} sets", block)
        for figure in FIGURES:
            values = {mode: means[mode][figure] for mode in modes if figure in means[mode]}
            if values:
                _print_mean(figure, values, block)


def print_legend(summaries: Sequence[EvalSummary]) -> None:
    """What the numbers and signs say."""
    signs = f"Percent, with {CONFIDENCE_LEVEL:.0%} intervals (bootstrap over the queries)."
    base, *others = summaries[0].modes
    if others:
        signs += (
            f" * is the best of a row; ▲ and ▼ are better and worse than {base}, "
            f"p < {SIGNIFICANCE_LEVEL} (paired permutation test)."
        )
    told = [
        figure for figure in FIGURES if any(_has_figure(one.overall, figure) for one in summaries)
    ]
    meanings = [
        text
        for start, text in _MEANINGS.items()
        if any(figure.startswith(start) for figure in told)
    ]
    click.echo()
    click.secho(wrap(" ".join([signs, *meanings])), dim=True)


def _print_rows(title: str, group: QueryGroup, figures: Iterable[str]) -> None:
    shown = [figure for figure in figures if _has_figure(group, figure)]
    for block in _split_columns(tuple(group.figures)):
        _print_head(title, block)
        for figure in shown:
            _print_row(figure, group, figure, block)


def _print_head(title: str, modes: Sequence[str]) -> None:
    heads = "".join(pad(truncate(mode, _CELL_COLUMNS - 2), _CELL_COLUMNS) for mode in modes)
    columns = _label_columns()
    click.echo()
    click.secho(f"{pad(truncate(title, columns - 1), columns)}{heads}".rstrip(), bold=True)


def _print_row(label: str, group: QueryGroup, figure: str, modes: Sequence[str]) -> None:
    best = find_best_modes(group, figure)
    cells = "".join(_format_cell(group, figure, mode, best) for mode in modes)
    click.echo(f"{_format_label(label, figure)}{cells}".rstrip())


def _print_mean(figure: str, values: Mapping[str, float], modes: Sequence[str]) -> None:
    # Every set counts alike, and sets are no sample of anything: a mean has no interval.
    shown = {mode: round(100 * value, 1) for mode, value in values.items()}
    best = (min if figure in LOWER_IS_BETTER else max)(shown.values())
    alike = len(set(shown.values())) < 2
    cells = (
        _style_cell(f"{shown[mode]:5.1f}", "", shown[mode] == best and not alike)
        if mode in shown
        else " " * _CELL_COLUMNS
        for mode in modes
    )
    click.echo(f"{_format_label(figure, figure)}{''.join(cells)}".rstrip())


def _format_label(label: str, figure: str) -> str:
    less = " (less is better)" if figure in LOWER_IS_BETTER else ""
    columns = _label_columns()
    return pad(f"  {truncate(label + less, columns - 3)}", columns)


def _format_cell(group: QueryGroup, figure: str, mode: str, best: frozenset[str]) -> str:
    estimate = group.figures[mode].get(figure)
    if estimate is None:
        return "    –".ljust(_CELL_COLUMNS)
    interval = f"{100 * estimate.low:.0f}–{100 * estimate.high:.0f}"
    gain = group.gains.get(mode, {}).get(figure)
    sign = ""
    if gain is not None and gain.p < SIGNIFICANCE_LEVEL:
        sign = "▲" if (gain.value > 0) != (figure in LOWER_IS_BETTER) else "▼"
    return _style_cell(f"{100 * estimate.value:5.1f}", f" {interval:6}{sign}", mode in best)


def _style_cell(value: str, rest: str, is_best: bool) -> str:
    """A cell; of the best the value stands out, also where there are no colours."""
    cell = f"{value}{'*' if is_best else ' '}{rest}".rstrip()
    gap = " " * (_CELL_COLUMNS - len(cell))
    return f"{click.style(cell, fg='green', bold=True) if is_best else cell}{gap}"


def _split_columns(modes: Sequence[str]) -> list[Sequence[str]]:
    """As many modes side by side as the line has room for."""
    room = max(1, (terminal_width() - _label_columns() + 1) // _CELL_COLUMNS)
    return [modes[start : start + room] for start in range(0, len(modes), room)]


def _format_comparison(mode: str, base: str, group: QueryGroup) -> str:
    gains = group.gains[mode]
    told = [
        f"{figure} {100 * gain.value:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f}, "
        f"{_format_p(gain.p)})"
        for figure in _COMPARED_FIGURES
        if (gain := gains.get(figure)) is not None
    ]
    if AUC not in gains and _has_figure(group, AUC):
        told.append(
            f"AUC not compared, which takes {MIN_AUC_QUERIES} queries with an answer and as many without"
        )
    return f"{mode} against {base}: {', '.join(told) or 'nothing to compare'}."


def _format_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _has_figure(group: QueryGroup, figure: str) -> bool:
    return any(figure in figures for figures in group.figures.values())


def _format_title(group: QueryGroup) -> str:
    """What the questions of a group have in common, cut if it is long, and how many they are."""
    count = f" ({group.answerable_count or group.impossible_count:,})"
    name = truncate(f"{group.facet} {sanitize(group.value)}", _label_columns() - 1 - len(count))
    return f"{name}{count}"


def _label_columns() -> int:
    """The first column; it leaves room for one of figures where the terminal is narrow."""
    return max(_MIN_LABEL_COLUMNS, min(_LABEL_COLUMNS, terminal_width() - _CELL_COLUMNS))
