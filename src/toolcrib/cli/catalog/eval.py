"""`toolcrib eval`: measure search quality on eval sets."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from toolcrib.cli.catalog.enrich import WriterOptions, writer_options
from toolcrib.cli.catalog.eval_generate import generate_eval_set
from toolcrib.cli.catalog.eval_report import (
    means_to_json,
    print_legend,
    print_means,
    print_never_found,
    print_summary,
    result_to_json,
    summary_to_json,
)
from toolcrib.cli.catalog.search import find_gateway_catalog, open_catalog
from toolcrib.cli.printing import (
    format_count,
    json_option,
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
from toolcrib.evaluation.eval_set import QUERIES_FILE, TOOLS_FILE, EvalSet, ToolPool, build_pool, read_eval_sets
from toolcrib.evaluation.runner import EvalResult, NeverFoundTool, build_rankers, list_never_found, run_queries
from toolcrib.evaluation.summary import EvalSummary, summarize
from toolcrib.files.atomic_write import resolve_links
from toolcrib.files.catalog_file import read_catalog_file
from toolcrib.files.json_file import write_json_lines
from toolcrib.search.engine import RANKERS, SearchEngine
from toolcrib.search.ranker import Ranker

_MAX_NAME_COLUMNS = 30
# The columns of a progress bar without its label.
_BAR_COLUMNS = 40
# How many tools are encoded per step of the progress bar.
_WARM_UP_BATCH = 64

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class _EvalOptions:
    folders: tuple[str, ...]
    modes: tuple[str, ...]
    pool_files: tuple[str, ...]
    limit_queries: int | None
    vectors_file: str | None
    dump_file: Path | None
    generate: bool
    catalog_files: tuple[str, ...]
    limit: int
    accept_all: bool
    writer: WriterOptions
    as_json: bool

    def check_generation(self) -> None:
        """Raise if options for the generation of an eval set do not fit together."""
        if not self.generate:
            if self.catalog_files or self.accept_all:
                raise click.UsageError("--catalog and --yes need --generate.")
        elif len(self.folders) != 1:
            raise click.UsageError("--generate writes one eval set; name one FOLDER.")

    def check_files(self) -> None:
        """Raise if an output file is also an input or another output."""
        inputs = [Path(folder) / file for folder in self.folders for file in (TOOLS_FILE, QUERIES_FILE)]
        input_paths = {resolve_links(path) for path in [*inputs, *map(Path, self.pool_files)]}
        outputs = [Path(file) for file in (self.vectors_file, self.dump_file) if file is not None]
        for file in outputs:
            if resolve_links(file) in input_paths:
                raise click.UsageError(
                    f"{sanitize(str(file))} is an input file and would be overwritten; choose another file."
                )
        if len(outputs) == 2 and resolve_links(outputs[0]) == resolve_links(outputs[1]):
            raise click.UsageError(
                f"--vectors and --dump are the same file, {sanitize(str(outputs[0]))}; choose different files."
            )


@dataclass(frozen=True, slots=True)
class _SetOutcome:
    """An eval set with the tools it was searched in and the results of each mode."""

    eval_set: EvalSet
    pool: ToolPool
    results: dict[str, list[EvalResult]]
    summary: EvalSummary
    never_found: dict[str, list[NeverFoundTool]]


def _check_writable(context: click.Context, parameter: click.Parameter, name: str | None) -> Path | None:
    """Return the path of an output file, or raise before the evaluation starts."""
    if name is None:
        return None
    path = Path(name)
    if name == "-":
        raise click.BadParameter("- is not a file; choose a file, or use --json.")
    if path.is_dir():
        raise click.BadParameter(f"{sanitize(name)} is a folder; choose a file in it.")
    if not path.parent.is_dir():
        raise click.BadParameter(f"There is no folder {sanitize(str(path.parent))}; create it first.")
    needed = [path] if path.exists() else []
    if not path.exists() or path.is_file():
        # An atomic write creates a new file in the same folder.
        needed.append(resolve_links(path).parent)
    if not all(os.access(item, os.W_OK) for item in needed):
        raise click.BadParameter(f"{sanitize(name)} is not writable; choose another file.")
    return path


@click.command("eval")
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=click.Path())
@click.option(
    "--mode",
    "modes",
    multiple=True,
    type=click.Choice(tuple(RANKERS)),
    help=f"Search mode; repeat it to compare other modes with the first.  [default: {next(iter(RANKERS))}]",
)
@click.option(
    "--pool",
    "pool_files",
    multiple=True,
    metavar="CATALOG",
    help="Add the tools of this catalog file to each set; may be repeated.",
)
@click.option(
    "--limit-queries", type=click.IntRange(min=1), metavar="N", help="Use only N queries of each set, evenly spaced."
)
@click.option(
    "--vectors",
    "vectors_file",
    metavar="FILE",
    help="Cache the tool vectors in this file, so that the next run is faster.",
)
@click.option(
    "--dump",
    "dump_file",
    metavar="FILE",
    callback=_check_writable,
    help="Write the result of every query to this file, as JSON Lines.",
)
@click.option("--generate", is_flag=True, help="Let a model write queries for a first eval set in FOLDER.")
@click.option(
    "--catalog",
    "catalog_files",
    multiple=True,
    metavar="FILE",
    help="With --generate: the tools.  [default: the running gateway, or else the demo catalog]",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    metavar="N",
    help="With --generate: how many tools get a query.  [default: 50]",
)
@click.option("--yes", "accept_all", is_flag=True, help="With --generate: accept all queries that pass the checks.")
@writer_options
@json_option
def command(**options: Any) -> None:
    """Measure how well search finds the right tools.

    FOLDER is an eval set with two files: tools.jsonl (id, name, description, input_schema;
    optionally server, category, title) and queries.jsonl (id, query, relevant; optionally groups,
    any_of, kind, subset, lang). With --generate, a model writes a first set, and you approve each query.
    """
    request = _EvalOptions(**options)
    request.check_generation()
    if request.generate:
        gateway = find_gateway_catalog(request.catalog_files, None, None)
        catalog = open_catalog(request.catalog_files) if gateway is None else gateway.load_tools()
        folder = Path(request.folders[0])
        generate_eval_set(folder, catalog, request.writer, limit=request.limit, accept_all=request.accept_all)
        return
    request.check_files()
    # Read all input first, so that errors are reported before the evaluation starts.
    sets = read_eval_sets(request.folders)
    foreign = [tool for file in request.pool_files for tool in read_catalog_file(file)]
    cache = None
    if request.vectors_file is not None:
        cache = CachedEmbedder(DEFAULT_ENCODER, DEFAULT_ENCODER.version, request.vectors_file)
    rankers = build_rankers(cache)
    if request.limit_queries:
        sets = [eval_set.sample(request.limit_queries) for eval_set in sets]
    outcomes = [_evaluate(eval_set, foreign, request.modes, rankers) for eval_set in sets]
    if cache is not None and request.vectors_file is not None:
        _report_cache_errors(cache, request.vectors_file)
    error = "" if request.dump_file is None else _write_dump(request.dump_file, outcomes)
    if request.as_json:
        print_json(_outcomes_to_json(outcomes))
    else:
        _print_outcomes(outcomes)
    # Raised last, so that a full disk does not lose the printed metrics.
    if error:
        raise click.ClickException(error)


def _evaluate(
    eval_set: EvalSet, foreign: Sequence[Tool], modes: Sequence[str], rankers: Mapping[str, Ranker]
) -> _SetOutcome:
    pool = build_pool(eval_set.catalog, foreign)
    catalog = Catalog(pool.tools) if foreign else eval_set.catalog
    engine = SearchEngine(catalog, rankers)
    results = {mode: list(_run_mode(engine, eval_set, mode)) for mode in dict.fromkeys(modes or engine.modes[:1])}
    never_found = {mode: list_never_found(engine, found, mode) for mode, found in results.items()}
    return _SetOutcome(eval_set, pool, results, summarize(eval_set.name, len(catalog), results), never_found)


def _report_cache_errors(cache: CachedEmbedder, path: str) -> None:
    if cache.file_error:
        print_note(f"{cache.file_error}. The metrics are correct, but every run encodes the tools again.")
    elif cache.damaged_count:
        damaged = format_count(cache.damaged_count, "vector was", "vectors were")
        print_note(f"{path}: {damaged} damaged and have been replaced. If this happens again, check the disk.")


def _run_mode(engine: SearchEngine, eval_set: EvalSet, mode: str) -> Iterator[EvalResult]:
    """Yield the results of one mode, with a progress bar on a terminal."""
    label = f"{truncate(sanitize(eval_set.name), _MAX_NAME_COLUMNS)} {mode}"
    # Encode all tools first, so that no query is measured with provisional vectors.
    remaining = engine.warm_up(mode, 0)
    if remaining:
        for _ in _show_progress(_warm_up(engine, mode), remaining, f"{label}: encoding tools"):
            pass
    queries = eval_set.queries
    yield from _show_progress(run_queries(engine, queries, mode), len(queries), label)


def _warm_up(engine: SearchEngine, mode: str) -> Iterator[int]:
    """Encode all tools and yield one item per tool."""
    remaining = engine.warm_up(mode, 0)
    while remaining:
        previous, remaining = remaining, engine.warm_up(mode, _WARM_UP_BATCH)
        yield from range(previous - remaining)


def _show_progress(items: Iterator[_Item], length: int, label: str) -> Iterator[_Item]:
    if not is_terminal():
        yield from items
        return
    # A bar that is wider than the terminal would be repeated on every update.
    room = max(terminal_width() - _BAR_COLUMNS, 0)
    short_label = truncate(label, room) if room else None
    with click.progressbar(items, length=length, label=short_label, width=0, file=sys.stderr) as progress_bar:
        yield from progress_bar


def is_terminal() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr.isatty()


def _write_dump(path: Path, outcomes: Sequence[_SetOutcome]) -> str:
    """Write all results to a file, and return an error message if that fails."""
    rows = (
        result_to_json(outcome.summary.name, mode, result)
        for outcome in outcomes
        for mode, results in outcome.results.items()
        for result in results
    )
    try:
        write_json_lines(path, rows)
    except OSError as error:
        reason = error.strerror or error
        return sanitize(f"{path}: cannot be written: {reason}; choose another file")
    return ""


def _outcomes_to_json(outcomes: Sequence[_SetOutcome]) -> dict[str, Any]:
    sets = [
        {
            **summary_to_json(outcome.summary),
            "pool": {"added": outcome.pool.added_count, "left_out": outcome.pool.duplicate_count},
            "never_found": {
                mode: [tool._asdict() for tool in tools] for mode, tools in outcome.never_found.items() if tools
            },
        }
        for outcome in outcomes
    ]
    return {"sets": sets, "means": means_to_json([outcome.summary for outcome in outcomes])}


def _print_outcomes(outcomes: Sequence[_SetOutcome]) -> None:
    for outcome in outcomes:
        _print_outcome(outcome)
    summaries = [outcome.summary for outcome in outcomes]
    if len(summaries) > 1:
        print_means(summaries)
    print_legend(summaries)


def _print_outcome(outcome: _SetOutcome) -> None:
    overall, pool = outcome.summary.overall, outcome.pool
    name = click.style(sanitize(outcome.eval_set.name), fg="cyan", bold=True)
    click.echo()
    click.echo(
        f"{name}: {format_count(len(outcome.eval_set.catalog), 'tool')}, "
        f"{format_count(overall.answerable_count, 'query', 'queries')} with an answer, "
        f"{overall.impossible_count:,} without"
    )
    if pool.added_count or pool.duplicate_count:
        click.echo(
            wrap(
                f"searched together with {pool.added_count:,} tools of the pool; "
                f"{pool.duplicate_count:,} were left out, because a tool with the same name has "
                "a similar description"
            )
        )
    for mode, count in outcome.summary.unsearchable.items():
        if count:
            error = next(result.error for result in outcome.results[mode] if result.error)
            print_note(f"{mode} rejected {count:,} of the queries, which count as not found: {error}")
    print_summary(outcome.summary)
    for mode, tools in outcome.never_found.items():
        print_never_found(mode, tools)
