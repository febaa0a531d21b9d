"""`toolcrib eval --generate`: a first eval set, with queries that a model writes and a person approves."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from toolcrib.cli.catalog.enrich import WriterOptions
from toolcrib.cli.printing import format_count, sanitize, wrap
from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.enrichment.checks import CheckedRequests, RejectedRequest, find_text_problem
from toolcrib.enrichment.writer import WrittenRequests, write_checked_requests
from toolcrib.errors import EnrichmentFailed
from toolcrib.evaluation.eval_set import QUERIES_FILE, TOOLS_FILE, read_eval_set
from toolcrib.files.json_file import write_json_lines
from toolcrib.search.engine import SearchEngine

QUERIES_PER_TOOL: Final = 1
_WRITTEN_PER_TOOL: Final = 3
_CHOICES: Final = {"y": "yes", "n": "no", "e": "edit", "q": "quit"}


class GeneratedSet:
    """An eval set that grows: the tools, and the queries that were approved so far."""

    def __init__(self, folder: Path, catalog: Catalog) -> None:
        self._folder = folder
        self._queries: list[dict[str, Any]] = []
        if (folder / QUERIES_FILE).exists():
            existing = read_eval_set(folder)
            catalog = existing.catalog.with_tools([tool for tool in catalog if tool.id not in existing.catalog])
            lines = (folder / QUERIES_FILE).read_text(encoding="utf-8").splitlines()
            self._queries = [json.loads(line) for line in lines if line.strip()]
        self.catalog = catalog

    def list_tools(self, limit: int) -> list[Tool]:
        """Return up to `limit` tools without a query, evenly spaced over the catalog."""
        covered = {id for query in self._queries for id in query.get("relevant", ())}
        tools = [tool for tool in self.catalog if tool.id not in covered]
        count = min(limit, len(tools))
        return [tools[number * len(tools) // count] for number in range(count)]

    def add(self, text: str, tool: Tool) -> None:
        """Add a query for a tool and write both files. Copies of the tool on other servers are correct too."""
        texts = (tool.name, tool.description)
        relevant = [one.id for one in self.catalog if (one.name, one.description) == texts]
        used = {str(query.get("id")) for query in self._queries}
        number = next(n for n in range(1, len(used) + 2) if f"g{n}" not in used)
        query: dict[str, Any] = {"id": f"g{number}", "query": text, "relevant": relevant, "kind": "generated"}
        if len(relevant) > 1:
            query["any_of"] = True
        self._queries.append(query)
        self._folder.mkdir(parents=True, exist_ok=True)
        write_json_lines(self._folder / TOOLS_FILE, [tool.to_dict() for tool in self.catalog])
        write_json_lines(self._folder / QUERIES_FILE, self._queries)


def generate_eval_set(folder: Path, catalog: Catalog, options: WriterOptions, *, limit: int, accept_all: bool) -> None:
    """Let a model write queries for some tools, and add those that the user approves."""
    if not accept_all and not is_interactive():
        raise click.UsageError("Approve the queries in a terminal, or add --yes to accept all that pass the checks.")
    writer = options.build_writer()
    generated = GeneratedSet(folder, catalog)
    tools = generated.list_tools(limit)
    engine = SearchEngine(generated.catalog)
    names = frozenset(tool.name for tool in generated.catalog)

    def check(tool: Tool, texts: Sequence[str]) -> CheckedRequests:
        # A query that search does not find belongs into an eval set, so only the text is checked.
        problems = [(text, find_text_problem(text, tool, names)) for text in texts]
        kept = [text for text, problem in problems if not problem][:QUERIES_PER_TOOL]
        return CheckedRequests(tuple(kept), tuple(RejectedRequest(*pair) for pair in problems if pair[1]))

    added = 0
    error: EnrichmentFailed | None = None
    written = write_checked_requests(tools, writer, check, count=_WRITTEN_PER_TOOL, jobs=options.jobs)
    try:
        for outcome in written:
            _print_tool(outcome)
            for text in outcome.checked.kept:
                approved = text if accept_all else _ask_for_approval(engine, text, outcome.tool)
                if approved:
                    generated.add(approved, outcome.tool)
                    added += 1
    except click.Abort:
        click.echo()
    except EnrichmentFailed as failure:
        error = failure
    click.echo(f"{format_count(added, 'query', 'queries')} added to {sanitize(str(folder))}.")
    if error is not None:
        raise error


def is_interactive() -> bool:
    """Return whether a person can answer questions."""
    return sys.stdin.isatty()


def _print_tool(outcome: WrittenRequests) -> None:
    click.secho(sanitize(outcome.tool.id), bold=True)
    click.secho(wrap(sanitize(outcome.tool.description[:300]), "  "), dim=True)
    for text in outcome.checked.kept:
        click.echo(wrap(sanitize(text), "  ? "))
    if outcome.error:
        click.secho(wrap(sanitize(outcome.error), "  ! "), fg="yellow")


def _ask_for_approval(engine: SearchEngine, text: str, tool: Tool) -> str:
    """Return the query as the user approves it; empty if it is not used. Raises `Abort` to stop."""
    verdict = engine.explain(text, tool.id).verdict
    click.secho(wrap(sanitize(f"search: {verdict}"), "    "), dim=True)
    choices = ", ".join(f"{key} = {name}" for key, name in _CHOICES.items())
    answer = click.prompt(f"  Add it? ({choices})", type=click.Choice(tuple(_CHOICES)), show_choices=False)
    if answer == "q":
        raise click.Abort
    if answer == "e":
        return str(click.prompt("  Query", default=text)).strip()
    return text if answer == "y" else ""
