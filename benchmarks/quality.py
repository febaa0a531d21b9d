"""How often the right tool is found, beside plain BM25, in one run: `python -m benchmarks.quality`.

An eval set is a folder with `tools.jsonl` (id, name, description, input_schema, and perhaps server
and category) and `queries.jsonl` (id, query, relevant; `any_of`: one of them is enough; `groups`:
one of each group is needed).
"""

import argparse
import json
import os
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import bm25s
import Stemmer

from benchmarks import machine
from benchmarks.metric import DEPTH, TOP, Quality, Question, needs, score
from toolcrib import Catalog, SearchEngine, Tool
from toolcrib.core.engine import RANKERS
from toolcrib.core.ranking.lexical import Lexical
from toolcrib.core.schema import parameters

REPOSITORY = Path(__file__).parents[1]
DATA = REPOSITORY.parent / "shared" / "data"

Search = Callable[[str], list[str]]


class EvalSet(NamedTuple):
    """A catalog and the questions to it."""

    name: str
    tools: list[Tool]
    questions: list[Question]


def read(folder: Path) -> EvalSet:
    """An eval set from its folder; questions that nothing answers are left out."""
    tools = [_tool(row) for row in _rows(folder / "tools.jsonl")]
    questions = [Question(row["query"], needs(row)) for row in _rows(folder / "queries.jsonl")]
    return EvalSet(folder.name, tools, [question for question in questions if question.needs])


def quality(questions: Sequence[Question], search: Search) -> Quality:
    """How well a search answers the questions."""
    scored = [score(search(question.text), question.needs) for question in questions]
    return Quality(*(statistics.fmean(column) for column in zip(*scored, strict=True)))


def ours(tools: Sequence[Tool]) -> Search:
    """Our lexical ranker, as one would use it on whatever a model writes."""
    engine = SearchEngine(Catalog(tools), {**RANKERS, "lexical": Lexical(syntax="lenient")})
    return lambda text: [hit.tool.id for hit in engine.search(text, limit=DEPTH)]


def plain_bm25(tools: Sequence[Tool]) -> Search:
    """BM25 as a careful user of a library would set it up: one text a tool, split, stemmed."""
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


ENGINES: dict[str, Callable[[Sequence[Tool]], Search]] = {
    "plain BM25 (bm25s)": plain_bm25,
    "toolcrib lexical": ours,
}


def _tokens(texts: list[str], stemmer: Stemmer.Stemmer) -> Any:
    return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)


def _one_text(tool: Tool) -> str:
    found = parameters(tool.input_schema)
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_\W]+", " ", tool.name)
    names = (parameter.name.replace("_", " ") for parameter in found)
    texts = (parameter.description for parameter in found)
    return " ".join([tool.server, tool.name, split, tool.title, tool.description, *names, *texts])


def _rows(path: Path) -> Iterable[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _tool(row: dict[str, Any]) -> Tool:
    return Tool(
        row["name"],
        row.get("description") or "",
        row.get("input_schema"),
        id=str(row["id"]),
        title=row.get("title") or "",
        server=row.get("server") or "",
        server_description=row.get("server_description") or "",
        category=row.get("category") or "",
    )


def _markdown(results: dict[str, dict[str, Quality]], sizes: dict[str, str]) -> str:
    described = machine.described()
    lines = [
        "# Quality, beside plain BM25",
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
    """Measure every set that is there, and write the table."""
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
        eval_set = read(path)
        sizes[path.name] = f"({len(eval_set.tools):,}, {len(eval_set.questions):,})"
        results[path.name] = {
            title: quality(eval_set.questions, engine(eval_set.tools))
            for title, engine in ENGINES.items()
        }
        shown = "  ".join(f"{100 * q.ndcg:.1f}" for q in results[path.name].values())
        print(f"{path.name:16} {sizes[path.name]:16} {shown}", flush=True)
    results["mean"] = {
        title: Quality(
            *map(statistics.fmean, zip(*(r[title] for r in results.values()), strict=True))
        )
        for title in ENGINES
    }
    sizes["mean"] = ""
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(_markdown(results, sizes), encoding="utf-8")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
