"""A process that runs one engine, step by step, so that engines alternate.

Times are CPU times of the process, all threads. `benchmarks.speed` starts it; requests and responses are lines of
JSON on standard input and output.
"""

import importlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from time import process_time, process_time_ns
from typing import Any, NamedTuple, TypedDict, TypeVar

from benchmarks.engines.contender import Contender
from benchmarks.generate import Row
from benchmarks.plan import FILTERED, Plan, read_rows

CHUNK = 1_000
WARM_UP = 5

Item = TypeVar("Item")


class Built(TypedDict):
    """The time and memory to load the tools and to build the index."""

    prepare_seconds: float
    fit_seconds: float
    tools_bytes: int
    index_bytes: int
    process_bytes: int
    peak_bytes: int


class Timing(TypedDict):
    """The times of a step, one per sample, and the number of right results."""

    nanoseconds: list[int]
    change_nanoseconds: list[int]
    right: int


class SearchCheck(NamedTuple):
    """A search, and a check of its result."""

    search: Callable[[], list[str]]
    right: Callable[[list[str]], bool]


class Change(NamedTuple):
    """The addition or the removal of a tool."""

    act: Callable[[], None]
    id: str
    name: str


class Worker:
    """Builds one engine and measures the steps of a plan."""

    def __init__(self, engine: str, tools: Path, plan: Path) -> None:
        module = importlib.import_module(f"benchmarks.engines.{engine}")
        self._engine: Contender[Any] = module.contender()
        self._tools = tools
        self._plan_path = plan

    def build(self) -> Built:
        """Convert the tools to the objects of the engine and build its index."""
        before = resident_bytes()
        feed = RowReader(read_rows(self._tools))
        started = process_time()
        tools = [self._engine.prepare(row) for row in feed]
        prepared, loaded = process_time(), resident_bytes()
        self._engine.fit(tools)
        fitted, grown = process_time(), resident_bytes()
        # From now on the engine keeps only what it needs.
        del tools
        built = Built(
            prepare_seconds=prepared - started - feed.seconds,
            fit_seconds=fitted - prepared,
            tools_bytes=loaded - before,
            index_bytes=grown - loaded,
            process_bytes=resident_bytes(),
            peak_bytes=peak_bytes(),
        )
        self._plan: Plan = json.loads(self._plan_path.read_text(encoding="utf-8"))
        self._few = [frozenset(ids) for ids in self._plan["few_allowed"]]
        self._many = [frozenset(ids) for ids in self._plan["many_allowed"]]
        return built

    def search(self, number: int, budget_seconds: float) -> Timing:
        """Measure plain searches. A result is right if it has the tool of the query."""
        searches = self._plan["rounds"][number]["searches"]
        checks = [
            SearchCheck(partial(self._engine.search, query), partial(_has_id, source)) for query, source in searches
        ]
        return _measure_searches(checks, budget_seconds)

    def search_server(self, number: int, budget_seconds: float) -> Timing:
        """Measure searches in one server. A result is right if it has no tool of another server."""
        checks = [
            SearchCheck(partial(self._engine.search_server, query, server), partial(_has_only_server, server))
            for query, source in self._filtered_searches(number)
            if (server := source.partition("___")[0])
        ]
        return _measure_searches(checks, budget_seconds)

    def search_few(self, number: int, budget_seconds: float) -> Timing:
        """Measure searches among 50 allowed ids, which differ by user. A result is right if it has only those."""
        return self._measure_allowed(self._few, number, budget_seconds)

    def search_many(self, number: int, budget_seconds: float) -> Timing:
        """Measure searches among a tenth of the ids, which differ by user. A result is right if it has only those."""
        return self._measure_allowed(self._many, number, budget_seconds)

    def add(self, number: int, budget_seconds: float) -> Timing:
        """Measure the addition of single tools. It is right if a search for the name finds the tool."""
        rows = self._plan["rounds"][number]["added"]
        changes = [Change(partial(self._engine.add, self._engine.prepare(row)), row["id"], row["name"]) for row in rows]
        return self._measure_changes(changes, True, budget_seconds)

    def remove(self, number: int, budget_seconds: float) -> Timing:
        """Measure the removal of single tools. It is right if a search for the name no longer finds the tool."""
        removed = self._plan["rounds"][number]["removed"]
        changes = [Change(partial(self._engine.remove, id), id, name) for id, name in removed]
        return self._measure_changes(changes, False, budget_seconds)

    def _filtered_searches(self, number: int) -> list[tuple[str, str]]:
        return self._plan["rounds"][number]["searches"][:FILTERED]

    def _measure_allowed(self, users: list[frozenset[str]], number: int, budget_seconds: float) -> Timing:
        checks = [
            SearchCheck(partial(self._engine.search_allowed, query, allowed), allowed.issuperset)
            for (query, _), allowed in zip(self._filtered_searches(number), itertools.cycle(users))
        ]
        return _measure_searches(checks, budget_seconds)

    def _measure_changes(self, changes: list[Change], findable: bool, budget_seconds: float) -> Timing:
        timing = Timing(nanoseconds=[], change_nanoseconds=[], right=0)
        for change in _take_within(changes, budget_seconds):
            started = process_time_ns()
            change.act()
            changed = process_time_ns()
            found = self._engine.search(change.name)
            timing["nanoseconds"].append(process_time_ns() - started)
            timing["change_nanoseconds"].append(changed - started)
            timing["right"] += (change.id in found) is findable
        return timing


class RowReader:
    """Yields rows in chunks and measures the time to read them."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self._rows = rows
        self.seconds = 0.0

    def __iter__(self) -> Iterator[Row]:
        while True:
            started = process_time()
            chunk = [*itertools.islice(self._rows, CHUNK)]
            self.seconds += process_time() - started
            if not chunk:
                return
            yield from chunk


def resident_bytes() -> int:
    """Return the resident memory of the process."""
    return _status("VmRSS")


def peak_bytes() -> int:
    """Return the largest resident memory of the process so far."""
    return _status("VmHWM")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def _measure_searches(checks: list[SearchCheck], budget_seconds: float) -> Timing:
    for warm_up in checks[:WARM_UP]:
        warm_up.search()
    timing = Timing(nanoseconds=[], change_nanoseconds=[], right=0)
    for one in _take_within(checks, budget_seconds):
        started = process_time_ns()
        found = one.search()
        timing["nanoseconds"].append(process_time_ns() - started)
        timing["right"] += one.right(found)
    return timing


def _take_within(items: Iterable[Item], budget_seconds: float) -> Iterator[Item]:
    """Yield items until the time budget is used up, at least one."""
    limit = process_time() + budget_seconds
    for count, item in enumerate(items):
        if count and process_time() > limit:
            return
        yield item


def _has_id(id: str, found: list[str]) -> bool:
    return id in found


def _has_only_server(server: str, found: list[str]) -> bool:
    return all(id.startswith(f"{server}___") for id in found)


def main() -> None:
    """Run the steps that the parent process sends."""
    # The output of a peer must not mix with the responses.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    engine, tools, plan = sys.argv[1:]
    worker = Worker(engine, Path(tools), Path(plan))
    for line in sys.stdin:
        step, *arguments = json.loads(line)
        answer = getattr(worker, step)(*arguments)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
