"""Measure what typing errors, idle text and markup around a request cost.

python -m benchmarks.noise [--data DIR] [--vectors FILE] [--queries N] [--out FILE]

Each answerable query of three eval sets is searched as it is, and with one kind of noise. The table shows how
many points of hit@5 the noise costs in mode `hybrid`.
"""

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from benchmarks.context import data_folder
from benchmarks.machine import describe_machine
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.evaluation.eval_set import EvalQuery, read_eval_set
from toolcrib.evaluation.runner import build_rankers, run_queries
from toolcrib.search.engine import SearchEngine

SETS: Final = ("mcp_catalog", "toolalpaca", "apibank")
MODE: Final = "hybrid"
MIN_WORD: Final = 5
IDLE: Final = "I've been at this all morning and the coffee is cold. My boss is in a mood today."
STORY_BEFORE: Final = (
    "I run a small bakery in the old town and we have been open for almost nine years now. My sister keeps the books and my "
    "cousin does the deliveries with a van that breaks down every other month. Last winter the oven failed twice and we lost "
    "a whole weekend of orders, which was hard on everybody. Since then we have tried to plan better and to write things "
    "down. The weather has been strange this year and fewer people walk past the shop in the mornings."
)
STORY_AFTER: Final = (
    "That is more or less where we are today. My neighbour says that I worry too much, and he may be right about that. We "
    "will close for two weeks in August as every year, and then the new season starts. The kids are back in school by then "
    "and the mornings are calmer. I had a long talk with my sister about all of this on Sunday and we both agreed that it is "
    "time for a change. Nobody here is an expert, so simple words are fine. Anyway, that was a long introduction."
)


def add_typo(text: str) -> str:
    """Swap, drop, replace or insert one letter inside a word; the same one in every run."""
    chance = random.Random(text)
    words = text.split(" ")
    long = [at for at, word in enumerate(words) if len(word) >= MIN_WORD and word.isalpha() and word[1:].islower()]
    if not long:
        return text
    at = chance.choice(long)
    word = words[at]
    place = chance.randrange(1, len(word) - 2)
    letter = chance.choice("aeiourstln")
    words[at] = chance.choice(
        (
            word[:place] + word[place + 1] + word[place] + word[place + 2 :],
            word[:place] + word[place + 1 :],
            word[:place] + letter + word[place + 1 :],
            word[:place] + letter + word[place:],
        )
    )
    return " ".join(words)


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def _end_sentence(text: str) -> str:
    return text if text.rstrip()[-1:] in ".?!" else f"{text}."


NOISES: Final[dict[str, Callable[[str], str]]] = {
    "one typing error": add_typo,
    "idle text before": lambda text: f"{IDLE} {_capitalize(text)}",
    "idle text after": lambda text: f"{_end_sentence(text)} {IDLE}",
    "could you please": lambda text: f"could you please {text[:1].lower()}{text[1:]}?",
    "JSON": lambda text: json.dumps({"query": text, "user": "anna", "locale": "en-US", "max_results": 5}),
    "JSON of a chat": lambda text: json.dumps({"messages": [{"role": "user", "content": text}]}),
    "code fence": lambda text: f"```text\n{text}\n```",
    "code fence after a heading": lambda text: f"Here is the task:\n```\n{text}\n```",
    "story of 200 words": lambda text: f"{STORY_BEFORE} {_end_sentence(_capitalize(text))} {STORY_AFTER}",
}


def measure(engine: SearchEngine, queries: list[EvalQuery]) -> float:
    """Return hit@5 in percent."""
    hits = [run.scores.hit_5 for run in run_queries(engine, queries, MODE) if run.scores is not None]
    return 100 * sum(hits) / len(hits)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="Folder that holds the eval sets.")
@click.option("--vectors", type=click.Path(path_type=Path), help="File that keeps tool vectors between runs.")
@click.option("--queries", "limit", default=200, help="Queries of each set, at most.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the result to this file.")
def main(data: Path | None, vectors: Path | None, limit: int, out: Path | None) -> None:
    """Measure what noise costs."""
    folder = data_folder(data)
    embedder = CachedEmbedder(DEFAULT_ENCODER, DEFAULT_ENCODER.version, vectors, capacity=20_000)
    rankers = {MODE: build_rankers(embedder)[MODE]}
    columns: list[list[str]] = []
    for name in SETS:
        eval_set = read_eval_set(folder / name)
        queries = [query for query in eval_set.queries if not query.is_impossible]
        queries = random.Random(1).sample(queries, min(limit, len(queries)))
        engine = SearchEngine(eval_set.catalog, rankers)
        engine.warm_up(MODE)
        base = measure(engine, queries)
        losses = [
            measure(engine, [replace(query, text=change(query.text)) for query in queries]) - base
            for change in NOISES.values()
        ]
        columns.append([f"{base:.1f}", *(f"{loss:+.1f}" for loss in losses)])
        click.echo(f"{name}: {columns[-1]}")
    rows = zip(("without noise: hit@5", *NOISES), *columns, strict=True)
    table = [f"| | {' | '.join(SETS)} |", f"|---|{'---:|' * len(SETS)}", *(f"| {' | '.join(row)} |" for row in rows)]
    page = "\n".join(
        [
            "# Noise around requests",
            "",
            "Each answerable query as it is and with noise: hit@5 in mode `hybrid`, in percent, and the change in points. "
            f"Made by `python -m benchmarks.noise` in {describe_machine()['python']}.",
            "",
            *table,
            "",
        ]
    )
    click.echo(page)
    if out is not None:
        out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
