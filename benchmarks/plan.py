"""The plan of a speed measurement: the same queries and changes for every engine."""

import itertools
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypedDict

from benchmarks.generate import Row, queries, rows

SEARCHES = 200
FILTERED = 100
CHANGES = 10
SAMPLE = 2_000
USERS = 4
FEW_IDS = 50
MANY_SHARE = 0.1


class Round(TypedDict):
    """One round. Rounds have different queries, so that no engine can answer from a cache."""

    searches: list[tuple[str, str]]
    added: list[Row]
    removed: list[tuple[str, str]]


class Plan(TypedDict):
    """The rounds, and the access rights of a few users who search alternately."""

    rounds: list[Round]
    few_allowed: list[list[str]]
    many_allowed: list[list[str]]


class PreparedCatalog(NamedTuple):
    """A catalog on disk with its plan."""

    title: str
    size: int
    tools: Path
    plan: Path


def prepare_generated(size: int, folder: Path, rounds: int, seed: int) -> PreparedCatalog:
    """Write a catalog of generated tools and its plan."""
    tools = folder / f"{size}.jsonl"
    with tools.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows(size, seed))
    return _write_plan(f"{size:,} generated tools", tools, folder, rounds, [])


def prepare_real(data: Path, folder: Path, rounds: int) -> PreparedCatalog:
    """Write the plan of the catalog of real MCP servers, with its hand-written queries."""
    catalog = data / "mcp_catalog"
    entries = [json.loads(line) for line in (catalog / "queries.jsonl").open(encoding="utf-8")]
    questions = [(entry["query"], (entry["relevant"] or [""])[0]) for entry in entries]
    size = sum(1 for _ in (catalog / "tools.jsonl").open(encoding="utf-8"))
    title = f"{size:,} tools of real MCP servers"
    return _write_plan(title, catalog / "tools.jsonl", folder, rounds, questions)


def read_rows(tools: Path) -> Iterator[Row]:
    """Yield the rows of a catalog file, with defaults for missing fields."""
    with tools.open(encoding="utf-8") as lines:
        for line in lines:
            fields = json.loads(line)
            yield Row(
                id=fields["id"],
                name=fields["name"],
                description=fields.get("description") or "",
                input_schema=fields.get("input_schema") or {},
                server=fields.get("server") or "",
                category=fields.get("category") or "",
                tags=fields.get("tags") or [],
            )


def _write_plan(
    title: str, tools: Path, folder: Path, rounds: int, questions: list[tuple[str, str]]
) -> PreparedCatalog:
    ids = [row["id"] for row in read_rows(tools)]
    rng = random.Random(f"plan {len(ids)}")
    sample = [*itertools.islice(read_rows(tools), 0, None, max(len(ids) // SAMPLE, 1))]
    rng.shuffle(questions)
    rng.shuffle(sample)
    removed_rows = iter(sample)
    plan = Plan(
        rounds=[
            Round(
                searches=_searches(sample, questions[number::rounds], number),
                added=[*_new_rows(number)],
                removed=[(row["id"], row["name"]) for row in itertools.islice(removed_rows, CHANGES)],
            )
            for number in range(rounds)
        ],
        few_allowed=_rights(rng, ids, FEW_IDS),
        many_allowed=_rights(rng, ids, max(int(len(ids) * MANY_SHARE), 1)),
    )
    path = folder / f"{tools.stem}.plan.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    return PreparedCatalog(title, len(ids), tools, path)


def _searches(sample: list[Row], questions: list[tuple[str, str]], number: int) -> list[tuple[str, str]]:
    """Return natural language and keyword queries alternately; hand-written queries replace the generated ones."""
    searches = [(query.text, query.source) for query in queries(sample, SEARCHES, number)]
    written = questions[: SEARCHES // 2]
    searches[0 : 2 * len(written) : 2] = written
    return searches


def _new_rows(number: int) -> Iterable[Row]:
    """Yield tools that are in no catalog yet, each with a unique word in its name."""
    for count, row in enumerate(rows(CHANGES, seed=1_000 + number)):
        name = f"{row['name']}_{'xyzw'[number % 4]}q{number}{'abcdefghij'[count]}"
        server = f"newcomer-{number}"
        yield Row(**{**row, "name": name, "server": server, "id": f"{server}___{name}"})


def _rights(rng: random.Random, ids: list[str], count: int) -> list[list[str]]:
    return [rng.sample(ids, min(count, len(ids))) for _ in range(USERS)]
