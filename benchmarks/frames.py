"""Measure what stripping the preamble of a query adds: the same queries, each in several phrasings.

python -m benchmarks.frames [--data DIR] [--vectors FILE] [--out FILE]

A frame is text that people and models write around a request. The product does not recognize the last frames, or
only in part. The tests of `strip_preamble` have texts that only look like a frame.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final
from unittest.mock import patch

import click

from benchmarks.context import data_folder
from benchmarks.machine import describe_machine
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.evaluation.eval_set import EvalSet, read_eval_set
from toolcrib.evaluation.runner import run_queries
from toolcrib.evaluation.summary import summarize
from toolcrib.search.engine import SearchEngine
from toolcrib.search.hybrid.ranker import build_hybrid_ranker
from toolcrib.search.query.parser import parse_query

ROOT = Path(__file__).resolve().parent.parent
CATALOG: Final = "mcp_catalog"
FIGURES: Final = {
    "nDCG@10": "nDCG@10",
    "all-steps@5": "several steps, all in the top five",
    "AUC": "AUC, impossible requests",
    "wrongly refused": "wrongly refused",
}
FRAMES: Final = (
    "…",
    '"…"',
    "find me a tool that can …",
    "I need a tool to …",
    "I'm looking for a tool that lets me …",
    "Which tool should I use to …?",
    "search for tools: …",
    "Do you have any tools for this: …",
    "is there a way to …",
    "My goal is to …",
    "The user wants to …",
    "User request: …",
    "Task: …",
    "Hello, …",
    "Hi there! Could you please help me with something? …. Thanks a lot in advance!",
    "… ...",
    "Could you please …? Thank you so much!",
    "I would like to …",
    "I've been at this all morning. …",
    '{"query": "…"}',
)
# The function that strips a preamble.
STRIP_FUNCTION: Final = "toolcrib.search.query.parser.strip_preamble"


def measure_frame(eval_set: EvalSet, engine: SearchEngine, frame: str) -> Mapping[str, float]:
    """Return the figures of all queries in a frame, in percent."""
    queries = [replace(query, text=frame.replace("…", query.text)) for query in eval_set.queries]
    results = {"hybrid": list(run_queries(engine, queries, "hybrid"))}
    metrics = summarize(eval_set.name, len(eval_set.catalog), results).overall.metrics["hybrid"]
    return {name: 100 * metrics[name].value for name in FIGURES}


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=None, help="Folder of eval sets.")
@click.option("--vectors", type=click.Path(path_type=Path), default=None, help="File of cached tool vectors.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks/results/frames.md")
def main(data: Path | None, vectors: Path | None, out: Path) -> None:
    """Run the benchmark and write the table."""
    eval_set = read_eval_set(data_folder(data) / CATALOG)
    embedder = CachedEmbedder(DEFAULT_ENCODER, DEFAULT_ENCODER.version, vectors, capacity=20_000)
    engine = SearchEngine(eval_set.catalog, {"hybrid": build_hybrid_ranker(embedder)})
    engine.warm_up()
    lines = [
        "# Text around a request",
        "",
        f"{len(eval_set.queries)} queries over {len(eval_set.catalog):,} tools, each in a frame, "
        "in percent: with the whole text as the query → with the preamble stripped. "
        f"Made by `python -m benchmarks.frames` in {describe_machine()['python']}.",
        "",
        f"| | {' | '.join(FIGURES.values())} |",
        f"|---|{'---:|' * len(FIGURES)}",
    ]
    for frame in FRAMES:
        stripped = measure_frame(eval_set, engine, frame)
        parse_query.cache_clear()
        with patch(STRIP_FUNCTION, str):
            whole = measure_frame(eval_set, engine, frame)
        parse_query.cache_clear()
        cells = [f"{whole[name]:.1f} → {stripped[name]:.1f}" for name in FIGURES]
        lines.append(f"| {frame} | {' | '.join(cells)} |")
    text = "\n".join([*lines, ""])
    out.write_text(text, encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()
