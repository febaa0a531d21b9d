"""`toolcrib lint`: list tools whose texts a search does not find."""

from __future__ import annotations

from dataclasses import asdict

import click

from toolcrib.cli.gateway.launch import config_option
from toolcrib.cli.gateway.servers.login import suggest_server
from toolcrib.cli.printing import format_count, json_option, print_json, sanitize, wrap
from toolcrib.config.loader import load_config, require_config_path
from toolcrib.config.store_paths import resolve_store_url, sqlite_path
from toolcrib.errors import InvalidConfig, InvalidStore
from toolcrib.hub.lint import LintFinding, lint_tools
from toolcrib.hub.startup import open_hub


@click.command("lint")
@click.argument("servers", nargs=-1)
@config_option
@json_option
def command(servers: tuple[str, ...], config_file: str | None, as_json: bool) -> None:
    """List tools whose texts will not be found by a search.

    The tools are those that the servers listed when the gateway last ran, with your overrides. SERVERS restricts
    the list to some servers. Put the texts right with "overrides" in toolcrib.json.
    """
    config = load_config(require_config_path(config_file))
    for name in servers:
        if name not in config.servers:
            raise InvalidConfig(f"there is no server {name!r:.200} in {config.path}; {suggest_server(config, name)}")
    path = sqlite_path(resolve_store_url(config))
    if path is not None and not path.is_file():
        raise InvalidStore(
            f"{path}: there is no such file; start the gateway once, so that the servers list their tools"
        )
    hub = open_hub(config)
    try:
        tools = [entry.tool for entry in hub.directory if not servers or entry.server in servers]
        hub.engine.warm_up()
        findings = lint_tools(hub.engine, tools)
        problems = {
            one.server.name: [*one.problems, *one.override_problems]
            for one in hub.directory.servers
            if one.problems or one.override_problems
        }
    finally:
        hub.close()
    if as_json:
        print_json({"tools": len(tools), "findings": list(map(asdict, findings)), "problems": problems})
        return
    for finding in findings:
        _print_finding(finding)
    for server, messages in problems.items():
        for message in messages:
            click.echo(wrap(sanitize(f"{server}: {message}")))
    affected = len({finding.tool for finding in findings})
    click.secho(f"{format_count(affected, 'tool')} of {len(tools):,} may not be found.", bold=True)


def _print_finding(finding: LintFinding) -> None:
    click.echo(f"{click.style(sanitize(finding.tool), fg='cyan', bold=True)}  {finding.problem}")
    click.echo(wrap(sanitize(finding.message), "  "))
    if finding.query:
        click.echo(wrap(sanitize(f"search: {finding.query}"), "  "))
        click.echo(wrap(sanitize(f"finds: {', '.join(finding.hits) or 'nothing'}"), "  "))
