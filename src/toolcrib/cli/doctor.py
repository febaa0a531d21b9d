"""`toolcrib doctor`: what is wrong with a set-up, and the cure."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolcrib.cli.gateway import configure_logging, print_started, require_gateway
from toolcrib.cli.options import config_option, json_option
from toolcrib.cli.printing import format_count, print_json, print_note, sanitize, wrap
from toolcrib.config.checks import ConfigFinding, check_config, find_unset_variables
from toolcrib.config.expansion import collect_required_variables
from toolcrib.config.loader import parse_document, read_document, require_config_path
from toolcrib.config.settings import GatewayConfig
from toolcrib.errors import InvalidConfig

if TYPE_CHECKING:
    from toolcrib.gateway.mcp.admin.doctor import ServerReport

_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


@click.command("doctor")
@config_option
@click.option("--no-start", is_flag=True, help="Only look at the file; start no server.")
@json_option
def command(config_file: str | None, no_start: bool, as_json: bool) -> None:
    """Say what is wrong with toolcrib.json, and the cure.

    Programs that are not installed, variables that are not set, secrets in the open, servers that
    are there twice, names that are too long. Then every server is started and stopped again:
    those that do not come up, tools that cannot be used or look suspicious, and what each
    server's tools weigh in tokens.
    """
    path = require_config_path(config_file)
    config, findings = check_config_file(path)
    reports: list[ServerReport] = []
    if config and not no_start:
        reports = _check_servers(
            config, {one.server for one in findings if one.severity == "error"}
        )
        findings += [one for report in reports for one in report.findings]
    if as_json:
        document = {"config": str(path), "findings": [one.to_json() for one in findings]}
        servers = [report.to_json() for report in reports]
        print_json(document if no_start else {**document, "servers": servers})
    else:
        _print_report(path, reports, findings)
    if any(one.severity == "error" for one in findings):
        raise SystemExit(1)


def check_config_file(path: Path) -> tuple[GatewayConfig | None, list[ConfigFinding]]:
    """A configuration, and what is wrong with it without starting anything, the worst first."""
    document = read_document(path)
    variables = find_unset_variables(document.value, os.environ)
    # What else there is should be found too, so something stands in for what is not set.
    unset = dict.fromkeys(collect_required_variables(document.value), "not set")
    try:
        config = parse_document(document, path, {**unset, **os.environ})
    except InvalidConfig:
        if not variables:
            raise
        return None, list(variables)
    found = check_config(
        config,
        lambda program, folders: shutil.which(program, path=folders),
        lambda folder: Path(folder).is_dir(),
    )
    return config, [*variables, *found]


def _check_servers(config: GatewayConfig, broken: Collection[str]) -> list[ServerReport]:
    """What is seen of the servers when they run; those that cannot run are left alone."""
    require_gateway()
    configure_logging()
    import anyio

    from toolcrib.gateway.mcp.admin.doctor import check_servers
    from toolcrib.hub.startup import load_pins

    servers = {
        name: replace(server, enabled=server.enabled and name not in broken)
        for name, server in config.servers.items()
    }
    is_watched = sys.stderr.isatty()
    if is_watched:
        enabled = sum(server.enabled for server in servers.values())
        print_note(f"Starting {format_count(enabled, 'server')} …")
    tell = print_started if is_watched else lambda started: None
    return anyio.run(check_servers, replace(config, servers=servers), load_pins(config), tell)


def _print_report(
    path: Path, reports: Sequence[ServerReport], findings: Sequence[ConfigFinding]
) -> None:
    for report in reports:
        if report.is_running:
            tools, tokens = format_count(report.tools, "tool"), format_count(report.tokens, "token")
            about = f"{tools}, about {tokens}, {report.protocol}"
            name = click.style(sanitize(report.server), bold=True)
            click.echo(f"{click.style('✓', fg='green')} {name}: {about}")
    for one in findings:
        mark = click.style(f"{one.severity}: ", fg=_COLOURS[one.severity], bold=True)
        about = f"{one.server}: " if one.server else ""
        click.echo(mark + sanitize(about + one.problem))
        click.echo(wrap(sanitize(one.fix), "  "))
    if findings:
        errors = sum(one.severity == "error" for one in findings)
        severe = f"{errors} of them {'an error' if errors == 1 else 'errors'}"
        click.secho(f"{len(findings)} found in {sanitize(str(path))}, {severe}.", bold=True)
    else:
        click.echo(f"Nothing is wrong with {sanitize(str(path))}.")
