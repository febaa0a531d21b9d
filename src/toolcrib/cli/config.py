"""`toolcrib config`: where the configuration is, what it says, and its schema."""

from __future__ import annotations

import click

from toolcrib.cli.options import config_option, json_option
from toolcrib.cli.printing import format_count, print_json, sanitize, wrap
from toolcrib.config.loader import (
    CONFIG_VARIABLE,
    list_config_paths,
    load_config,
    require_config_path,
)
from toolcrib.config.schema import build_config_schema


@click.group("config")
def command() -> None:
    """Find, check and describe toolcrib.json."""


@command.command("path")
@config_option
@json_option
def path(config_file: str | None, as_json: bool) -> None:
    """Say where the configuration is looked for, and which file is used."""
    candidates = list_config_paths(config_file)
    used = next((one for one in candidates if one.is_file()), None)
    if as_json:
        document = {
            "used": str(used.absolute()) if used else None,
            "places": [str(one.absolute()) for one in candidates],
            "variable": CONFIG_VARIABLE,
        }
        print_json(document)
        return
    for one in candidates:
        mark = "used" if one == used else "there" if one.is_file() else "not there"
        click.echo(f"{mark:<10}{sanitize(str(one.absolute()))}")


@command.command("check")
@config_option
@json_option
def check(config_file: str | None, as_json: bool) -> None:
    """Read the configuration and say what it configures, or what is wrong with it."""
    used = require_config_path(config_file)
    config = load_config(used)
    if as_json:
        document = {
            "file": str(used.absolute()),
            "servers": {
                name: {"transport": server.transport, "enabled": server.enabled}
                for name, server in config.servers.items()
            },
            "profiles": list(config.profiles),
            "models": [upstream.name for upstream in config.llm_gateway.upstreams],
            "keys": len(config.auth.keys),
            "notes": list(config.notes),
        }
        print_json(document)
        return
    off = sum(not server.enabled for server in config.servers.values())
    counts = (
        f"{format_count(len(config.servers), 'server')} ({off} switched off), "
        f"{format_count(len(config.profiles), 'profile')}, "
        f"{format_count(len(config.llm_gateway.upstreams), 'model')}, {format_count(len(config.auth.keys), 'key')}"
    )
    click.echo(wrap(f"{sanitize(str(used))} is fine: {counts}."))
    for text in config.notes:
        click.echo(wrap(sanitize(text), "  "))


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema, with which editors complete and check the file."""
    print_json(build_config_schema())
