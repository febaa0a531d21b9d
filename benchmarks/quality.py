"""Compare the quality of lexical search with plain BM25, in one run: `python -m benchmarks.quality`.

Eval sets and metrics are those of `toolcrib eval`.
"""

import argparse
import os
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import bm25s
import Stemmer

from benchmarks import machine
from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.core.schema import list_parameters
from toolcrib.evaluation.eval_set import EvalQuery, read_eval_set
from toolcrib.evaluation.runner import DEPTH, TOP, build_rankers, score_ranking

REPOSITORY = Path(__file__).parents[1]
DATA = REPOSITORY.parent / "shared" / "data"

Search = Callable[[str], list[str]]


class Quality(NamedTuple):
    """The mean metrics of an eval set."""

    ndcg: float
    recall: float
    mrr: float


def measure_quality(questions: Sequence[EvalQuery], search: Search) -> Quality:
    """Return the metrics of a search on the queries of an eval set."""
    scored = [score_ranking(search(question.text), question) for question in questions]
    figures = [(one.ndcg_10, one.recall_5, one.mrr) for one in scored]
    return Quality(*(statistics.fmean(column) for column in zip(*figures, strict=True)))


def ours(tools: Sequence[Tool]) -> Search:
    """Return a search with the lexical mode of Toolcrib."""
    engine = SearchEngine(Catalog(tools), build_rankers())
    return lambda text: [hit.tool.id for hit in engine.search(text, limit=DEPTH, mode="lexical")]


def plain_bm25(tools: Sequence[Tool]) -> Search:
    """Return a search with a carefully configured BM25: one text per tool, split and stemmed."""
    stemmer = Stemmer.Stemmer("english")
    index = bm25s.BM25()
    texts = [_one_text(tool) for tool in tools]
    index.index(_tokens(texts, stemmer), show_progress=False)
    depth = min(DEPTH, len(tools))

    def search(text: str) -> list[str]:
        found, scores = index.retrieve(_tokens([text], stemmer), k=depth, show_progress=False)
        ranked = zip(found[0].tolist(), scores[0].tolist(), strict=True)
        return [tools[at].id for at, score in ranked if score > 0]

    return search


ENGINES: dict[str, Callable[[Sequence[Tool]], Search]] = {"plain BM25 (bm25s)": plain_bm25, "toolcrib lexical": ours}


def _tokens(texts: list[str], stemmer: Stemmer.Stemmer) -> Any:
    return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)


def _one_text(tool: Tool) -> str:
    found = list_parameters(tool.input_schema)
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_\W]+", " ", tool.name)
    names = (parameter.name.replace("_", " ") for parameter in found)
    texts = (parameter.description for parameter in found)
    return " ".join([tool.server, tool.name, split, tool.title, tool.description, *names, *texts])


def _markdown(results: dict[str, dict[str, Quality]], sizes: dict[str, str]) -> str:
    described = machine.describe_machine()
    lines = [
        "# Quality, compared with plain BM25",
        "",
        f"Measured on: {described['processor']}, {described['python']}. Every cell: "
        f"nDCG@{DEPTH} / recall@{TOP} / MRR, in percent; the last column is the difference in nDCG.",
        "",
        f"| set (tools, questions) | {' | '.join(ENGINES)} | gain |",
        f"|---|{'---:|' * (len(ENGINES) + 1)}",
    ]
    for name, row in results.items():
        cells = [" / ".join(f"{100 * value:.1f}" for value in row[engine]) for engine in ENGINES]
        ndcgs = [row[engine].ndcg for engine in ENGINES]
        gain = f"{100 * (ndcgs[-1] - ndcgs[0]):+.1f}"
        lines.append(f"| {name} {sizes[name]} | {' | '.join(cells)} | {gain} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure every eval set in the folder and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.quality")
    parser.add_argument("--data", type=Path, default=os.environ.get("TOOLCRIB_DATA") or DATA)
    parser.add_argument("--sets", default="", help="some of the folders in --data, with commas")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "benchmarks/results/quality.md")
    options = parser.parse_args()
    found = sorted(path.parent for path in options.data.glob("*/queries.jsonl"))
    chosen = [path for path in found if not options.sets or path.name in options.sets.split(",")]
    if not chosen:
        sys.exit(f"no eval sets in {options.data}: name their folder with --data")
    results: dict[str, dict[str, Quality]] = {}
    sizes: dict[str, str] = {}
    for path in chosen:
        eval_set = read_eval_set(path)
        tools = tuple(eval_set.catalog)
        # `toolcrib eval` measures impossible queries, because plain BM25 has no confidence.
        questions = [question for question in eval_set.queries if not question.is_impossible]
        sizes[path.name] = f"({len(tools):,}, {len(questions):,})"
        results[path.name] = {title: measure_quality(questions, engine(tools)) for title, engine in ENGINES.items()}
        shown = "  ".join(f"{100 * q.ndcg:.1f}" for q in results[path.name].values())
        print(f"{path.name:16} {sizes[path.name]:16} {shown}", flush=True)
    results["mean"] = {
        title: Quality(*map(statistics.fmean, zip(*(r[title] for r in results.values()), strict=True)))
        for title in ENGINES
    }
    sizes["mean"] = ""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(_markdown(results, sizes), encoding="utf-8")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
