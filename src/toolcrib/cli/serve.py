"""`toolcrib serve`: every door that is reached by HTTP."""

from __future__ import annotations

import errno
import json
import socket
import sys
from typing import TYPE_CHECKING, Final

import click

from toolcrib.cli.gateway import (
    build_base_url,
    configure_logging,
    json_log_option,
    load_config_or_demo,
    override_address,
    print_started,
    require_gateway,
    should_show_progress,
)
from toolcrib.cli.options import config_option
from toolcrib.config.settings import GatewayConfig, HttpConfig
from toolcrib.errors import InvalidConfig

if TYPE_CHECKING:
    from toolcrib.gateway.mcp.upstream.pool import ServerStart

# How long a client may leave untaken what it was sent.
UNACKNOWLEDGED_SECONDS: Final = 180
# Where SDKs look for the address of each API.
_VARIABLES: Final = {
    "messages": "ANTHROPIC_BASE_URL={}",
    "openai": "OPENAI_BASE_URL={}/v1",
}


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
    config = override_address(load_config_or_demo(config_file), host, port)
    configure_logging(config, verbose=verbose, as_json=json_log)
    import uvicorn

    from toolcrib.gateway.app import build_http_app
    from toolcrib.hub.startup import open_hub

    service = open_hub(config)
    try:
        tell = _print_if_started if should_show_progress(verbose, json_log) else None
        settings = uvicorn.Config(
            build_http_app(service, tell),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=5,
            lifespan="on",
        )
        with _bind_socket(config.http) as listener:
            _print_client_setup(config, listener.getsockname()[1])
            uvicorn.Server(settings).run(sockets=[listener])
    finally:
        service.close()


def _print_if_started(started: ServerStart) -> None:
    """Say that a server has come up; the log says when one has not."""
    if not started.error:
        print_started(started)


def _bind_socket(http: HttpConfig) -> socket.socket:
    """The socket to listen on. Bound here, so that a port that is taken is said plainly."""
    family = socket.AF_INET6 if ":" in http.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform == "linux":
            # Connections inherit it: a client that takes nothing is let go by the kernel as well,
            # which would otherwise keep what is still to be sent to it.
            milliseconds = UNACKNOWLEDGED_SECONDS * 1_000
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        listener.bind((http.host, http.port))
    except (OSError, UnicodeError) as fault:
        listener.close()
        why = (getattr(fault, "strerror", None) or str(fault)).lower()
        raise InvalidConfig(
            f"cannot listen on {http.host!r:.100} port {http.port} ({why}); {_suggest_fix(fault)}"
        ) from None
    return listener


def _suggest_fix(fault: OSError | UnicodeError) -> str:
    """What to do where we cannot listen."""
    if not isinstance(fault, OSError) or isinstance(fault, socket.gaierror):
        return "it is no name of a machine: correct --host, or http.host in the configuration"
    if fault.errno == errno.EADDRNOTAVAIL:
        return "it is no address of this machine: correct --host, or http.host in the configuration"
    if fault.errno == errno.EACCES:
        return "choose a port from 1024 on with --port: the lower ones are for administrators"
    return "is a gateway running already? `toolcrib status` tells; or choose another with --port"


def _print_client_setup(config: GatewayConfig, port: int) -> None:
    """What to paste into a client."""
    base = build_base_url(config.http.host, port)
    address = f"{base}/mcp"
    entry: dict[str, object] = {"type": "http", "url": address}
    command = f"claude mcp add --transport http toolcrib {address}"
    if config.auth.keys:
        entry["headers"] = {"Authorization": "Bearer YOUR_KEY"}
        command += ' --header "Authorization: Bearer YOUR_KEY"'
    click.echo(f"MCP is served at {address}. Paste this into your client's configuration:\n")
    click.echo(json.dumps({"mcpServers": {"toolcrib": entry}}, indent=2))
    click.echo(f"\nor, for Claude Code: {command}\n")
    apis = {upstream.api for upstream in config.llm_gateway.upstreams}
    if apis:
        click.echo(f"Models are served at {base}. Tell it to your client or SDK:\n")
        for api in sorted(apis):
            click.echo(_VARIABLES[api].format(base))
        click.echo()
    sys.stdout.flush()
