"""Summarize the timings of a speed measurement and render them as Markdown."""

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
CPU time of the process, all threads, from the best of the interleaved rounds. Each engine runs in a new
process. Medians, with the 99th percentile in brackets if there were at least 100 samples.

- **query**: top 10; half natural language, half keywords; different queries in every round.
- **found**: how often the tool of a query is among the ten. This checks that the engine searches; it is no
  measure of quality.
- **build**: from the engine's tool objects to a searchable index.
- **index**: growth of the resident memory during the build, without the tool objects. **process**: all resident
  memory after the build. **peak**: its maximum.
- **add**, **remove**: one tool, including the search that finds it, or no longer finds it.
- Filters alternate between users, as in a server. An engine that keeps an index per user rebuilds it for
  every user.
"""


class Figure(TypedDict):
    """The figures of one step of one engine."""

    p50_us: float
    p99_us: float
    change_p50_us: float
    samples: int
    right: float


class EngineResult(TypedDict):
    """The figures of one engine on one catalog, or the reason why it was skipped."""

    skipped: str
    built: Built | None
    steps: dict[str, Figure]


class Results(TypedDict):
    """The results of all engines on one catalog."""

    title: str
    size: int
    engines: dict[str, EngineResult]


def summarize_rounds(rounds: Sequence[Timing]) -> Figure:
    """Return the figures of the best round, because other load on the machine only adds time."""
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
    """Return the value that this share of the values does not exceed."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def markdown(machine: dict[str, str], imports: Sequence[Import], results: Sequence[Results]) -> str:
    """Return the whole page."""
    described = ", ".join(
        [machine["processor"], f"{machine['cores']} cores", machine["memory"], machine["system"], machine["python"]]
    )
    parts = ["# Speed, compared with peers", f"Measured on: {described}.", HOW_TO_READ]
    parts += ["## Import", _imports(imports)]
    for catalog in results:
        parts += [f"## {catalog['title']}", _figures(catalog), _ratios(catalog)]
        parts += _remarks(catalog)
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def _imports(imports: Sequence[Import]) -> str:
    ours = next(i["seconds"] for i in imports if i["statement"] == ROSTER[OURS].statement)
    return _table(
        ["statement, in a fresh interpreter", "CPU ms", "ratio", "modules", "of which heavy"],
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


def _row(name: str, entry: EngineResult) -> list[str]:
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
    columns: dict[str, Callable[[EngineResult], float]] = {
        "build": lambda entry: entry["built"]["fit_seconds"] if entry["built"] else 0,
        "query p99": lambda entry: entry["steps"]["search"]["p99_us"],
    }
    for step, title in STEPS.items():
        columns[title] = lambda entry, step=step: entry["steps"][step]["p50_us"]  # type: ignore[misc]
    rows = (
        [ROSTER[name].full_title, *(f"{_times(value(entry) / value(ours))}" for value in columns.values())]
        for name, entry in present.items()
    )
    return "Multiples of Toolcrib (above 1: Toolcrib is faster), p50 unless noted:\n\n" + _table(
        ["peer", *columns], rows
    )


def _remarks(catalog: Results) -> list[str]:
    """Return notes about engines that were skipped or returned wrong results."""
    lines = [
        f"- {ROSTER[name].full_title} was skipped: {entry['skipped']}."
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
        f"- {ROSTER[name].full_title}, {STEPS[step]}: {1 - figure['right']:.0%} wrong results."
        for name, entry in _present(catalog)
        for step, figure in entry["steps"].items()
        if step != "search" and figure["right"] < 1
    ]
    return ["\n".join(lines)] if lines else []


def _present(catalog: Results) -> Iterable[tuple[str, EngineResult]]:
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
