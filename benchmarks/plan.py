"""What is measured on one catalog, decided beforehand: the same questions for every engine."""

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
VIEWERS = 4
FEW_IDS = 50
MANY_SHARE = 0.1


class Round(TypedDict):
    """One turn. Rounds ask different questions, so that no engine can answer from a cache."""

    searches: list[tuple[str, str]]
    added: list[Row]
    removed: list[tuple[str, str]]


class Plan(TypedDict):
    """The rounds, and the rights of a few viewers who ask by turns."""

    rounds: list[Round]
    few_allowed: list[list[str]]
    many_allowed: list[list[str]]


class Prepared(NamedTuple):
    """A catalog on disk with its plan."""

    title: str
    size: int
    tools: Path
    plan: Path


def generated(size: int, folder: Path, rounds: int, seed: int) -> Prepared:
    """A catalog of generated tools, written tool by tool."""
    tools = folder / f"{size}.jsonl"
    with tools.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows(size, seed))
    return _planned(f"{size:,} generated tools", tools, folder, rounds, [])


def real(data: Path, folder: Path, rounds: int) -> Prepared:
    """The catalog of real MCP servers, asked its hand-written questions and keywords."""
    catalog = data / "mcp_catalog"
    asked = [json.loads(line) for line in (catalog / "queries.jsonl").open(encoding="utf-8")]
    questions = [(ask["query"], (ask["relevant"] or [""])[0]) for ask in asked]
    size = sum(1 for _ in (catalog / "tools.jsonl").open(encoding="utf-8"))
    title = f"{size:,} tools of real MCP servers"
    return _planned(title, catalog / "tools.jsonl", folder, rounds, questions)


def read_rows(tools: Path) -> Iterator[Row]:
    """The rows of a catalog file; real ones leave fields out."""
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


def _planned(title: str, tools: Path, folder: Path, rounds: int, questions: list[tuple[str, str]]) -> Prepared:
    ids = [row["id"] for row in read_rows(tools)]
    chance = random.Random(f"plan {len(ids)}")
    sample = [*itertools.islice(read_rows(tools), 0, None, max(len(ids) // SAMPLE, 1))]
    chance.shuffle(questions)
    chance.shuffle(sample)
    leaving = iter(sample)
    plan = Plan(
        rounds=[
            Round(
                searches=_searches(sample, questions[number::rounds], number),
                added=[*_new_rows(number)],
                removed=[(row["id"], row["name"]) for row in itertools.islice(leaving, CHANGES)],
            )
            for number in range(rounds)
        ],
        few_allowed=_rights(chance, ids, FEW_IDS),
        many_allowed=_rights(chance, ids, max(int(len(ids) * MANY_SHARE), 1)),
    )
    path = folder / f"{tools.stem}.plan.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    return Prepared(title, len(ids), tools, path)


def _searches(sample: list[Row], questions: list[tuple[str, str]], number: int) -> list[tuple[str, str]]:
    """Natural language and keywords by turns; given questions take the place of made-up ones."""
    made = [(query.text, query.source) for query in queries(sample, SEARCHES, number)]
    given = questions[: SEARCHES // 2]
    made[0 : 2 * len(given) : 2] = given
    return made


def _new_rows(number: int) -> Iterable[Row]:
    """Tools that no catalog holds yet, each with a word of its own in its name."""
    for count, row in enumerate(rows(CHANGES, seed=1_000 + number)):
        name = f"{row['name']}_{'xyzw'[number % 4]}q{number}{'abcdefghij'[count]}"
        server = f"newcomer-{number}"
        yield Row(**{**row, "name": name, "server": server, "id": f"{server}___{name}"})


def _rights(chance: random.Random, ids: list[str], count: int) -> list[list[str]]:
    return [chance.sample(ids, min(count, len(ids))) for _ in range(VIEWERS)]
