"""Measure how many requests are refused, rightly and wrongly, in catalogs of several sizes.

python -m benchmarks.confidence [--data DIR] [--vectors FILE] [--mode MODE] [--out FILE]

Catalogs of 20, 60, 200 and 1,000 tools are drawn from `mcp_catalog`, server by server. A request for a
tool of a drawn server is answerable. A request for a tool of another server is impossible, unless a tool
of the catalog has the same name or nearly the same vector. The largest test removes a fifth of the servers
from the whole catalog. The demo catalog has 30 answerable and 30 impossible requests of its own.
The requests are those of `training_pairs`: the needs, direct requests and capability phrases for one tool.
The default thresholds in `search/hybrid/calibration.py` were chosen with these figures.
"""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
import numpy as np

from benchmarks.context import data_folder
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.evaluation.eval_set import read_eval_set
from toolcrib.evaluation.runner import build_rankers
from toolcrib.evaluation.summary import RocAuc
from toolcrib.files.catalog_file import read_catalog_file
from toolcrib.search.dense.embedder import Embedder
from toolcrib.search.dense.tool_text import build_tool_text
from toolcrib.search.dense.vector_table import normalize_vectors
from toolcrib.search.engine import SearchEngine

DEMO: Final = Path(__file__).with_name("demo_requests")
# Sizes of the drawn catalogs, and how many are drawn.
SIZES: Final = {20: 8, 60: 6, 200: 4, 1_000: 2}
STYLES: Final = ("need", "ask", "agent")
FOLDS: Final = 5
MEASURED_FOLDS: Final = 2
MAX_REQUESTS: Final = 120
MAX_TOOLS_PER_SERVER: Final = 8
# A tool of another server with this similarity may serve the request too.
MAX_SIMILARITY: Final = 0.75


class Case(NamedTuple):
    """A catalog, a request, and whether a tool of the catalog serves it."""

    group: str
    engine: SearchEngine
    request: str
    is_answerable: bool


class Requests:
    """The tools of `mcp_catalog` and the requests for them."""

    def __init__(self, data: Path, embedder: Embedder) -> None:
        self.tools = list(read_catalog_file(data / "mcp_catalog" / "tools.jsonl"))
        by_id = {tool.id: tool for tool in self.tools}
        self.by_tool: dict[str, list[str]] = {}
        for line in (data / "training_pairs" / "pairs.jsonl").open(encoding="utf-8"):
            row = json.loads(line)
            if row["source"] == "mcp_catalog" and row["id"] in by_id:
                self.by_tool[row["id"]] = [row[style] for style in STYLES]
        self._vectors = normalize_vectors(embedder.embed_tools([build_tool_text(tool) for tool in self.tools]))
        self._slots = {tool.id: slot for slot, tool in enumerate(self.tools)}

    def draw(self, chance: random.Random, engine: SearchEngine) -> Iterator[tuple[str, bool]]:
        """Yield requests for tools in the catalog of an engine and for tools that it does not have."""
        inside = [id for id in self.by_tool if id in engine.catalog]
        present = self._vectors[[self._slots[tool.id] for tool in engine.catalog]]
        names = {tool.name for tool in engine.catalog}
        servers = {tool.server for tool in engine.catalog}
        outside = [
            id
            for id in self.by_tool
            if self.tools[self._slots[id]].server not in servers
            and self.tools[self._slots[id]].name not in names
            and float((present @ self._vectors[self._slots[id]]).max()) <= MAX_SIMILARITY
        ]
        for ids, is_answerable in ((inside, True), (outside, False)):
            requests = [request for id in ids for request in self.by_tool[id]]
            for request in chance.sample(requests, min(len(requests), MAX_REQUESTS)):
                yield request, is_answerable


def draw_tools(tools: Sequence[Tool], count: int, chance: random.Random) -> list[Tool]:
    """Return about this many tools of random servers; few of each for a small catalog."""
    servers = sorted({tool.server for tool in tools})
    chance.shuffle(servers)
    drawn: list[Tool] = []
    for server in servers:
        own = [tool for tool in tools if tool.server == server]
        drawn += chance.sample(own, min(len(own), max(MAX_TOOLS_PER_SERVER, count // 20)))
        if len(drawn) >= count:
            break
    return drawn[:count]


def build_cases(data: Path, embedder: CachedEmbedder, mode: str) -> Iterator[Case]:
    """Yield every case, catalog by catalog."""
    rankers = {mode: build_rankers(embedder)[mode]}
    chance = random.Random(1)
    demo = read_eval_set(DEMO)
    engine = SearchEngine(demo.catalog, rankers)
    yield from (Case("demo catalog", engine, query.text, not query.is_impossible) for query in demo.queries)
    requests = Requests(data, embedder)
    groups = [(f"{size:,} tools", size) for size, count in SIZES.items() for _ in range(count)]
    for group, size in groups:
        engine = SearchEngine(Catalog(draw_tools(requests.tools, size, chance)), rankers)
        engine.warm_up(mode)
        yield from (Case(group, engine, *request) for request in requests.draw(chance, engine))
    servers = sorted({tool.server for tool in requests.tools})
    chance.shuffle(servers)
    for fold in range(MEASURED_FOLDS):
        removed = set(servers[fold::FOLDS])
        engine = SearchEngine(Catalog(tool for tool in requests.tools if tool.server not in removed), rankers)
        engine.warm_up(mode)
        yield from (Case("all, a fifth removed", engine, *request) for request in requests.draw(chance, engine))
    engine = SearchEngine(Catalog(requests.tools), rankers)
    engine.warm_up(mode)
    for query in read_eval_set(data / "mcp_catalog").queries:
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
@click.option("--out", type=click.Path(path_type=Path), help="Write the table to this file.")
def main(data: Path | None, vectors: Path | None, mode: str, out: Path | None) -> None:
    """Measure refused requests in catalogs of several sizes."""
    embedder = CachedEmbedder(DEFAULT_ENCODER, DEFAULT_ENCODER.version, vectors, capacity=20_000)
    lines = build_table(build_cases(data_folder(data), embedder, mode))
    text = "\n".join([f"Mode `{mode}`, default thresholds.", "", *lines, ""])
    click.echo(text)
    if out is not None:
        out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
