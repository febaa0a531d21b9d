"""`toolcrib demo`: tool search at work, on the catalog in this folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.resources import files

import click

from toolcrib.cli.match_reasons import reasons_in_words
from toolcrib.cli.options import demo_catalog
from toolcrib.cli.printing import Table, wrapped
from toolcrib.core.tool import Tool
from toolcrib.search.engine import SearchEngine
from toolcrib.search.results import SearchResult

_HITS = 3
# What a token is depends on the model; for English and JSON this is near enough for all.
_CHARS_PER_TOKEN = 4


@click.command("demo")
def command() -> None:
    """See tool search at work on a small catalog.

    It needs no key and no network.
    """
    catalog = demo_catalog()
    engine = SearchEngine(catalog)
    servers = len({tool.server for tool in catalog})
    click.echo(f"A catalog of {len(catalog)} tools from {servers} servers.")
    results = [_show(engine, **one) for one in _queries()]
    _show_savings(catalog, results)
    click.echo("\nNow you:")
    click.secho('  toolcrib search "move a meeting to Friday" --explain', fg="cyan")
    click.secho('  toolcrib search "what you need" --catalog YOUR_TOOLS.json', fg="cyan")


def _queries() -> list[dict[str, str]]:
    text = files(__name__).joinpath("queries.json").read_text(encoding="utf-8")
    queries: list[dict[str, str]] = json.loads(text)
    return queries


def _show(engine: SearchEngine, query: str, note: str) -> SearchResult:
    result = engine.search(query, limit=_HITS)
    click.echo()
    click.secho(wrapped(f"> {query}"), bold=True)
    click.secho(wrapped(note, "  "), dim=True)
    table = Table.of((hit.tool.id for hit in result.hits), lead_columns=6)
    for number, hit in enumerate(result.hits):
        click.echo(table.row(f"{hit.score:.2f}", hit.tool.id, hit.tool.description))
        if number == 0:
            click.secho(table.aside(f"for {reasons_in_words(hit.reasons)}"), fg="yellow")
    return result


def _show_savings(catalog: Iterable[Tool], results: list[SearchResult]) -> None:
    everything = _tokens(catalog)
    found = sum(_tokens(hit.tool for hit in result.hits) for result in results) // len(results)
    click.echo()
    click.secho("What the model has to read", bold=True)
    click.echo(f"  all definitions   about {everything:>6,} tokens")
    click.echo(f"  a search's hits   about {found:>6,} tokens")
    click.secho(f"  saved             about {1 - found / everything:>6.0%}", fg="green")


def _tokens(tools: Iterable[Tool]) -> int:
    """About how many tokens the definitions take in a prompt."""
    characters = 0
    for tool in tools:
        shown = {
            "name": tool.name,
            "description": tool.description,
            "input_schema": tool.input_schema,
        }
        characters += len(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))
    return characters // _CHARS_PER_TOKEN
