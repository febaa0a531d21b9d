"""Large catalogs in one replica: building the keyword index, memory, queries, updates and restarts.

python -m benchmarks.catalogs [--sizes 100000,1000000] [--restarts 20000,100000] [--out FILE]

The tools are generated (`benchmarks/generate.py`). Each size runs in a separate process, so that its memory can be
read. Times are process CPU time. `benchmarks/growth.py` measures the vectors of the same sizes.

A restart opens a hub over a SQLite store that has the tools, their pins, their scans and their vectors, and searches
once. The vectors are random, because encoding all tools takes hours and reading them does not depend on their numbers.
The first such start writes the files of the indexes, which the second one reads. For comparison, the same hub is opened
without stored scans and vectors, as it is on the first day.
"""

import dataclasses
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from statistics import quantiles
from time import process_time

import click
import numpy as np

from benchmarks.generate import queries, rows
from benchmarks.machine import describe_machine
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig
from toolcrib.config.store_paths import resolve_store_url
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.embedders.cache import VectorStore, hash_text, pack_vector
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.hub.directory import parse_definitions
from toolcrib.hub.hub import build_manifest
from toolcrib.hub.safety_review import ScanRecord, scan_definitions
from toolcrib.hub.startup import VECTORS_SUFFIX, open_hub
from toolcrib.safety.pinning import Pin
from toolcrib.search.dense.tool_text import build_tool_text
from toolcrib.search.engine import SearchEngine
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.storage import open_store

ROOT = Path(__file__).resolve().parent.parent
QUERIES = 200
TOOLS_PER_SERVER = 100
WIDTH = 384


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


def build_config(size: int, folder: Path) -> GatewayConfig:
    """Return a configuration with one server for every hundred tools."""
    names = [f"server{number}" for number in range((size - 1) // TOOLS_PER_SERVER + 1)]
    servers = {name: ServerConfig(name, command=name) for name in names}
    return GatewayConfig(servers=servers, store="sqlite:///large.db", path=folder / "toolcrib.json")


def fill_store(size: int, folder: Path) -> None:
    """Write what an earlier run of a gateway has stored about its tools."""
    config = build_config(size, folder)
    numbers = np.random.default_rng(size)
    with closing(open_store(resolve_store_url(config))) as store:
        vectors = VectorStore(folder / f"large{VECTORS_SUFFIX}", max_vectors=size)
        definitions = _generate_definitions(size)
        for server in config.servers.values():
            manifest = build_manifest(server, islice(definitions, TOOLS_PER_SERVER), {})
            parsed = parse_definitions(manifest.tools, server=server.name).definitions
            record = scan_definitions(parsed, ScanRecord())
            store.put_pins(server.name, [Pin(one.name, record.fingerprints[one.name], one.raw) for one in parsed])
            store.put_manifest(server.name, dataclasses.replace(manifest, scan=record.encode()))
            keys = [hash_text(DEFAULT_ENCODER.version, "tool", build_tool_text(one.tool)) for one in parsed]
            rows = numbers.standard_normal((len(keys), WIDTH), np.float32)
            vectors.put(dict(zip(keys, map(pack_vector, rows), strict=True)))


def forget_results(folder: Path) -> None:
    """Delete the stored scans, vectors and indexes."""
    for path in folder.glob("*.npz"):
        path.unlink()
    with closing(sqlite3.connect(folder / "large.db")) as connection, connection:
        connection.execute("DELETE FROM scans")
    (folder / f"large{VECTORS_SUFFIX}").unlink()


def measure_restart(size: int, folder: Path) -> dict[str, float]:
    """Return the figures of a start over a filled store."""
    config = build_config(size, folder)
    started = process_time()
    hub = open_hub(config)
    opened = process_time()
    result = hub.engine.search("send an email to the customer")
    searched = process_time()
    assert len(result) == 5
    figures = {"open": opened - started, "search": searched - opened, "mb": _read_megabytes()}
    hub.close()
    return {"size": size, "encoded": float(result.fully_encoded), **figures}


def _generate_definitions(size: int) -> Iterator[dict[str, object]]:
    for number, row in enumerate(rows(size)):
        # The names of generated servers are not used, so that names are made unique.
        name = f"{row['name']}_{number % TOOLS_PER_SERVER}"
        yield {"name": name, "description": row["description"], "inputSchema": row["input_schema"]}


def _read_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def render_report(found: list[dict[str, float]], restarts: list[tuple[str, dict[str, float]]]) -> str:
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
    lines += [
        "",
        "## Restarts",
        "",
        "A hub over a SQLite store that knows the tools, and the first search in mode `hybrid`, in a new process. Without "
        "the time to import the modules, which is about 0.7 s.",
        "",
        "| tools | stored | opening the hub | first search | both | memory |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {one['size']:,.0f} | {stored} | {one['open']:.1f} s | {one['search']:.1f} s | {one['open'] + one['search']:.1f} s "
        f"| {one['mb']:,.0f} MB |"
        for stored, one in restarts
    ]
    return "\n".join([*lines, ""])


def _run_again(*arguments: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.catalogs", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    figures: dict[str, float] = json.loads(result.stdout)
    return figures


@click.command()
@click.option("--sizes", default="100000,1000000", show_default=True)
@click.option("--restarts", "restart_sizes", default="20000,100000", show_default=True)
@click.option("--one", type=int, help="Measure one size and print it as JSON.")
@click.option(
    "--folder", type=click.Path(path_type=Path), help="With --one: measure a restart over the store in this folder."
)
@click.option(
    "--known", type=click.Path(path_type=Path, exists=True), help="JSON lines of sizes that were measured before."
)
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks/results/catalogs.md")
def main(sizes: str, restart_sizes: str, one: int | None, folder: Path | None, known: Path | None, out: Path) -> None:
    """Measure catalogs and write the page."""
    if one is not None:
        click.echo(json.dumps(measure_restart(one, folder) if folder else measure_size(one)))
        return
    found = [_run_again("--one", size) for size in filter(None, sizes.split(","))]
    found += map(json.loads, known.read_text().splitlines()) if known else []
    restarts = []
    for size in filter(None, restart_sizes.split(",")):
        with tempfile.TemporaryDirectory() as name:
            fill_store(int(size), Path(name))
            for stored in ("scans, vectors", "scans, vectors, indexes"):
                restarts.append((stored, _run_again("--one", size, "--folder", name)))
            forget_results(Path(name))
            restarts.append(("neither", _run_again("--one", size, "--folder", name)))
    found.sort(key=lambda figures: figures["size"])
    out.write_text(render_report(found, restarts), encoding="utf-8")
    click.echo(out.read_text())


if __name__ == "__main__":
    main()
