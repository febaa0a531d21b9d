"""Previews of large tool results: structure and first rows of data, head and tail of text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolcrib.core.token_count import estimate_tokens
from toolcrib.gateway.mcp.results.document import ResultDocument, TextTable, encode_json, join_path, shorten_json
from toolcrib.gateway.mcp.results.summary import (
    FieldSummary,
    describe_summary,
    render_structure,
    summarize_columns,
    summarize_json,
)

MAX_LINE_CHARS: Final = 300
MAX_CELL_CHARS: Final = 60
MAX_COLUMNS: Final = 12
MAX_OUTLINE_LINES: Final = 60
# Columns are chosen by the first rows.
MAX_SAMPLED_ROWS: Final = 40
MAX_ESTIMATED_LINES: Final = 12
_STRUCTURE_SHARE: Final = 0.55
_OUTLINE_SHARE: Final = 0.3
_HEAD_SHARE: Final = 0.65
# A string with more than this share of a document is previewed as text.
_DOMINANT_SHARE: Final = 0.6
_HEADING: Final = re.compile(
    r"#{1,4} \S|\d+(?:\.\d+)*\.? [A-Z]|(?:class|def|function|func|interface|export) \S|diff --git "
)
_LEVEL: Final = re.compile(r"\b(FATAL|CRITICAL|ERROR|WARN(?:ING)?)\b")


@dataclass
class PreviewBudget:
    """The tokens that are left for a preview."""

    tokens: float

    def take_lines(self, lines: Iterable[str], share: float = 1.0) -> list[str]:
        """Return the first lines that fit into a share of the budget, and reduce the budget."""
        limit = self.tokens * share
        taken: list[str] = []
        chars, tokens = 0, 0.0
        for line in lines:
            if len(taken) < MAX_ESTIMATED_LINES:
                cost = float(estimate_tokens(line) + 1)
                chars, tokens = chars + len(line) + 1, tokens + cost
            else:
                # The lines of a list are similar, so the first ones tell the length of a token.
                cost = (len(line) + 1) * tokens / chars
            if cost > limit:
                break
            taken.append(line)
            limit -= cost
            self.tokens -= cost
        return taken


def render_preview(document: ResultDocument, max_tokens: int) -> str:
    """Return the preview of a document within about `max_tokens` tokens."""
    budget = PreviewBudget(max_tokens)
    if document.is_json:
        return "\n".join(_preview_json(document.value, budget))
    if document.table is not None:
        return "\n".join(_preview_table(document.table, budget))
    return "\n".join(_preview_text(document.text, budget))


def describe_size(document: ResultDocument) -> str:
    """Return the format and the size of a document in words."""
    if document.is_json:
        return f"JSON of {len(document.text):,} characters"
    if document.table is not None:
        return f"a table of {len(document.table.rows):,} rows and {len(document.table.columns)} columns"
    lines = len(document.lines)
    return f"text of {lines:,} {'line' if lines == 1 else 'lines'} and {len(document.text):,} characters"


def _preview_json(value: Any, budget: PreviewBudget) -> Iterator[str]:
    dominant = _find_dominant_text(value)
    if dominant is not None:
        path, text = dominant
        others = shorten_json(_without_text(value, text), round(budget.tokens * 0.3))
        yield from budget.take_lines([f"Without the text at {path}: {others}"])
        yield f"The text at {path}:"
        yield from _preview_text(text, budget)
        return
    summary = summarize_json(value)
    lines = sorted(enumerate(render_structure(summary)), key=lambda item: (item[1][0], item[0]))
    # Outer levels come first when there is not room for all of them.
    fitting = budget.take_lines((line for _, (_, line) in lines), _STRUCTURE_SHARE)
    kept = sorted(lines[: len(fitting)])
    yield "Structure (type, range, or most frequent values with counts):"
    yield from (line for _, (_, line) in kept)
    if len(kept) < len(lines):
        yield f"… and {len(lines) - len(kept):,} deeper fields"
    yield from _preview_rows(value, budget)


def _preview_rows(value: Any, budget: PreviewBudget) -> Iterator[str]:
    path, rows = _find_main_array(value)
    if not rows:
        yield f"Shortened: {shorten_json(value, round(budget.tokens))}"
        return
    samples = [flatten_record(row) for row in rows[:MAX_SAMPLED_ROWS]]
    columns = _select_columns(samples)

    def render(number: int) -> str:
        row = samples[number] if number < len(samples) else flatten_record(rows[number])
        return " | ".join([str(number), *(_render_cell(row.get(column)) for column in columns)])

    heading = " | ".join(["#", *columns])
    head, last = _select_rows(heading, len(rows), render, budget)
    yield f"Rows of {path} ({len(head) + len(last)} of {len(rows):,}; a cell is cut at {MAX_CELL_CHARS} characters):"
    yield heading
    yield from [*head, *["…"] * (len(head) + len(last) < len(rows)), *last]


def _select_rows(
    heading: str, count: int, render: Callable[[int], str], budget: PreviewBudget
) -> tuple[list[str], list[str]]:
    """Return the first rows below a heading, and the last one, as far as there is room for them."""
    budget.tokens -= estimate_tokens(heading) + 20
    head = budget.take_lines(map(render, range(count)), 0.8)
    return head, budget.take_lines([render(count - 1)] if len(head) < count else [])


def flatten_record(record: object) -> dict[str, Any]:
    """Return the scalar members of a record; those of inner objects have dotted names."""
    # `dict`, because the check for `Mapping` is slow, and parsed JSON contains only dicts.
    if not isinstance(record, dict):
        return {"value": record}
    flat: dict[str, Any] = {}
    for key, item in record.items():
        if isinstance(item, dict):
            for inner, value in item.items():
                if not isinstance(value, dict | list):
                    flat[f"{key}.{inner}"] = value
        elif isinstance(item, list):
            if item and all(isinstance(one, str | int | float) for one in item):
                flat[key] = ", ".join(map(str, item[:8]))
            elif item and all(isinstance(one, dict) and isinstance(one.get("name"), str) for one in item):
                flat[f"{key}.name"] = ", ".join(one["name"] for one in item[:8])
        else:
            flat[key] = item
    return flat


def _select_columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the columns that tell rows apart, in their order; links and long texts come last."""
    ranks: dict[str, tuple[int, int]] = {}
    for number, column in enumerate(dict.fromkeys(key for row in rows for key in row)):
        values = [row[column] for row in rows if row.get(column) not in (None, "")]
        first = str(values[0]) if values else ""
        is_constant = len(rows) > 1 and len(values) == len(rows) and all(str(value) == first for value in values)
        if not values or is_constant:
            continue
        texts = [value for value in values if isinstance(value, str)]
        is_link = bool(texts) and all(text.startswith(("http://", "https://")) for text in texts)
        is_long = bool(texts) and sum(map(len, texts)) / len(texts) > 3 * MAX_CELL_CHARS
        is_opaque = column.rpartition(".")[2] in ("node_id", "sha", "etag", "gravatar_id")
        ranks[column] = (2 * is_link + is_opaque + is_long, number)
    chosen = sorted(ranks, key=lambda column: ranks[column])[:MAX_COLUMNS]
    plain = [column for column in chosen if not ranks[column][0]]
    return sorted(plain or chosen, key=lambda column: ranks[column][1])


def _render_cell(value: object) -> str:
    if type(value) is int:
        return str(value)
    text = value if isinstance(value, str) else "" if value is None else encode_json(value)
    text = " ".join(text.split())
    return text if len(text) <= MAX_CELL_CHARS else f"{text[: MAX_CELL_CHARS - 1]}…"


def find_main_part(value: Any) -> tuple[str, Any]:
    """Return the part of a JSON value that its preview shows: a long text, or else the main array, if there is one."""
    path, rows = _find_main_array(value)
    return _find_dominant_text(value) or ((path, rows) if rows else ("$", value))


def _find_main_array(value: Any) -> tuple[str, list[Any]]:
    """Return the array with the most rows that are objects, or else with the most items."""
    best: tuple[tuple[bool, int], str, list[Any]] = ((False, 0), "$", [])
    pending: list[tuple[str, Any, int]] = [("$", value, 0)]
    while pending:
        path, item, depth = pending.pop()
        if isinstance(item, list) and item:
            rank = (isinstance(item[0], Mapping), len(item))
            if rank > best[0]:
                best = (rank, path, item)
            if len(item) <= 3 and depth < 4:
                pending += [(f"{path}[{number}]", inner, depth + 1) for number, inner in enumerate(item)]
        elif isinstance(item, Mapping) and depth < 4:
            pending += [(join_path(path, key), inner, depth + 1) for key, inner in list(item.items())[:200]]
            if len(item) > best[0][1] and len(item) > 40 and not best[0][0]:
                rows = [
                    {"key": key, **(inner if isinstance(inner, Mapping) else {"value": inner})}
                    for key, inner in item.items()
                ]
                best = ((True, len(item)), path, rows)
    return best[1], best[2]


def _find_dominant_text(value: Any) -> tuple[str, str] | None:
    """Return the path and text of a string that makes up most of a document."""
    if not isinstance(value, Mapping):
        return None
    total = len(encode_json(value))
    pending: list[tuple[str, Any, int]] = [("$", value, 0)]
    while pending:
        path, item, depth = pending.pop()
        if isinstance(item, str) and len(item) > _DOMINANT_SHARE * total:
            return path, item
        if isinstance(item, Mapping) and depth < 3:
            pending += [(join_path(path, key), inner, depth + 1) for key, inner in list(item.items())[:100]]
        elif isinstance(item, list) and len(item) <= 3 and depth < 3:
            pending += [(f"{path}[{number}]", inner, depth + 1) for number, inner in enumerate(item)]
    return None


def _without_text(value: Any, text: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_text(item, text) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_text(item, text) for item in value]
    return "…" if value is text else value


def _preview_table(table: TextTable, budget: PreviewBudget) -> Iterator[str]:
    summaries: Mapping[str, FieldSummary] = summarize_columns(table.columns, table.rows)
    yield "Columns (type, range, or most frequent values with counts):"
    described = (f" {column}: {describe_summary(summary)}" for column, summary in summaries.items())
    yield from budget.take_lines(described, _STRUCTURE_SHARE)

    def render(number: int) -> str:
        return f"{table.first_line + number}: {' | '.join(map(_render_cell, table.rows[number]))}"

    heading = " | ".join(table.columns)
    head, last = _select_rows(heading, len(table.rows), render, budget)
    yield f"Rows, with line numbers ({len(head) + len(last)} of {len(table.rows):,}):"
    yield heading
    yield from [*head, *["…"] * (len(head) + len(last) < len(table.rows)), *last]


def _preview_text(text: str, budget: PreviewBudget) -> Iterator[str]:
    lines = text.splitlines()
    levels = [(number, match[1]) for number, line in enumerate(lines, 1) if (match := _LEVEL.search(line))]
    if levels:
        counts = ", ".join(
            f"{level} {sum(found == level for _, found in levels):,} (first at line {number:,})"
            for level, number in {level: number for number, level in reversed(levels)}.items()
        )
        yield from budget.take_lines([f"Lines with {counts}"])
    headings = [f"{number}: {cut_line(line)}" for number, line in enumerate(lines, 1) if _HEADING.match(line)]
    if len(headings) > 2:
        outline = budget.take_lines(headings[:MAX_OUTLINE_LINES], _OUTLINE_SHARE)
        yield f"Outline, with line numbers ({len(outline)} of {len(headings):,} headings):"
        yield from outline

    def render(number: int) -> str:
        return f"{number}: {cut_line(lines[number - 1])}"

    head = budget.take_lines(map(render, range(1, len(lines) + 1)), _HEAD_SHARE)
    tail = budget.take_lines(map(render, range(len(lines), len(head), -1)))[::-1]
    yield "Lines:"
    yield from head
    left_out = len(lines) - len(head) - len(tail)
    if left_out:
        yield f"… lines {len(head) + 1:,} to {len(head) + left_out:,} are left out …"
    yield from tail


def cut_line(line: str) -> str:
    """Return a line of at most `MAX_LINE_CHARS` characters."""
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[:MAX_LINE_CHARS]}… ({len(line) - MAX_LINE_CHARS:,} more characters)"
