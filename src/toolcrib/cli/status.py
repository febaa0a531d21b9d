"""`toolcrib status`: how a running gateway is doing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from toolcrib.cli.gateway import base_url
from toolcrib.cli.gateway_client import Asking
from toolcrib.cli.options import config_option, json_option
from toolcrib.cli.printing import counted, plain, print_json, wrapped
from toolcrib.config.loader import find, load
from toolcrib.config.settings import Http

_SIGNS: Final = {"started": "green", "in use": "green", "known": "yellow", "configured": "yellow"}
# What a gateway tells, of what is printed.
_SERVER: Final = {
    **dict.fromkeys(("name", "state", "trouble"), str),
    **dict.fromkeys(("tools", "tokens", "calls"), int),
    **dict.fromkeys(("waiting", "flagged", "faults", "altered"), list),
}
_STATS: Final = {
    **dict.fromkeys(("tools", "tokens", "sessions"), int),
    **{"counts": dict, "notices": list},
}
_ASIDES: Final = {
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
    asking = Asking.of(url or _configured(config_file), key)
    told = {
        "url": asking.base,
        **asking.answer("/health"),
        **asking.answer("/api/servers"),
        "stats": asking.answer("/api/stats"),
    }
    if not _is_shaped(told):
        raise asking.no_gateway()
    if as_json:
        print_json(told)
    else:
        _print(told)


def _configured(config_file: str | None) -> str:
    """Where the gateway of the configuration listens."""
    path = find(config_file)
    http = load(path).http if path is not None else Http()
    return base_url(http.host, http.port)


def _is_shaped(told: Mapping[str, Any]) -> bool:
    """Whether everything is there that is printed: another program may have answered."""
    return (
        _has(told, {"status": str, "servers": list, "stats": dict})
        and all(_has(one, _SERVER) for one in told["servers"])
        and _has(told["stats"], _STATS)
        and all(isinstance(count, int) for count in told["stats"]["counts"].values())
        and all(isinstance(notice, str) for notice in told["stats"]["notices"])
    )


def _has(value: object, kinds: Mapping[str, type]) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(value.get(name), kind) for name, kind in kinds.items()
    )


def _print(told: Mapping[str, Any]) -> None:
    servers, stats = told["servers"], told["stats"]
    columns = max((len(plain(one["name"])) for one in servers), default=0)
    for one in servers:
        state = click.style(one["state"].ljust(10), fg=_SIGNS.get(one["state"]))
        counts = f"{one['tools']:>5,} tools  {one['tokens']:>8,} tokens  {one['calls']:>6,} calls"
        name = plain(one["name"]).ljust(columns)
        click.echo(f"{click.style(name, bold=True)}  {state}  {counts}")
        _aside(one)
    counts = stats["counts"]
    click.echo(
        f"\n{counted(stats['tools'], 'tool')} of {counted(len(servers), 'server')}, "
        f"about {counted(stats['tokens'], 'token')}. {counted(stats['sessions'], 'session')}."
    )
    for notice in stats["notices"]:
        click.echo(wrapped(f"! {plain(notice)}", ""))
    lists = counted(counts.get("listings", 0), "list")
    searches = counted(counts.get("searches", 0), "search", "searches")
    spared = _spared("clients", counts.get("tokens_saved", 0))
    click.secho(f"{lists} and {searches} so far spared {spared}.", bold=True)
    if counts.get("model_requests"):
        requests = counted(counts["model_requests"], "request")
        spared = _spared("them", counts.get("model_tokens_saved", 0))
        click.secho(f"{requests} to models with tools held back spared {spared}.", bold=True)


def _spared(whom: str, tokens: int) -> str:
    """What was not sent; a few small tools weigh less than what stands for them."""
    return f"{whom} about {counted(tokens, 'token')}" if tokens > 0 else f"{whom} nothing yet"


def _aside(server: Mapping[str, Any]) -> None:
    """What is not well with a server."""
    if server["trouble"]:
        click.echo(wrapped(f"✗ {plain(server['trouble'])}", "  "))
    for name, what in _ASIDES.items():
        if server[name]:
            click.echo(f"  ! {counted(len(server[name]), 'tool')} {what}")
