"""Compare the speed of search with that of peers, in one run: `python -m benchmarks.speed`."""

import argparse
import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from benchmarks import machine
from benchmarks.engines import OURS, ROSTER
from benchmarks.plan import PreparedCatalog, prepare_generated, prepare_real
from benchmarks.report import STEPS, EngineResult, Results, markdown, summarize_rounds
from benchmarks.worker import Built, Timing

REPOSITORY = Path(__file__).parents[1]
DATA = REPOSITORY.parent / "shared" / "data"
BUILD_BUDGETS = 5
WATCH_SECONDS = 0.5
FEWEST_QUERIES = 20


class Limits(NamedTuple):
    """The limits of an engine on one catalog; above them it is skipped."""

    rounds: int
    cap_seconds: float
    memory_bytes: float


class EngineFailed(Exception):
    """An engine could not be measured."""


class EngineProcess:
    """Controls the process of one engine."""

    def __init__(self, name: str, catalog: PreparedCatalog) -> None:
        self.name = name
        command = [sys.executable, "-m", "benchmarks.worker", name]
        self._process = subprocess.Popen(
            [*command, str(catalog.tools), str(catalog.plan)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def build(self, budget_seconds: float | None) -> Built:
        return cast(Built, self._ask(budget_seconds, "build"))

    def time(self, step: str, number: int, budget_seconds: float) -> Timing:
        return cast(Timing, self._ask(None, step, number, budget_seconds))

    def close(self) -> None:
        self._process.communicate()

    def _ask(self, budget_seconds: float | None, *request: object) -> Any:
        """Send a step and wait for its result; kill the process if it exceeds the budget."""
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._process.stdin, flush=True)
        while not select.select([self._process.stdout], [], [], WATCH_SECONDS)[0]:
            if budget_seconds and cpu_seconds(self._process.pid) > budget_seconds:
                self._process.kill()
                raise EngineFailed(f"more than {budget_seconds:.0f} s of CPU to {request[0]}")
        line = self._process.stdout.readline()
        if not line:
            raise EngineFailed(f"its process ended with code {self._process.wait()}")
        return json.loads(line)


def measure_catalog(catalog: PreparedCatalog, names: Sequence[str], earlier: Results | None, limits: Limits) -> Results:
    """Build every engine on one catalog, then measure the steps with all engines alternately."""
    results = Results(title=catalog.title, size=catalog.size, engines={})
    running: dict[str, EngineProcess] = {}
    timings: dict[str, dict[str, list[Timing]]] = {}
    for name in names:
        results["engines"][name] = entry = EngineResult(skipped="", built=None, steps={})
        entry["skipped"] = explain_missing(name) or predict_too_slow(name, catalog.size, earlier, limits)
        if entry["skipped"]:
            print_progress(f"  {name}: skipped, {entry['skipped']}")
            continue
        engine = EngineProcess(name, catalog)
        try:
            entry["built"] = built = engine.build(_build_budget(name, limits))
            running[name] = engine
            print_progress(f"  {name}: built in {built['fit_seconds']:.2f} s")
        except EngineFailed as fault:
            entry["skipped"] = str(fault)
            print_progress(f"  {name}: skipped, {fault}")
            engine.close()
    for number in range(limits.rounds):
        print_progress(f"  round {number + 1} of {limits.rounds}")
        for step in STEPS:
            for name, engine in _rotate(running, number):
                budget = limits.cap_seconds / limits.rounds
                try:
                    taken = engine.time(step, number, budget)
                except EngineFailed as fault:
                    results["engines"][name] = EngineResult(skipped=str(fault), built=None, steps={})
                    del running[name]
                    continue
                timings.setdefault(name, {}).setdefault(step, []).append(taken)
    for name, engine in running.items():
        engine.close()
        steps = timings[name]
        results["engines"][name]["steps"] = {step: summarize_rounds(steps[step]) for step in STEPS}
    return results


def explain_missing(name: str) -> str:
    """Return why a peer cannot run, or an empty text. Toolcrib may be a checkout that is not installed."""
    return "not installed" if name != OURS and ROSTER[name].version is None else ""


def predict_too_slow(name: str, size: int, earlier: Results | None, limits: Limits) -> str:
    """Return why an engine is skipped at this size, estimated from the size before, or an empty text."""
    if earlier is None or name == OURS:
        return ""
    before = earlier["engines"][name]
    if before["built"] is None:
        return f"skipped at {earlier['size']:,} already: {before['skipped']}"
    factor = size / earlier["size"]
    build = before["built"]["fit_seconds"] * factor
    query = before["steps"]["search"]["p50_us"] * factor / 1e6
    memory = before["built"]["process_bytes"] * factor
    expected = f"expected from {earlier['size']:,} tools"
    if build > limits.cap_seconds * BUILD_BUDGETS:
        return f"about {build:.0f} s to build, {expected}"
    if query * FEWEST_QUERIES > limits.cap_seconds:
        return f"about {query:.0f} s a query, {expected}"
    if memory > limits.memory_bytes:
        return f"about {memory / 1e9:.0f} GB of memory, {expected}"
    return ""


def catalogs(sizes: Sequence[int], data: Path, folder: Path, rounds: int) -> Iterator[PreparedCatalog]:
    """Yield the real catalog if it exists, then the generated ones by size."""
    if (data / "mcp_catalog" / "tools.jsonl").exists():
        yield prepare_real(data, folder, rounds)
    else:
        print_progress("real catalog skipped: no mcp_catalog/tools.jsonl in the data folder (--data)")
    for size in sorted(sizes):
        print_progress(f"generating {size:,} tools")
        yield prepare_generated(size, folder, rounds, seed=0)


def write_results(table: Path, imports: list[machine.Import], results: list[Results]) -> None:
    """Write the table and its data, after every catalog, so that you can stop a long run."""
    table.parent.mkdir(parents=True, exist_ok=True)
    described = machine.describe_machine()
    figures = {"machine": described, "imports": imports, "catalogs": results}
    table.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    table.write_text(markdown(described, imports, results), encoding="utf-8")


def cpu_seconds(process: int) -> float:
    """Return the CPU time of another process. A timer inside that process would make its clock coarse."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def print_progress(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def _build_budget(name: str, limits: Limits) -> float | None:
    return None if name == OURS else limits.cap_seconds * BUILD_BUDGETS


def _rotate(running: dict[str, EngineProcess], number: int) -> list[tuple[str, EngineProcess]]:
    items = [*running.items()]
    start = number % max(len(items), 1)
    return items[start:] + items[:start]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--sizes", default="100,1000,10000", help="generated catalogs, in tools")
    parser.add_argument("--peers", default="all", help=f"some of: {', '.join(ROSTER)}; or all")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("TOOLCRIB_DATA", DATA)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cap-seconds", type=float, default=60.0, help="CPU a step and catalog")
    parser.add_argument("--memory-gb", type=float, default=6.0, help="most an engine may need")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "benchmarks/results/speed.md")
    return parser.parse_args()


def main() -> None:
    """Measure all catalogs and write the table and its data."""
    given = _arguments()
    peers = [*ROSTER] if given.peers == "all" else given.peers.split(",")
    names = [OURS, *(name for name in peers if name != OURS)]
    if unknown := [name for name in names if name not in ROSTER]:
        sys.exit(f"unknown peer {unknown[0]!r}; there are {', '.join(ROSTER)}")
    limits = Limits(given.rounds, given.cap_seconds, given.memory_gb * 1e9)
    print_progress("imports")
    statements = [ROSTER[name].statement for name in names if not explain_missing(name)]
    # Importing the package may cost less than importing names from it.
    imports = [machine.measure_import(line) for line in dict.fromkeys(["import toolcrib", *statements])]
    results: list[Results] = []
    earlier: Results | None = None
    with tempfile.TemporaryDirectory() as folder:
        sizes = [int(size) for size in given.sizes.split(",") if size]
        for catalog in catalogs(sizes, given.data, Path(folder), limits.rounds):
            print_progress(catalog.title)
            results.append(measure_catalog(catalog, names, earlier, limits))
            if "generated" in catalog.title:
                earlier = results[-1]
            write_results(given.out, imports, results)
    print_progress(f"wrote {given.out}")


if __name__ == "__main__":
    main()
