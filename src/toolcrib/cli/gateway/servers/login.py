"""`toolcrib login`: log in to a server that uses OAuth."""

from __future__ import annotations

import getpass
import threading
import time
import webbrowser
from contextlib import closing
from typing import Final

import click

from toolcrib.cli.gateway.launch import config_option, configure_logging, require_gateway
from toolcrib.cli.printing import print_note
from toolcrib.config.fields import find_nearest_name
from toolcrib.config.loader import load_config, require_config_path
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig
from toolcrib.config.store_paths import resolve_store_url
from toolcrib.errors import InvalidConfig
from toolcrib.storage import open_store
from toolcrib.storage.audit import AuditRow

_MAX_LISTED_NAMES: Final = 12


@click.command("login")
@click.argument("name", metavar="SERVER")
@config_option
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    metavar="N",
    help="Local port that the browser is redirected to.  [default: any free port]",
)
@click.option("--no-browser", is_flag=True, help="Print the URL; do not open a browser.")
@click.option("--forget", is_flag=True, help="Delete the stored token of the server.")
def command(name: str, config_file: str | None, port: int, no_browser: bool, forget: bool) -> None:
    """Log in to a server that uses OAuth.

    Opens your browser at the server's login page. The token is stored next to the store, in a file
    that only you can read, or with tokenKeys in the store, encrypted. It is refreshed automatically.
    """
    require_gateway()
    config = load_config(require_config_path(config_file))
    server = _find_server(config, name)
    configure_logging()
    import anyio

    from toolcrib.gateway.mcp.upstream.login import login
    from toolcrib.gateway.mcp.upstream.oauth_tokens import require_token_place

    with closing(open_store(resolve_store_url(config))) as store:
        place = require_token_place(config, store)(server)
        if forget:
            deleted = place.delete()
            click.echo(f"Deleted the token of {name}." if deleted else f"{name} has no token.")
            return

    def show_login_page(url: str) -> None:
        print_note(f"Log in on this page:\n\n{url}\n")
        if not no_browser:
            # In a thread, because some browsers block until they are closed.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    grant = anyio.run(login, server, show_login_page, port)
    if grant is None:
        click.echo(f"{name} does not need a login.")
        return
    details = {"change": "logged in to the server"}
    row = AuditRow(
        "login", at=time.time(), user=getpass.getuser(), client="toolcrib login", server=name, details=details
    )
    # Opened again, because a login may take minutes.
    with closing(open_store(resolve_store_url(config))) as store:
        require_token_place(config, store)(server).save(grant)
        store.append_audit([row], durable=True)
    click.echo(f"Logged in to {name}. A running gateway uses the token within a minute.")


def _find_server(config: GatewayConfig, name: str) -> ServerConfig:
    server = config.servers.get(name)
    if server is None:
        raise InvalidConfig(f"there is no server {name!r:.200} in {config.path}; {suggest_server(config, name)}")
    if server.openapi:
        raise InvalidConfig(
            f"{name} is an API without a login; set its credentials in `headers`, `query` or `basicAuth`"
        )
    if not server.url:
        raise InvalidConfig(f"{name} is a local program, which cannot be logged in to; set its credentials in `env`")
    return server


def suggest_server(config: GatewayConfig, name: str) -> str:
    """Return which server may be meant by an unknown name."""
    if nearest := find_nearest_name(name, config.servers):
        return f"did you mean {nearest}?"
    known = list(config.servers)
    if not known:
        return "there are no servers; add some with `toolcrib import`"
    more = ", …" if len(known) > _MAX_LISTED_NAMES else ""
    return f"known servers: {', '.join(known[:_MAX_LISTED_NAMES])}{more}"
