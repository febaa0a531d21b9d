"""Large catalogs in one replica: building the keyword index, memory, queries and updates.

python -m benchmarks.catalogs [--sizes 100000,1000000] [--out FILE]

The tools are generated (`benchmarks/generate.py`). Each size runs in a process of its own, so that its memory can be
read. Times are process CPU time. `benchmarks/growth.py` measures the vectors of the same sizes.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path
from statistics import quantiles
from time import process_time

import click

from benchmarks.generate import queries, rows
from benchmarks.machine import describe_machine
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.search.engine import SearchEngine
from toolcrib.search.lexical.ranker import LexicalRanker

ROOT = Path(__file__).resolve().parent.parent
QUERIES = 200


def measure_size(size: int) -> dict[str, float]:
    """Return the figures of one size."""
    tools = [
        Tool(row["name"], row["description"], row["input_schema"], server=row["server"], id=row["id"])
        for row in rows(size)
    ]
    before = _read_megabytes()
    started = process_time()
    engine = SearchEngine(Catalog(tools), {"lexical": LexicalRanker()})
    engine.search("send an email", mode="lexical")
    built = process_time() - started
    texts = [query.text for query in queries(list(rows(2_000)), QUERIES)]
    times = []
    for text in texts:
        started = process_time()
        engine.search(text, mode="lexical", limit=5)
        times.append(1_000 * (process_time() - started))
    started = process_time()
    changed = engine.with_catalog(engine.catalog.with_tools([Tool("brand_new_tool", "Does something new.", {})]))
    changed.search("brand new tool", mode="lexical")
    updated = process_time() - started
    cuts = quantiles(times, n=100)
    return {
        "size": size,
        "build": built,
        "tools_mb": before,
        "total_mb": _read_megabytes(),
        "p50": cuts[49],
        "p99": cuts[98],
        "update": 1_000 * updated,
    }


def _read_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def render_report(found: list[dict[str, float]]) -> str:
    """Return the page."""
    machine = describe_machine()
    lines = [
        "# Large catalogs",
        "",
        f"Measured on: {machine['processor']}, {machine['memory']}, {machine['python']}, one thread, CPU time. Generated "
        "tools, the keyword index. Made by `python -m benchmarks.catalogs`.",
        "",
        "| tools | building the index | memory of the tools | memory with the index | query, median | query, 99 % | adding one tool |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {one['size']:,.0f} | {one['build']:.1f} s | {one['tools_mb']:,.0f} MB | {one['total_mb']:,.0f} MB | {one['p50']:.2f} ms "
        f"| {one['p99']:.2f} ms | {one['update']:.1f} ms |"
        for one in found
    ]
    return "\n".join([*lines, ""])


@click.command()
@click.option("--sizes", default="100000,1000000", show_default=True)
@click.option("--one", type=int, help="Measure one size and print it as JSON.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks/results/catalogs.md")
def main(sizes: str, one: int | None, out: Path) -> None:
    """Measure catalogs and write the page."""
    if one is not None:
        click.echo(json.dumps(measure_size(one)))
        return
    found = []
    for size in sizes.split(","):
        command = [sys.executable, "-m", "benchmarks.catalogs", "--one", size]
        result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        found.append(json.loads(result.stdout))
        out.write_text(render_report(found), encoding="utf-8")
    click.echo(out.read_text())


if __name__ == "__main__":
    main()
