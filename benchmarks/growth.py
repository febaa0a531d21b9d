"""Compare vector search with one exact pass and with an ANN library in catalogs of growing size.

python -m benchmarks.growth [--data DIR] [--sizes 10000,100000] [--vectors FILE] [--out FILE]

The vectors are drawn around those of real tools: a real one plus half the difference of two others.
usearch, if it is installed, is measured up to `--ann-to` vectors, because its graph takes long to build.
Times are process CPU time in one thread. Set OPENBLAS_NUM_THREADS=1.
"""

import importlib.util
import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.context import data_folder
from benchmarks.machine import describe_machine
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.files.catalog_file import read_catalog_file
from toolcrib.search.dense.tool_text import build_tool_text
from toolcrib.search.dense.vector_table import VectorTable, normalize_vectors

ROOT = Path(__file__).resolve().parent.parent
CHUNK = 50_000
QUERIES = 40
TOP = 10
CHANGES = 5
MEGA = 1e6

Array = NDArray[np.float32]


class GrowthResult(NamedTuple):
    """The figures of one method at one size."""

    way: str
    size: int
    query_ms: float
    recall: float
    filtered: float
    bytes_a_tool: float
    build_us: float
    add_ms: float


def draw_vectors(real: Array, count: int) -> Iterator[Array]:
    """Yield `count` vectors in chunks."""
    rng = np.random.default_rng(count)
    for begin in range(0, count, CHUNK):
        size = min(CHUNK, count - begin)
        one, two, three = (real[rng.integers(0, len(real), size)] for _ in range(3))
        yield normalize_vectors(one + np.float32(0.5) * (two - three))


def measure_vector_table(
    rows: Array, queries: Array, exact: list[list[int]], allowed: NDArray[np.bool_]
) -> GrowthResult:
    """Measure the vector table: one pass over all vectors, in blocks."""
    started = process_time()
    table = VectorTable.empty(rows.shape[1])
    table = table.with_vectors(dict(enumerate(rows)), len(rows))
    built = process_time() - started

    def search(query: Array) -> list[int]:
        return _top(table.compare(query[None])[0])

    def search_filtered(query: Array) -> list[int]:
        return _top(np.where(allowed, table.compare(query[None])[0], -1))

    spent = []
    for number in range(CHANGES):
        begun = process_time()
        table.with_vectors({number: rows[number + 1]}, len(rows))
        spent.append(process_time() - begun)
    milliseconds, recall = _measure_search(search, queries, exact)
    _, under_filter = _measure_search(search_filtered, queries, _exact(np.where(allowed[:, None], rows, 0), queries))
    table_bytes = rows.shape[1] * rows.itemsize * table.span
    return GrowthResult(
        "toolcrib",
        len(rows),
        milliseconds,
        recall,
        under_filter,
        table_bytes / len(rows),
        built / len(rows) * MEGA,
        median(spent) * 1e3,
    )


def measure_one_pass(rows: Array, queries: Array, exact: list[list[int]]) -> GrowthResult:
    """Measure one matrix product with all vectors."""
    milliseconds, recall = _measure_search(lambda query: _top(rows @ query), queries, exact)
    return GrowthResult("one exact pass", len(rows), milliseconds, recall, 1, rows.shape[1] * 4, 0, 0)


def measure_usearch(rows: Array, queries: Array, exact: list[list[int]], kind: str) -> GrowthResult:
    """Measure a graph of near neighbours. It can only filter what it has found."""
    index: Any = import_module("usearch.index").Index(ndim=rows.shape[1], metric="ip", dtype=kind)
    started = process_time()
    index.add(np.arange(len(rows)), rows, threads=1)
    built = process_time() - started
    begun = process_time()
    for number in range(CHANGES):
        index.add(len(rows) + number, rows[number], threads=1)
    added = (process_time() - begun) / CHANGES
    milliseconds, recall = _measure_search(
        lambda query: [int(key) for key in index.search(query, TOP, threads=1).keys], queries, exact
    )
    return GrowthResult(
        f"usearch, {kind}",
        len(rows),
        milliseconds,
        recall,
        float("nan"),
        index.memory_usage / len(rows),
        built / len(rows) * MEGA,
        added * 1e3,
    )


def _top(similarities: Array) -> list[int]:
    found = np.argpartition(similarities, len(similarities) - TOP)[len(similarities) - TOP :]
    best: list[int] = found[np.argsort(-similarities[found])].tolist()
    return best


def _exact(rows: Array, queries: Array) -> list[list[int]]:
    return [_top(rows @ query) for query in queries]


def _measure_search(
    search: Callable[[Array], list[int]], queries: Array, exact: list[list[int]]
) -> tuple[float, float]:
    """Return the median time of a search in milliseconds, and its recall@10."""
    spent, met = [], 0
    for query, best in zip(queries, exact, strict=True):
        times = []
        for _ in range(2):
            started = process_time()
            found = search(query)
            times.append(process_time() - started)
        spent.append(min(times))
        met += len({*found} & {*best})
    return median(spent) * 1e3, met / TOP / len(queries)


def report(found: list[GrowthResult]) -> str:
    """Return the table."""
    machine = describe_machine()
    lines = [
        "# How vector search grows",
        "",
        f"Measured on: {machine['processor']}, {machine['python']}, one thread, CPU time. Vectors of 384 "
        f"numbers, drawn around those of real tools; {QUERIES} real queries, the nearest {TOP}. Made by "
        "`python -m benchmarks.growth`.",
        "",
        "| vectors | way | a query | recall@10 | recall@10 where a tenth is allowed | bytes a tool "
        "| building, a tool | adding one |",
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for one in found:
        filtered = "" if np.isnan(one.filtered) else f"{100 * one.filtered:.1f} %"
        built = f"{one.build_us:.0f} µs | {one.add_ms:.1f} ms" if one.build_us else " | "
        lines.append(
            f"| {one.size:,} | {one.way} | {one.query_ms:.2f} ms | {100 * one.recall:.1f} % "
            f"| {filtered} | {one.bytes_a_tool:,.0f} | {built} |"
        )
    return "\n".join([*lines, ""])


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=None, help="Folder of eval sets.")
@click.option("--sizes", default="10000,100000", show_default=True)
@click.option("--ann-to", default=100_000, show_default=True, help="The largest graph to build.")
@click.option("--vectors", type=click.Path(path_type=Path), default=None, help="Kept vectors.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks/results/growth.md")
def main(data: Path | None, sizes: str, ann_to: int, vectors: Path | None, out: Path) -> None:
    """Measure all sizes and write the table."""
    file = data_folder(data) / "mcp_catalog" / "tools.jsonl"
    reader = CachedEmbedder(DEFAULT_ENCODER, DEFAULT_ENCODER.version, vectors)
    real = normalize_vectors(reader.embed_tools([build_tool_text(tool) for tool in read_catalog_file(file)]))
    asked = [json.loads(line)["query"] for line in (file.parent / "queries.jsonl").open(encoding="utf-8")]
    queries = normalize_vectors(reader.embed_queries(asked[:: len(asked) // QUERIES][:QUERIES]))
    found: list[GrowthResult] = []
    for size in map(int, sizes.split(",")):
        rows = np.concatenate(list(draw_vectors(real, size)))
        exact = _exact(rows, queries)
        allowed = np.random.default_rng(1).random(size) < 0.1
        found.append(measure_one_pass(rows, queries, exact))
        found.append(measure_vector_table(rows, queries, exact, allowed))
        if size <= ann_to and importlib.util.find_spec("usearch"):
            found += [measure_usearch(rows, queries, exact, kind) for kind in ("f32", "i8")]
        click.echo(report(found[-4:]), err=True)
    text = report(found)
    out.write_text(text, encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()
