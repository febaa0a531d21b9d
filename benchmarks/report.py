"""Timings into figures, figures into Markdown."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import TypedDict

from benchmarks.engines import OURS, ROSTER
from benchmarks.machine import Import
from benchmarks.worker import Built, Timing

STEPS = {
    "search": "query",
    "search_server": "one server",
    "search_few": "50 ids",
    "search_many": "10 % of ids",
    "add": "add one",
    "remove": "remove one",
}
MICROSECOND = 1_000
MEGABYTE = 1e6
ENOUGH_FOR_P99 = 100
HOW_TO_READ = """\
Process CPU time, all threads counted, the best of the interleaved rounds; each engine in a fresh
process. Medians, with the 99th percentile in brackets where there were 100 tries or more.

- **query**: top 10, half natural language, half keywords, every round with questions of its own.
- **found**: how often the tool a question was made from is among the ten: a check that the work was
  done, not a measure of quality.
- **build**: from the engine's own tool objects to findable.
- **index**: growth of resident memory during the build, the tool objects not counted. **process**:
  all of it after the build, interpreter, libraries and tools included. **peak**: the most it was.
- **add**, **remove**: one tool, until a search finds it, or finds it no more, that search included.
- Filters rotate over viewers, as requests do: an index kept per viewer is built anew when the
  viewer changes.
"""


class Figure(TypedDict):
    """One step of one engine."""

    p50_us: float
    p99_us: float
    change_p50_us: float
    samples: int
    right: float


class Measured(TypedDict):
    """One engine on one catalog, or why it is not here."""

    skipped: str
    built: Built | None
    steps: dict[str, Figure]


class Results(TypedDict):
    """All engines on one catalog."""

    title: str
    size: int
    engines: dict[str, Measured]


def figure(rounds: Sequence[Timing]) -> Figure:
    """The best round counts: neighbours on a shared machine only ever add time."""
    samples = sum(len(timing["nanoseconds"]) for timing in rounds)
    changes = [timing["change_nanoseconds"] for timing in rounds if timing["change_nanoseconds"]]
    return Figure(
        p50_us=min(quantile(timing["nanoseconds"], 0.5) for timing in rounds) / MICROSECOND,
        p99_us=min(quantile(timing["nanoseconds"], 0.99) for timing in rounds) / MICROSECOND,
        change_p50_us=min((statistics.median(c) for c in changes), default=0) / MICROSECOND,
        samples=samples,
        right=sum(timing["right"] for timing in rounds) / samples,
    )


def quantile(values: Sequence[int], share: float) -> float:
    """The value that this share of values does not exceed."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def markdown(machine: dict[str, str], imports: Sequence[Import], results: Sequence[Results]) -> str:
    """The whole page."""
    described = ", ".join(
        [machine["processor"], f"{machine['cores']} cores", machine["memory"], machine["system"], machine["python"]]
    )
    parts = ["# Speed, beside peers", f"Measured on: {described}.", HOW_TO_READ]
    parts += ["## Import", _imports(imports)]
    for catalog in results:
        parts += [f"## {catalog['title']}", _figures(catalog), _ratios(catalog)]
        parts += _remarks(catalog)
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _imports(imports: Sequence[Import]) -> str:
    ours = next(i["seconds"] for i in imports if i["statement"] == ROSTER[OURS].statement)
    return _table(
        ["statement, in a fresh interpreter", "CPU ms", "times ours", "modules", "of which heavy"],
        (
            [
                f"`{cost['statement']}`",
                f"{cost['seconds'] * 1_000:.0f}",
                _times(cost["seconds"] / ours),
                str(cost["modules"]),
                " ".join(cost["heavy"]) or "none",
            ]
            for cost in imports
        ),
    )


def _figures(catalog: Results) -> str:
    header = ["engine", "build s", "index MB", "process MB", "peak MB", "found"]
    header += [f"{title}, us" for title in STEPS.values()]
    return _table(header, (_row(name, entry) for name, entry in _present(catalog)))


def _row(name: str, entry: Measured) -> list[str]:
    built = entry["built"]
    assert built is not None
    return [
        ROSTER[name].full_title,
        f"{built['fit_seconds']:.3g}",
        f"{built['index_bytes'] / MEGABYTE:.0f}",
        f"{built['process_bytes'] / MEGABYTE:.0f}",
        f"{built['peak_bytes'] / MEGABYTE:.0f}",
        f"{entry['steps']['search']['right']:.0%}",
        *(_time(step) for step in entry["steps"].values()),
    ]


def _ratios(catalog: Results) -> str:
    present = dict(_present(catalog))
    ours = present.pop(OURS, None)
    if ours is None or not present:
        return ""
    columns: dict[str, Callable[[Measured], float]] = {
        "build": lambda entry: entry["built"]["fit_seconds"] if entry["built"] else 0,
        "query p99": lambda entry: entry["steps"]["search"]["p99_us"],
    }
    for step, title in STEPS.items():
        columns[title] = lambda entry, step=step: entry["steps"][step]["p50_us"]  # type: ignore[misc]
    rows = (
        [ROSTER[name].full_title, *(f"{_times(value(entry) / value(ours))}" for value in columns.values())]
        for name, entry in present.items()
    )
    return "Times ours (above 1: we are faster), p50 unless said:\n\n" + _table(["peer", *columns], rows)


def _remarks(catalog: Results) -> list[str]:
    """Who is not in the table and why, and who gave wrong answers."""
    lines = [
        f"- {ROSTER[name].full_title} was left out: {entry['skipped']}."
        for name, entry in catalog["engines"].items()
        if entry["skipped"]
    ]
    lines += [
        f"- {ROSTER[OURS].title}, {STEPS[step]}: "
        f"{_short(entry['steps'][step]['change_p50_us'])} us without the search that follows."
        for name, entry in _present(catalog)
        if name == OURS
        for step in ("add", "remove")
    ]
    lines += [
        f"- {ROSTER[name].full_title}, {STEPS[step]}: {1 - figure['right']:.0%} wrong answers."
        for name, entry in _present(catalog)
        for step, figure in entry["steps"].items()
        if step != "search" and figure["right"] < 1
    ]
    return ["\n".join(lines)] if lines else []


def _present(catalog: Results) -> Iterable[tuple[str, Measured]]:
    return ((name, entry) for name, entry in catalog["engines"].items() if entry["built"])


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _time(step: Figure) -> str:
    p50 = _short(step["p50_us"])
    return f"{p50} ({_short(step['p99_us'])})" if step["samples"] >= ENOUGH_FOR_P99 else p50


def _short(microseconds: float) -> str:
    if microseconds < 1_000:
        return f"{microseconds:.0f}"
    return f"{microseconds / 1_000:.3g}k" if microseconds < 1e6 else f"{microseconds / 1e6:.3g}M"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 10 else f"{ratio:.2g}x"
