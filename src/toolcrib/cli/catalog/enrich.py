"""`toolcrib enrich`: let a model write example requests for tools, check them and keep them. Also the options of the model."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from toolcrib.cli.gateway.launch import config_option
from toolcrib.cli.printing import format_count, json_option, print_json, print_note, sanitize, wrap
from toolcrib.config.loader import load_config, require_config_path
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import MAX_EXAMPLES, Tool
from toolcrib.embedders.cache import find_cache_folder
from toolcrib.enrichment.checks import RequestChecker
from toolcrib.enrichment.example_file import read_example_requests, write_example_requests
from toolcrib.enrichment.writer import MAX_JOBS, TIMEOUT_SECONDS, RequestWriter, WrittenRequests, write_checked_requests
from toolcrib.errors import EnrichmentFailed
from toolcrib.files.catalog_file import read_catalog_file
from toolcrib.hub.startup import open_hub
from toolcrib.search.engine import RANKERS
from toolcrib.storage.definitions import StoredRequests

_WARM_UP_BATCH: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions:
    """Which model writes requests. The writer is built on use, because a command may not need it."""

    model_url: str | None
    model: str | None
    key_env: str
    timeout_seconds: float
    jobs: int

    def build_writer(self) -> RequestWriter:
        """Return the writer of these options."""
        if not self.model_url or not self.model:
            raise click.UsageError(
                "--model-url and --model are needed, for example: --model-url http://localhost:11434/v1 --model qwen3"
            )
        key = os.environ.get(self.key_env, "")
        return RequestWriter(self.model_url, self.model, key=key, timeout_seconds=self.timeout_seconds)


def writer_options(callback: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the model to a command, which gets them as one `writer` argument."""

    @click.option("--model-url", metavar="URL", help="Base URL of an OpenAI-compatible API, with its /v1.")
    @click.option("--model", metavar="NAME", help="Model that writes the requests.")
    @click.option(
        "--key-env",
        default="OPENAI_API_KEY",
        metavar="NAME",
        help="Environment variable with the API key.  [default: OPENAI_API_KEY]",
    )
    @click.option(
        "--timeout",
        "timeout_seconds",
        type=click.FloatRange(min=0, min_open=True),
        default=TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="Time for one answer of the model.  [default: 60]",
    )
    @click.option(
        "--jobs",
        type=click.IntRange(1, MAX_JOBS),
        default=1,
        metavar="N",
        help="How many answers of the model to wait for at a time.  [default: 1]",
    )
    @wraps(callback)
    def build_options(**options: Any) -> None:
        writer = WriterOptions(**{field.name: options.pop(field.name) for field in fields(WriterOptions)})
        callback(writer=writer, **options)

    return build_options


@dataclass(frozen=True, slots=True, kw_only=True)
class _EnrichOptions:
    catalog_files: tuple[str, ...]
    out_file: str | None
    config_file: str | None
    writer: WriterOptions
    server: str
    limit: int | None
    count: int
    dry_run: bool
    as_json: bool


class _RequestFile:
    """Keeps requests in a JSON Lines file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.known: dict[str, tuple[str, ...]] = read_example_requests(path) if path and Path(path).exists() else {}
        self._ids: dict[str, str] = {}

    def put(self, tool: Tool, requests: tuple[str, ...]) -> None:
        """Add the requests of a tool; the whole file is written again."""
        self.known[tool.definition_fingerprint] = requests
        self._ids[tool.definition_fingerprint] = tool.id
        write_example_requests(self._path, self.known, self._ids)


@click.command("enrich")
@click.option(
    "--catalog", "catalog_files", multiple=True, metavar="FILE", help="Tools of a file; needs --out or --dry-run."
)
@click.option("--out", "out_file", metavar="FILE", help="Keep the requests in this file, not in the store.")
@config_option
@writer_options
@click.option("--server", default="", metavar="NAME", help="Only tools of this server.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N tools without requests.")
@click.option(
    "--requests",
    "count",
    type=click.IntRange(1, MAX_EXAMPLES),
    default=3,
    metavar="N",
    help="Requests per tool.  [default: 3]",
)
@click.option("--dry-run", is_flag=True, help="Print the requests and keep nothing.")
@json_option
def command(**options: Any) -> None:
    """Let a model write example requests, so that tools are found by them.

    Uses the tools that the gateway has stored, or those of --catalog. Each request is checked: a search for it must
    find its tool, and no other tool before it. Tools that have requests are skipped, so a run can be repeated.
    """
    request = _EnrichOptions(**options)
    writer = request.writer.build_writer()
    if request.catalog_files:
        if not request.out_file and not request.dry_run:
            raise click.UsageError("--catalog needs --out, the file that keeps the requests, or --dry-run.")
        requests = _RequestFile(request.out_file or "")
        _enrich(request, writer, read_catalog_file(*request.catalog_files), requests.known, requests.put)
        return
    if request.out_file:
        raise click.UsageError("--out needs --catalog; without it, the requests are kept in the store.")
    hub = open_hub(load_config(require_config_path(request.config_file)))
    try:
        known = hub.store.list_example_requests()
        # The plain tools: the hub has added the requests of earlier runs.
        catalog = Catalog([entry.tool.replace(examples=[]) for entry in hub.directory])

        def put(tool: Tool, texts: tuple[str, ...]) -> None:
            stored = StoredRequests(tool.definition_fingerprint, tool.id, texts, writer.model, time.time())
            hub.store.put_example_requests([stored])

        _enrich(request, writer, catalog, known, put)
    finally:
        hub.close()


def _enrich(
    request: _EnrichOptions,
    writer: RequestWriter,
    catalog: Catalog,
    known: Mapping[str, Sequence[str]],
    put: Callable[[Tool, tuple[str, ...]], None],
) -> None:
    """Write, check, print and keep the requests of the tools that have none."""
    if not len(catalog):
        raise click.ClickException("There are no tools yet; start the gateway once, or use --catalog.")
    tools = [
        tool
        for tool in catalog
        if tool.definition_fingerprint not in known and (not request.server or tool.server == request.server)
    ][: request.limit]
    checker = RequestChecker(catalog, known, {"hybrid": RANKERS["hybrid"]})
    if tools:
        _warm_up(checker, len(catalog), request.as_json)
    outcomes: list[WrittenRequests] = []
    error: EnrichmentFailed | None = None
    written = write_checked_requests(
        tools,
        writer,
        lambda tool, texts: checker.check(tool, texts, request.count),
        count=request.count,
        jobs=request.writer.jobs,
    )
    try:
        for outcome in written:
            outcomes.append(outcome)
            if outcome.checked.kept and not request.dry_run:
                put(outcome.tool, outcome.checked.kept)
            if not request.as_json:
                _print_outcome(outcome)
    except EnrichmentFailed as failure:
        # What was written so far is kept; the next run continues after it.
        error = failure
    _print_total(request, outcomes)
    if error is not None:
        raise error


def _warm_up(checker: RequestChecker, count: int, as_json: bool) -> None:
    if not as_json and checker.warm_up(0):
        where = " They are kept for the next run." if find_cache_folder() else ""
        print_note(f"Encoding {format_count(count, 'tool')} first.{where}")
    while checker.warm_up(_WARM_UP_BATCH):
        pass


def _print_outcome(outcome: WrittenRequests) -> None:
    click.secho(sanitize(outcome.tool.id), bold=True)
    for text in outcome.checked.kept:
        click.echo(wrap(sanitize(text), "  + "))
    for text, reason in outcome.checked.rejected:
        click.secho(wrap(sanitize(f"{text} ({reason})"), "  - "), dim=True)
    if outcome.error:
        click.secho(wrap(sanitize(outcome.error), "  ! "), fg="yellow")


def _print_total(request: _EnrichOptions, outcomes: Sequence[WrittenRequests]) -> None:
    kept = sum(len(outcome.checked.kept) for outcome in outcomes)
    rejected = sum(len(outcome.checked.rejected) for outcome in outcomes)
    if request.as_json:
        print_json({"tools": [_outcome_to_json(outcome) for outcome in outcomes], "kept": kept, "rejected": rejected})
        return
    verb = "would be kept" if request.dry_run else "kept"
    tools = sum(bool(outcome.checked.kept) for outcome in outcomes)
    click.echo(f"{format_count(kept, 'request')} for {format_count(tools, 'tool')} {verb}, {rejected:,} rejected.")


def _outcome_to_json(outcome: WrittenRequests) -> dict[str, Any]:
    return {
        "id": outcome.tool.id,
        "fingerprint": outcome.tool.definition_fingerprint,
        "requests": list(outcome.checked.kept),
        "rejected": [{"request": text, "reason": reason} for text, reason in outcome.checked.rejected],
        "error": outcome.error,
    }
