"""`toolcrib logs`: the latest messages of a server of a running gateway."""

from __future__ import annotations

import click

from toolcrib.cli.gateway.client import GatewayClient, client_options, quote_name
from toolcrib.cli.printing import json_option, print_json, print_note, sanitize


@click.command("logs")
@click.argument("server")
@click.option("--lines", type=click.IntRange(min=1), metavar="N", help="Print only the last N lines.")
@client_options
@json_option
def command(server: str, lines: int | None, client: GatewayClient, as_json: bool) -> None:
    """Print what a server wrote to standard error.

    The gateway keeps the latest lines. A server that is reached over HTTP has none.
    """
    written = client.get_json(f"/api/servers/{quote_name(server)}/log").get("lines")
    if not isinstance(written, list):
        raise client.not_a_gateway_error()
    written = written[-lines:] if lines else written
    if as_json:
        print_json({"server": server, "lines": written})
        return
    for line in written:
        click.echo(sanitize(str(line)))
    if not written:
        print_note(f"{sanitize(server)} has written nothing to standard error.")
