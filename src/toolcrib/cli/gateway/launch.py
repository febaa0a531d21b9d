"""Configuration, logging and address of a gateway, for the commands that need them."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import click

from toolcrib.cli.printing import format_count, print_note
from toolcrib.config.loader import find_config_path, list_config_paths, load_config
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig
from toolcrib.errors import InvalidConfig

if TYPE_CHECKING:
    from toolcrib.gateway.mcp.upstream.pool import ServerStart

_SERVER_LOGGER_PREFIX: Final = "toolcrib.gateway.mcp.upstream.supervisor."

config_option = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="Configuration file.  [default: $TOOLCRIB_CONFIG, ./toolcrib.json or ~/.config/toolcrib/toolcrib.json]",
)
json_log_option = click.option("--json-log", is_flag=True, help="Log as JSON, one line per event and request.")


def load_config_or_demo(config_file: str | None) -> GatewayConfig:
    """Return the configuration, or one with a demo server if there is no file."""
    path = find_config_path(config_file)
    if path is not None:
        return load_config(path)
    paths = " or ".join(str(path) for path in list_config_paths(config_file))
    print_note(f"There is no {paths}, so this is a demo server. Create a configuration with `toolcrib import`.")
    return build_demo_config()


def build_demo_config() -> GatewayConfig:
    """Return a configuration with the demo server and a store in memory."""
    args = ("-m", "toolcrib.demo")
    # A long timeout for slow machines, because the user cannot configure it.
    demo = ServerConfig("demo", command=sys.executable, args=args, connect_seconds=300)
    return GatewayConfig(servers={"demo": demo}, store="sqlite://")


def require_gateway() -> None:
    """Raise if the libraries of the gateway are not installed."""
    # find_spec does not import the libraries, which would be slow.
    missing = [name for name in ("mcp", "uvicorn") if find_spec(name) is None]
    if missing:
        raise InvalidConfig(f"the gateway needs {missing[0]}; install it with pip install 'toolcrib[gateway]'")


def override_address(config: GatewayConfig, host: str | None, port: int | None) -> GatewayConfig:
    """Return the configuration with the host and port of the command line."""
    http = config.http
    http = replace(http, host=http.host if host is None else host)
    http = replace(http, port=http.port if port is None else port)
    return replace(config, http=http)


def build_base_url(host: str, port: int) -> str:
    """Return the URL for clients on this machine, given the address a gateway listens on."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def print_started(started: ServerStart) -> None:
    """Print whether a server has started."""
    tools = format_count(started.tools, "tool")
    progress = f"({started.number} of {started.total})"
    if started.error:
        print_note(f"✗ {started.server} is not reachable: {started.error} {progress}")
    elif started.protocol:
        print_note(f"✓ {started.server}: {tools} {progress}")
    else:
        print_note(f"· {started.server}: {tools}, starts on first use {progress}")


class _RecordFilter(logging.Filter):
    """Adds the name of the server to records of its standard error output, and drops errors of ended sessions."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith(_SERVER_LOGGER_PREFIX):
            record.server = record.name.removeprefix(_SERVER_LOGGER_PREFIX)
        # The SDK reports every notification that arrives while its session ends.
        return not record.exc_info or type(record.exc_info[1]).__name__ != "ClosedResourceError"


def should_show_progress(verbose: bool, json_log: bool) -> bool:
    """Return whether to print one line per started server instead of log records."""
    return sys.stderr.isatty() and not verbose and not json_log


def configure_logging(config: GatewayConfig | None = None, *, verbose: bool = False, as_json: bool = False) -> None:
    """Log to standard error, with the secrets of the configuration removed.

    Without a configuration, only errors are logged.
    """
    from toolcrib.gateway.logs import start_logging
    from toolcrib.gateway.secrets import collect_config_secrets

    handler = start_logging(
        sys.stderr, as_json=as_json, level=logging.WARNING, secrets=collect_config_secrets(config) if config else ()
    )
    handler.addFilter(_RecordFilter())
    levels = {"toolcrib": logging.DEBUG if verbose else logging.INFO if config else logging.ERROR}
    # Toolcrib reports errors of logins and of servers itself.
    levels |= dict.fromkeys(("mcp.client.auth", "mcp.client.streamable_http", "mcp.client.sse"), logging.CRITICAL)
    if not verbose and not as_json:
        levels["toolcrib.access"] = logging.WARNING
    if config and should_show_progress(verbose, as_json):
        levels |= {"toolcrib.gateway.mcp.upstream.supervisor": logging.WARNING}
        levels |= {"toolcrib.gateway.mcp.upstream.pool": logging.WARNING}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
