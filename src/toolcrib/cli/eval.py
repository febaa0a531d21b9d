"""`toolcrib eval`: how well search answers questions whose answers are known."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from toolcrib.cli.eval_report import print_meaning, print_means, print_summary
from toolcrib.cli.options import json_option
from toolcrib.cli.printing import counted, fitted, note, plain, print_json, width, wrapped
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.encoder.default import SHIPPED
from toolcrib.evaluation.chart import picture
from toolcrib.evaluation.eval_set import QUERIES_FILE, TOOLS_FILE, EvalSet, read_eval_sets
from toolcrib.evaluation.json_report import answer_document, means_document, summary_document
from toolcrib.evaluation.pool import Pool, pooled
from toolcrib.evaluation.runner import Answer, answers, rankers_for
from toolcrib.evaluation.summary import Summary, summary
from toolcrib.files.atomic_write import followed, write_whole
from toolcrib.files.catalog_file import read_catalog_file
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.search.ranker import Ranker

_MAX_NAME_COLUMNS = 30
# What a bar takes at least beside its label: brackets, a few signs, the percentage and the time left.
_BAR_COLUMNS = 40
# Tools that are read between two steps of the bar.
_READ_AT_A_TIME = 64

_Given = TypeVar("_Given")


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A set, what it was searched in, and how the modes did."""

    eval_set: EvalSet
    pool: Pool
    answers: dict[str, list[Answer]]
    summary: Summary


def _writable(context: click.Context, parameter: click.Parameter, name: str | None) -> Path | None:
    """A file to write to. Looked at before anything is measured: that may take long."""
    if name is None:
        return None
    path = Path(name)
    if name == "-":
        raise click.BadParameter("- is no file; name one, or take standard output with --json.")
    if parameter.name == "picture_file" and path.suffix.lower() not in ("", ".svg"):
        raise click.BadParameter(
            f"{plain(name)}: it is drawn as SVG; name a file that ends in .svg."
        )
    if path.is_dir():
        raise click.BadParameter(f"{plain(name)} is a folder; name a file in it.")
    if not path.parent.is_dir():
        raise click.BadParameter(f"There is no folder {plain(str(path.parent))}; make it first.")
    needed = [path] if path.exists() else []
    if not path.exists() or path.is_file():
        # It is replaced by another, which is made beside it.
        needed.append(followed(path).parent)
    if not all(os.access(place, os.W_OK) for place in needed):
        raise click.BadParameter(f"{plain(name)} may not be written; choose another file.")
    return path


@click.command("eval")
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=click.Path())
@click.option(
    "--mode",
    "modes",
    multiple=True,
    type=click.Choice(tuple(RANKERS)),
    help="How to search; repeat it to compare modes with the first.  "
    f"[default: {next(iter(RANKERS))}]",
)
@click.option(
    "--pool",
    "pool_files",
    multiple=True,
    metavar="CATALOG",
    help="Search each set's tools among those of this catalog file; may be repeated.",
)
@click.option(
    "--limit-queries",
    type=click.IntRange(min=1),
    metavar="N",
    help="Ask only N queries of each set, evenly spread.",
)
@click.option(
    "--vectors",
    "vectors_file",
    metavar="FILE",
    help="Keep what was read of the tools in this file: the next run does not read them again.",
)
@click.option(
    "--dump",
    "dump_file",
    metavar="FILE",
    callback=_writable,
    help="Write every answer to a file, as JSON Lines.",
)
@click.option(
    "--picture",
    "picture_file",
    metavar="FILE",
    callback=_writable,
    help="Draw the figures into a file, as SVG.",
)
@json_option
def command(
    folders: tuple[str, ...],
    modes: tuple[str, ...],
    pool_files: tuple[str, ...],
    limit_queries: int | None,
    vectors_file: str | None,
    dump_file: Path | None,
    picture_file: Path | None,
    as_json: bool,
) -> None:
    """Measure how well search finds the right tools.

    FOLDER is an eval set: tools.jsonl (id, name, description, input_schema, and perhaps server,
    category, title) and queries.jsonl (id, query, relevant, and perhaps groups, any_of, kind,
    subset, lang).
    """
    _refuse_one_file_twice(vectors=vectors_file, dump=dump_file, picture=picture_file)
    read = [Path(folder) / name for folder in folders for name in (TOOLS_FILE, QUERIES_FILE)]
    _refuse_to_overwrite([*read, *map(Path, pool_files)], vectors_file, dump_file, picture_file)
    # Everything is read before anything is measured, so that a mistake is told at once.
    sets = read_eval_sets(folders)
    foreign = [tool for file in pool_files for tool in read_catalog_file(file)]
    kept = None if vectors_file is None else CachedEmbedder(SHIPPED, SHIPPED.version, vectors_file)
    rankers = rankers_for(kept)
    outcomes = [
        _measured(one.sample(limit_queries) if limit_queries else one, foreign, modes, rankers)
        for one in sets
    ]
    if kept is not None and vectors_file is not None:
        _tell_faults(kept, vectors_file)
    summaries = [outcome.summary for outcome in outcomes]
    faults = []
    if dump_file is not None:
        faults += _write(dump_file, _dump(outcomes))
    if picture_file is not None:
        faults += _write(picture_file, picture(summaries))
    if as_json:
        print_json(_document(outcomes))
    else:
        for outcome in outcomes:
            _print(outcome)
        if len(outcomes) > 1:
            print_means(summaries)
        print_meaning(summaries)
    # Told last: what was measured is not thrown away for a file.
    if faults:
        raise click.ClickException("\n".join(faults))


def _refuse_one_file_twice(**files: str | Path | None) -> None:
    options: dict[Path, str] = {}
    for option, file in files.items():
        if (
            file is not None
            and (first := options.setdefault(followed(Path(file)), option)) != option
        ):
            raise click.UsageError(
                f"--{first} and --{option} name the same file, {plain(str(file))}; give each its own."
            )


def _refuse_to_overwrite(read: Sequence[Path], *written: str | Path | None) -> None:
    kept = set(map(followed, read))
    for file in written:
        if file is not None and followed(Path(file)) in kept:
            raise click.UsageError(
                f"{plain(str(file))} is read here, and would be overwritten; name another file."
            )


def _measured(
    eval_set: EvalSet,
    foreign: Sequence[Tool],
    modes: Sequence[str],
    rankers: Mapping[str, Ranker],
) -> _Outcome:
    pool = pooled(eval_set.catalog, foreign)
    catalog = Catalog(pool.tools) if foreign else eval_set.catalog
    engine = SearchEngine(catalog, rankers)
    # A mode that was named twice is searched once.
    asked = {
        mode: list(_asked(engine, eval_set, mode))
        for mode in dict.fromkeys(modes or engine.modes[:1])
    }
    return _Outcome(eval_set, pool, asked, summary(eval_set.name, len(catalog), asked))


def _tell_faults(kept: CachedEmbedder, path: str) -> None:
    """Say what was wrong with the file of vectors: nobody would see why each run takes long."""
    if kept.damaged and not kept.fault:
        note(
            f"{path}: {counted(kept.damaged, 'vector was', 'vectors were')} damaged; they were "
            "read anew and replaced. If that happens again, see whether the disk is sound."
        )
    if kept.fault:
        note(f"{kept.fault}. Until then the figures are right, but every run reads the tools anew.")


def _asked(engine: SearchEngine, eval_set: EvalSet, mode: str) -> Iterator[Answer]:
    """A mode's answers, with a bar on standard error if somebody is watching."""
    label = f"{fitted(plain(eval_set.name), _MAX_NAME_COLUMNS)} {mode}"
    # What is measured is search as it is when every tool has been read.
    unread = engine.settle(mode, 0)
    if unread:
        for _ in _watched(_settling(engine, mode), unread, f"{label}: reading the tools"):
            pass
    questions = eval_set.questions
    yield from _watched(answers(engine, questions, mode), len(questions), label)


def _settling(engine: SearchEngine, mode: str) -> Iterator[int]:
    left = engine.settle(mode, 0)
    while left:
        now = engine.settle(mode, _READ_AT_A_TIME)
        yield from range(left - now)
        left = now


def _watched(given: Iterator[_Given], length: int, label: str) -> Iterator[_Given]:
    if not is_watched():
        yield from given
        return
    # A line that does not fit is wrapped, and then none is drawn over the one before.
    room = max(width() - _BAR_COLUMNS, 0)
    shown = fitted(label, room) if room else None
    with click.progressbar(given, length=length, label=shown, width=0, file=sys.stderr) as bar:
        yield from bar


def is_watched() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr.isatty()


def _dump(outcomes: Sequence[_Outcome]) -> str:
    rows = (
        answer_document(outcome.summary.name, mode, answer)
        for outcome in outcomes
        for mode, given in outcome.answers.items()
        for answer in given
    )
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def _write(path: Path, text: str) -> list[str]:
    """Write a file; gives what went wrong, if anything did."""
    try:
        write_whole(path, text.encode("utf-8", "backslashreplace"))
    except OSError as fault:
        reason = fault.strerror or fault
        return [plain(f"{path}: cannot be written: {reason}; choose another file")]
    return []


def _document(outcomes: Sequence[_Outcome]) -> dict[str, Any]:
    sets = [
        {
            **summary_document(outcome.summary),
            "pool": {"added": outcome.pool.added, "left_out": outcome.pool.left_out},
        }
        for outcome in outcomes
    ]
    return {"sets": sets, "means": means_document([outcome.summary for outcome in outcomes])}


def _print(outcome: _Outcome) -> None:
    overall, pool = outcome.summary.overall, outcome.pool
    own = len(outcome.eval_set.catalog)
    name = click.style(plain(outcome.eval_set.name), fg="cyan", bold=True)
    click.echo()
    click.echo(
        f"{name}: {counted(own, 'tool')}, "
        f"{counted(overall.answerable, 'query', 'queries')} with an answer, "
        f"{overall.impossible:,} without"
    )
    if pool.added or pool.left_out:
        click.echo(
            wrapped(
                f"searched among {pool.added:,} more tools; {pool.left_out:,} others of the pool "
                "were left out: they have the name and a similar description of one that is there"
            )
        )
    for mode, count in outcome.summary.unread.items():
        if count:
            fault = next(answer.fault for answer in outcome.answers[mode] if answer.fault)
            note(
                f"{mode} could not search {count:,} of the queries, which count as not found: {fault}"
            )
    print_summary(outcome.summary)
