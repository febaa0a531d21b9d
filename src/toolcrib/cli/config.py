"""`toolcrib config`: find and check the configuration, and print its schema."""

from __future__ import annotations

import click

from toolcrib.cli.gateway import config_option
from toolcrib.cli.printing import format_count, json_option, print_json, sanitize, wrap
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
    """Print the possible configuration files, and which one is used."""
    candidates = list_config_paths(config_file)
    used = next((candidate for candidate in candidates if candidate.is_file()), None)
    if as_json:
        document = {
            "used": str(used.absolute()) if used else None,
            "places": [str(candidate.absolute()) for candidate in candidates],
            "variable": CONFIG_VARIABLE,
        }
        print_json(document)
        return
    for candidate in candidates:
        state = "used" if candidate == used else "exists" if candidate.is_file() else "missing"
        click.echo(f"{state:<10}{sanitize(str(candidate.absolute()))}")


@command.command("check")
@config_option
@json_option
def check(config_file: str | None, as_json: bool) -> None:
    """Check the configuration and print a summary."""
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
    disabled = sum(not server.enabled for server in config.servers.values())
    counts = (
        f"{format_count(len(config.servers), 'server')} ({disabled} disabled), "
        f"{format_count(len(config.profiles), 'profile')}, "
        f"{format_count(len(config.llm_gateway.upstreams), 'model')}, "
        f"{format_count(len(config.auth.keys), 'key')}"
    )
    click.echo(wrap(f"{sanitize(str(used))} is valid: {counts}."))
    for text in config.notes:
        click.echo(wrap(sanitize(text), "  "))


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema, which editors use to complete and check the file."""
    print_json(build_config_schema())
