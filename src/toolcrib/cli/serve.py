"""`toolcrib serve`: every door that is reached by HTTP."""

from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING, Final

import click

from toolcrib.cli.gateway import (
    configuration,
    json_log_option,
    listening,
    print_started,
    require_gateway,
    shows_progress,
    start_log,
)
from toolcrib.cli.options import config_option
from toolcrib.config.settings import Config, Http
from toolcrib.errors import InvalidConfig

if TYPE_CHECKING:
    from toolcrib.gateways.mcp.starting import Started

# How long a client may leave untaken what it was sent.
UNTAKEN_SECONDS: Final = 180


@click.command("serve")
@config_option
@click.option("--host", metavar="ADDRESS", help="Listen here; 127.0.0.1 unless configured.")
@click.option("--port", type=click.IntRange(0, 65_535), metavar="N", help="Listen on this port.")
@json_log_option
@click.option("--verbose", is_flag=True, help="Log more.")
def command(
    config_file: str | None, host: str | None, port: int | None, json_log: bool, verbose: bool
) -> None:
    """Serve MCP and the model APIs over HTTP.

    Without a configuration it starts a small server to try it on.
    """
    require_gateway()
    config = listening(configuration(config_file), host, port)
    start_log(config, verbose=verbose, as_json=json_log)
    import uvicorn

    from toolcrib.gateways.app import http_app
    from toolcrib.service.opening import open_service

    service = open_service(config)
    try:
        tell = _print_up if shows_progress(verbose, json_log) else None
        settings = uvicorn.Config(
            http_app(service, tell),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
            lifespan="on",
        )
        with _bound(config.http) as listener:
            _print_entry(config, listener.getsockname()[1])
            uvicorn.Server(settings).run(sockets=[listener])
    finally:
        service.close()


def _print_up(started: Started) -> None:
    """Say that a server has come up; the log says when one has not."""
    if not started.trouble:
        print_started(started)


def _bound(http: Http) -> socket.socket:
    """The socket to listen on. Bound here, so that a port that is taken is said plainly."""
    family = socket.AF_INET6 if ":" in http.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform == "linux":
            # Connections inherit it: a client that takes nothing is let go by the kernel as well,
            # which would otherwise keep what is still to be sent to it.
            milliseconds = UNTAKEN_SECONDS * 1_000
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        listener.bind((http.host, http.port))
    except OSError as fault:
        listener.close()
        why = fault.strerror or "it is no address of this machine"
        raise InvalidConfig(
            f"cannot listen on {http.host} port {http.port} ({why.lower()}); is a gateway running "
            "already? `toolcrib status` tells; or choose another with --port"
        ) from None
    return listener


def _print_entry(config: Config, port: int) -> None:
    """What to paste into a client."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.http.host, config.http.host)
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"
    entry: dict[str, object] = {"type": "http", "url": address}
    if config.auth.keys:
        entry["headers"] = {"Authorization": "Bearer YOUR_KEY"}
    click.echo(f"MCP is served at {address}. Paste this into your client's configuration:\n")
    click.echo(json.dumps({"mcpServers": {"toolcrib": entry}}, indent=2))
    click.echo(f"\nor, for Claude Code: claude mcp add --transport http toolcrib {address}\n")
    sys.stdout.flush()
