"""`toolcrib status`: how a running gateway is doing."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

import click

from toolcrib.cli.options import config_option, json_option
from toolcrib.cli.printing import plain, print_json, wrapped
from toolcrib.config.file import find, load
from toolcrib.config.settings import Http
from toolcrib.errors import GatewayUnreachable

_SECONDS: Final = 10
_MAX_BYTES: Final = 16 * 1024 * 1024
_SIGNS: Final = {"started": "green", "in use": "green", "known": "yellow", "configured": "yellow"}


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
    spared, and how much was learned from use.
    """
    base = (url or _configured(config_file)).rstrip("/")
    told = {
        "url": base,
        **_asked(f"{base}/health", key),
        **_asked(f"{base}/api/servers", key),
        "stats": _asked(f"{base}/api/stats", key),
    }
    if as_json:
        print_json(told)
    else:
        _print(told)


def _configured(config_file: str | None) -> str:
    """Where the gateway of the configuration listens."""
    path = find(config_file)
    http = load(path).http if path is not None else Http()
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(http.host, http.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{http.port}"


def _asked(url: str, key: str | None) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:
            said = json.loads(response.read(_MAX_BYTES))
    except urllib.error.HTTPError as fault:
        fault.close()
        cure = "give its key with --key or in TOOLCRIB_KEY" if fault.code in (401, 403) else ""
        cure = cure or "is that a Toolcrib gateway?"
        raise GatewayUnreachable(f"{url} answered with HTTP {fault.code}; {cure}") from None
    except ValueError:
        raise GatewayUnreachable(f"{url} is not the address of a gateway; correct --url") from None
    except OSError:
        raise GatewayUnreachable(
            f"no gateway is running at {url.rpartition('/')[0].removesuffix('/api')}; start one with "
            "`toolcrib serve`, or say where it is with --url"
        ) from None
    if not isinstance(said, dict):
        raise GatewayUnreachable(f"{url} is not the address of a gateway; correct --url")
    return said


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
        f"\n{stats['tools']:,} tools of {len(servers)} servers, about {stats['tokens']:,} tokens. "
        f"{stats['sessions']:,} sessions."
    )
    for notice in stats["notices"]:
        click.echo(wrapped(f"! {plain(notice)}", ""))
    saved, searches = counts.get("tokens_saved", 0), counts.get("searches", 0)
    click.secho(
        f"{counts.get('listings', 0):,} lists and {searches:,} searches so far spared clients "
        f"about {saved:,} tokens.",
        bold=True,
    )
    learned = stats.get("learned") or {}
    if learned.get("words"):
        click.echo(f"Learned from use: {learned['words']:,} words for {learned['tools']:,} tools.")
    if requests := counts.get("model_requests", 0):
        spared = counts.get("model_tokens_saved", 0)
        click.secho(
            f"{requests:,} requests to models with tools held back spared them about {spared:,} "
            "tokens.",
            bold=True,
        )


def _aside(server: Mapping[str, Any]) -> None:
    """What is not well with a server."""
    if server["trouble"]:
        click.echo(wrapped(f"✗ {plain(server['trouble'])}", "  "))
    if server["waiting"]:
        click.echo(f"  ! {len(server['waiting'])} tools wait for toolcrib approve")
    if server["flagged"]:
        click.echo(f"  ! {len(server['flagged'])} tools look suspicious; see toolcrib doctor")
    if server["faults"]:
        click.echo(f"  ! {len(server['faults'])} tools cannot be used; see toolcrib doctor")
    if server["altered"]:
        count = len(server["altered"])
        click.echo(f"  ! {count} tools are used without a part that is wrong; see toolcrib doctor")
