"""`toolcrib demo`: show tool search on the demo catalog."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files

import click

from toolcrib.cli.catalog.search import load_demo_catalog
from toolcrib.cli.printing import ToolTable, format_reasons, wrap
from toolcrib.core.tool import Tool
from toolcrib.search.engine import SearchEngine
from toolcrib.search.results import SearchResult

_HITS = 3
# An approximation for English and JSON that is close enough for all models.
_CHARS_PER_TOKEN = 4


@click.command("demo")
def command() -> None:
    """Show tool search on a small catalog.

    It needs no API key and no network.
    """
    catalog = load_demo_catalog()
    engine = SearchEngine(catalog)
    servers = len({tool.server for tool in catalog})
    click.echo(f"A catalog of {len(catalog)} tools from {servers} servers.")
    results = [_run_query(engine, **query) for query in _load_queries()]
    _print_savings(catalog, results)
    click.echo("\nTry it yourself:")
    click.secho('  toolcrib search "move a meeting to Friday" --explain', fg="cyan")
    click.secho('  toolcrib search "what you need" --catalog YOUR_TOOLS.json', fg="cyan")


def _load_queries() -> list[dict[str, str]]:
    text = (files("toolcrib.demo") / "queries.json").read_text(encoding="utf-8")
    queries: list[dict[str, str]] = json.loads(text)
    return queries


def _run_query(engine: SearchEngine, query: str, note: str) -> SearchResult:
    result = engine.with_reasons(engine.search(query, limit=_HITS))
    click.echo()
    click.secho(wrap(f"> {query}"), bold=True)
    click.secho(wrap(note, "  "), dim=True)
    table = ToolTable.for_ids((hit.tool.id for hit in result.hits), lead_columns=6)
    for number, hit in enumerate(result.hits):
        click.echo(table.format_row(f"{hit.score:.2f}", hit.tool.id, hit.tool.description))
        if number == 0:
            click.secho(table.format_detail(f"matched {format_reasons(hit.reasons)}"), fg="yellow")
    return result


def _print_savings(catalog: Iterable[Tool], results: list[SearchResult]) -> None:
    total = _estimate_tokens(catalog)
    hits = sum(_estimate_tokens(hit.tool for hit in result.hits) for result in results)
    average = hits // len(results)
    click.echo()
    click.secho("What the model has to read", bold=True)
    click.echo(f"  all definitions   about {total:>6,} tokens")
    click.echo(f"  hits of a search  about {average:>6,} tokens")
    click.secho(f"  saved             about {1 - average / total:>6.0%}", fg="green")


def _estimate_tokens(tools: Iterable[Tool]) -> int:
    """Return about how many tokens the definitions take in a prompt."""
    characters = 0
    for tool in tools:
        definition = {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
        characters += len(json.dumps(definition, ensure_ascii=False, separators=(",", ":")))
    return characters // _CHARS_PER_TOKEN
