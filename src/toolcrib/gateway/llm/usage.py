"""Token usage of LLM requests: read it from responses, add it up per day, key and model, and limit it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import add
from threading import Lock
from typing import Any, Final, NamedTuple

from toolcrib.adapters.plain_json import dict_or_empty
from toolcrib.config.settings import ApiKey
from toolcrib.errors import InvalidStore, RequestFailed
from toolcrib.gateway.llm.json_body import parse_upstream_body
from toolcrib.storage.journal import JournalMark
from toolcrib.storage.llm_usage import KeyTotals, LlmUsage, sum_by_key
from toolcrib.storage.store import Store

MAX_NAME_CHARS: Final = 200
# Rows that are not written yet; further names of models count as one.
MAX_UNWRITTEN_ROWS: Final = 10_000
MAX_TOKENS_PER_REQUEST: Final = 10**12
# How often to read what other processes have written.
READ_SECONDS: Final = 5.0

_OTHER: Final = "other"
_CHARS_PER_TOKEN: Final = 4
_DAY_SECONDS: Final = 86_400
# A usage that is null is not worth parsing an event for.
_USAGE: Final = re.compile(rb'"usage(?:Metadata)?"\s*:\s*\{')
_USAGE_FIELD: Final = b'"usage'
_DATA: Final = b"data:"
_log = logging.getLogger(__name__)


class TokenCounts(NamedTuple):
    """The tokens of a request. `input` includes `cached`."""

    input: int = 0
    output: int = 0
    cached: int = 0


def parse_usage(report: object) -> TokenCounts:
    """Return the tokens of a usage report of any API."""
    usage = dict_or_empty(report)
    if not usage:
        return TokenCounts()
    if "promptTokenCount" in usage:
        output = _count(usage, "candidatesTokenCount") + _count(usage, "thoughtsTokenCount")
        return TokenCounts(_count(usage, "promptTokenCount"), output, _count(usage, "cachedContentTokenCount"))
    if "prompt_tokens" in usage:
        details = dict_or_empty(usage.get("prompt_tokens_details"))
        return TokenCounts(
            _count(usage, "prompt_tokens"), _count(usage, "completion_tokens"), _count(details, "cached_tokens")
        )
    # Anthropic counts tokens that the cache has read or stored separately, OpenAI does not.
    cached = _count(usage, "cache_read_input_tokens")
    total = _count(usage, "input_tokens") + cached + _count(usage, "cache_creation_input_tokens")
    details = dict_or_empty(usage.get("input_tokens_details"))
    return TokenCounts(total, _count(usage, "output_tokens"), cached or _count(details, "cached_tokens"))


def _count(usage: dict[str, Any], name: str) -> int:
    value = usage.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return max(0, min(value, MAX_TOKENS_PER_REQUEST))


class UsageReader:
    """Reads the usage from the pieces of a response that is forwarded."""

    def __init__(self) -> None:
        self._report: dict[str, Any] = {}
        self._events = 0

    def read_body(self, body: bytes) -> None:
        """Read the usage of a whole response."""
        if _USAGE.search(body):
            self._add(body)

    def read_events(self, events: bytes) -> None:
        """Read the usage of some complete events of a stream."""
        self._events += events.count(_DATA)
        # A search for a text is several times faster than one for a pattern.
        if events.find(_USAGE_FIELD) >= 0 and _USAGE.search(events):
            for line in events.splitlines():
                if line.startswith(_DATA) and _USAGE.search(line):
                    self._add(line[len(_DATA) :])

    def count_tokens(self, request_bytes: int) -> TokenCounts:
        """Return the reported tokens. A stream without a report is estimated, with a token per event."""
        if self._report or not self._events:
            return parse_usage(self._report)
        return TokenCounts(request_bytes // _CHARS_PER_TOKEN, self._events)

    def _add(self, data: bytes) -> None:
        try:
            body = parse_upstream_body(data.strip())
        except RequestFailed:
            return
        for part in (body.get("message"), body.get("response"), body):
            if isinstance(part, dict) and (report := dict_or_empty(part.get("usage") or part.get("usageMetadata"))):
                self._report |= {name: value for name, value in report.items() if value is not None}


class BudgetExceeded(RequestFailed):
    """A key has used its budget for today, or an access profile its searches of a minute."""

    def __init__(self, message: str, retry_after_seconds: int, *, should_retry: bool = False) -> None:
        super().__init__(message, 429, code="quota_exceeded" if should_retry else "budget_exceeded")
        self.retry_after_seconds = retry_after_seconds
        # Whether a client should wait and retry without asking a person.
        self.should_retry = should_retry


class UsageMeter:
    """Adds up the usage, writes it to a store on `flush`, and checks the budgets of keys. Thread-safe."""

    def __init__(self, store: Store | None = None, on_record: Callable[[LlmUsage], None] | None = None) -> None:
        self._store = store
        self._on_record = on_record
        self._journal = store.open_journal("llm") if store is not None else None
        self._lock = Lock()
        self._unwritten: dict[tuple[str, str, str], LlmUsage] = {}
        self._today = get_today()
        self._stored_totals: dict[str, KeyTotals] = {}
        self._next_read = 0.0
        self._read_totals()

    def record(self, key: str, model: str, counts: TokenCounts, saved_tokens: int = 0) -> None:
        """Add a request."""
        usage = LlmUsage(get_today(), _clean(key), _clean(model), 1, *counts, max(0, saved_tokens))
        with self._lock:
            if self._journal is not None:
                self._journal.append(astuple(usage))
            self._add(usage)
        if self._on_record is not None:
            self._on_record(usage)

    def check_budget(self, name: str, key: ApiKey) -> None:
        """Raise `BudgetExceeded` if the key of a client has used the requests or tokens of a day."""
        if key.requests_per_day is None and key.tokens_per_day is None:
            return
        now = datetime.now(UTC)
        totals = self._get_totals(_clean(name))
        for used, budget, what in (
            (totals.requests, key.requests_per_day, "requests"),
            (totals.tokens, key.tokens_per_day, "tokens"),
        ):
            if budget is not None and used >= budget:
                midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
                seconds = int((midnight - now).total_seconds()) + 1
                raise BudgetExceeded(
                    f"the key {name!r} has used {used:,} of its {budget:,} {what} for today; its budget is "
                    f"renewed at 00:00 UTC, in {seconds // 3600} h {seconds % 3600 // 60} min",
                    seconds,
                )

    def flush(self) -> None:
        """Write the usage to the store, and read what other processes have written."""
        if self._store is None or self._journal is None:
            return
        with self._lock:
            rows, self._unwritten = list(self._unwritten.values()), {}
            mark = self._journal.take()
        try:
            self._store.recover_lines(self._journal, self._write_lines)
            if rows:
                self._store.add_llm_usage(rows, mark)
                self._journal.finish(mark)
                rows = []
            elif time.monotonic() < self._next_read:
                return
            self._read_totals()
        except InvalidStore as error:
            _log.warning("the token usage is written later: %s", error)
            with self._lock:
                for row in rows:
                    self._add(row)

    def _write_lines(self, lines: Sequence[Any], mark: JournalMark) -> None:
        """Write the usage that a process had recorded when it was killed."""
        if self._store is not None:
            self._store.add_llm_usage([LlmUsage(*line) for line in lines], mark)

    def _add(self, usage: LlmUsage) -> None:
        place = (usage.day, usage.key, usage.model)
        if place not in self._unwritten and len(self._unwritten) >= MAX_UNWRITTEN_ROWS:
            usage = replace(usage, model=_OTHER)
            place = (usage.day, usage.key, usage.model)
        before = self._unwritten.get(place)
        self._unwritten[place] = usage if before is None else _sum_rows(before, usage)

    def _get_totals(self, key: str) -> KeyTotals:
        day = get_today()
        with self._lock:
            stored = self._stored_totals.get(key, KeyTotals()) if self._today == day else KeyTotals()
            rows = [row for row in self._unwritten.values() if (row.day, row.key) == (day, key)]
        return stored + sum_by_key(rows).get(key, KeyTotals())

    def _read_totals(self) -> None:
        if self._store is None:
            return
        self._next_read = time.monotonic() + READ_SECONDS
        today = get_today()
        totals = sum_by_key(self._store.list_llm_usage(today))
        with self._lock:
            self._today, self._stored_totals = today, totals


def _sum_rows(left: LlmUsage, right: LlmUsage) -> LlmUsage:
    _, _, _, *added = astuple(right)
    day, key, model, *amounts = astuple(left)
    return LlmUsage(day, key, model, *map(add, amounts, added))


def _clean(name: str) -> str:
    """Return a name that is short and can be stored."""
    if len(name) <= MAX_NAME_CHARS and name.isascii() and name.isprintable():
        return name
    return name[:MAX_NAME_CHARS].encode("utf-8", "replace").decode().replace("\0", "?")


def get_today() -> str:
    """Return the current day in UTC, such as `2026-11-17`."""
    return _format_day(int(time.time()) // _DAY_SECONDS)


@lru_cache(maxsize=4)
def _format_day(number: int) -> str:
    return f"{datetime.fromtimestamp(number * _DAY_SECONDS, UTC):%Y-%m-%d}"
