"""What example requests in the vector of a tool are worth, by their weight, on servers outside the training.

python -m training.unseen --data DATA --side dev --out dev
python -m training.unseen --data DATA --side test --out test
python -m benchmarks.examples dev test

Two of the three requests that were written for a tool become its examples, and the third is the query. The weight is
selected on the servers of `dev` and reported on those of `test`. All tools of the catalog compete.
"""

import json
from collections import defaultdict
from pathlib import Path

import click
import numpy as np

from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.files.catalog_file import read_catalog_file
from toolcrib.search.dense.embedder import Vectors
from toolcrib.search.dense.tool_text import build_tool_text

ROOT = Path(__file__).resolve().parent.parent
WEIGHTS = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
TOP = 5


def _read_requests(folder: Path) -> dict[str, dict[str, str]]:
    """Return the requests of each tool by style."""
    requests: dict[str, dict[str, str]] = defaultdict(dict)
    for line in (folder / "queries.jsonl").open(encoding="utf-8"):
        row = json.loads(line)
        requests[row["relevant"][0]].setdefault(row["kind"], row["query"])
    return {id: styles for id, styles in requests.items() if len(styles) == 3}


@click.command()
@click.argument("dev", type=click.Path(path_type=Path))
@click.argument("test", type=click.Path(path_type=Path))
@click.option("--vectors", type=click.Path(), default=None, help="File to cache vectors in.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks/results/examples.md")
def main(dev: Path, test: Path, vectors: str | None, out: Path) -> None:
    """Measure hit@5 of the third request for each weight."""
    tools = list(read_catalog_file(dev / "tools.jsonl"))
    slots = {tool.id: slot for slot, tool in enumerate(tools)}
    embedder = CachedEmbedder(DEFAULT_ENCODER, DEFAULT_ENCODER.version, vectors)
    plain = _normalize(embedder.embed_tools([build_tool_text(tool) for tool in tools]))
    columns = {folder.name: _measure(_read_requests(folder), slots, plain, embedder) for folder in (dev, test)}
    counts = {folder.name: len(_read_requests(folder)) for folder in (dev, test)}
    lines = [
        "# Example requests in the vectors of tools",
        "",
        f"hit@5 of a request in everyday words (`need`) among {len(tools):,} tools, mode `dense`, for tools of servers that "
        "took no part in training. Each of these tools has two other written requests (`ask`, `agent`) as examples. "
        f"{counts[dev.name]:,} tools select the weight, {counts[test.name]:,} others test it. "
        "Made by `python -m benchmarks.examples`.",
        "",
        "| weight of the examples | selection servers | test servers |",
        "|---:|---:|---:|",
        *(
            f"| {weight:.1f} | {one:.3f} | {other:.3f} |"
            for weight, one, other in zip(WEIGHTS, columns[dev.name], columns[test.name], strict=True)
        ),
        "",
    ]
    out.write_text("\n".join(lines), encoding="utf-8")
    click.echo("\n".join(lines))


def _measure(
    requests: dict[str, dict[str, str]], slots: dict[str, int], plain: Vectors, embedder: CachedEmbedder
) -> list[float]:
    """Return hit@5 for each weight."""
    own = np.array([slots[id] for id in requests])
    ask, agent = (
        _normalize(embedder.embed_tools([styles[style] for styles in requests.values()])) for style in ("ask", "agent")
    )
    examples = _normalize(ask + agent)
    queries = _normalize(embedder.embed_queries([styles["need"] for styles in requests.values()]))
    found = []
    for weight in WEIGHTS:
        table = plain.copy()
        table[own] = _normalize((1 - weight) * plain[own] + weight * examples)
        scores = queries @ table.T
        best = scores[np.arange(len(own)), own]
        found.append(float(((scores > best[:, None]).sum(axis=1) < TOP).mean()))
    return found


def _normalize(rows: Vectors) -> Vectors:
    normalized: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return normalized


if __name__ == "__main__":
    main()
