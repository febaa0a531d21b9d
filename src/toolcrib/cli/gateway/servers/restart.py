"""`toolcrib restart`: restart a server of a running gateway."""

from __future__ import annotations

import time

import click

from toolcrib.cli.gateway.client import GatewayClient, client_options, quote_name
from toolcrib.cli.printing import format_count, sanitize

DEFAULT_RESTART_TIMEOUT_SECONDS = 60
_POLL_SECONDS = 0.2


@click.command("restart")
@click.argument("server")
@click.option(
    "--timeout",
    default=DEFAULT_RESTART_TIMEOUT_SECONDS,
    type=click.IntRange(0, 3_600),
    metavar="SECONDS",
    help=f"How long to wait until it has started.  [default: {DEFAULT_RESTART_TIMEOUT_SECONDS}]",
)
@client_options
def command(server: str, timeout: int, client: GatewayClient) -> None:
    """Restart a server of a running gateway.

    Also starts a server that was stopped. Waits until it has started; if it does not start, the
    exit code is 1.
    """
    path = f"/api/servers/{quote_name(server)}"
    before = client.get_json(path).get("startedAt")
    client.post_json(f"{path}/restart", {})
    end = time.monotonic() + timeout
    while True:
        status = client.get_json(path)
        if status.get("startedAt") and status.get("startedAt") != before:
            tools = format_count(int(status.get("tools", 0)), "tool")
            click.echo(f"{sanitize(server)} has restarted: {tools}.")
            return
        if time.monotonic() >= end:
            break
        time.sleep(_POLL_SECONDS)
    trouble = status.get("trouble") or "it has not started yet; see `toolcrib status`"
    raise click.ClickException(f"{sanitize(server)}: {sanitize(str(trouble))}")
