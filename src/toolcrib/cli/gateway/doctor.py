"""`toolcrib doctor`: find problems of a setup and suggest fixes."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.gateway.launch import config_option, configure_logging, print_started, require_gateway
from toolcrib.cli.printing import format_count, json_option, print_json, print_note, sanitize, wrap
from toolcrib.config.checks import ConfigFinding, check_config, find_plain_secrets, find_unset_variables
from toolcrib.config.fields import collect_required_variables
from toolcrib.config.loader import parse_document, read_document, require_config_path
from toolcrib.config.settings import GatewayConfig
from toolcrib.config.store_paths import resolve_store_url
from toolcrib.errors import InvalidConfig, InvalidStore
from toolcrib.files.store_url import is_postgres_url
from toolcrib.storage import open_store

if TYPE_CHECKING:
    from toolcrib.gateway.mcp.admin.doctor import ServerReport

_MAX_LISTED_SECRETS = 5
_PLACEHOLDER = "https://not.set"
_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


@click.command("doctor")
@config_option
@click.option("--no-start", is_flag=True, help="Check only the file; do not start servers.")
@json_option
def command(config_file: str | None, no_start: bool, as_json: bool) -> None:
    """Find problems in toolcrib.json and suggest fixes.

    Checks for programs that are not installed, unset variables, secrets in plain text, duplicate
    servers and long names. Then starts and stops every server to check for servers that do not
    start and for invalid or suspicious tools, and to count the tokens of each server's tools.
    Asks every LLM upstream for its models, to check its address and its keys.
    """
    path = require_config_path(config_file)
    config, findings = _check_config_file(path)
    reports: list[ServerReport] = []
    if config and not no_start:
        failed = {finding.server for finding in findings if finding.severity == "error"}
        reports = _check_servers(config, failed)
        findings += [finding for report in reports for finding in report.findings]
        findings += _check_upstreams(config)
        findings += _check_store(config)
    if as_json:
        document: dict[str, Any] = {"config": str(path), "findings": [finding.to_json() for finding in findings]}
        if not no_start:
            document["servers"] = [report.to_json() for report in reports]
        print_json(document)
    else:
        _print_report(path, reports, findings)
    if any(finding.severity == "error" for finding in findings):
        raise SystemExit(1)


def _check_config_file(path: Path) -> tuple[GatewayConfig | None, list[ConfigFinding]]:
    """Return the configuration and its problems, most severe first."""
    document = read_document(path)
    unset = find_unset_variables(document.value, os.environ)
    # Unset variables get a placeholder, so that other problems are found as well. It is valid as an address too.
    placeholders = dict.fromkeys(collect_required_variables(document.value), _PLACEHOLDER)
    try:
        config = parse_document(document, path, {**placeholders, **os.environ})
    except InvalidConfig as error:
        if not unset:
            raise
        # An error that quotes the placeholder is due to the unset variable.
        others = [] if _PLACEHOLDER in str(error) else [ConfigFinding("error", str(error), "correct it")]
        return None, [*unset, *others]
    findings = check_config(
        config, lambda program, folders: shutil.which(program, path=folders), lambda folder: Path(folder).is_dir()
    )
    return config, [*unset, *_check_file_access(path, document.value), *findings]


def _check_file_access(path: Path, document: object) -> list[ConfigFinding]:
    """Return a finding if the file contains secrets and other users can read it."""
    if sys.platform == "win32" or not path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        return []
    secrets = find_plain_secrets(document)
    if not secrets:
        return []
    more = f" and {len(secrets) - _MAX_LISTED_SECRETS} more" if len(secrets) > _MAX_LISTED_SECRETS else ""
    listed = ", ".join(secrets[:_MAX_LISTED_SECRETS])
    problem = f"other users can read the file, which contains secrets in plain text: {listed}{more}"
    fix = f"run: chmod 600 {path}; or use variables in place of the secrets, such as ${{GITHUB_TOKEN}}"
    return [ConfigFinding("warning", problem, fix)]


def _check_servers(config: GatewayConfig, failed: Collection[str]) -> list[ServerReport]:
    """Start all servers except those that cannot run, and return a report for each."""
    require_gateway()
    configure_logging()
    import anyio

    from toolcrib.gateway.mcp.admin.doctor import check_servers
    from toolcrib.hub.startup import KnownServers, load_known_servers

    servers = {
        name: replace(server, enabled=server.enabled and name not in failed) for name, server in config.servers.items()
    }
    is_terminal = sys.stderr.isatty()
    if is_terminal:
        enabled = sum(server.enabled for server in servers.values())
        print_note(f"Starting {format_count(enabled, 'server')} …")
    on_started = print_started if is_terminal else lambda started: None
    try:
        known = load_known_servers(config)
    except (InvalidStore, InvalidConfig):
        # Reported by the check of the store.
        known = KnownServers()
    check = partial(check_servers, tokens=known.tokens)
    return anyio.run(check, replace(config, servers=servers), known.pins, on_started)


def _check_store(config: GatewayConfig) -> list[ConfigFinding]:
    """Return a finding if the database of the store cannot be used."""
    url = resolve_store_url(config)
    findings = []
    if is_postgres_url(url):
        try:
            with closing(open_store(url)) as store:
                store.get_revision()
        except (InvalidStore, InvalidConfig) as error:
            problem, _, fix = str(error).partition("; ")
            findings.append(ConfigFinding("error", problem, fix))
        has_login = any(server.url for server in config.servers.values())
        if has_login and not config.token_keys:
            problem = "OAuth tokens of servers can't be stored in PostgreSQL without a key that encrypts them"
            fix = "add `tokenKeys`, if a server needs `toolcrib login`; make a key with: openssl rand -base64 32 | tr '+/' '-_'"
            findings.append(ConfigFinding("note", problem, fix))
    return findings


def _check_upstreams(config: GatewayConfig) -> list[ConfigFinding]:
    if not config.llm_gateway.upstreams:
        return []
    import anyio

    from toolcrib.gateway.llm.models import check_upstreams

    return anyio.run(check_upstreams, config.llm_gateway)


def _print_report(path: Path, reports: Sequence[ServerReport], findings: Sequence[ConfigFinding]) -> None:
    for report in reports:
        if report.is_running:
            tools, tokens = format_count(report.tools, "tool"), format_count(report.tokens, "token")
            name = click.style(sanitize(report.server), bold=True)
            summary = f"{tools}, about {tokens}, {report.protocol}"
            click.echo(f"{click.style('✓', fg='green')} {name}: {summary}")
    for finding in findings:
        severity = click.style(f"{finding.severity}: ", fg=_COLOURS[finding.severity], bold=True)
        server = f"{finding.server}: " if finding.server else ""
        click.echo(severity + sanitize(server + finding.problem))
        click.echo(wrap(sanitize(finding.fix), "  "))
    if findings:
        problems = format_count(len(findings), "problem")
        errors = sum(finding.severity == "error" for finding in findings)
        click.secho(f"{problems} in {sanitize(str(path))}, {format_count(errors, 'error')}.", bold=True)
    else:
        click.echo(f"No problems in {sanitize(str(path))}.")
