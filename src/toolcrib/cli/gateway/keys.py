"""`toolcrib keys`: list, create and revoke the API keys of a running gateway, and set their budgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from toolcrib.cli.gateway.client import GatewayClient, client_options, quote_name
from toolcrib.cli.printing import json_option, pad, print_json, print_note, sanitize
from toolcrib.errors import RequestFailed


def _budget_options(callback: Callable[..., None]) -> Callable[..., None]:
    limit = click.IntRange(0, 10**12)
    tokens = click.option("--tokens-per-day", type=limit, metavar="N", help="LLM tokens, in and out, on a day in UTC.")
    requests = click.option("--requests-per-day", type=limit, metavar="N", help="LLM requests on a day in UTC.")
    return tokens(requests(callback))


@click.group("keys")
def command() -> None:
    """List, create and revoke the API keys of a running gateway."""


@command.command("list")
@client_options
@json_option
def list_keys(client: GatewayClient, as_json: bool) -> None:
    """List the keys and what they have used today."""
    keys = client.get_json("/api/keys")["keys"]
    if as_json:
        print_json(keys)
        return
    if not keys:
        print_note("There are no keys. Everyone who can reach the gateway may use it.")
    width = max((len(key["name"]) for key in keys), default=0)
    for key in keys:
        access = key["profile"] or "full access"
        source = "" if key["id"] else ", in toolcrib.json"
        click.echo(f"{pad(sanitize(key['name']), width)}  {sanitize(access)}{source}; today {_describe_use(key)}")


@command.command("create")
@click.argument("name")
@click.option("--profile", metavar="NAME", help="The access profile of the key.  [default: full access]")
@_budget_options
@client_options
@json_option
def create(name: str, profile: str | None, client: GatewayClient, as_json: bool, **options: Any) -> None:
    """Create a key and print it.

    It is stored as a hash and can't be shown again.
    """
    body = {"name": name, "profile": profile, **_read_budget(options)}
    is_first = not client.get_json("/api/keys")["keys"]
    created = client.post_json("/api/keys", body)
    if is_first:
        print_note("This is the first key. From now on, every client needs a key.")
    if as_json:
        print_json(created)
    else:
        click.echo(created["key"])


@command.command("budget")
@click.argument("name")
@_budget_options
@client_options
def set_budget(name: str, client: GatewayClient, **options: Any) -> None:
    """Replace the budget of a key. A limit that you leave out is removed."""
    client.put_json(f"/api/keys/{_find_id(client, name)}", _read_budget(options))
    click.echo(f"The budget of {sanitize(name)} is changed.")


@command.command("revoke")
@click.argument("name")
@client_options
def revoke(name: str, client: GatewayClient) -> None:
    """Revoke a key. Clients with it are refused from now on, and their streams end."""
    client.delete(f"/api/keys/{_find_id(client, name)}")
    click.echo(f"{sanitize(name)} is revoked.")


def _read_budget(options: Mapping[str, Any]) -> dict[str, int | None]:
    return {"tokensPerDay": options["tokens_per_day"], "requestsPerDay": options["requests_per_day"]}


def _find_id(client: GatewayClient, name: str) -> str:
    """Return the id of a key that was created at run time."""
    keys = {key["name"]: key["id"] for key in client.get_json("/api/keys")["keys"]}
    if not keys.get(name):
        known = ", ".join(sanitize(each) for each, id in keys.items() if id) or "none"
        place = "is in toolcrib.json; change it there" if name in keys else f"does not exist; there are: {known}"
        raise RequestFailed(f"the key {name!r:.100} {place}", 404)
    return quote_name(keys[name])


def _describe_use(key: Mapping[str, Any]) -> str:
    """Return the tokens and requests of today, with their limits."""
    parts = []
    for kind in ("tokens", "requests"):
        limit = key[f"{kind}_per_day"]
        parts.append(f"{key[f'{kind}_today']:,}{'' if limit is None else f' of {limit:,}'} {kind}")
    return ", ".join(parts)
