"""`toolcrib stdio`: the MCP gateway as a child process of a client."""

from __future__ import annotations

import click

from toolcrib.cli.gateway.launch import (
    config_option,
    configure_logging,
    json_log_option,
    load_config_or_demo,
    require_gateway,
)


@click.command("stdio")
@config_option
@click.option("--profile", metavar="NAME", help="Offer only the tools of this profile.")
@json_log_option
@click.option("--verbose", is_flag=True, help="Log more, to standard error.")
def command(config_file: str | None, profile: str | None, json_log: bool, verbose: bool) -> None:
    """Serve MCP on standard input and output.

    Use this as the only MCP server in a client's configuration; it replaces all others.
    """
    require_gateway()
    config = load_config_or_demo(config_file)
    configure_logging(config, verbose=verbose, as_json=json_log)
    import anyio

    from toolcrib.gateway.mcp.stdio import serve_stdio
    from toolcrib.hub.startup import START_WAIT_SECONDS, open_hub

    hub = open_hub(config, wait_seconds=START_WAIT_SECONDS)
    # Raises for an unknown profile before the server starts.
    hub.get_view(profile)
    try:
        anyio.run(serve_stdio, hub, profile)
    finally:
        hub.close()
