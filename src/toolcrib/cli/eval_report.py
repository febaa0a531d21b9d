"""How the figures of an evaluation are printed: a row for each figure, a column for each mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import click

from toolcrib.cli.printing import fitted, padded, plain, width, wrapped
from toolcrib.evaluation.statistics import CONFIDENCE_LEVEL, MIN_SEPARATED
from toolcrib.evaluation.summary import (
    AUC,
    FIGURES,
    LOWER_IS_BETTER,
    REFUSAL_PRECISION,
    RIGHTLY_REFUSED,
    WRONGLY_REFUSED,
    Group,
    Summary,
    best_modes,
    means_over_sets,
)

SIGNIFICANT: Final = 0.05
MAX_GROUPS: Final = 30

_LABEL_COLUMNS = 36
_MIN_LABEL_COLUMNS = 20
_CELL_COLUMNS = 18
_OF_A_GROUP = ("hit@5", "nDCG@10", "all-steps@5")
_COMPARED = ("hit@5", "nDCG@10", "all-steps@5", AUC)
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


def print_summary(summary: Summary) -> None:
    """Everything worth seeing about one set."""
    _print_rows("all queries", summary.overall, FIGURES)
    for group in summary.groups[:MAX_GROUPS]:
        figures = _OF_A_GROUP if group.answerable else (RIGHTLY_REFUSED,)
        _print_rows(_title(group), group, figures)
    others = len(summary.groups) - MAX_GROUPS
    if others > 0:
        click.echo(wrapped(f"… and {others:,} groups more, which --json has."))
    base, *modes = summary.modes
    if modes:
        click.echo()
    for mode in modes:
        click.echo(wrapped(_comparison(mode, base, summary.overall)))


def print_means(summaries: Sequence[Summary]) -> None:
    """One line a set, and the means over the sets."""
    modes = summaries[0].modes
    shown = [(one.name, one.overall) for one in summaries if _has(one.overall, "nDCG@10")]
    for block in _blocks(modes):
        _print_head("nDCG@10 by set", block)
        for name, group in shown:
            _print_row(plain(name), group, "nDCG@10", block)
    means = means_over_sets(summaries)
    for block in _blocks(modes):
        _print_head(f"means of {len(summaries)} sets", block)
        for figure in FIGURES:
            values = {mode: means[mode][figure] for mode in modes if figure in means[mode]}
            if values:
                _print_mean(figure, values, block)


def print_meaning(summaries: Sequence[Summary]) -> None:
    """What the numbers and signs say."""
    signs = f"Percent, with {CONFIDENCE_LEVEL:.0%} intervals (bootstrap over the queries)."
    base, *others = summaries[0].modes
    if others:
        signs += (
            f" * is the best of a row; ▲ and ▼ are better and worse than {base}, "
            f"p < {SIGNIFICANT} (paired permutation test)."
        )
    told = [figure for figure in FIGURES if any(_has(one.overall, figure) for one in summaries)]
    meanings = [
        text
        for start, text in _MEANINGS.items()
        if any(figure.startswith(start) for figure in told)
    ]
    click.echo()
    click.secho(wrapped(" ".join([signs, *meanings])), dim=True)


def _print_rows(title: str, group: Group, figures: Iterable[str]) -> None:
    shown = [figure for figure in figures if _has(group, figure)]
    for block in _blocks(tuple(group.figures)):
        _print_head(title, block)
        for figure in shown:
            _print_row(figure, group, figure, block)


def _print_head(title: str, modes: Sequence[str]) -> None:
    heads = "".join(padded(fitted(mode, _CELL_COLUMNS - 2), _CELL_COLUMNS) for mode in modes)
    columns = _label_columns()
    click.echo()
    click.secho(f"{padded(fitted(title, columns - 1), columns)}{heads}".rstrip(), bold=True)


def _print_row(label: str, group: Group, figure: str, modes: Sequence[str]) -> None:
    best = best_modes(group, figure)
    cells = "".join(_cell(group, figure, mode, best) for mode in modes)
    click.echo(f"{_labelled(label, figure)}{cells}".rstrip())


def _print_mean(figure: str, values: Mapping[str, float], modes: Sequence[str]) -> None:
    # Every set counts alike, and sets are no sample of anything: a mean has no interval.
    shown = {mode: round(100 * value, 1) for mode, value in values.items()}
    best = (min if figure in LOWER_IS_BETTER else max)(shown.values())
    alike = len(set(shown.values())) < 2
    cells = (
        _styled(f"{shown[mode]:5.1f}", "", shown[mode] == best and not alike)
        if mode in shown
        else " " * _CELL_COLUMNS
        for mode in modes
    )
    click.echo(f"{_labelled(figure, figure)}{''.join(cells)}".rstrip())


def _labelled(label: str, figure: str) -> str:
    less = " (less is better)" if figure in LOWER_IS_BETTER else ""
    columns = _label_columns()
    return padded(f"  {fitted(label + less, columns - 3)}", columns)


def _cell(group: Group, figure: str, mode: str, best: frozenset[str]) -> str:
    estimate = group.figures[mode].get(figure)
    if estimate is None:
        return "    –".ljust(_CELL_COLUMNS)
    interval = f"{100 * estimate.low:.0f}–{100 * estimate.high:.0f}"
    gain = group.gains.get(mode, {}).get(figure)
    sign = ""
    if gain is not None and gain.p < SIGNIFICANT:
        sign = "▲" if (gain.value > 0) != (figure in LOWER_IS_BETTER) else "▼"
    return _styled(f"{100 * estimate.value:5.1f}", f" {interval:6}{sign}", mode in best)


def _styled(value: str, rest: str, is_best: bool) -> str:
    """A cell; of the best the value stands out, also where there are no colours."""
    cell = f"{value}{'*' if is_best else ' '}{rest}".rstrip()
    gap = " " * (_CELL_COLUMNS - len(cell))
    return f"{click.style(cell, fg='green', bold=True) if is_best else cell}{gap}"


def _blocks(modes: Sequence[str]) -> list[Sequence[str]]:
    """As many modes side by side as the line has room for."""
    room = max(1, (width() - _label_columns() + 1) // _CELL_COLUMNS)
    return [modes[start : start + room] for start in range(0, len(modes), room)]


def _comparison(mode: str, base: str, group: Group) -> str:
    gains = group.gains[mode]
    told = [
        f"{figure} {100 * gain.value:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f}, "
        f"{_p(gain.p)})"
        for figure in _COMPARED
        if (gain := gains.get(figure)) is not None
    ]
    if AUC not in gains and _has(group, AUC):
        told.append(
            f"AUC not compared, which takes {MIN_SEPARATED} queries with an answer and as many without"
        )
    return f"{mode} against {base}: {', '.join(told) or 'nothing to compare'}."


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _has(group: Group, figure: str) -> bool:
    return any(figure in figures for figures in group.figures.values())


def _title(group: Group) -> str:
    """What the questions of a group have in common, cut if it is long, and how many they are."""
    count = f" ({group.answerable or group.impossible:,})"
    name = fitted(f"{group.facet} {plain(group.value)}", _label_columns() - 1 - len(count))
    return f"{name}{count}"


def _label_columns() -> int:
    """The first column; it leaves room for one of figures where the terminal is narrow."""
    return max(_MIN_LABEL_COLUMNS, min(_LABEL_COLUMNS, width() - _CELL_COLUMNS))
