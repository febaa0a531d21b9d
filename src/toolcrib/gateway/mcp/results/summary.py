"""The structure of a JSON value or a table: types, ranges and frequent values of its fields."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

MAX_VALUES: Final = 300_000
MAX_DEPTH: Final = 12
MAX_FIELDS: Final = 60
# Over this number of keys, the keys of an object are data, and its values are summarized together.
MAX_KEYS: Final = 40
MAX_DISTINCT: Final = 5_000
MAX_VALUE_CHARS: Final = 80
FREQUENT_VALUES: Final = 6
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?")
_NUMBER: Final = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")


@dataclass
class FieldSummary:
    """What the values at one path of a document have in common."""

    count: int = 0
    nulls: int = 0
    truth: Counter[bool] = field(default_factory=Counter)
    numbers: list[float] = field(default_factory=list)
    texts: Counter[str] = field(default_factory=Counter)
    text_count: int = 0
    distinct_is_bounded: bool = False
    longest_text: int = 0
    dates: int = 0
    # Numbers that are written as strings.
    numeric_texts: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    objects: int = 0
    keys: list[str] = field(default_factory=list)
    members: dict[str, FieldSummary] = field(default_factory=dict)
    items: FieldSummary | None = None

    def add_texts(self, texts: Sequence[str]) -> None:
        """Add string values."""
        self.text_count += len(texts)
        self.longest_text = max(self.longest_text, *map(len, texts))
        counts = Counter([text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS + 1] for text in texts])
        for text, count in counts.items():
            # Each different text is examined once.
            if not text[:1].isdigit() and text[:1] != "-":
                continue
            self.dates += count * bool(len(text) <= 40 and _DATE.fullmatch(text))
            if len(text) <= 31 and _NUMBER.fullmatch(text):
                self.numeric_texts += [float(text) if "." in text else int(text)] * count
        self.texts.update(counts)
        if len(self.texts) > MAX_DISTINCT:
            self.distinct_is_bounded = True
            self.texts = Counter(dict(islice(self.texts.items(), MAX_DISTINCT)))


def summarize_json(value: object) -> FieldSummary:
    """Return the summary of a JSON value."""
    root = FieldSummary()
    pending: deque[tuple[FieldSummary, list[Any], int]] = deque([(root, [value], 0)])
    remaining = MAX_VALUES
    # All values of one field are added together, which is several times faster than one by one.
    while pending and remaining > 0:
        summary, values, depth = pending.popleft()
        values = values[:remaining]
        remaining -= len(values)
        summary.count += len(values)
        by_type: dict[type, list[Any]] = {}
        for item in values:
            by_type.setdefault(type(item), []).append(item)
        for kind, items in by_type.items():
            if kind is str:
                summary.add_texts(items)
            elif kind is dict and depth < MAX_DEPTH:
                pending.extend((child, inner, depth + 1) for child, inner in _split_members(summary, items))
            elif kind is list and depth < MAX_DEPTH:
                summary.lengths += map(len, items)
                if inner := [one for item in items for one in item]:
                    summary.items = summary.items or FieldSummary()
                    pending.append((summary.items, inner, depth + 1))
            elif kind is bool:
                summary.truth.update(items)
            elif kind in (int, float):
                summary.numbers += items
            elif items[0] is None:
                summary.nulls += len(items)
    return root


def _split_members(
    summary: FieldSummary, objects: Sequence[dict[str, Any]]
) -> Iterator[tuple[FieldSummary, list[Any]]]:
    """Yield the members of objects, each with all its values."""
    summary.objects += len(objects)
    columns: dict[str, list[Any]] = {}
    values: list[Any] = []
    for item in objects:
        if len(item) > MAX_KEYS:
            summary.keys = summary.keys or list(item)
            values += item.values()
            continue
        for key, inner in item.items():
            if key in columns:
                columns[key].append(inner)
            elif len(columns) < MAX_FIELDS:
                columns[key] = [inner]
    if values:
        summary.items = summary.items or FieldSummary()
        yield summary.items, values
    for key, column in columns.items():
        if key in summary.members or len(summary.members) < MAX_FIELDS:
            yield summary.members.setdefault(key, FieldSummary()), column


def summarize_columns(columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> dict[str, FieldSummary]:
    """Return the summary of each column of a table; cells that look like numbers are numbers."""
    summaries: dict[str, FieldSummary] = {}
    for number, column in enumerate(columns):
        cells = [row[number] for row in rows if number < len(row)]
        numbers = {cell: float(cell) if "." in cell else int(cell) for cell in set(cells) if _NUMBER.fullmatch(cell)}
        summary = summaries[column] = FieldSummary(len(cells), cells.count(""))
        summary.numbers = [numbers[cell] for cell in cells if cell in numbers]
        if texts := [cell for cell in cells if cell and cell not in numbers]:
            summary.add_texts(texts)
    return summaries


def describe_summary(summary: FieldSummary) -> str:
    """Return the types, range and frequent values of a field in one line."""
    parts: list[str] = []
    if summary.objects:
        parts.append(_describe_objects(summary))
    if summary.lengths:
        parts.append(_describe_arrays(summary))
    if summary.truth:
        parts.append(", ".join(f"{json.dumps(value)} {count:,}" for value, count in summary.truth.most_common()))
    if summary.numbers:
        parts.append(_describe_numbers(summary.numbers))
    if summary.text_count:
        parts.append(_describe_texts(summary))
    if summary.nulls:
        parts.append("null" if summary.nulls == summary.count else f"{summary.nulls:,} null or empty")
    return "; ".join(parts)


def _describe_objects(summary: FieldSummary) -> str:
    if not summary.keys:
        return "object" if summary.objects == 1 else f"{summary.objects:,} objects"
    names = ", ".join(json.dumps(key[:MAX_VALUE_CHARS], ensure_ascii=False) for key in summary.keys[:3])
    return f"object with {len(summary.keys):,} keys ({names}, …)"


def _describe_arrays(summary: FieldSummary) -> str:
    low, high = min(summary.lengths), max(summary.lengths)
    if len(summary.lengths) == 1:
        return f"array of {high:,}"
    size = f"{high:,}" if low == high else f"{low:,} to {high:,}"
    return f"arrays of {size}, {sum(summary.lengths):,} in all"


def _describe_numbers(numbers: list[float]) -> str:
    if len(numbers) == 1:
        return format_number(numbers[0])
    counts = Counter(numbers)
    if len(counts) == 1:
        return f"{format_number(numbers[0])} in all {len(numbers):,}"
    span = f"{format_number(min(numbers))} to {format_number(max(numbers))}"
    if len(counts) <= FREQUENT_VALUES and len(counts) * 2 <= len(numbers):
        frequent = ", ".join(f"{format_number(value)} {count:,}×" for value, count in counts.most_common())
        return frequent
    return f"{span}, {len(counts):,} different, sum {format_number(sum(numbers))}"


def _describe_texts(summary: FieldSummary) -> str:
    texts = summary.texts
    if summary.text_count == 1:
        return quote(next(iter(texts)))
    if len(texts) == 1 and not summary.distinct_is_bounded:
        return f"{quote(next(iter(texts)))} in all {summary.text_count:,}"
    if summary.dates == summary.text_count:
        return f"{quote(min(texts))} to {quote(max(texts))}"
    if len(summary.numeric_texts) == summary.text_count:
        return f"strings of numbers, {_describe_numbers(summary.numeric_texts)}"
    frequent = [(text, count) for text, count in texts.most_common(FREQUENT_VALUES) if count > 1]
    if len(texts) <= FREQUENT_VALUES and frequent:
        return ", ".join(f"{quote(text)} {count:,}×" for text, count in texts.most_common())
    more = "over " if summary.distinct_is_bounded else ""
    description = f"string, {more}{len(texts):,} different"
    # Rare repetitions are noise.
    frequent = [(text, count) for text, count in frequent if count * 50 >= summary.text_count and len(text) <= 40][:3]
    if frequent:
        description += f", most often {', '.join(f'{quote(text)} {count:,}×' for text, count in frequent)}"
    if summary.longest_text > MAX_VALUE_CHARS:
        description += f", up to {summary.longest_text:,} characters"
    return description


def format_number(number: float) -> str:
    """Return a number as JSON writes it, with at most ten digits after the point."""
    return str(number) if isinstance(number, int) else f"{round(number, 10):.15g}"


def quote(text: str) -> str:
    """Return a string as JSON, shortened to `MAX_VALUE_CHARS`."""
    if len(text) > MAX_VALUE_CHARS:
        text = f"{text[: MAX_VALUE_CHARS - 1]}…"
    return json.dumps(text, ensure_ascii=False)


def render_structure(summary: FieldSummary, path: str = "$", depth: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the fields of a summary, each with its depth and its line."""
    yield depth, f"{' ' * depth}{path}: {describe_summary(summary)}"
    for name, member in summary.members.items():
        missing = summary.objects - member.count
        line = f"in {member.count:,} of {summary.objects:,}; " if missing > 0 else ""
        for level, text in render_structure(member, name, depth + 1):
            yield level, text.replace(": ", f": {line}", 1) if level == depth + 1 else text
    if summary.items is not None and (summary.items.members or summary.items.items or summary.keys):
        for level, text in render_structure(summary.items, "*" if summary.keys else "[*]", depth + 1):
            yield level, text
    elif summary.items is not None:
        yield depth + 1, f"{' ' * (depth + 1)}[*]: {describe_summary(summary.items)}"
