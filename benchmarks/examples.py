"""What example requests in the vector of a tool are worth, by their weight: `python -m benchmarks.examples`.

Two of the three requests that were written for a tool become its examples, and the third is the query. Servers are
split in two halves by a hash of their name: the weight is selected on one half and reported on the other.
"""

import hashlib
import json
from pathlib import Path

import click
import numpy as np

from benchmarks.context import data_folder
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.files.catalog_file import read_catalog_file
from toolcrib.search.dense.embedder import Vectors
from toolcrib.search.dense.tool_text import build_tool_text

ROOT = Path(__file__).resolve().parent.parent
WEIGHTS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
TOP = 5


def _is_first_half(server: str) -> bool:
    return hashlib.blake2b(server.encode(), digest_size=1).digest()[0] < 128


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=None, help="Folder of eval sets.")
@click.option("--vectors", type=click.Path(), default=None, help="File to cache vectors in.")
@click.option("--tools", "limit", type=click.IntRange(min=1), default=6_000, show_default=True)
def main(data: Path | None, vectors: str | None, limit: int) -> None:
    """Measure hit@5 of the third request for each weight."""
    tools = list(read_catalog_file(data_folder(data) / "mcp_catalog" / "tools.jsonl"))
    tools = tools[:: max(len(tools) // limit, 1)][:limit]
    lines = (ROOT / "training" / "queries.jsonl").open(encoding="utf-8")
    written = {row["id"]: row for row in map(json.loads, lines) if row["source"] == "mcp_catalog"}
    slots = [slot for slot, tool in enumerate(tools) if tool.id in written]
    embedder = CachedEmbedder(DEFAULT_ENCODER, DEFAULT_ENCODER.version, vectors)
    plain = _normalize(embedder.embed_tools([build_tool_text(tool) for tool in tools]))
    rows = [written[tools[slot].id] for slot in slots]
    ask, agent = (_normalize(embedder.embed_tools([row[style] for row in rows])) for style in ("ask", "agent"))
    examples = _normalize(ask + agent)
    queries = _normalize(embedder.embed_queries([row["need"] for row in rows]))
    is_first = np.array([_is_first_half(tools[slot].server) for slot in slots])
    click.echo(f"{len(tools):,} tools, {len(slots):,} of them with requests\n")
    click.echo("| weight of the examples | hit@5, selection half | hit@5, other half |\n|---:|---:|---:|")
    for weight in WEIGHTS:
        table = plain.copy()
        table[slots] = _normalize((1 - weight) * plain[slots] + weight * examples)
        scores = queries @ table.T
        own = scores[np.arange(len(slots)), slots]
        hits = (scores > own[:, None]).sum(axis=1) < TOP
        click.echo(f"| {weight:.1f} | {hits[is_first].mean():.3f} | {hits[~is_first].mean():.3f} |")


def _normalize(rows: Vectors) -> Vectors:
    normalized: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return normalized


if __name__ == "__main__":
    main()
