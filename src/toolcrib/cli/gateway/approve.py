"""`toolcrib approve`: list the tools that wait for approval and approve them."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from toolcrib.cli.gateway.launch import config_option
from toolcrib.cli.printing import format_count, json_option, print_json
from toolcrib.config.loader import find_config_path, load_config
from toolcrib.config.settings import GatewayConfig
from toolcrib.config.store_paths import resolve_store_url
from toolcrib.core.tool import SERVER_SEPARATOR
from toolcrib.errors import InvalidStore, UnknownTool
from toolcrib.hub.directory import matches_any
from toolcrib.safety.hidden_text import SafetyFinding, escape_invisible
from toolcrib.safety.pinning import Pin, render_definition_diff
from toolcrib.safety.scan import scan_definition
from toolcrib.storage import open_store
from toolcrib.storage.audit import AuditRow
from toolcrib.storage.store import Store

_MAX_LISTED_NAMES: Final = 12
_COLOURS: Final = {"-": "red", "+": "green"}
_SQLITE_PREFIX: Final = "sqlite:///"


@dataclass(frozen=True, slots=True)
class PendingTool:
    """A tool that waits for approval."""

    server: str
    pin: Pin

    @property
    def id(self) -> str:
        return f"{self.server}{SERVER_SEPARATOR}{self.pin.tool}"

    @property
    def difference(self) -> str:
        return render_definition_diff(self.pin.definition, self.pin.candidate or {})

    @property
    def findings(self) -> tuple[SafetyFinding, ...]:
        return scan_definition(self.pin.candidate or {})

    @property
    def state(self) -> str:
        return "changed" if self.pin.fingerprint else "never trusted"

    def approve(self, store: Store) -> bool:
        """Approve this definition, and return whether it is still the current one."""
        fingerprint = self.pin.candidate_fingerprint
        return bool(store.approve(self.server, self.pin.tool, fingerprint=fingerprint))


@click.command("approve")
@click.argument("names", nargs=-1)
@click.option("--all", "approve_all", is_flag=True, help="Approve all tools that wait for it.")
@click.option("--forget", metavar="SERVER", help="Trust a server again at its next start.")
@config_option
@click.option("--store", "url", metavar="URL", help="Use this store, not the configured one.")
@json_option
def command(
    names: tuple[str, ...],
    approve_all: bool,
    forget: str | None,
    config_file: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """List changed tools and approve them.

    Without NAMES, list the tools that wait for approval with their changes. A name is that of a tool, such as
    github___create_issue, or of a server, which approves all its tools. A running gateway applies
    approvals automatically.
    """
    config = load_used_config(config_file) if url is None or config_file else GatewayConfig()
    with open_existing_store(url or resolve_store_url(config)) as store:
        # Check every name first, so that an unknown name changes nothing.
        pending = [tool for tool in list_pending_tools(store) if tool.server != forget]
        selected = pending if approve_all else _select(pending, names)
        if forget is not None:
            _forget(store, forget)
        approved = [tool for tool in selected if tool.approve(store)]
        _record_changes(store, approved, forget)
    missed = [tool.id for tool in selected if tool not in approved]
    remaining = [tool for tool in pending if tool not in approved]
    if as_json:
        print_json(
            {
                "waiting": [_tool_to_json(tool, config) for tool in remaining],
                "approved": [_tool_to_json(tool, config) for tool in approved],
                "missed": missed,
            }
        )
    else:
        if forget is not None:
            click.echo(f"Forgot {escape_invisible(forget)}. Its tools are trusted again on first use.")
        _print_tools(approved, remaining, config, is_listing=not selected)
    if missed:
        raise UnknownTool(
            f"changed again in the meantime, so not approved: "
            f"{', '.join(map(escape_invisible, missed))}; "
            "run `toolcrib approve` to see the current definitions"
        )


def find_store_url(config_file: str | None) -> str:
    """Return the URL of the configured store."""
    return resolve_store_url(load_used_config(config_file))


def load_used_config(config_file: str | None) -> GatewayConfig:
    """Return the configuration in the file that is used, or the default one without a file."""
    path = find_config_path(config_file)
    return load_config(path) if path is not None else GatewayConfig()


def _list_overridden(tool: PendingTool, config: GatewayConfig) -> list[str]:
    """Return the keys that overrides of this tool set. Pins and differences are of the server's definition."""
    server = config.servers.get(tool.server)
    id = f"{server.id if server else tool.server}{SERVER_SEPARATOR}{tool.pin.tool}"
    matching = (one for one in config.overrides.values() if matches_any(id, [one.pattern]))
    return list(dict.fromkeys(key for override in matching for key in override.changed_fields))


@contextmanager
def open_existing_store(url: str) -> Iterator[Store]:
    """Open a store. A SQLite file that does not exist is an error, because it would be empty."""
    path = Path(url.removeprefix(_SQLITE_PREFIX)).expanduser()
    if url.startswith(_SQLITE_PREFIX) and not path.exists():
        raise InvalidStore(f"{path}: there is no such file; start the gateway once, or name the store that it uses")
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()


def _record_changes(store: Store, approved: Sequence[PendingTool], forget: str | None) -> None:
    """Write the approvals to the audit log before they are acknowledged."""
    now, user = time.time(), getpass.getuser()
    rows = [
        AuditRow(
            "approval",
            at=now,
            user=user,
            client="toolcrib approve",
            server=tool.server,
            tool=tool.id,
            details={"change": "approved", "fingerprint": tool.pin.candidate_fingerprint},
        )
        for tool in approved
    ]
    if forget is not None:
        details = {"change": "forgot the server; its tools are trusted on first use"}
        rows.append(AuditRow("approval", at=now, user=user, client="toolcrib approve", server=forget, details=details))
    if rows:
        store.append_audit(rows, durable=True)


def list_pending_tools(store: Store) -> list[PendingTool]:
    """Return all tools that wait for approval."""
    return [PendingTool(server, pin) for server, pins in store.list_quarantined().items() for pin in pins.values()]


def _select(pending: Sequence[PendingTool], names: Sequence[str]) -> list[PendingTool]:
    selected: dict[str, PendingTool] = {}
    for name in names:
        matches = [tool for tool in pending if name in (tool.id, tool.server)]
        if not matches:
            known = ", ".join(escape_invisible(tool.id) for tool in pending[:_MAX_LISTED_NAMES])
            raise UnknownTool(
                f"no tool or server {escape_invisible(name)!r} waits for approval; "
                + (f"these wait: {known}" if known else "there are none")
            )
        selected.update((tool.id, tool) for tool in matches)
    return list(selected.values())


def _forget(store: Store, server: str) -> None:
    if not store.get_pins(server) and store.get_manifest(server) is None:
        known = sorted({*store.list_manifests(), *store.list_quarantined()})
        names = ", ".join(escape_invisible(name) for name in known[:_MAX_LISTED_NAMES])
        raise UnknownTool(
            f"the store has no server {escape_invisible(server)!r}; "
            + (f"it has {names}" if names else "it has no servers")
        )
    store.forget_server(server)


def _tool_to_json(tool: PendingTool, config: GatewayConfig) -> dict[str, Any]:
    return {
        "id": tool.id,
        "server": tool.server,
        "tool": tool.pin.tool,
        "state": tool.state,
        "fingerprint": tool.pin.candidate_fingerprint,
        "difference": tool.difference,
        "overridden": _list_overridden(tool, config),
        "findings": [
            {"kind": finding.category, "where": finding.location, "text": finding.message, "severity": finding.severity}
            for finding in tool.findings
        ],
    }


def _print_tools(
    approved: Sequence[PendingTool], remaining: Sequence[PendingTool], config: GatewayConfig, *, is_listing: bool
) -> None:
    for tool in remaining if is_listing else approved:
        _print_tool(tool)
        if keys := _list_overridden(tool, config):
            click.echo(f"  overridden in toolcrib.json, so models see your own: {', '.join(keys)}")
    if approved:
        click.secho(f"{format_count(len(approved), 'tool')} approved.", bold=True)
    if remaining:
        click.secho(f"{format_count(len(remaining), 'tool waits', 'tools wait')} for approval.", bold=True)
        if is_listing:
            click.echo(f"Approve one with: toolcrib approve {escape_invisible(remaining[0].id)}")
    elif is_listing:
        click.echo("No tools wait for approval.")


def _print_tool(tool: PendingTool) -> None:
    click.echo(f"{click.style(escape_invisible(tool.id), fg='cyan', bold=True)}  {tool.state}")
    for finding in tool.findings:
        colour = "red" if finding.severity == "high" else "yellow"
        click.secho(f"  ! {finding.location}: {finding.message}", fg=colour)
    for line in tool.difference.split("\n"):
        click.secho(f"  {line}", fg=_COLOURS.get(line.strip()[:1]) if line[:1] == " " else None)
