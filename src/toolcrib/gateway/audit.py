"""The audit log of a running gateway.

Rows of requests are appended to a journal before the response is sent, and written to the store in batches
by a background task. Rows of changes, such as an approval, are written before the change is acknowledged.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import IO, Any, Final

import anyio

from toolcrib.config.settings import AuditConfig, GatewayConfig
from toolcrib.errors import ToolcribError
from toolcrib.gateway.logs import REDACTED, Redactor, is_secret_name
from toolcrib.gateway.secrets import collect_config_secrets
from toolcrib.hub.hub import Hub
from toolcrib.storage.audit import AuditRow
from toolcrib.storage.journal import JournalMark
from toolcrib.storage.time_series import SeriesCounter

FLUSH_SECONDS: Final = 1.0
# While the store cannot be written, older rows than these are lost.
MAX_UNWRITTEN_ROWS: Final = 50_000
# The number of rows in one transaction, limited so that other writers do not wait long.
MAX_BATCH_ROWS: Final = 1_000
# Longer texts of details, such as a query or an argument, are cut.
MAX_TEXT_CHARS: Final = 2_000
# Lists and objects in details are cut to this number of items, and to this depth.
MAX_DETAIL_ITEMS: Final = 100
MAX_DETAIL_DEPTH: Final = 8
PRUNE_ROWS: Final = 2_000
PRUNE_SECONDS: Final = 600.0
STANDARD_OUTPUT: Final = "-"
_NOTICE: Final = "audit"
_log = logging.getLogger(__name__)

CompleteRow = Callable[[AuditRow], AuditRow]
_BufferedRow = tuple[AuditRow, CompleteRow | None]


class AuditLog:
    """Records what clients and operators do, in the store and optionally in a file. Thread-safe."""

    def __init__(self, hub: Hub, *, standard_output: IO[str] | None = None) -> None:
        self._hub = hub
        self._standard_output = standard_output or sys.stdout
        self._rows: deque[_BufferedRow] = deque()
        self._journal = hub.store.open_journal("audit")
        self._lost_rows = 0
        self._reported_error = ""
        self._lock = Lock()
        # Held while rows are written, so that their order is the order in which they were recorded.
        self._write_lock = Lock()
        self._series = SeriesCounter()
        self._redactor: tuple[GatewayConfig, Redactor] | None = None
        self._rows_since_prune = PRUNE_ROWS
        self._next_prune = 0.0
        self._written = anyio.Event()
        # Called before each flush; they may record more rows.
        self.before_flush: list[Callable[[], None]] = []

    @property
    def settings(self) -> AuditConfig:
        """The current settings."""
        return self._hub.config.audit

    def records_content(self, profile: str | None) -> bool:
        """Return whether the arguments and results of a profile's calls are recorded."""
        found = self._hub.profiles.get(profile or "")
        own = found.record_content if found else None
        return self.settings.record_content if own is None else own

    def record_request(self, row: AuditRow, complete: CompleteRow | None = None) -> None:
        """Record a search, a call or another request, unless `audit.enabled` is false."""
        if self.settings.enabled:
            self.record(row, complete)

    def record(self, row: AuditRow, complete: CompleteRow | None = None) -> None:
        """Buffer a row; the background task writes it. A row that was recorded survives a kill of this process.

        `complete` adds what takes long to compute, before the row is written.
        """
        clean = self._clean(row if row.at else replace(row, at=time.time()))
        with self._lock:
            self._journal.append(clean.to_json())
            self._rows.append((clean, complete))
            if len(self._rows) > MAX_UNWRITTEN_ROWS:
                self._rows.popleft()
                self._lost_rows += 1

    def record_change(self, row: AuditRow) -> None:
        """Write a row immediately. It survives a crash of the machine. It may wait for the disk."""
        clean = self._clean(row if row.at else replace(row, at=time.time()))
        with self._write_lock:
            self._hub.store.append_audit([clean], durable=True)
            self._export([clean])

    def flush(self) -> None:
        """Write all buffered rows. It may wait for the disk."""
        errors: list[ToolcribError] = []
        for prepare in self.before_flush:
            try:
                prepare()
            except ToolcribError as error:
                errors.append(error)
        with self._write_lock:
            self._hub.store.recover_lines(self._journal, self._write_lines)
            with self._lock:
                rows, self._rows = list(self._rows), deque()
                taken = self._journal.take()
            for start in range(0, len(rows), MAX_BATCH_ROWS):
                batch = [complete(row) if complete else row for row, complete in rows[start : start + MAX_BATCH_ROWS]]
                remaining = len(rows) - start - len(batch)
                mark = taken._replace(position=taken.position - remaining) if taken else None
                try:
                    self._write_batch(batch, mark)
                except ToolcribError:
                    self._keep_for_retry(rows[start:])
                    raise
                self._journal.finish(mark)
            self._prune()
        if errors:
            raise errors[0]

    def _write_batch(self, batch: Sequence[AuditRow], mark: JournalMark | None) -> None:
        for row in batch:
            self._series.add_row(row)
        self._hub.store.append_audit(batch, series=self._series.take_amounts(), mark=mark)
        self._rows_since_prune += len(batch)
        self._report_lost_rows()
        self._export(batch)

    def _write_lines(self, lines: Sequence[Any], mark: JournalMark) -> None:
        """Write the rows that a process had recorded when it was killed."""
        self._write_batch([AuditRow(**line) for line in lines], mark)

    async def run(self) -> None:
        """Write buffered rows regularly until cancelled; then write the rest."""
        try:
            while True:
                await anyio.sleep(FLUSH_SECONDS)
                await self._flush_in_thread()
        finally:
            with anyio.CancelScope(shield=True):
                await self._flush_in_thread()

    async def wait_for_rows(self, timeout_seconds: float) -> None:
        """Wait until rows were written, at most for a time."""
        with anyio.move_on_after(timeout_seconds):
            await self._written.wait()

    async def _flush_in_thread(self) -> None:
        try:
            await anyio.to_thread.run_sync(self.flush)
            self._reported_error = ""
        except ToolcribError as error:
            # The next attempt follows within a second and probably fails for the same reason.
            if str(error) != self._reported_error:
                _log.warning("%s", error)
            self._reported_error = str(error)
        self._written.set()
        self._written = anyio.Event()

    def _keep_for_retry(self, rows: list[_BufferedRow]) -> None:
        """Put rows that could not be written back at the front of the buffer."""
        with self._lock:
            self._rows.extendleft(reversed(rows))
            while len(self._rows) > MAX_UNWRITTEN_ROWS:
                self._rows.popleft()
                self._lost_rows += 1
        self._hub.notices[_NOTICE] = "the audit log cannot be written; see the log of the gateway"

    def _report_lost_rows(self) -> None:
        previous = self._hub.notices.pop(_NOTICE, None)
        if self._lost_rows:
            notice = f"{self._lost_rows:,} audit rows are lost: the store could not be written"
            self._hub.notices[_NOTICE] = notice
            if notice != previous:
                _log.error("%s", notice)

    def _export(self, rows: Sequence[AuditRow]) -> None:
        """Append rows to the configured file as lines of JSON.

        The file is opened for each batch, so that it can be rotated. Exported rows have no id.
        """
        target = self.settings.export
        if not target:
            return
        lines = "".join(f"{json.dumps(row.to_json())}\n" for row in rows)
        try:
            if target == STANDARD_OUTPUT:
                self._standard_output.write(lines)
                self._standard_output.flush()
            else:
                with resolve_export_path(self._hub.config).open("a", encoding="utf-8") as file:
                    file.write(lines)
        except (OSError, ValueError) as error:
            self._hub.notices[_NOTICE] = f"audit.export: {target!r} cannot be written ({error})"
            _log.warning("%s", self._hub.notices[_NOTICE])

    def _prune(self) -> None:
        if self._rows_since_prune < PRUNE_ROWS and time.monotonic() < self._next_prune:
            return
        self._rows_since_prune = 0
        self._next_prune = time.monotonic() + PRUNE_SECONDS
        settings = self.settings
        now = time.time()
        self._hub.store.prune_audit(now - settings.retention_days * 86_400, settings.max_rows)
        self._hub.store.prune_series(now)

    def _clean(self, row: AuditRow) -> AuditRow:
        """Return a row without secrets and with bounded details."""
        if not row.details:
            return row
        config = self._hub.config
        if self._redactor is None or self._redactor[0] is not config:
            self._redactor = (config, Redactor(collect_config_secrets(config)))
        return replace(row, details=redact_value(dict(row.details), self._redactor[1]))


def resolve_export_path(config: GatewayConfig) -> Path:
    """Return the export file; a relative path is relative to the configuration file."""
    path = Path(config.audit.export).expanduser()
    return config.path.resolve().parent / path if config.path else path


def redact_value(value: Any, redact: Redactor, depth: int = 0) -> Any:
    """Return a JSON value without secrets, with long texts and lists cut."""
    if isinstance(value, str):
        # Redacted before it is cut, because half a secret would not be recognized.
        text = redact(value[: 4 * MAX_TEXT_CHARS])
        return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}…"
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth >= MAX_DETAIL_DEPTH:
        return "…"
    if isinstance(value, Mapping):
        items = list(value.items())[:MAX_DETAIL_ITEMS]
        return {
            str(name)[:MAX_TEXT_CHARS]: REDACTED if is_secret_name(str(name)) else redact_value(item, redact, depth + 1)
            for name, item in items
        }
    if isinstance(value, list | tuple):
        return [redact_value(item, redact, depth + 1) for item in value[:MAX_DETAIL_ITEMS]]
    return str(value)[:MAX_TEXT_CHARS]
