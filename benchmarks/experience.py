"""What learning from use gains, and what it can spoil: `python -m benchmarks.experience`.

Of each tool's questions every second one is replayed: it is searched, and if the right tool is among
the first 20 it is called, as a model would have done in the end. The others measure. Then again with
every fifth use a wrong one, and with a hostile replay in which one tool claims every question.
"""

import argparse
import itertools
import json
import os
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import machine
from benchmarks.quality import DATA, REPOSITORY, Quality
from toolcrib import SearchEngine
from toolcrib.evaluation.eval_query import Question
from toolcrib.evaluation.eval_set import EvalSet, read_eval_set
from toolcrib.evaluation.metrics import DEPTH, TOP, scores
from toolcrib.search.feedback.experience import Experience, Use
from toolcrib.search.feedback.ranker import BOOST, Experienced
from toolcrib.search.feedback.trail import Trail
from toolcrib.search.lexical.ranker import Lexical
from toolcrib.search.ranker import Ranker

SETS = "apibank,mcptoolbenchpp,toolalpaca,training_pairs,metatool,ultratool,bfcl"
SALT = b"the salt of a benchmark is no secret"
# How far down a model reads before it calls.
READ = 20
PAIRS = "training_pairs"
NOISE = 0.2
HAMMERING = 4
MEASURED_PIECES = 10_000
MEASURED_QUERIES = 300
TRIES = 5

Chooses = Callable[[Question, list[str]], Iterable[str]]


class Measured(NamedTuple):
    """One set, before and after."""

    name: str
    tools: int
    learned: int
    asked: int
    cold: Quality
    honest: Quality
    noisy: Quality
    hostile: Quality
    fallen: int
    deepest_fall: int


def halves(questions: Sequence[Question]) -> tuple[list[Question], list[Question]]:
    """Questions to learn from and questions to measure with: every second one of each tool's."""
    learning: list[Question] = []
    asking: list[Question] = []
    for _, group in itertools.groupby(sorted(questions, key=_wanted), _wanted):
        same = list(group)
        asking += same[::2]
        learning += same[1::2]
    return learning, asking


def _wanted(question: Question) -> str:
    return min(question.needs[0])


def right(question: Question, found: list[str]) -> Iterator[str]:
    """The tools that a good model calls: the first found of each need."""
    for need in question.needs:
        yield from itertools.islice((id for id in found if id in need), 1)


def sometimes_wrong(chance: random.Random) -> Chooses:
    """The tools that a careless model calls: now and then any that was found."""

    def choose(question: Question, found: list[str]) -> Iterator[str]:
        for id in right(question, found):
            yield chance.choice(found) if chance.random() < NOISE else id

    return choose


def replay(
    engine: SearchEngine, experience: Experience, questions: Sequence[Question], choose: Chooses
) -> None:
    """Search and call, question by question, and learn from it."""
    for question in questions:
        found = [hit.tool.id for hit in engine.search(question.text, limit=READ)]
        trail = Trail().searched(question.text, found)
        for id in choose(question, found):
            trail, use = trail.called(id)
            if use is not None:
                experience.record(use)


def measure(data: EvalSet, ranker: Ranker, boost: float) -> Measured:
    """One set cold, after honest use, after careless use, and after an attack on honest use."""
    catalog = data.catalog
    learning, asking = halves(data.questions)
    cold = _asked(SearchEngine(catalog, {"one": ranker}), asking)
    ranked = {}
    pieces = 0
    for name, choose in [("honest", right), ("noisy", sometimes_wrong(random.Random(7)))]:
        experience = Experience(SALT)
        engine = SearchEngine(catalog, {"one": Experienced(ranker, experience, boost)})
        replay(engine, experience, learning, choose)
        ranked[name] = _asked(engine, asking)
        if name == "honest":
            pieces = experience.pieces
            claimant = _claimant(data)
            # The worst case: the attacker knows what will be asked, and repeats it.
            for question in (*learning, *asking) * HAMMERING:
                experience.record(Use(question.text, claimant))
            ranked["hostile"] = _asked(engine, asking)
    falls = [
        _worst_fall(before, after, question)
        for question, before, after in zip(asking, ranked["honest"], ranked["hostile"], strict=True)
    ]
    return Measured(
        data.name,
        len(data.catalog),
        pieces,
        len(asking),
        _quality(asking, cold),
        _quality(asking, ranked["honest"]),
        _quality(asking, ranked["noisy"]),
        _quality(asking, ranked["hostile"]),
        sum(fall.left_the_top for fall in falls),
        max(fall.places for fall in falls),
    )


class Fall(NamedTuple):
    """How many places the right tools lost, and whether one left the top five."""

    places: int
    left_the_top: bool


def _worst_fall(before: list[str], after: list[str], question: Question) -> Fall:
    falls = []
    for id in right(question, before):
        was = before.index(id)
        now = after.index(id) if id in after else len(after)
        falls.append(Fall(max(now - was, 0), was < TOP <= now))
    return max(falls, default=Fall(0, False))


def _claimant(data: EvalSet) -> str:
    """A tool that is right for no question, where there is one."""
    ids = [tool.id for tool in data.catalog]
    wanted = {id for question in data.questions for need in question.needs for id in need}
    return next((id for id in ids if id not in wanted), ids[-1])


def _asked(engine: SearchEngine, questions: Sequence[Question]) -> list[list[str]]:
    return [
        [hit.tool.id for hit in engine.search(question.text, limit=READ)] for question in questions
    ]


def _quality(questions: Sequence[Question], ranked: list[list[str]]) -> Quality:
    scored = [scores(found, one) for one, found in zip(questions, ranked, strict=True)]
    figures = [(one.ndcg_10, one.recall_5, one.mrr) for one in scored]
    return Quality(*map(statistics.fmean, zip(*figures, strict=True)))


def read_pairs(folder: Path) -> EvalSet:
    """Hand-written queries in three styles for tools of the MCP catalog, as a set of its own."""
    source = "mcp_catalog"
    catalog = read_eval_set(folder / source).catalog
    with (folder / PAIRS / "pairs.jsonl").open(encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if row["source"] == source]
    questions = tuple(
        Question(id=f"{row['id']} {style}", text=row[style], needs=(frozenset((row["id"],)),))
        for row in rows
        for style in ("need", "ask", "agent")
    )
    return EvalSet("mcp_catalog, hand-written pairs", catalog, questions)


class Cost(NamedTuple):
    """What learning costs: CPU microseconds, and bytes of memory."""

    pieces: int
    pairs: int
    plain: float
    learned: float
    recording: float
    memory: int


def cost(data: EvalSet, ranker: Ranker) -> Cost:
    """The cost of a query with and without experience, and of the experience itself."""
    catalog = data.catalog
    texts = [question.text for question in data.questions]
    ids = [_wanted(question) for question in data.questions]
    tracemalloc.start()
    experience = Experience(SALT)
    uses = itertools.cycle(zip(texts, ids, strict=True))
    for text, id in itertools.islice(uses, MEASURED_PIECES):
        experience.record(Use(text, id))
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    engines = [
        SearchEngine(catalog, {"one": ranker}),
        SearchEngine(catalog, {"one": Experienced(ranker, experience)}),
    ]
    asked = random.Random(1).sample(texts, min(MEASURED_QUERIES, len(texts)))
    tries = [[_microseconds(engine.search, asked) for engine in engines] for _ in range(TRIES)]
    plain, learned = map(min, zip(*tries, strict=True))
    pairs = experience.pairs
    recording = _microseconds(lambda text: experience.record(Use(text, ids[0])), asked)
    return Cost(MEASURED_PIECES, pairs, plain, learned, recording, memory)


def _microseconds(act: Callable[[str], object], texts: Sequence[str]) -> float:
    """CPU microseconds of an act on a text, the mean."""
    started = time.process_time()
    for text in texts:
        act(text)
    return 1e6 * (time.process_time() - started) / len(texts)


def _answerable(data: EvalSet) -> EvalSet:
    questions = tuple(question for question in data.questions if not question.impossible)
    return EvalSet(data.name, data.catalog, questions)


def _sets(folder: Path, names: Sequence[str]) -> Iterator[EvalSet]:
    for name in names:
        path = folder / name / ("pairs.jsonl" if name == PAIRS else "queries.jsonl")
        if not path.is_file():
            print(f"{name}: skipped, there is no {path}")
        else:
            yield read_pairs(folder) if name == PAIRS else _answerable(read_eval_set(folder / name))


def _markdown(rows: Sequence[Measured], spent: Cost | None, boost: float) -> str:
    described = machine.described()
    lines = [
        "# Learning from use, before and after",
        "",
        f"Measured on: {described['processor']}, {described['python']}. Lexical mode, boost {boost}. "
        f"Cells: nDCG@{DEPTH} / recall@{TOP} in percent on questions that were not learned from. "
        f"*Careless*: {NOISE:.0%} of the uses were of a wrong tool. *Hostile*: after the honest uses, "
        f"one wrong tool claims every question, those to be asked too, {HAMMERING} times over; "
        f"behind it, right tools that left the top {TOP} by that, and the most places one lost.",
        "",
        "| set (tools, uses learned, questions asked) | cold | honest | careless | hostile | left |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = " | ".join(
            f"{100 * quality.ndcg:.1f} / {100 * quality.recall:.1f}"
            for quality in (row.cold, row.honest, row.noisy, row.hostile)
        )
        size = f"({row.tools:,}, {row.learned:,}, {row.asked:,})"
        lines.append(f"| {row.name} {size} | {cells} | {row.fallen}, {row.deepest_fall} |")
    if spent:
        lines += [
            "",
            f"At {spent.pieces:,} uses ({spent.pairs:,} pairs of a word and a tool), on the catalog of "
            f"real MCP tools, CPU time: a query takes {spent.plain:.0f} µs without and "
            f"{spent.learned:.0f} µs with what was learned, recording a use {spent.recording:.0f} µs. "
            f"All that was learned takes {spent.memory / 2**20:.1f} MB.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure every set that is there, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.experience")
    parser.add_argument("--data", type=Path, default=os.environ.get("TOOLCRIB_DATA") or DATA)
    parser.add_argument("--sets", default=SETS, help="some of the folders in --data, with commas")
    parser.add_argument("--boost", type=float, default=BOOST)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "benchmarks/results/experience.md")
    options = parser.parse_args()
    ranker = Lexical(syntax="lenient")
    rows: list[Measured] = []
    spent = None
    for data in _sets(options.data, options.sets.split(",")):
        rows.append(measure(data, ranker, options.boost))
        print(f"{data.name:20} {100 * rows[-1].cold.ndcg:.1f} {100 * rows[-1].honest.ndcg:.1f}")
        if data.name.startswith("mcp_catalog"):
            spent = cost(data, ranker)
        # Written set by set: a long run that is stopped leaves what it has.
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(_markdown(rows, spent, options.boost), encoding="utf-8")
    if not rows:
        sys.exit(f"no eval sets in {options.data}: name their folder with --data")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
