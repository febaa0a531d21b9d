"""`toolcrib import`: bring the servers of MCP clients behind one counter."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from toolcrib.cli.options import config_option, json_option
from toolcrib.cli.printing import ToolTable, print_json, print_note, sanitize, wrap
from toolcrib.config.clients.file_writes import check_writable, replace_file
from toolcrib.config.clients.importing import (
    ImportedServer,
    ImportPlan,
    discover_servers,
    list_claude_code_projects,
    plan_import,
)
from toolcrib.config.clients.locations import CLIENTS, ClientFile, HostSystem, list_client_files
from toolcrib.config.clients.write_back import (
    RewritePlan,
    apply_restore,
    apply_rewrite,
    check_rewrite,
    plan_restore,
    plan_rewrite,
)
from toolcrib.config.loader import find_config_path, user_config_path
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import JsonPath

# A client's file with our entry, and where a copy of what it was is kept, once it is written.
_Written = tuple[RewritePlan, Path | None]


@click.command("import")
@click.option(
    "--from",
    "clients",
    type=click.Choice(list(CLIENTS)),
    multiple=True,
    help="Only this client's servers; may be repeated.",
)
@config_option
@click.option("--all-projects", is_flag=True, help="Servers of all folders Claude Code knows.")
@click.option(
    "--write-back",
    is_flag=True,
    help="Put Toolcrib into the clients' files in place of the servers, and keep copies.",
)
@click.option("--undo", "undoing", is_flag=True, help="Put the clients' servers back as they were.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing.")
@json_option
def command(
    clients: tuple[str, ...],
    config_file: str | None,
    all_projects: bool,
    write_back: bool,
    undoing: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Bring the servers of your MCP clients into toolcrib.json.

    They are found in the files of Claude Desktop, Claude Code, Cursor, VS Code, Windsurf, Codex and
    Gemini CLI, for you and for this folder. With --write-back each client then has one entry,
    Toolcrib; --undo takes it out again.
    """
    if undoing and (write_back or all_projects):
        raise click.UsageError("--undo goes with --from, --dry-run and --json only.")
    machine = detect_machine()
    if undoing:
        _undo(machine, clients, dry_run, as_json)
        return
    path = (find_config_path(config_file) or user_config_path(os.environ)).absolute()
    discovery = discover_servers(machine, clients, all_projects)
    merger = plan_import(path, discovery.servers, machine.environment)
    faults = list(discovery.errors)
    rewrites = _plan_rewrites(machine, merger, path, faults) if write_back else []
    written = _write(merger, rewrites, faults, dry_run)
    report = _ImportReport(merger, written, faults, dry_run)
    if as_json:
        print_json(report.to_json())
    else:
        report.print(len(discovery.files))
    if faults:
        raise SystemExit(1)


def detect_machine() -> HostSystem:
    """The machine this runs on."""
    system: Literal["darwin", "win32", "linux"] = "linux"
    if sys.platform in ("darwin", "win32"):
        system = "darwin" if sys.platform == "darwin" else "win32"
    return HostSystem(system, Path.home(), os.environ, Path.cwd())


def build_gateway_command(config: Path) -> list[str]:
    """What a client has to start. Clients know few folders of programs, so the path is whole."""
    program = shutil.which("toolcrib")
    start = [program] if program else [sys.executable, "-m", "toolcrib"]
    return [*start, "stdio", "--config", str(config)]


def _plan_rewrites(
    machine: HostSystem, merger: ImportPlan, path: Path, faults: list[str]
) -> list[RewritePlan]:
    """What to do with each client's file; why one has to be left as it is goes to the faults."""
    taken: dict[Path, dict[JsonPath, list[str]]] = {}
    for brought in merger.servers:
        if brought.outcome != "skipped":
            place = brought.server.source
            sections = taken.setdefault(place.path, {})
            sections.setdefault(place.section, []).append(brought.server.name)
    rewrites: list[RewritePlan] = []
    for place in _list_main_locations(machine):
        if place.path in taken and place.scope == "user":
            try:
                rewrites.append(plan_rewrite(place, taken[place.path], build_gateway_command(path)))
            except InvalidConfig as fault:
                faults.append(str(fault))
    return rewrites


def _list_main_locations(machine: HostSystem) -> list[ClientFile]:
    """One place for each file: the section of the user, where it has more than one."""
    first: dict[Path, ClientFile] = {}
    for place in list_client_files(machine):
        first.setdefault(place.path, place)
    return list(first.values())


def _write(
    merger: ImportPlan, rewrites: Sequence[RewritePlan], faults: list[str], dry_run: bool
) -> list[_Written]:
    """Our own file first: a client must not lose a server that we do not have yet.

    A dry run refuses what would be refused, and writes nothing.
    """
    if merger.after != merger.before and any(one.outcome == "added" for one in merger.servers):
        if dry_run:
            check_writable(merger.path, merger.before)
        else:
            replace_file(merger.path, merger.after, merger.before)
    written: list[_Written] = []
    for planned in rewrites:
        try:
            if dry_run:
                check_rewrite(planned)
            written.append((planned, None if dry_run else apply_rewrite(planned)))
        except InvalidConfig as fault:
            faults.append(str(fault))
    return written


def _undo(machine: HostSystem, clients: Sequence[str], dry_run: bool, as_json: bool) -> None:
    restored: list[dict[str, Any]] = []
    faults: list[str] = []
    for place in _list_main_locations(machine):
        if clients and place.client not in clients:
            continue
        others: list[JsonPath] = []
        if place.client == "claude-code" and place.scope == "user":
            folders = list_claude_code_projects(place.path)
            others = [("projects", folder, *place.section) for folder in folders]
        try:
            planned = plan_restore(place, others)
            if planned is None:
                continue
            if not dry_run:
                apply_restore(planned)
        except InvalidConfig as fault:
            faults.append(str(fault))
            continue
        restored.append(
            {"client": place.client, "file": str(place.path), "whole": planned.is_exact}
        )
    if as_json:
        print_json({"dryRun": dry_run, "restored": restored, "faults": faults})
    else:
        _print_restored(restored, faults, dry_run)
    if faults:
        raise SystemExit(1)


def _print_restored(
    restored: Sequence[Mapping[str, Any]], faults: Sequence[str], dry_run: bool
) -> None:
    for one in restored:
        verb = "would be restored" if dry_run else "restored"
        if not one["whole"]:
            verb = "would have its servers back" if dry_run else "has its servers back"
            verb += "; what else was changed in it since is kept"
        click.echo(f"{CLIENTS[one['client']]}: {sanitize(one['file'])} {verb}")
    _print_errors(faults)
    if not restored and not faults:
        click.echo("There is nothing to undo: no client's file has a copy kept beside it.")
    elif restored and not dry_run:
        print_note("Restart the clients. toolcrib.json keeps its servers.")


@dataclass(frozen=True, slots=True)
class _ImportReport:
    """What was done, or would be."""

    merger: ImportPlan
    written: Sequence[_Written]
    faults: Sequence[str]
    dry_run: bool

    def to_json(self) -> dict[str, Any]:
        """As one JSON value."""
        return {
            "config": str(self.merger.path),
            "dryRun": self.dry_run,
            "servers": [
                {
                    "client": one.server.source.client,
                    "file": str(one.server.source.path),
                    "scope": one.server.source.scope,
                    "name": one.server.name,
                    "outcome": one.outcome,
                    "as": one.name or None,
                    "why": one.server.error or None,
                    "notes": list(one.server.notes),
                }
                for one in self.merger.servers
            ],
            "writtenBack": [
                {
                    "client": planned.source.client,
                    "file": str(planned.source.path),
                    "removed": list(planned.removed),
                    "backup": str(backup) if backup else None,
                }
                for planned, backup in self.written
            ],
            "faults": list(self.faults),
        }

    def print(self, files: int) -> None:
        """For people."""
        brought = self.merger.servers
        titles = [one.server.source.title for one in brought]
        table = ToolTable.for_ids(
            (one.server.name for one in brought), max(map(len, titles), default=0) + 2
        )
        for title, one in zip(titles, brought, strict=True):
            click.echo(table.format_row(title, one.server.name, _describe_outcome(one)))
            for text in one.server.notes:
                click.echo(table.format_detail(sanitize(text)))
        _print_errors(self.faults)
        added = sum(one.outcome == "added" for one in brought)
        would = "would be " if self.dry_run else ""
        if not files:
            click.echo("No client's file was found on this machine.")
        elif added:
            click.secho(f"{added} {would}added to {sanitize(str(self.merger.path))}", bold=True)
        else:
            click.secho("Nothing new to add.", bold=True)
        for planned, backup in self.written:
            count = len(planned.removed)
            text = f"{planned.source.title}: {count} {would}taken out, Toolcrib {would}put in"
            kept = f"; as it was: {backup}" if backup else ""
            click.echo(wrap(sanitize(f"{text} ({planned.source.path}{kept})")))
        if self.written and not self.dry_run:
            print_note("Restart the clients. To go back: toolcrib import --undo")


def _print_errors(faults: Sequence[str]) -> None:
    for fault in faults:
        click.secho(wrap(sanitize(fault)), fg="red", err=True)


def _describe_outcome(one: ImportedServer) -> str:
    if one.outcome == "skipped":
        return f"skipped: {one.server.error}"
    if one.name == one.server.name:
        return one.outcome
    taken = ", as its name was taken" if one.outcome == "added" else ""
    return f"{one.outcome} as {one.name}{taken}"
