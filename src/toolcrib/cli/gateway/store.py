"""`toolcrib store`: copy a store."""

from __future__ import annotations

import click

from toolcrib.cli.gateway.approve import open_existing_store
from toolcrib.cli.printing import format_count, json_option, print_json, print_note
from toolcrib.errors import InvalidConfig
from toolcrib.storage import open_store


@click.group("store")
def command() -> None:
    """Copy a store from SQLite to PostgreSQL, or back."""


@command.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_option
def copy(source: str, target: str, as_json: bool) -> None:
    """Copy all tables of a store to an empty one.

    FROM and TO are URLs such as sqlite:///toolcrib.db or
    postgresql://user@host/database. Stop all gateways that use them first.
    If something fails, TO stays empty.
    """
    if source == target:
        raise InvalidConfig("FROM and TO are the same store; name another one as TO")
    with open_existing_store(source) as read:
        written = open_store(target)
        try:
            counts = read.copy_to(written)
        finally:
            written.close()
    if as_json:
        print_json({"rows": counts})
        return
    for name, count in counts.items():
        if count:
            click.echo(f"{name}: {format_count(count, 'row')}")
    print_note("All tables were copied, and their rows counted in both stores. Set `store` to the new URL.")
