"""What the commands around a gateway have in common: the configuration, or the demo in its absence,
the log, and its address."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import click

from toolcrib.cli.printing import format_count, print_note
from toolcrib.config.loader import find_config_path, list_config_paths, load_config
from toolcrib.config.settings import GatewayConfig, ServerConfig
from toolcrib.errors import InvalidConfig

if TYPE_CHECKING:
    from toolcrib.gateway.mcp.upstream.pool import ServerStart

_SERVER_LOGGER_PREFIX: Final = "toolcrib.gateway.mcp.upstream.supervisor."
json_log_option = click.option(
    "--json-log", is_flag=True, help="Log in JSON, one line for each event and each request."
)


def load_config_or_demo(config_file: str | None) -> GatewayConfig:
    """The configuration that was asked for or found, or one with a small server to try it on."""
    path = find_config_path(config_file)
    if path is not None:
        return load_config(path)
    looked = " and ".join(str(place) for place in list_config_paths(config_file))
    print_note(f"No configuration in {looked}: this is a demo server. `toolcrib import` makes one.")
    return build_demo_config()


def build_demo_config() -> GatewayConfig:
    """A configuration whose one server comes with Toolcrib; nothing of it is kept."""
    # A server is started without our environment; where Toolcrib is found by it, the demo needs it.
    env = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    args = ("-m", "toolcrib.demo")
    # Nobody configured it, so nobody could raise its limit on a slow machine.
    demo = ServerConfig("demo", command=sys.executable, args=args, env=env, connect_seconds=300)
    return GatewayConfig(servers={"demo": demo}, store="sqlite://")


def require_gateway() -> None:
    """Say what to install where the gateways' libraries are missing."""
    # Looked for, not loaded: that takes longer than the first answers do.
    missing = [name for name in ("mcp", "uvicorn") if find_spec(name) is None]
    if missing:
        raise InvalidConfig(
            f"the gateways need {missing[0]}; install them with pip install 'toolcrib[gateway]'"
        )


def override_address(config: GatewayConfig, host: str | None, port: int | None) -> GatewayConfig:
    """The configuration with what the command line says about listening."""
    http = config.http
    http = replace(http, host=http.host if host is None else host)
    http = replace(http, port=http.port if port is None else port)
    return replace(config, http=http)


def build_base_url(host: str, port: int) -> str:
    """The address a client on this machine reaches a gateway by that listens there."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def print_started(started: ServerStart) -> None:
    """Say that a server has come up, or has not."""
    tools = format_count(started.tools, "tool")
    so_far = f"({started.number} of {started.total})"
    if started.error:
        print_note(f"✗ {started.server} is not reachable: {started.error} {so_far}")
    elif started.protocol:
        print_note(f"✓ {started.server}: {tools} {so_far}")
    else:
        print_note(f"· {started.server}: {tools}, started when needed {so_far}")


class _ServerNameFilter(logging.Filter):
    """Says of what a server wrote to standard error which one it was."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith(_SERVER_LOGGER_PREFIX):
            record.server = record.name.removeprefix(_SERVER_LOGGER_PREFIX)
        return True


def should_show_progress(verbose: bool, json_log: bool) -> bool:
    """Whether somebody is looking, and is told in a few lines how the servers come up."""
    return sys.stderr.isatty() and not verbose and not json_log


def configure_logging(
    config: GatewayConfig | None = None, *, verbose: bool = False, as_json: bool = False
) -> None:
    """Log to standard error, without secrets: standard output may be the client's.

    Without a configuration, nothing is logged but what nobody foresaw.
    """
    from toolcrib.gateway.logs import start_logging
    from toolcrib.gateway.secrets import collect_config_secrets

    handler = start_logging(
        sys.stderr,
        as_json=as_json,
        level=logging.WARNING,
        secrets=collect_config_secrets(config) if config else (),
    )
    handler.addFilter(_ServerNameFilter())
    levels = {"toolcrib": logging.DEBUG if verbose else logging.INFO if config else logging.ERROR}
    # What goes wrong in a login is told by us, in a line.
    levels["mcp.client.auth"] = logging.CRITICAL
    if not verbose and not as_json:
        # A line for each request is for programs, or for whoever asks for it.
        levels["toolcrib.access"] = logging.WARNING
    if config and should_show_progress(verbose, as_json):
        levels |= {"toolcrib.gateway.mcp.upstream.supervisor": logging.WARNING}
        levels |= {"toolcrib.gateway.mcp.upstream.pool": logging.WARNING}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
