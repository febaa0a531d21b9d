"""`toolcrib stdio`: the MCP gateway as a client's own child process."""

from __future__ import annotations

import click

from toolcrib.cli.gateway import (
    configure_logging,
    json_log_option,
    load_config_or_demo,
    require_gateway,
)
from toolcrib.cli.options import config_option


@click.command("stdio")
@config_option
@click.option("--profile", metavar="NAME", help="Show only the tools of this profile.")
@json_log_option
@click.option("--verbose", is_flag=True, help="Log more, to standard error.")
def command(config_file: str | None, profile: str | None, json_log: bool, verbose: bool) -> None:
    """Serve MCP on standard input and output.

    This is the one entry that takes the place of all other MCP servers in a client's
    configuration.
    """
    require_gateway()
    config = load_config_or_demo(config_file)
    configure_logging(config, verbose=verbose, as_json=json_log)
    import anyio

    from toolcrib.gateway.mcp.stdio import serve_stdio
    from toolcrib.hub.startup import open_hub

    service = open_hub(config)
    service.get_view(profile)
    try:
        anyio.run(serve_stdio, service, profile)
    finally:
        service.close()
