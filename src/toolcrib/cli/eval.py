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

from toolcrib.cli.eval_report import print_legend, print_means, print_summary
from toolcrib.cli.options import json_option
from toolcrib.cli.printing import (
    format_count,
    print_json,
    print_note,
    sanitize,
    terminal_width,
    truncate,
    wrap,
)
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.evaluation.chart import picture
from toolcrib.evaluation.eval_set import QUERIES_FILE, TOOLS_FILE, EvalSet, read_eval_sets
from toolcrib.evaluation.json_report import means_to_json, result_to_json, summary_to_json
from toolcrib.evaluation.pool import ToolPool, build_pool
from toolcrib.evaluation.runner import EvalResult, build_rankers, run_queries
from toolcrib.evaluation.summary import EvalSummary, summarize
from toolcrib.files.atomic_write import resolve_links, write_file_atomically
from toolcrib.files.catalog_file import read_catalog_file
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.search.ranker import Ranker

_MAX_NAME_COLUMNS = 30
# What a bar takes at least beside its label: brackets, a few signs, the percentage and the time left.
_BAR_COLUMNS = 40
# Tools that are read between two steps of the bar.
_WARM_UP_BATCH = 64

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class _SetOutcome:
    """A set, what it was searched in, and how the modes did."""

    eval_set: EvalSet
    pool: ToolPool
    answers: dict[str, list[EvalResult]]
    summary: EvalSummary


def _check_writable(
    context: click.Context, parameter: click.Parameter, name: str | None
) -> Path | None:
    """A file to write to. Looked at before anything is measured: that may take long."""
    if name is None:
        return None
    path = Path(name)
    if name == "-":
        raise click.BadParameter("- is no file; name one, or take standard output with --json.")
    if parameter.name == "picture_file" and path.suffix.lower() not in ("", ".svg"):
        raise click.BadParameter(
            f"{sanitize(name)}: it is drawn as SVG; name a file that ends in .svg."
        )
    if path.is_dir():
        raise click.BadParameter(f"{sanitize(name)} is a folder; name a file in it.")
    if not path.parent.is_dir():
        raise click.BadParameter(f"There is no folder {sanitize(str(path.parent))}; make it first.")
    needed = [path] if path.exists() else []
    if not path.exists() or path.is_file():
        # It is replaced by another, which is made beside it.
        needed.append(resolve_links(path).parent)
    if not all(os.access(place, os.W_OK) for place in needed):
        raise click.BadParameter(f"{sanitize(name)} may not be written; choose another file.")
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
    callback=_check_writable,
    help="Write every answer to a file, as JSON Lines.",
)
@click.option(
    "--picture",
    "picture_file",
    metavar="FILE",
    callback=_check_writable,
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
    kept = (
        None
        if vectors_file is None
        else CachedEmbedder(DEFAULT_ENCODER, DEFAULT_ENCODER.version, vectors_file)
    )
    rankers = build_rankers(kept)
    outcomes = [
        _evaluate(one.sample(limit_queries) if limit_queries else one, foreign, modes, rankers)
        for one in sets
    ]
    if kept is not None and vectors_file is not None:
        _report_cache_errors(kept, vectors_file)
    summaries = [outcome.summary for outcome in outcomes]
    faults = []
    if dump_file is not None:
        faults += _write(dump_file, _render_dump(outcomes))
    if picture_file is not None:
        faults += _write(picture_file, picture(summaries))
    if as_json:
        print_json(_outcomes_to_json(outcomes))
    else:
        for outcome in outcomes:
            _print_outcome(outcome)
        if len(outcomes) > 1:
            print_means(summaries)
        print_legend(summaries)
    # Told last: what was measured is not thrown away for a file.
    if faults:
        raise click.ClickException("\n".join(faults))


def _refuse_one_file_twice(**files: str | Path | None) -> None:
    options: dict[Path, str] = {}
    for option, file in files.items():
        if (
            file is not None
            and (first := options.setdefault(resolve_links(Path(file)), option)) != option
        ):
            raise click.UsageError(
                f"--{first} and --{option} name the same file, {sanitize(str(file))}; give each its own."
            )


def _refuse_to_overwrite(read: Sequence[Path], *written: str | Path | None) -> None:
    kept = set(map(resolve_links, read))
    for file in written:
        if file is not None and resolve_links(Path(file)) in kept:
            raise click.UsageError(
                f"{sanitize(str(file))} is read here, and would be overwritten; name another file."
            )


def _evaluate(
    eval_set: EvalSet,
    foreign: Sequence[Tool],
    modes: Sequence[str],
    rankers: Mapping[str, Ranker],
) -> _SetOutcome:
    pool = build_pool(eval_set.catalog, foreign)
    catalog = Catalog(pool.tools) if foreign else eval_set.catalog
    engine = SearchEngine(catalog, rankers)
    # A mode that was named twice is searched once.
    asked = {
        mode: list(_run_mode(engine, eval_set, mode))
        for mode in dict.fromkeys(modes or engine.modes[:1])
    }
    return _SetOutcome(eval_set, pool, asked, summarize(eval_set.name, len(catalog), asked))


def _report_cache_errors(kept: CachedEmbedder, path: str) -> None:
    """Say what was wrong with the file of vectors: nobody would see why each run takes long."""
    if kept.damaged_count and not kept.file_error:
        print_note(
            f"{path}: {format_count(kept.damaged_count, 'vector was', 'vectors were')} damaged; they were "
            "read anew and replaced. If that happens again, see whether the disk is sound."
        )
    if kept.file_error:
        print_note(
            f"{kept.file_error}. Until then the figures are right, but every run reads the tools anew."
        )


def _run_mode(engine: SearchEngine, eval_set: EvalSet, mode: str) -> Iterator[EvalResult]:
    """A mode's answers, with a bar on standard error if somebody is watching."""
    label = f"{truncate(sanitize(eval_set.name), _MAX_NAME_COLUMNS)} {mode}"
    # What is measured is search as it is when every tool has been read.
    unread = engine.warm_up(mode, 0)
    if unread:
        for _ in _show_progress(_warm_up(engine, mode), unread, f"{label}: reading the tools"):
            pass
    questions = eval_set.queries
    yield from _show_progress(run_queries(engine, questions, mode), len(questions), label)


def _warm_up(engine: SearchEngine, mode: str) -> Iterator[int]:
    left = engine.warm_up(mode, 0)
    while left:
        now = engine.warm_up(mode, _WARM_UP_BATCH)
        yield from range(left - now)
        left = now


def _show_progress(given: Iterator[_Item], length: int, label: str) -> Iterator[_Item]:
    if not is_terminal():
        yield from given
        return
    # A line that does not fit is wrapped, and then none is drawn over the one before.
    room = max(terminal_width() - _BAR_COLUMNS, 0)
    shown = truncate(label, room) if room else None
    with click.progressbar(given, length=length, label=shown, width=0, file=sys.stderr) as bar:
        yield from bar


def is_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr.isatty()


def _render_dump(outcomes: Sequence[_SetOutcome]) -> str:
    rows = (
        result_to_json(outcome.summary.name, mode, answer)
        for outcome in outcomes
        for mode, given in outcome.answers.items()
        for answer in given
    )
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def _write(path: Path, text: str) -> list[str]:
    """Write a file; gives what went wrong, if anything did."""
    try:
        write_file_atomically(path, text.encode("utf-8", "backslashreplace"))
    except OSError as fault:
        reason = fault.strerror or fault
        return [sanitize(f"{path}: cannot be written: {reason}; choose another file")]
    return []


def _outcomes_to_json(outcomes: Sequence[_SetOutcome]) -> dict[str, Any]:
    sets = [
        {
            **summary_to_json(outcome.summary),
            "pool": {"added": outcome.pool.added_count, "left_out": outcome.pool.duplicate_count},
        }
        for outcome in outcomes
    ]
    return {"sets": sets, "means": means_to_json([outcome.summary for outcome in outcomes])}


def _print_outcome(outcome: _SetOutcome) -> None:
    overall, pool = outcome.summary.overall, outcome.pool
    own = len(outcome.eval_set.catalog)
    name = click.style(sanitize(outcome.eval_set.name), fg="cyan", bold=True)
    click.echo()
    click.echo(
        f"{name}: {format_count(own, 'tool')}, "
        f"{format_count(overall.answerable_count, 'query', 'queries')} with an answer, "
        f"{overall.impossible_count:,} without"
    )
    if pool.added_count or pool.duplicate_count:
        click.echo(
            wrap(
                f"searched among {pool.added_count:,} more tools; {pool.duplicate_count:,} others of the pool "
                "were left out: they have the name and a similar description of one that is there"
            )
        )
    for mode, count in outcome.summary.unsearchable.items():
        if count:
            fault = next(answer.error for answer in outcome.answers[mode] if answer.error)
            print_note(
                f"{mode} could not search {count:,} of the queries, which count as not found: {fault}"
            )
    print_summary(outcome.summary)
