"""Measure how many requests are refused, rightly and wrongly, in catalogs of several sizes.

python -m benchmarks.confidence [--data DIR] [--vectors FILE] [--mode MODE] [--out FILE]

Catalogs of 20, 60, 200 and 1,000 tools are drawn server by server from `mcp_catalog`. The requests are for tools of servers on which neither
the encoder was trained nor the weights of the confidence were fitted (`benchmarks.calibrate`). A request for
a tool of a drawn server is answerable. A request for a tool of another server is impossible, unless a tool
of the catalog has the same name or nearly the same vector. For the largest test, half of these servers are
removed from the whole collection. The demo catalog has 30 answerable and 30 impossible requests.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click
import numpy as np

from benchmarks.context import data_folder
from benchmarks.held_back import RequestSource
from toolcrib.core.catalog import Catalog
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.evaluation.eval_set import read_eval_set
from toolcrib.evaluation.runner import build_rankers
from toolcrib.evaluation.summary import RocAuc
from toolcrib.search.engine import SearchEngine
from training.data import read_data

DEMO: Final = Path(__file__).with_name("demo_requests")
# Sizes of the drawn catalogs, and how many are drawn.
SIZES: Final = {20: 8, 60: 6, 200: 4, 1_000: 2}
MEASURED: Final = ("mcp_catalog",)
PARTS: Final = 2
MAX_REQUESTS: Final = 60
# A tool of another server with this similarity may serve the request too.
MAX_SIMILARITY: Final = 0.75


class Case(NamedTuple):
    """A catalog, a request, and whether a tool of the catalog serves it."""

    group: str
    engine: SearchEngine
    request: str
    is_answerable: bool


def build_cases(data: Path, embedder: CachedEmbedder, mode: str, max_similarity: float) -> Iterator[Case]:
    """Yield every case, catalog by catalog."""
    rankers = {mode: build_rankers(embedder)[mode]}
    chance = random.Random(1)
    demo = read_eval_set(DEMO)
    engine = SearchEngine(demo.catalog, rankers)
    yield from (Case("demo catalog", engine, query.text, not query.is_impossible) for query in demo.queries)
    training = read_data(data)
    sources = [RequestSource(training, collection, embedder, "measure") for collection in MEASURED]
    drawn = [
        (f"{size:,} tools", source, source.draw_catalog(size, chance))
        for size, count in SIZES.items()
        for source in sources
        for _ in range(count)
    ]
    drawn += [
        ("all, servers removed", source, source.remove_servers(part, PARTS))
        for source in sources
        for part in range(PARTS)
    ]
    for group, source, tools in drawn:
        engine = SearchEngine(Catalog(tools), rankers)
        engine.warm_up(mode)
        requests = source.draw_requests(tools, chance, count=MAX_REQUESTS, max_similarity=max_similarity)
        yield from (Case(group, engine, *request) for request in requests)
    eval_set = read_eval_set(data / "mcp_catalog")
    engine = SearchEngine(eval_set.catalog, rankers)
    engine.warm_up(mode)
    for query in eval_set.queries:
        yield Case("mcp_catalog", engine, query.text, not query.is_impossible)


def build_table(cases: Iterator[Case]) -> list[str]:
    """Return a table with a row for each group of catalogs."""
    groups: dict[str, list[tuple[bool, float, bool]]] = {}
    for case in cases:
        result = case.engine.search(case.request)
        row = (case.is_answerable, result.confidence, result.confident)
        groups.setdefault(case.group, []).append(row)
    lines = [
        "| catalog | answerable | wrongly refused | impossible | rightly refused | AUC |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for group, rows in groups.items():
        good, bad = ([row for row in rows if row[0] is wanted] for wanted in (True, False))
        wrong, right = (np.mean([not confident for _, _, confident in side]) for side in (good, bad))
        auc = RocAuc(*(np.array([confidence for _, confidence, _ in side]) for side in (good, bad))).estimate()
        lines.append(f"| {group} | {len(good)} | {wrong:.1%} | {len(bad)} | {right:.0%} | {100 * auc.value:.1f} |")
    return lines


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Folder that holds mcp_catalog and training_pairs.")
@click.option("--vectors", type=click.Path(path_type=Path), help="File that keeps tool vectors between runs.")
@click.option("--mode", default="hybrid", help="The search mode.")
@click.option("--max-similarity", default=MAX_SIMILARITY, help="Of a tool whose request is impossible, to any other.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the table to this file.")
def main(data: Path | None, vectors: Path | None, mode: str, max_similarity: float, out: Path | None) -> None:
    """Measure refused requests in catalogs of several sizes."""
    embedder = CachedEmbedder(DEFAULT_ENCODER, DEFAULT_ENCODER.version, vectors, capacity=20_000)
    lines = build_table(build_cases(data_folder(data), embedder, mode, max_similarity))
    text = "\n".join(
        [
            f"Mode `{mode}`, default threshold; tools of impossible requests are at most {max_similarity} similar to any other.",
            "",
            *lines,
            "",
        ]
    )
    click.echo(text)
    if out is not None:
        out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
