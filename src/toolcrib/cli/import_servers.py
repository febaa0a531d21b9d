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
from toolcrib.cli.printing import Table, note, plain, print_json, wrapped
from toolcrib.config.clients.importing import Brought, Merger, claude_code_projects, discover, merge
from toolcrib.config.clients.locations import CLIENTS, Machine, Place, places
from toolcrib.config.clients.write_back import Rewrite, apply, check, restoration, restore, rewrite
from toolcrib.config.file_writes import check_writable, write_atomically
from toolcrib.config.loader import find, user_file
from toolcrib.config.problems import Steps
from toolcrib.errors import InvalidConfig

# A client's file with our entry, and where a copy of what it was is kept, once it is written.
_Written = tuple[Rewrite, Path | None]


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
    machine = this_machine()
    if undoing:
        _undo(machine, clients, dry_run, as_json)
        return
    path = (find(config_file) or user_file(os.environ)).absolute()
    discovery = discover(machine, clients, all_projects)
    merger = merge(path, discovery.found, machine.environment)
    faults = list(discovery.faults)
    rewrites = _rewrites(machine, merger, path, faults) if write_back else []
    written = _write(merger, rewrites, faults, dry_run)
    report = _Report(merger, written, faults, dry_run)
    if as_json:
        print_json(report.document())
    else:
        report.show(len(discovery.files))
    if faults:
        raise SystemExit(1)


def this_machine() -> Machine:
    """The machine this runs on."""
    system: Literal["darwin", "win32", "linux"] = "linux"
    if sys.platform in ("darwin", "win32"):
        system = "darwin" if sys.platform == "darwin" else "win32"
    return Machine(system, Path.home(), os.environ, Path.cwd())


def gateway_command(config: Path) -> list[str]:
    """What a client has to start. Clients know few folders of programs, so the path is whole."""
    program = shutil.which("toolcrib")
    start = [program] if program else [sys.executable, "-m", "toolcrib"]
    return [*start, "stdio", "--config", str(config)]


def _rewrites(machine: Machine, merger: Merger, path: Path, faults: list[str]) -> list[Rewrite]:
    """What to do with each client's file; why one has to be left as it is goes to the faults."""
    taken: dict[Path, dict[Steps, list[str]]] = {}
    for brought in merger.brought:
        if brought.outcome != "skipped":
            place = brought.found.place
            sections = taken.setdefault(place.path, {})
            sections.setdefault(place.section, []).append(brought.found.name)
    rewrites: list[Rewrite] = []
    for place in _main_places(machine):
        if place.path in taken and place.scope == "user":
            try:
                rewrites.append(rewrite(place, taken[place.path], gateway_command(path)))
            except InvalidConfig as fault:
                faults.append(str(fault))
    return rewrites


def _main_places(machine: Machine) -> list[Place]:
    """One place for each file: the section of the user, where it has more than one."""
    first: dict[Path, Place] = {}
    for place in places(machine):
        first.setdefault(place.path, place)
    return list(first.values())


def _write(
    merger: Merger, rewrites: Sequence[Rewrite], faults: list[str], dry_run: bool
) -> list[_Written]:
    """Our own file first: a client must not lose a server that we do not have yet.

    A dry run refuses what would be refused, and writes nothing.
    """
    if merger.after != merger.before and any(one.outcome == "added" for one in merger.brought):
        if dry_run:
            check_writable(merger.path, merger.before)
        else:
            write_atomically(merger.path, merger.after, merger.before)
    written: list[_Written] = []
    for planned in rewrites:
        try:
            if dry_run:
                check(planned)
            written.append((planned, None if dry_run else apply(planned)))
        except InvalidConfig as fault:
            faults.append(str(fault))
    return written


def _undo(machine: Machine, clients: Sequence[str], dry_run: bool, as_json: bool) -> None:
    restored: list[dict[str, Any]] = []
    faults: list[str] = []
    for place in _main_places(machine):
        if clients and place.client not in clients:
            continue
        others: list[Steps] = []
        if place.client == "claude-code" and place.scope == "user":
            folders = claude_code_projects(place.path)
            others = [("projects", folder, *place.section) for folder in folders]
        try:
            planned = restoration(place, others)
            if planned is None:
                continue
            if not dry_run:
                restore(planned)
        except InvalidConfig as fault:
            faults.append(str(fault))
            continue
        restored.append({"client": place.client, "file": str(place.path), "whole": planned.whole})
    if as_json:
        print_json({"dryRun": dry_run, "restored": restored, "faults": faults})
    else:
        _show_undone(restored, faults, dry_run)
    if faults:
        raise SystemExit(1)


def _show_undone(
    restored: Sequence[Mapping[str, Any]], faults: Sequence[str], dry_run: bool
) -> None:
    for one in restored:
        verb = "would be restored" if dry_run else "restored"
        if not one["whole"]:
            verb = "would have its servers back" if dry_run else "has its servers back"
            verb += "; what else was changed in it since is kept"
        click.echo(f"{CLIENTS[one['client']]}: {plain(one['file'])} {verb}")
    _show_faults(faults)
    if not restored and not faults:
        click.echo("There is nothing to undo: no client's file has a copy kept beside it.")
    elif restored and not dry_run:
        note("Restart the clients. toolcrib.json keeps its servers.")


@dataclass(frozen=True, slots=True)
class _Report:
    """What was done, or would be."""

    merger: Merger
    written: Sequence[_Written]
    faults: Sequence[str]
    dry_run: bool

    def document(self) -> dict[str, Any]:
        """As one JSON value."""
        return {
            "config": str(self.merger.path),
            "dryRun": self.dry_run,
            "servers": [
                {
                    "client": one.found.place.client,
                    "file": str(one.found.place.path),
                    "scope": one.found.place.scope,
                    "name": one.found.name,
                    "outcome": one.outcome,
                    "as": one.name or None,
                    "why": one.found.fault or None,
                    "notes": list(one.found.notes),
                }
                for one in self.merger.brought
            ],
            "writtenBack": [
                {
                    "client": planned.place.client,
                    "file": str(planned.place.path),
                    "removed": list(planned.removed),
                    "backup": str(backup) if backup else None,
                }
                for planned, backup in self.written
            ],
            "faults": list(self.faults),
        }

    def show(self, files: int) -> None:
        """For people."""
        brought = self.merger.brought
        titles = [one.found.place.title for one in brought]
        table = Table.of((one.found.name for one in brought), max(map(len, titles), default=0) + 2)
        for title, one in zip(titles, brought, strict=True):
            click.echo(table.row(title, one.found.name, _said(one)))
            for text in one.found.notes:
                click.echo(table.aside(plain(text)))
        _show_faults(self.faults)
        added = sum(one.outcome == "added" for one in brought)
        would = "would be " if self.dry_run else ""
        if not files:
            click.echo("No client's file was found on this machine.")
        elif added:
            click.secho(f"{added} {would}added to {plain(str(self.merger.path))}", bold=True)
        else:
            click.secho("Nothing new to add.", bold=True)
        for planned, backup in self.written:
            count = len(planned.removed)
            text = f"{planned.place.title}: {count} {would}taken out, Toolcrib {would}put in"
            kept = f"; as it was: {backup}" if backup else ""
            click.echo(wrapped(plain(f"{text} ({planned.place.path}{kept})")))
        if self.written and not self.dry_run:
            note("Restart the clients. To go back: toolcrib import --undo")


def _show_faults(faults: Sequence[str]) -> None:
    for fault in faults:
        click.secho(wrapped(plain(fault)), fg="red", err=True)


def _said(one: Brought) -> str:
    if one.outcome == "skipped":
        return f"skipped: {one.found.fault}"
    if one.name == one.found.name:
        return one.outcome
    taken = ", as its name was taken" if one.outcome == "added" else ""
    return f"{one.outcome} as {one.name}{taken}"
