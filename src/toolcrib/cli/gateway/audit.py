"""`toolcrib audit`: print the audit log."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, get_args

import click

from toolcrib.cli.gateway.approve import find_store_url, open_existing_store
from toolcrib.cli.gateway.launch import config_option
from toolcrib.cli.printing import print_note, sanitize
from toolcrib.storage.audit import AuditAction, AuditFilter, AuditOutcome, AuditRow
from toolcrib.storage.store import Store

DEFAULT_ROWS: Final = 50
_BATCH_ROWS: Final = 1_000
_DURATION: Final = re.compile(r"(\d{1,9})\s*([smhdw])")
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_COLOURS: Final = {"ok": "green", "error": "red", "refused": "yellow"}


def _parse_time(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """Return a duration before now, such as `2h`, or a date, such as `2026-11-17T08:00`, as a time."""
    if value is None:
        return None
    if match := _DURATION.fullmatch(value.strip()):
        return time.time() - int(match[1]) * _UNIT_SECONDS[match[2]]
    try:
        # Without an offset, it is the time of this machine.
        return datetime.fromisoformat(value.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        message = f"{value!r:.60} is not a time; use 30m, 2h, 7d, 2026-11-17 or 2026-11-17T08:00"
        raise click.BadParameter(message) from None


@click.command("audit")
@click.option(
    "--since", callback=_parse_time, metavar="TIME", help="From this time on: 30m, 2h, 7d or 2026-11-17T08:00."
)
@click.option("--until", callback=_parse_time, metavar="TIME", help="Before this time.")
@click.option("--action", type=click.Choice(get_args(AuditAction)), help="Only this action.")
@click.option("--outcome", type=click.Choice(get_args(AuditOutcome)), help="Only this outcome.")
@click.option("--where", "fields", multiple=True, metavar="FIELD=TEXT", help="Only rows with this text; see above.")
@click.option("--limit", type=click.IntRange(0), metavar="N", help="Only the newest N rows.  [default: 50; JSON: all]")
@config_option
@click.option("--store", "url", metavar="URL", help="Use this store, not the configured one.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row, the oldest first.")
def command(
    fields: tuple[str, ...], limit: int | None, config_file: str | None, url: str | None, as_json: bool, **options: Any
) -> None:
    """Print the audit log: who searched, called and changed what.

    The fields for --where are key, client, session, server and tool. The gateway can keep running.
    """
    # The time, the action and the outcome.
    selected = {name: value for name, value in options.items() if value is not None}
    where = AuditFilter(**selected, **_parse_fields(fields))
    with open_existing_store(url or find_store_url(config_file)) as store:
        newest = limit if limit is not None else None if as_json else DEFAULT_ROWS
        count = 0
        for row in _iter_rows(store, where, newest):
            count += 1
            click.echo(json.dumps(row.to_json()) if as_json else _format_row(row))
    if not count and not as_json:
        print_note("There are no rows. Searches and calls appear within a second.")


def _parse_fields(fields: tuple[str, ...]) -> dict[str, Any]:
    known = ("key", "client", "session", "server", "tool")
    parsed = {}
    for field in fields:
        name, separator, text = field.partition("=")
        if not separator or name not in known:
            raise click.BadParameter(f"{field!r:.60}: use one of {', '.join(known)}, such as server=github")
        parsed[name] = text
    return parsed


def _iter_rows(store: Store, where: AuditFilter, newest: int | None) -> Iterator[AuditRow]:
    """Yield the rows, the oldest first; `newest` limits them to the last ones."""
    if newest is not None:
        yield from reversed(store.list_audit(where, newest))
        return
    after = 0
    while rows := store.list_audit(replace(where, after=after), _BATCH_ROWS):
        yield from rows
        after = rows[-1].id


def _format_row(row: AuditRow) -> str:
    at = datetime.fromtimestamp(row.at).strftime("%Y-%m-%d %H:%M:%S")
    who = " ".join(filter(None, (row.key or row.user, row.client)))
    what = row.tool or row.server
    note = row.details.get("query") or row.details.get("error") or row.details.get("change") or ""
    duration = f"{row.seconds * 1_000:,.0f} ms" if row.seconds else ""
    outcome = click.style(row.outcome.ljust(7), fg=_COLOURS.get(row.outcome))
    texts = (sanitize(str(text)) for text in (who, what, duration, note))
    return f"{at}  {row.action:8}  {outcome}  {'  '.join(filter(None, texts))}".rstrip()
