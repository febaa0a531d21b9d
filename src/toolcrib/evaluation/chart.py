"""A picture of figures: a row for each set, a column for each figure, a bar for each mode."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from toolcrib.evaluation.statistics import Estimate
from toolcrib.evaluation.summary import AUC, EvalSummary, QueryGroup

FIGURES: Final = ("hit@5", "nDCG@10", "all-steps@5", AUC)
MAX_ROWS: Final = 60

_MARGIN, _LABEL, _PANEL, _GAP = 24, 190, 220, 36
_HEAD, _BAR, _BAR_GAP, _ROW_GAP, _FOOT = 104, 12, 3, 16, 40
_VALUE_COLUMN = 40
_MAX_LABEL_CHARS = 26
# Told apart by the colour-blind too, and on both grounds: after Okabe and Ito.
_LIGHT = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_DARK = ("#4aa3df", "#f0b840", "#2fc79a", "#e29ac4", "#8fd0f5", "#f08a4b")
# What XML has no way to say.
_NOT_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class _Row:
    label: str
    count: str
    group: QueryGroup


def picture(summaries: Sequence[EvalSummary]) -> str:
    """The figures as SVG, readable on light and on dark ground.

    Several sets stand below each other; a single one is followed by its kinds of questions.
    """
    rows = _rows(summaries)
    modes = summaries[0].modes
    figures = [figure for figure in FIGURES if any(_has(row, figure) for row in rows)]
    row_height = len(modes) * (_BAR + _BAR_GAP) - _BAR_GAP + _ROW_GAP
    width = 2 * _MARGIN + _LABEL + len(figures) * (_PANEL + _GAP) - _GAP
    height = _HEAD + len(rows) * row_height + _FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-labelledby="title">',
        f'<title id="title">{_text(_title(summaries))}</title>',
        _style(),
        f'<rect class="ground" width="{width}" height="{height}"/>',
        f'<text class="title" x="{_MARGIN}" y="34">{_text(_title(summaries))}</text>',
        *_legend(modes),
    ]
    for number, row in enumerate(rows):
        top = _HEAD + number * row_height
        parts += _label(row, top, row_height)
    for column, figure in enumerate(figures):
        left = _MARGIN + _LABEL + column * (_PANEL + _GAP)
        parts += _axis(figure, left, height)
        for number, row in enumerate(rows):
            parts += _bars(row, figure, left, _HEAD + number * row_height)
    foot = "Percent, with 95 % intervals (bootstrap). More is better."
    parts.append(f'<text class="small" x="{_MARGIN}" y="{height - 12}">{foot}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _rows(summaries: Sequence[EvalSummary]) -> list[_Row]:
    if len(summaries) > 1:
        return [_Row(one.name, _count(one.overall), one.overall) for one in summaries[:MAX_ROWS]]
    (only,) = summaries
    answerable = [group for group in only.groups if group.answerable_count]
    parts = [_Row(group.value, _count(group), group) for group in answerable]
    return [_Row("all", _count(only.overall), only.overall), *parts][:MAX_ROWS]


def _has(row: _Row, figure: str) -> bool:
    return any(figure in figures for figures in row.group.figures.values())


def _count(group: QueryGroup) -> str:
    return f"{group.answerable_count:,} {'query' if group.answerable_count == 1 else 'queries'}"


def _title(summaries: Sequence[EvalSummary]) -> str:
    if len(summaries) > 1:
        return f"Tool search on {len(summaries)} eval sets"
    (only,) = summaries
    return f"Tool search on {only.name} ({only.tool_count:,} tools)"


def _style() -> str:
    def ground(paper: str, ink: str, faint: str, colours: Sequence[str]) -> str:
        bars = "".join(f".m{at} {{ fill: {colour} }} " for at, colour in enumerate(colours))
        return (
            f".ground {{ fill: {paper} }} text {{ fill: {ink} }} .whisker {{ stroke: {ink} }} "
            f".grid {{ stroke: {faint} }} {bars}"
        )

    return (
        "<style>text { font: 12px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif } "
        ".title { font-size: 17px; font-weight: 600 } .small { font-size: 11px; opacity: .75 } "
        ".head { font-weight: 600 } .whisker { stroke-width: 1.2; opacity: .8 } "
        f"{ground('#ffffff', '#1f2328', '#d8dee4', _LIGHT)}"
        f"@media (prefers-color-scheme: dark) {{ {ground('#0d1117', '#e6edf3', '#30363d', _DARK)} }}"
        "</style>"
    )


def _legend(modes: Sequence[str]) -> Iterator[str]:
    left = _MARGIN
    for number, mode in enumerate(modes):
        name = _shortened(mode)
        yield (
            f'<rect class="m{number % len(_LIGHT)}" x="{left}" y="51" width="12" height="12" rx="2"/>'
        )
        yield f'<text x="{left + 18}" y="61">{_text(name)}</text>'
        left += 18 + 8 * len(name) + 20


def _label(row: _Row, top: int, height: int) -> Iterator[str]:
    middle = top + (height - _ROW_GAP) / 2
    yield f'<text x="{_MARGIN}" y="{middle:g}">{_text(_shortened(row.label))}</text>'
    yield f'<text class="small" x="{_MARGIN}" y="{middle + 14:g}">{row.count}</text>'


def _axis(figure: str, left: int, height: int) -> Iterator[str]:
    yield f'<text class="head" x="{left}" y="{_HEAD - 20}">{figure}</text>'
    for percent in (0, 25, 50, 75, 100):
        x = _x(left, percent / 100)
        yield f'<line class="grid" x1="{x:g}" x2="{x:g}" y1="{_HEAD - 10}" y2="{height - _FOOT}"/>'


def _bars(row: _Row, figure: str, left: int, top: int) -> Iterator[str]:
    for number, figures in enumerate(row.group.figures.values()):
        estimate = figures.get(figure)
        if estimate is not None:
            yield from _bar(estimate, number % len(_LIGHT), left, top)
        top += _BAR + _BAR_GAP


def _bar(estimate: Estimate, colour: int, left: int, top: int) -> Iterator[str]:
    width = _x(0, estimate.value)
    yield (
        f'<rect class="m{colour}" x="{left}" y="{top}" width="{width:g}" height="{_BAR}" rx="2"/>'
    )
    low, high, middle = _x(left, estimate.low), _x(left, estimate.high), top + _BAR / 2
    for x1, x2, y1, y2 in (
        (low, high, middle, middle),
        (low, low, middle - 3, middle + 3),
        (high, high, middle - 3, middle + 3),
    ):
        yield f'<line class="whisker" x1="{x1:g}" x2="{x2:g}" y1="{y1:g}" y2="{y2:g}"/>'
    yield (
        f'<text class="small" x="{left + _PANEL}" y="{top + _BAR - 2}" text-anchor="end">'
        f"{100 * estimate.value:.1f}</text>"
    )


def _x(left: int, share: float) -> float:
    return round(left + share * (_PANEL - _VALUE_COLUMN), 1)


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_LABEL_CHARS else f"{text[: _MAX_LABEL_CHARS - 1]}…"


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("", text))
