"""Measure what glossaries add: queries in nine languages over tools with English texts.

python -m benchmarks.languages [--data DIR] [--vectors FILE] [--out FILE]

`languages.jsonl` has hand-written queries for tools of real servers. There are three for each tool: a paraphrase, a
detailed request, and the few words that an agent types.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from unittest.mock import patch

import click

from benchmarks.context import data_folder
from benchmarks.machine import describe_machine
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.evaluation.eval_set import EvalSet, read_eval_set
from toolcrib.evaluation.runner import run_queries
from toolcrib.search.dense.embedder import Vectors
from toolcrib.search.engine import SearchEngine
from toolcrib.search.hybrid.ranker import build_hybrid_ranker
from toolcrib.search.query.parser import parse_query

ROOT = Path(__file__).resolve().parent.parent
QUERIES: Final = Path(__file__).with_name("languages.jsonl")
CATALOG: Final = "mcp_catalog"
KINDS: Final = {"agent": "agent query", "ask": "detailed request", "need": "paraphrase"}
NAMES: Final = {
    "de": "German",
    "es": "Spanish",
    "fr": "French",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "pt": "Portuguese",
    "ru": "Russian",
    "zh": "Chinese",
}
# The functions that translate queries, for lexical and dense search.
PLACES: Final = ("toolcrib.encoder.default.translate_to_english", "toolcrib.search.query.parser.translate_to_english")

Hits = Mapping[tuple[str, str], list[float]]


class _ToolCachingEmbedder:
    """The default encoder with a cache for tools only."""

    def __init__(self, vectors: Path | None) -> None:
        self.embed_tools = CachedEmbedder(
            DEFAULT_ENCODER, DEFAULT_ENCODER.version, vectors, capacity=20_000
        ).embed_tools
        self.score_service_names = DEFAULT_ENCODER.score_service_names

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Embed queries without the cache."""
        DEFAULT_ENCODER.clear_cache()
        return DEFAULT_ENCODER.embed_queries(texts)


def _collect_hits(eval_set: EvalSet, engine: SearchEngine) -> Hits:
    found: dict[tuple[str, str], list[float]] = {}
    for question, answer in zip(eval_set.queries, run_queries(engine, eval_set.queries, "hybrid"), strict=True):
        assert answer.scores is not None
        found.setdefault((question.lang, question.kind), []).append(answer.scores.hit_5)
    return found


def render_table(untranslated: Hits, translated: Hits) -> list[str]:
    """Return one row for each language: the percentage of queries with the right tool in the top five, by kind."""
    lines = [f"| | queries | {' | '.join(KINDS.values())} | all |", "|---|---:|---:|---:|---:|---:|"]
    for language in (*NAMES, "all"):
        cells = []
        for kind in (*KINDS, "all"):
            both = [
                [hit for key, group in hits.items() if _matches(key, language, kind) for hit in group]
                for hits in (untranslated, translated)
            ]
            cells.append(" → ".join(f"{100 * sum(group) / len(group):.1f}" for group in both))
        count = sum(len(group) for key, group in translated.items() if _matches(key, language, "all"))
        lines.append(f"| {NAMES.get(language, 'all')} | {count:,} | {' | '.join(cells)} |")
    return lines


def _matches(key: tuple[str, str], language: str, kind: str) -> bool:
    return language in (key[0], "all") and kind in (key[1], "all")


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=None, help="Folder of eval sets.")
@click.option("--vectors", type=click.Path(path_type=Path), default=None, help="File of cached tool vectors.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks/results/languages.md")
def main(data: Path | None, vectors: Path | None, out: Path) -> None:
    """Run the benchmark and write the table."""
    with TemporaryDirectory() as folder:
        eval_folder = Path(folder)
        (eval_folder / "queries.jsonl").write_bytes(QUERIES.read_bytes())
        (eval_folder / "tools.jsonl").symlink_to(data_folder(data).resolve() / CATALOG / "tools.jsonl")
        eval_set = read_eval_set(eval_folder)
    engine = SearchEngine(eval_set.catalog, {"hybrid": build_hybrid_ranker(_ToolCachingEmbedder(vectors))})
    translated = _collect_hits(eval_set, engine)
    parse_query.cache_clear()
    with patch(PLACES[0], str), patch(PLACES[1], str):
        untranslated = _collect_hits(eval_set, engine)
    text = "\n".join(
        [
            "# Other languages",
            "",
            f"Queries over {len(eval_set.catalog):,} tools, nearly all with English texts: the percentage "
            "of queries with the right tool in the top five, without glossaries → "
            f"with glossaries. Made by `python -m benchmarks.languages` in {describe_machine()['python']}.",
            "",
            *render_table(untranslated, translated),
            "",
        ]
    )
    out.write_text(text, encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()
