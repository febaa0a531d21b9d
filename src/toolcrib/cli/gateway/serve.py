"""`toolcrib serve`: the gateway over HTTP."""

from __future__ import annotations

import errno
import json
import math
import signal
import socket
import sys
from typing import TYPE_CHECKING, Final

import click

from toolcrib.cli.gateway import launch
from toolcrib.config.settings import GatewayConfig, HttpConfig
from toolcrib.errors import InvalidConfig

if TYPE_CHECKING:
    from toolcrib.gateway.mcp.upstream.pool import ServerStart

# After this time without an acknowledgement, the kernel closes a connection.
UNACKNOWLEDGED_SECONDS: Final = 180
# The environment variables with the base URL of each API, which its SDKs read.
_ANTHROPIC_VARIABLE: Final = "ANTHROPIC_BASE_URL={}"
_OPENAI_VARIABLE: Final = "OPENAI_BASE_URL={}/v1"
_GOOGLE_VARIABLE: Final = "GOOGLE_GEMINI_BASE_URL={}"
_VARIABLES: Final = {
    "messages": (_ANTHROPIC_VARIABLE,),
    "openai": (_OPENAI_VARIABLE,),
    "chat": (_ANTHROPIC_VARIABLE, _OPENAI_VARIABLE, _GOOGLE_VARIABLE),
    "gemini": (_GOOGLE_VARIABLE,),
}


@click.command("serve")
@launch.config_option
@click.option("--host", metavar="ADDRESS", help="Address to listen on.  [default: as configured, or 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65_535), metavar="N", help="Port to listen on.")
@launch.json_log_option
@click.option("--verbose", is_flag=True, help="Log more.")
def command(config_file: str | None, host: str | None, port: int | None, json_log: bool, verbose: bool) -> None:
    """Serve MCP, the LLM APIs and the console over HTTP.

    Without a configuration, serves the tools of a demo server.
    """
    launch.require_gateway()
    config = launch.override_address(launch.load_config_or_demo(config_file), host, port)
    launch.configure_logging(config, verbose=verbose, as_json=json_log)
    import uvicorn

    from toolcrib.console.pages import build_console_routes
    from toolcrib.files.store_url import is_postgres_url
    from toolcrib.gateway.app import build_http_app
    from toolcrib.gateway.browser_sessions import BrowserSessions
    from toolcrib.gateway.http_server import Drain, DrainingServer, TimedHttpProtocol
    from toolcrib.hub.startup import START_WAIT_SECONDS, open_hub

    hub = open_hub(config, wait_seconds=START_WAIT_SECONDS)
    # Only a database server has several replicas.
    sessions = BrowserSessions(store=hub.store if is_postgres_url(config.store) else None)
    drain = Drain()
    try:
        on_started = _print_if_started if launch.should_show_progress(verbose, json_log) else None
        settings = uvicorn.Config(
            build_http_app(hub, on_started, pages=build_console_routes(), sessions=sessions, drain=drain),
            log_config=None,
            access_log=False,
            # Longer than proxies keep an idle connection, so that they never send a request on a closed one.
            timeout_keep_alive=75,
            timeout_graceful_shutdown=math.ceil(config.http.shutdown_seconds),
            lifespan="on",
            http=TimedHttpProtocol,
        )
        with bind_socket(config.http) as listener:
            port = listener.getsockname()[1]
            print_console_address(config, port, sessions.create_link_token())
            print_client_setup(config, port)
            # uvicorn sends itself the signal again after the shutdown, which would skip the rest.
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
            DrainingServer(settings, drain, notice_seconds=config.http.drain_seconds).run(sockets=[listener])
    finally:
        hub.close()


def _print_if_started(started: ServerStart) -> None:
    """Print that a server has started. Failures are logged elsewhere."""
    if not started.error:
        launch.print_started(started)


def bind_socket(http: HttpConfig) -> socket.socket:
    """Return a bound socket, or raise an error with the reason why the address cannot be used."""
    family = socket.AF_INET6 if ":" in http.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform == "linux":
            # Inherited by connections: frees the send buffers of clients that stopped reading.
            milliseconds = UNACKNOWLEDGED_SECONDS * 1_000
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        listener.bind((http.host, http.port))
    except (OSError, UnicodeError) as error:
        listener.close()
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise InvalidConfig(
            f"cannot listen on {http.host!r:.100} port {http.port} ({reason}); {_suggest_fix(error)}"
        ) from None
    return listener


def _suggest_fix(error: OSError | UnicodeError) -> str:
    if not isinstance(error, OSError) or isinstance(error, socket.gaierror):
        return "there is no such host; check --host, or http.host in the configuration"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have that address; check --host, or http.host in the configuration"
    if error.errno == errno.EACCES:
        return "ports below 1024 need administrator rights; choose another with --port"
    return "check with `toolcrib status` whether a gateway is already running, or choose another port with --port"


def print_console_address(config: GatewayConfig, port: int, link_token: str) -> None:
    """Print where to open the console. A gateway with keys gets a link that logs in once."""
    base = launch.build_base_url(config.http.host, port)
    if config.auth.keys:
        click.echo(
            f"Console: {base}/login#{link_token}\nThis link logs you in once, within an hour. Later, log in with a key.\n"
        )
    else:
        click.echo(f"Console: {base}/\n")


def print_client_setup(config: GatewayConfig, port: int) -> None:
    """Print what to add to the configuration of a client."""
    base = launch.build_base_url(config.http.host, port)
    url = f"{base}/mcp"
    entry: dict[str, object] = {"type": "http", "url": url}
    command = f"claude mcp add --transport http toolcrib {url}"
    if config.auth.keys:
        entry["headers"] = {"Authorization": "Bearer YOUR_KEY"}
        command += ' --header "Authorization: Bearer YOUR_KEY"'
    click.echo(f"MCP server: {url}. Add this to your client's configuration:\n")
    click.echo(json.dumps({"mcpServers": {"toolcrib": entry}}, indent=2))
    click.echo(f"\nFor Claude Code: {command}\n")
    apis = {upstream.api for upstream in config.llm_gateway.upstreams}
    if apis:
        click.echo(f"LLM gateway: {base}. Set this for your client or SDK:\n")
        for variable in sorted({variable for api in apis for variable in _VARIABLES[api]}):
            click.echo(variable.format(base))
        click.echo()
    sys.stdout.flush()
