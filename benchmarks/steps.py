"""Find the tools for all steps of a request: hand-written requests for tools of servers that no training has seen.

python -m benchmarks.steps [--data DIR] [--vectors FILE] [--out FILE]

`steps.jsonl` holds the requests and, for each step, the ids of the tools that serve it. Half of them (`dev`)
chose the rules and weights, the other half (`test`) is only measured. The catalog has the tools of the
held-back servers of two collections, as `training.servers` splits them.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from unittest.mock import patch

import click

from benchmarks.context import data_folder
from benchmarks.machine import describe_machine
from toolcrib.core.catalog import Catalog
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.evaluation.eval_set import EvalQuery
from toolcrib.evaluation.runner import build_rankers, run_queries
from toolcrib.search.engine import SearchEngine
from toolcrib.search.query.parser import parse_query
from training.data import read_data

ROOT = Path(__file__).resolve().parent.parent
QUERIES: Final = Path(__file__).with_name("steps.jsonl")
COLLECTIONS: Final = ("catalog_toucan", "catalog_mcpzero")
SPLITS: Final = ("dev", "test")
WITHOUT_SEGMENTS: Final = "hybrid, not split into segments"
# Where queries are split.
PLACE: Final = "toolcrib.search.query.parser.split_segments"


def read_requests(split: str) -> list[EvalQuery]:
    """Return the requests of one half."""
    rows = [json.loads(line) for line in QUERIES.read_text(encoding="utf-8").splitlines()]
    return [
        EvalQuery(id=row["id"], text=row["query"], targets=tuple(map(frozenset, row["groups"])), has_steps=True)
        for row in rows
        if row["split"] == split
    ]


def measure(engine: SearchEngine, requests: Iterable[EvalQuery], mode: str) -> float:
    """Return the share of the requests with a tool for every step in the top five, in percent."""
    found = [result.scores.all_steps_5 for result in run_queries(engine, requests, mode) if result.scores]
    return 100 * sum(found) / len(found)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Folder that holds the catalogs and training_pairs.")
@click.option("--vectors", type=click.Path(path_type=Path), help="File that keeps tool vectors between runs.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks/results/steps.md")
def main(data: Path | None, vectors: Path | None, out: Path) -> None:
    """Measure, and write the table."""
    training = read_data(data_folder(data))
    tools = [
        tool for key, tool in training.tools.items() if key[0] in COLLECTIONS and training.sides[key] in ("dev", "test")
    ]
    rankers = build_rankers(CachedEmbedder(DEFAULT_ENCODER, DEFAULT_ENCODER.version, vectors, capacity=20_000))
    modes = ("lexical", "dense", "hybrid")
    engine = SearchEngine(Catalog(tools), {mode: rankers[mode] for mode in modes})
    for mode in modes:
        engine.warm_up(mode)
    halves = [read_requests(split) for split in SPLITS]
    rows = {mode: [measure(engine, half, mode) for half in halves] for mode in modes}
    parse_query.cache_clear()
    with patch(PLACE, lambda query: (query,)):
        rows[WITHOUT_SEGMENTS] = [measure(engine, half, "hybrid") for half in halves]
    parse_query.cache_clear()
    text = "\n".join(
        [
            "# Requests with several steps",
            "",
            f"{sum(map(len, halves))} requests over {len(tools):,} tools of servers that the training of an encoder "
            "leaves out: for which percentage the top five have a tool for every step. The first half chose the rules "
            f"and weights. Made by `python -m benchmarks.steps` in {describe_machine()['python']}.",
            "",
            f"| | {' | '.join(f'{split} ({len(half)})' for split, half in zip(SPLITS, halves, strict=True))} |",
            "|---|---:|---:|",
            *(f"| {name} | {' | '.join(f'{value:.1f}' for value in values)} |" for name, values in rows.items()),
            "",
        ]
    )
    out.write_text(text, encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()
