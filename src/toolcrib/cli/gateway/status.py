"""`toolcrib status`: the state of a running gateway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from toolcrib.cli.gateway.client import GatewayClient, client_options
from toolcrib.cli.printing import format_count, json_option, print_json, sanitize, wrap

_STATE_COLOURS: Final = {"started": "green", "in use": "green", "known": "yellow", "configured": "yellow"}
# The fields of the gateway's answers that are printed, with their types.
_SERVER_FIELDS: Final = {
    **dict.fromkeys(("name", "state", "trouble"), str),
    **dict.fromkeys(("tools", "tokens", "calls"), int),
    **dict.fromkeys(("waiting", "changed", "flagged", "faults", "altered"), list),
}
_STATS_FIELDS: Final = {**dict.fromkeys(("tools", "tokens", "sessions"), int), **{"counts": dict, "notices": list}}
_SERVER_NOTES: Final = {
    "waiting": "quarantined; see toolcrib approve",
    "changed": "changed since the last approval; see toolcrib approve",
    "flagged": "flagged as suspicious; see toolcrib doctor",
    "faults": "of tools or overrides; see toolcrib doctor",
    "altered": "used without an invalid part; see toolcrib doctor",
}


@click.command("status")
@client_options
@json_option
def command(client: GatewayClient, as_json: bool) -> None:
    """Show the state of a running gateway.

    Prints the servers with their states, tools and calls, and about how many tokens the gateway
    has saved.
    """
    status = {
        "url": client.base_url,
        **client.get_json("/health"),
        **client.get_json("/api/servers"),
        "stats": client.get_json("/api/stats"),
    }
    if not _is_valid(status):
        raise client.not_a_gateway_error()
    if as_json:
        print_json(status)
    else:
        _print_status(status)


def _is_valid(status: Mapping[str, Any]) -> bool:
    """Return whether all printed fields exist: another program may have answered."""
    return (
        _has_fields(status, {"status": str, "servers": list, "stats": dict})
        and all(_has_fields(server, _SERVER_FIELDS) for server in status["servers"])
        and _has_fields(status["stats"], _STATS_FIELDS)
        and all(isinstance(count, int) for count in status["stats"]["counts"].values())
        and all(isinstance(notice, str) for notice in status["stats"]["notices"])
    )


def _has_fields(value: object, types: Mapping[str, type]) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(value.get(name), field_type) for name, field_type in types.items()
    )


def _print_status(status: Mapping[str, Any]) -> None:
    servers, stats = status["servers"], status["stats"]
    columns = max((len(sanitize(server["name"])) for server in servers), default=0)
    for server in servers:
        _print_server(server, columns)
    counts = stats["counts"]
    click.echo(
        f"\n{format_count(stats['tools'], 'tool')} of {format_count(len(servers), 'server')}, "
        f"about {format_count(stats['tokens'], 'token')}. "
        f"{format_count(stats['sessions'], 'session')}."
    )
    for notice in stats["notices"]:
        click.echo(wrap(f"! {sanitize(notice)}"))
    lists = format_count(counts.get("listings", 0), "tool list")
    searches = format_count(counts.get("searches", 0), "search", "searches")
    saved = _format_savings(counts.get("tokens_saved", 0))
    click.secho(f"MCP clients: {lists}, {searches}, {saved} saved.", bold=True)
    if counts.get("model_requests"):
        requests = format_count(counts["model_requests"], "request")
        saved = _format_savings(counts.get("model_tokens_saved", 0))
        click.secho(f"LLM clients: {requests} with deferred tools, {saved} saved.", bold=True)
    # Gateways before 0.3 do not have it.
    today = stats.get("llm_today")
    if isinstance(today, Mapping) and today.get("requests"):
        requests = format_count(today["requests"], "request")
        tokens = f"{format_count(today.get('input_tokens', 0), 'token')} in ({today.get('cached_tokens', 0):,} cached)"
        click.echo(f"LLMs today: {requests}, {tokens}, {format_count(today.get('output_tokens', 0), 'token')} out.")


def _print_server(server: Mapping[str, Any], name_columns: int) -> None:
    state = click.style(server["state"].ljust(10), fg=_STATE_COLOURS.get(server["state"]))
    units = {"tools": 5, "tokens": 8, "calls": 6}
    counts = "  ".join(f"{server[unit]:>{width},} {_pad_unit(unit, server[unit])}" for unit, width in units.items())
    name = sanitize(server["name"]).ljust(name_columns)
    click.echo(f"{click.style(name, bold=True)}  {state}  {counts}".rstrip())
    if server["trouble"]:
        click.echo(wrap(f"✗ {sanitize(server['trouble'])}", "  "))
    for field_name, note in _SERVER_NOTES.items():
        if server[field_name]:
            unit = "problem" if field_name == "faults" else "tool"
            click.echo(f"  ! {format_count(len(server[field_name]), unit)} {note}")


def _pad_unit(unit: str, count: int) -> str:
    """Return a unit in singular or plural, with the same width."""
    return f"{unit.removesuffix('s')} " if count == 1 else unit


def _format_savings(tokens: int) -> str:
    """Return the saved tokens; a search tool may be larger than a few small tools."""
    return f"about {format_count(tokens, 'token')}" if tokens > 0 else "no tokens"
