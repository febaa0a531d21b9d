"""`toolcrib login`: log in to a server on HTTP that asks for it."""

from __future__ import annotations

import webbrowser
from typing import Final

import click

from toolcrib.cli.gateway import configure_logging, require_gateway
from toolcrib.cli.options import config_option
from toolcrib.cli.printing import print_note
from toolcrib.config.loader import load_config, require_config_path
from toolcrib.config.problems import find_nearest_name
from toolcrib.config.settings import GatewayConfig, ServerConfig
from toolcrib.errors import InvalidConfig, InvalidStore

_MAX_NAMED: Final = 12


@click.command("login")
@click.argument("name", metavar="SERVER")
@config_option
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    metavar="N",
    help="The port of this machine that the browser comes back to; any that is free, if not given.",
)
@click.option("--no-browser", is_flag=True, help="Only print the address to go to.")
@click.option("--forget", is_flag=True, help="Drop the token that is kept for the server.")
def command(name: str, config_file: str | None, port: int, no_browser: bool, forget: bool) -> None:
    """Log in to a server on HTTP that asks for it.

    Your browser is opened at the page where you say yes. The token is kept beside the store, in a
    file that only you may read, and is renewed by itself.
    """
    require_gateway()
    config = load_config(require_config_path(config_file))
    server = _find_server(config, name)
    configure_logging()
    import anyio

    from toolcrib.gateway.mcp.upstream.login import login
    from toolcrib.gateway.mcp.upstream.oauth_tokens import TokenFile
    from toolcrib.hub.paths import resolve_token_folder

    folder = resolve_token_folder(config)
    if folder is None:
        raise InvalidStore('a token has to be kept; configure a "store" that is a file')
    file = TokenFile(folder, server)
    if forget:
        click.echo(f"Forgotten: {name}." if file.delete() else f"There was no token of {name}.")
        return

    def show(address: str) -> None:
        print_note(f"Go to this page and say yes:\n\n{address}\n")
        if not no_browser:
            webbrowser.open(address)

    grant = anyio.run(login, server, show, port)
    if grant is None:
        click.echo(f"{name} asks for no login.")
        return
    file.save(grant)
    click.echo(f"Logged in to {name}. A gateway that is running uses it within a minute.")


def _find_server(config: GatewayConfig, name: str) -> ServerConfig:
    server = config.servers.get(name)
    if server is None:
        raise InvalidConfig(
            f"there is no server {name!r:.200} in {config.path}; {_suggest_server(config, name)}"
        )
    if not server.url:
        raise InvalidConfig(
            f"{name} is a program, and is logged in to by its own means; see its `env`"
        )
    return server


def _suggest_server(config: GatewayConfig, name: str) -> str:
    if near := find_nearest_name(name, config.servers):
        return f"did you mean {near}?"
    known = list(config.servers)
    if not known:
        return "there is none at all; bring some with `toolcrib import`"
    more = ", …" if len(known) > _MAX_NAMED else ""
    return f"there are: {', '.join(known[:_MAX_NAMED])}{more}"
