"""`toolcrib tools`: list the tools of a catalog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from toolcrib.cli.catalog.search import catalog_option, find_gateway_catalog, offset_option, open_catalog, where_options
from toolcrib.cli.gateway.client import gateway_options
from toolcrib.cli.printing import ToolTable, format_count, json_option, print_json, sanitize, wrap
from toolcrib.core.tool import Tool
from toolcrib.search.filters import Where

_MAX_PRINTED_SERVERS = 12


@click.command("tools")
@catalog_option
@where_options
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Maximum number of tools.")
@offset_option
@gateway_options
@json_option
def command(catalog_files: tuple[str, ...], where: Where, limit: int | None, offset: int, **options: Any) -> None:
    """List the tools of a catalog or of the running gateway.

    The tools are printed in catalog order, followed by the number of tools per server.
    """
    gateway = find_gateway_catalog(catalog_files, options["url"], options["key"])
    catalog = gateway.load_tools() if gateway else open_catalog(catalog_files)
    tools = [tool for tool in catalog if not where.unmet_conditions(tool)]
    servers = Counter(tool.server for tool in tools)
    page = tools[offset:][:limit]
    if options["as_json"]:
        document = {
            "tools": [tool.to_dict() for tool in page],
            "total": len(tools),
            "servers": dict(servers.most_common()),
        }
        print_json(document)
    elif tools or where == Where():
        _print_page(page, servers)
    else:
        click.secho(f"0 tools: {sanitize(where.no_match_note)}. Without the filters:", bold=True)
        click.echo(wrap(_format_server_counts(Counter(tool.server for tool in catalog)), "  "))


def _print_page(page: Sequence[Tool], servers: Counter[str]) -> None:
    table = ToolTable.for_ids((tool.id for tool in page), lead_columns=0)
    for tool in page:
        click.echo(table.format_row("", tool.id, tool.description))
    total = servers.total()
    count = format_count(total, "tool")
    count = f"{len(page):,} of {count}" if len(page) < total else count
    click.secho(f"{count}{':' if servers else '.'}", bold=True)
    if servers:
        click.echo(wrap(_format_server_counts(servers), "  "))


def _format_server_counts(servers: Counter[str]) -> str:
    """Return the number of tools per server, largest first."""
    counts = [
        f"{sanitize(server) or '(no server)'} {count:,}" for server, count in servers.most_common(_MAX_PRINTED_SERVERS)
    ]
    others = len(servers) - len(counts)
    return ", ".join([*counts, f"and {format_count(others, 'more server')}"] if others else counts)
