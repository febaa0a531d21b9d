"""`toolcrib import`: import the servers of MCP clients into the configuration."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from toolcrib.cli.gateway.launch import config_option
from toolcrib.cli.printing import ToolTable, json_option, print_json, print_note, sanitize, wrap
from toolcrib.config.clients import write_back
from toolcrib.config.clients.file_writes import check_writable, replace_file
from toolcrib.config.clients.importing import (
    ImportedServer,
    ImportPlan,
    discover_servers,
    list_claude_code_projects,
    plan_import,
)
from toolcrib.config.clients.locations import CLIENTS, KIRO_POWERS_SECTION, ClientFile, HostSystem, list_client_files
from toolcrib.config.loader import find_config_path, user_config_path
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import JsonPath


@dataclass(frozen=True, slots=True, kw_only=True)
class _ImportOptions:
    clients: tuple[str, ...]
    config_file: str | None
    all_projects: bool
    write_back: bool
    undo: bool
    dry_run: bool
    as_json: bool

    def __post_init__(self) -> None:
        if self.undo and (self.write_back or self.all_projects):
            raise click.UsageError("--undo can only be used with --from, --dry-run and --json.")


@click.command("import")
@click.option(
    "--from",
    "clients",
    type=click.Choice(list(CLIENTS)),
    multiple=True,
    help="Import only from this client; may be repeated.",
)
@config_option
@click.option("--all-projects", is_flag=True, help="Import from all project folders of Claude Code.")
@click.option(
    "--write-back", is_flag=True, help="Replace the servers in the clients' files by Toolcrib, and keep backups."
)
@click.option("--undo", is_flag=True, help="Restore the servers in the clients' files.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; write nothing.")
@json_option
def command(**options: Any) -> None:
    """Import the servers of your MCP clients into toolcrib.json.

    Reads the files of Claude Desktop, Claude Code, Cursor, VS Code, Windsurf, Codex, Gemini CLI,
    opencode, Zed, Cline, Continue, LM Studio, Goose, JetBrains and Kiro, for your user and for this
    folder. With --write-back, each client then has Toolcrib as its only server; --undo restores the
    others.
    """
    request = _ImportOptions(**options)
    system = HostSystem.detect()
    if request.undo:
        _undo(system, request)
        return
    path = (find_config_path(request.config_file) or user_config_path(os.environ)).absolute()
    discovery = discover_servers(system, request.clients, request.all_projects)
    plan = plan_import(path, discovery.servers, system.environment)
    report = _ImportReport(plan, request.dry_run, errors=list(discovery.errors))
    rewrites: list[write_back.RewritePlan] = []
    if request.write_back:
        rewrites = _plan_rewrites(system, plan, report.errors)
        planned = {rewrite.source.path for rewrite in rewrites}
        sources = {item.server.source.path: item.server.source for item in plan.servers if item.outcome != "skipped"}
        report.unchanged.extend(
            file for path, file in sources.items() if path not in planned and file.scope == "project"
        )
    _write_config(plan, request.dry_run)
    report.apply_rewrites(rewrites)
    if request.as_json:
        print_json(report.to_json())
    else:
        report.print(has_files=bool(discovery.files))
    if report.errors:
        raise SystemExit(1)


def _build_gateway_command(config: Path) -> list[str]:
    """Return the command for a client, with full paths: clients often have a short PATH."""
    program = shutil.which("toolcrib")
    start = [program] if program else [sys.executable, "-m", "toolcrib"]
    return [*start, "stdio", "--config", str(config)]


def _plan_rewrites(system: HostSystem, plan: ImportPlan, errors: list[str]) -> list[write_back.RewritePlan]:
    """Return a plan for each client's file; append an error for each that cannot be rewritten."""
    imported: dict[Path, dict[JsonPath, list[str]]] = {}
    for item in plan.servers:
        if item.outcome != "skipped":
            source = item.server.source
            sections = imported.setdefault(source.path, {})
            sections.setdefault(source.section, []).append(item.server.name)
    rewrites: list[write_back.RewritePlan] = []
    for file in _list_main_files(system):
        if file.path in imported and file.scope == "user":
            try:
                gateway_command = _build_gateway_command(plan.path)
                rewrites.append(write_back.plan_rewrite(file, imported[file.path], gateway_command))
            except InvalidConfig as error:
                errors.append(str(error))
    return rewrites


def _list_main_files(system: HostSystem) -> list[ClientFile]:
    """Return one entry per file: its user section, if the file has several sections."""
    files: dict[Path, ClientFile] = {}
    for file in list_client_files(system):
        files.setdefault(file.path, file)
    return list(files.values())


def _write_config(plan: ImportPlan, dry_run: bool) -> None:
    """Write toolcrib.json; a dry run only raises the errors of a write.

    This happens before the clients' files are rewritten, so that no server is lost.
    """
    if plan.after == plan.before or not any(item.outcome == "added" for item in plan.servers):
        return
    if dry_run:
        check_writable(plan.path, plan.before)
    else:
        replace_file(plan.path, plan.after, plan.before)


def _undo(system: HostSystem, request: _ImportOptions) -> None:
    restored: list[dict[str, Any]] = []
    errors: list[str] = []
    for file in _list_main_files(system):
        if request.clients and file.client not in request.clients:
            continue
        sections: list[JsonPath] = [KIRO_POWERS_SECTION] if file.client == "kiro" else []
        if file.client == "claude-code" and file.scope == "user":
            folders = list_claude_code_projects(file.path)
            sections = [("projects", folder, *file.section) for folder in folders]
        try:
            plan = write_back.plan_restore(file, sections)
            if plan is None:
                continue
            if not request.dry_run:
                write_back.apply_restore(plan)
        except InvalidConfig as error:
            errors.append(str(error))
            continue
        restored.append({"client": file.client, "file": str(file.path), "whole": plan.is_exact})
    if request.as_json:
        print_json({"dryRun": request.dry_run, "restored": restored, "faults": errors})
    else:
        _print_restored(restored, errors, request.dry_run)
    if errors:
        raise SystemExit(1)


def _print_restored(restored: Sequence[Mapping[str, Any]], errors: Sequence[str], dry_run: bool) -> None:
    verb = "would be restored" if dry_run else "restored"
    for item in restored:
        note = "" if item["whole"] else "; other changes since then are kept"
        click.echo(f"{CLIENTS[item['client']]}: {sanitize(item['file'])} {verb}{note}")
    _print_errors(errors)
    if not restored and not errors:
        click.echo("Nothing to undo: there are no backups of clients' files.")
    elif restored and not dry_run:
        print_note("Restart the clients. The servers also stay in toolcrib.json.")


@dataclass(frozen=True, slots=True)
class _ImportReport:
    """What was imported, or would be imported in a dry run."""

    plan: ImportPlan
    dry_run: bool
    errors: list[str]
    # The rewritten files of clients, with the path of the backup except in a dry run.
    rewritten: list[tuple[write_back.RewritePlan, Path | None]] = field(default_factory=list)
    # Files in projects, which others may use too.
    unchanged: list[ClientFile] = field(default_factory=list)

    def apply_rewrites(self, rewrites: Sequence[write_back.RewritePlan]) -> None:
        """Rewrite the clients' files; a dry run only checks whether it is possible."""
        for rewrite in rewrites:
            try:
                if self.dry_run:
                    write_back.check_rewrite(rewrite)
                self.rewritten.append((rewrite, None if self.dry_run else write_back.apply_rewrite(rewrite)))
            except InvalidConfig as error:
                self.errors.append(str(error))

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
        return {
            "config": str(self.plan.path),
            "dryRun": self.dry_run,
            "servers": [
                {
                    "client": item.server.source.client,
                    "file": str(item.server.source.path),
                    "scope": item.server.source.scope,
                    "name": item.server.name,
                    "outcome": item.outcome,
                    "as": item.name or None,
                    "why": item.server.error or None,
                    "notes": list(item.server.notes),
                }
                for item in self.plan.servers
            ],
            "writtenBack": [
                {
                    "client": rewrite.source.client,
                    "file": str(rewrite.source.path),
                    "removed": list(rewrite.removed),
                    "backup": str(backup) if backup else None,
                }
                for rewrite, backup in self.rewritten
            ],
            "faults": list(self.errors),
        }

    def print(self, *, has_files: bool) -> None:
        """Print the report as a table."""
        items = self.plan.servers
        titles = [item.server.source.title for item in items]
        lead_columns = max(map(len, titles), default=0) + 2
        table = ToolTable.for_ids((item.server.name for item in items), lead_columns)
        for title, item in zip(titles, items, strict=True):
            click.echo(table.format_row(title, item.server.name, _describe_outcome(item)))
            for text in item.server.notes:
                click.echo(table.format_detail(sanitize(text)))
        _print_errors(self.errors)
        added = sum(item.outcome == "added" for item in items)
        would = "would be " if self.dry_run else ""
        if not has_files:
            click.echo("No files of MCP clients were found. To add a server, run: toolcrib add --help")
        elif added:
            click.secho(f"{added} {would}added to {sanitize(str(self.plan.path))}", bold=True)
        else:
            click.secho("No new servers.", bold=True)
        for rewrite, backup in self.rewritten:
            text = f"{rewrite.source.title}: {len(rewrite.removed)} {would}replaced by Toolcrib"
            note = f"; backup: {backup}" if backup else ""
            click.echo(wrap(sanitize(f"{text} ({rewrite.source.path}{note})")))
        for file in self.unchanged:
            click.echo(wrap(sanitize(f"{file.title}: {file.path} belongs to a project and is not rewritten")))
        if self.rewritten and not self.dry_run:
            print_note("Restart the clients. To undo this, run: toolcrib import --undo")


def _print_errors(errors: Sequence[str]) -> None:
    for error in errors:
        click.secho(wrap(sanitize(error)), fg="red", err=True)


def _describe_outcome(item: ImportedServer) -> str:
    if item.outcome == "skipped":
        return f"skipped: {item.server.error}"
    if item.name == item.server.name:
        return item.outcome
    reason = ", because the name is already used" if item.outcome == "added" else ""
    return f"{item.outcome} as {item.name}{reason}"
