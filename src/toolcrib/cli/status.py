"""`toolcrib status`: how a running gateway is doing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from toolcrib.cli.gateway import build_base_url
from toolcrib.cli.gateway_client import GatewayClient
from toolcrib.cli.options import config_option, json_option
from toolcrib.cli.printing import format_count, print_json, sanitize, wrap
from toolcrib.config.loader import find_config_path, load_config
from toolcrib.config.settings import HttpConfig

_STATE_COLOURS: Final = {
    "started": "green",
    "in use": "green",
    "known": "yellow",
    "configured": "yellow",
}
# What a gateway tells, of what is printed.
_SERVER_FIELDS: Final = {
    **dict.fromkeys(("name", "state", "trouble"), str),
    **dict.fromkeys(("tools", "tokens", "calls"), int),
    **dict.fromkeys(("waiting", "flagged", "faults", "altered"), list),
}
_STATS_FIELDS: Final = {
    **dict.fromkeys(("tools", "tokens", "sessions"), int),
    **{"counts": dict, "notices": list},
}
_SERVER_NOTES: Final = {
    "waiting": "held back; see toolcrib approve",
    "flagged": "flagged as suspicious; see toolcrib doctor",
    "faults": "left out as unusable; see toolcrib doctor",
    "altered": "used without a part that is wrong; see toolcrib doctor",
}


@click.command("status")
@config_option
@click.option(
    "--url", metavar="URL", help="Where the gateway is; without it, where it is configured."
)
@click.option(
    "--key", envvar="TOOLCRIB_KEY", metavar="KEY", help="An API key; or set TOOLCRIB_KEY."
)
@json_option
def command(config_file: str | None, url: str | None, key: str | None, as_json: bool) -> None:
    """See how a running gateway is doing.

    It tells the servers and their states, the tools, the calls, about how many tokens clients were
    spared.
    """
    asking = GatewayClient.from_options(url or _configured_url(config_file), key)
    told = {
        "url": asking.base,
        **asking.get_json("/health"),
        **asking.get_json("/api/servers"),
        "stats": asking.get_json("/api/stats"),
    }
    if not _is_valid(told):
        raise asking.not_a_gateway_error()
    if as_json:
        print_json(told)
    else:
        _print(told)


def _configured_url(config_file: str | None) -> str:
    """Where the gateway of the configuration listens."""
    path = find_config_path(config_file)
    http = load_config(path).http if path is not None else HttpConfig()
    return build_base_url(http.host, http.port)


def _is_valid(told: Mapping[str, Any]) -> bool:
    """Whether everything is there that is printed: another program may have answered."""
    return (
        _has_fields(told, {"status": str, "servers": list, "stats": dict})
        and all(_has_fields(one, _SERVER_FIELDS) for one in told["servers"])
        and _has_fields(told["stats"], _STATS_FIELDS)
        and all(isinstance(count, int) for count in told["stats"]["counts"].values())
        and all(isinstance(notice, str) for notice in told["stats"]["notices"])
    )


def _has_fields(value: object, kinds: Mapping[str, type]) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(value.get(name), kind) for name, kind in kinds.items()
    )


def _print(told: Mapping[str, Any]) -> None:
    servers, stats = told["servers"], told["stats"]
    columns = max((len(sanitize(one["name"])) for one in servers), default=0)
    for one in servers:
        state = click.style(one["state"].ljust(10), fg=_STATE_COLOURS.get(one["state"]))
        counts = f"{one['tools']:>5,} tools  {one['tokens']:>8,} tokens  {one['calls']:>6,} calls"
        name = sanitize(one["name"]).ljust(columns)
        click.echo(f"{click.style(name, bold=True)}  {state}  {counts}")
        _print_server_notes(one)
    counts = stats["counts"]
    click.echo(
        f"\n{format_count(stats['tools'], 'tool')} of {format_count(len(servers), 'server')}, "
        f"about {format_count(stats['tokens'], 'token')}. {format_count(stats['sessions'], 'session')}."
    )
    for notice in stats["notices"]:
        click.echo(wrap(f"! {sanitize(notice)}", ""))
    lists = format_count(counts.get("listings", 0), "list")
    searches = format_count(counts.get("searches", 0), "search", "searches")
    spared = _format_savings("clients", counts.get("tokens_saved", 0))
    click.secho(f"{lists} and {searches} so far spared {spared}.", bold=True)
    if counts.get("model_requests"):
        requests = format_count(counts["model_requests"], "request")
        spared = _format_savings("them", counts.get("model_tokens_saved", 0))
        click.secho(f"{requests} to models with tools held back spared {spared}.", bold=True)


def _format_savings(whom: str, tokens: int) -> str:
    """What was not sent; a few small tools weigh less than what stands for them."""
    return f"{whom} about {format_count(tokens, 'token')}" if tokens > 0 else f"{whom} nothing yet"


def _print_server_notes(server: Mapping[str, Any]) -> None:
    """What is not well with a server."""
    if server["trouble"]:
        click.echo(wrap(f"✗ {sanitize(server['trouble'])}", "  "))
    for name, what in _SERVER_NOTES.items():
        if server[name]:
            click.echo(f"  ! {format_count(len(server[name]), 'tool')} {what}")
