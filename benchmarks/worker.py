"""One engine in a process of its own: asked a step at a time, so that engines take turns.

Times are process CPU time, all threads counted. Run by `benchmarks.speed`; requests and answers
are lines of JSON on standard input and output.
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
    """What it took to hold the tools and to make them findable."""

    prepare_seconds: float
    fit_seconds: float
    tools_bytes: int
    index_bytes: int
    process_bytes: int
    peak_bytes: int


class Timing(TypedDict):
    """What a step took, one value a try, and how often the answer was as it should be."""

    nanoseconds: list[int]
    change_nanoseconds: list[int]
    right: int


class Try(NamedTuple):
    """A search, and whether what it found is right."""

    search: Callable[[], list[str]]
    right: Callable[[list[str]], bool]


class Change(NamedTuple):
    """An addition or a removal of the tool with this id and name."""

    act: Callable[[], None]
    id: str
    name: str


class Worker:
    """Builds one engine, then times the steps of a plan on it."""

    def __init__(self, engine: str, tools: Path, plan: Path) -> None:
        module = importlib.import_module(f"benchmarks.engines.{engine}")
        self._engine: Contender[Any] = module.contender()
        self._tools = tools
        self._plan_path = plan

    def build(self) -> Built:
        """Read the tools into the engine's own form, then fit."""
        before = resident_bytes()
        feed = Feed(read_rows(self._tools))
        started = process_time()
        tools = [self._engine.prepare(row) for row in feed]
        prepared, loaded = process_time(), resident_bytes()
        self._engine.fit(tools)
        fitted, grown = process_time(), resident_bytes()
        # From here on an engine holds only what it needs.
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
        """Plain searches. Right: the tool the question was made from is among the ten."""
        searches = self._plan["rounds"][number]["searches"]
        tries = [Try(partial(self._engine.search, query), partial(_holds, source)) for query, source in searches]
        return _timed(tries, budget_seconds)

    def search_server(self, number: int, budget_seconds: float) -> Timing:
        """Searches in one server each. Right: nothing of another server."""
        tries = [
            Try(partial(self._engine.search_server, query, server), partial(_all_of, server))
            for query, source in self._filtered(number)
            if (server := source.partition("___")[0])
        ]
        return _timed(tries, budget_seconds)

    def search_few(self, number: int, budget_seconds: float) -> Timing:
        """Searches among 50 allowed ids, other ones for each viewer. Right: only those."""
        return self._allowed(self._few, number, budget_seconds)

    def search_many(self, number: int, budget_seconds: float) -> Timing:
        """Searches among a tenth of the ids, another one for each viewer. Right: only those."""
        return self._allowed(self._many, number, budget_seconds)

    def add(self, number: int, budget_seconds: float) -> Timing:
        """Add tools one at a time. Right: a search for the name finds it."""
        rows = self._plan["rounds"][number]["added"]
        changes = [Change(partial(self._engine.add, self._engine.prepare(row)), row["id"], row["name"]) for row in rows]
        return self._changed(changes, True, budget_seconds)

    def remove(self, number: int, budget_seconds: float) -> Timing:
        """Remove tools one at a time. Right: a search for the name finds it no more."""
        leaving = self._plan["rounds"][number]["removed"]
        changes = [Change(partial(self._engine.remove, id), id, name) for id, name in leaving]
        return self._changed(changes, False, budget_seconds)

    def _filtered(self, number: int) -> list[tuple[str, str]]:
        return self._plan["rounds"][number]["searches"][:FILTERED]

    def _allowed(self, viewers: list[frozenset[str]], number: int, budget_seconds: float) -> Timing:
        tries = [
            Try(partial(self._engine.search_allowed, query, allowed), allowed.issuperset)
            for (query, _), allowed in zip(self._filtered(number), itertools.cycle(viewers))
        ]
        return _timed(tries, budget_seconds)

    def _changed(self, changes: list[Change], findable: bool, budget_seconds: float) -> Timing:
        timing = Timing(nanoseconds=[], change_nanoseconds=[], right=0)
        for change in _within(changes, budget_seconds):
            started = process_time_ns()
            change.act()
            changed = process_time_ns()
            found = self._engine.search(change.name)
            timing["nanoseconds"].append(process_time_ns() - started)
            timing["change_nanoseconds"].append(changed - started)
            timing["right"] += (change.id in found) is findable
        return timing


class Feed:
    """Rows, a chunk at a time; the time spent making them is kept apart."""

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
    """What the process holds in memory now."""
    return _status("VmRSS")


def peak_bytes() -> int:
    """The most it ever held."""
    return _status("VmHWM")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def _timed(tries: list[Try], budget_seconds: float) -> Timing:
    for warm_up in tries[:WARM_UP]:
        warm_up.search()
    timing = Timing(nanoseconds=[], change_nanoseconds=[], right=0)
    for one in _within(tries, budget_seconds):
        started = process_time_ns()
        found = one.search()
        timing["nanoseconds"].append(process_time_ns() - started)
        timing["right"] += one.right(found)
    return timing


def _within(items: Iterable[Item], budget_seconds: float) -> Iterator[Item]:
    """As many items as fit the budget, one at least."""
    limit = process_time() + budget_seconds
    for count, item in enumerate(items):
        if count and process_time() > limit:
            return
        yield item


def _holds(id: str, found: list[str]) -> bool:
    return id in found


def _all_of(server: str, found: list[str]) -> bool:
    return all(id.startswith(f"{server}___") for id in found)


def main() -> None:
    """Serve the parent: a line in, a line out."""
    # What a peer prints must not mix with our answers.
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
