"""`toolcrib config`: where the configuration is, what it says, and its schema."""

from __future__ import annotations

import click

from toolcrib.cli.options import config_option, json_option
from toolcrib.cli.printing import counted, plain, print_json, wrapped
from toolcrib.config.loader import VARIABLE, existing, load, places
from toolcrib.config.schema import config_schema


@click.group("config")
def command() -> None:
    """Find, check and describe toolcrib.json."""


@command.command("path")
@config_option
@json_option
def path(config_file: str | None, as_json: bool) -> None:
    """Say where the configuration is looked for, and which file is used."""
    candidates = places(config_file)
    used = next((one for one in candidates if one.is_file()), None)
    if as_json:
        document = {
            "used": str(used.absolute()) if used else None,
            "places": [str(one.absolute()) for one in candidates],
            "variable": VARIABLE,
        }
        print_json(document)
        return
    for one in candidates:
        mark = "used" if one == used else "there" if one.is_file() else "not there"
        click.echo(f"{mark:<10}{plain(str(one.absolute()))}")


@command.command("check")
@config_option
@json_option
def check(config_file: str | None, as_json: bool) -> None:
    """Read the configuration and say what it configures, or what is wrong with it."""
    used = existing(config_file)
    config = load(used)
    if as_json:
        document = {
            "file": str(used.absolute()),
            "servers": {
                name: {"transport": server.transport, "enabled": server.enabled}
                for name, server in config.servers.items()
            },
            "profiles": list(config.profiles),
            "models": [upstream.name for upstream in config.models.upstreams],
            "keys": len(config.auth.keys),
            "notes": list(config.notes),
        }
        print_json(document)
        return
    off = sum(not server.enabled for server in config.servers.values())
    counts = (
        f"{counted(len(config.servers), 'server')} ({off} switched off), "
        f"{counted(len(config.profiles), 'profile')}, "
        f"{counted(len(config.models.upstreams), 'model')}, {counted(len(config.auth.keys), 'key')}"
    )
    click.echo(wrapped(f"{plain(str(used))} is fine: {counts}."))
    for text in config.notes:
        click.echo(wrapped(plain(text), "  "))


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema, with which editors complete and check the file."""
    print_json(config_schema())
