"""`toolcrib approve`: see what has changed, and trust it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from toolcrib.cli.options import config_option, json_option
from toolcrib.cli.printing import format_count, print_json
from toolcrib.cli.store import find_store_url, open_existing_store, store_option
from toolcrib.core.tool import SERVER_SEPARATOR
from toolcrib.errors import UnknownTool
from toolcrib.safety.definition_diff import render_definition_diff
from toolcrib.safety.finding import SafetyFinding
from toolcrib.safety.hidden_text import escape_invisible
from toolcrib.safety.pinning import Pin
from toolcrib.safety.scan import scan_definition
from toolcrib.storage.store import Store

_MAX_NAMED = 12
_COLOURS = {"-": "red", "+": "green"}


@dataclass(frozen=True, slots=True)
class _PendingTool:
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


@click.command("approve")
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Trust everything that waits.")
@click.option("--forget", metavar="SERVER", help="Trust a server anew on its next start.")
@config_option
@store_option
@json_option
def command(
    names: tuple[str, ...],
    everything: bool,
    forget: str | None,
    config_file: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """See what has changed in tools, and trust it.

    Without NAMES it lists the tools that are held back, with what is new in them. A name is that of
    a tool, such as github___create_issue, or of a server, whose tools are then all trusted. A
    gateway that is running takes notice by itself.
    """
    with open_existing_store(url or find_store_url(config_file)) as store:
        # Every name is looked at before anything is done, so that nothing is half done.
        waiting = [one for one in _list_pending(store) if one.server != forget]
        chosen = waiting if everything else _select(waiting, names)
        if forget is not None:
            _forget(store, forget)
        approved = [one for one in chosen if _approve(store, one)]
    missed = [one.id for one in chosen if one not in approved]
    rest = [one for one in waiting if one not in approved]
    if as_json:
        print_json(
            {
                "waiting": [_tool_to_json(one) for one in rest],
                "approved": [_tool_to_json(one) for one in approved],
                "missed": missed,
            }
        )
    else:
        _print(approved, rest, is_listing=not chosen, forgotten=forget)
    if missed:
        raise UnknownTool(
            f"changed again while you looked, so not approved: {', '.join(map(escape_invisible, missed))}; "
            "look at what waits now with toolcrib approve"
        )


def _list_pending(store: Store) -> list[_PendingTool]:
    return [
        _PendingTool(server, pin)
        for server, pins in store.list_quarantined().items()
        for pin in pins.values()
    ]


def _select(waiting: Sequence[_PendingTool], names: Sequence[str]) -> list[_PendingTool]:
    chosen: dict[str, _PendingTool] = {}
    for name in names:
        found = [one for one in waiting if name in (one.id, one.server)]
        if not found:
            known = ", ".join(escape_invisible(one.id) for one in waiting[:_MAX_NAMED])
            raise UnknownTool(
                f"no tool or server {escape_invisible(name)!r} waits for approval; "
                + (f"what waits: {known}" if known else "nothing does")
            )
        chosen.update((one.id, one) for one in found)
    return list(chosen.values())


def _forget(store: Store, server: str) -> None:
    if not store.get_pins(server) and store.get_manifest(server) is None:
        known = sorted({*store.list_manifests(), *store.list_quarantined()})
        names = ", ".join(escape_invisible(name) for name in known[:_MAX_NAMED])
        raise UnknownTool(
            f"nothing is kept of a server {escape_invisible(server)!r}; "
            + (f"something is of {names}" if names else "nothing is of any")
        )
    store.forget_server(server)


def _approve(store: Store, one: _PendingTool) -> bool:
    """Trust what was read, not what may have taken its place since."""
    seen = one.pin.candidate_fingerprint
    return bool(store.approve(one.server, one.pin.tool, fingerprint=seen))


def _tool_to_json(one: _PendingTool) -> dict[str, Any]:
    return {
        "id": one.id,
        "server": one.server,
        "tool": one.pin.tool,
        "state": one.state,
        "fingerprint": one.pin.candidate_fingerprint,
        "difference": one.difference,
        "findings": [
            {
                "kind": found.category,
                "where": found.location,
                "text": found.message,
                "severity": found.severity,
            }
            for found in one.findings
        ],
    }


def _print(
    approved: Sequence[_PendingTool],
    rest: Sequence[_PendingTool],
    *,
    is_listing: bool,
    forgotten: str | None,
) -> None:
    if forgotten is not None:
        click.echo(
            f"Forgotten: {escape_invisible(forgotten)}. Its tools are trusted anew on first use."
        )
    for one in rest if is_listing else approved:
        _print_tool(one)
    if approved:
        click.secho(f"{format_count(len(approved), 'tool')} trusted.", bold=True)
    if rest:
        verb = "waits" if len(rest) == 1 else "wait"
        click.secho(f"{format_count(len(rest), 'tool')} {verb} for approval.", bold=True)
        if is_listing:
            click.echo(f"Trust one with: toolcrib approve {escape_invisible(rest[0].id)}")
    elif is_listing:
        click.echo("Nothing waits for approval.")


def _print_tool(one: _PendingTool) -> None:
    click.echo(f"{click.style(escape_invisible(one.id), fg='cyan', bold=True)}  {one.state}")
    for found in one.findings:
        colour = "red" if found.severity == "high" else "yellow"
        click.secho(f"  ! {found.location}: {found.message}", fg=colour)
    for line in one.difference.split("\n"):
        click.secho(f"  {line}", fg=_COLOURS.get(line.strip()[:1]) if line[:1] == " " else None)
