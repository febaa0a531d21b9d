"""The `Store`: what a gateway keeps between runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from toolcrib.errors import InvalidStore
from toolcrib.safety.pinning import Pin
from toolcrib.storage import (
    access,
    audit,
    changes,
    definitions,
    journal,
    llm_usage,
    manifests,
    oauth_tokens,
    pins,
    results,
    shared_values,
    time_series,
    tool_usage,
    vectors,
)
from toolcrib.storage.access import KeyUsage
from toolcrib.storage.audit import AuditRow
from toolcrib.storage.changes import ChangeTopic, RecordedChange
from toolcrib.storage.definitions import StoredRequests
from toolcrib.storage.journal import ApplyLines, Journal, JournalKind, JournalMark
from toolcrib.storage.llm_usage import LlmUsage
from toolcrib.storage.manifests import ServerManifest
from toolcrib.storage.results import StoredResult
from toolcrib.storage.shared_values import SharedValue
from toolcrib.storage.sql_database import (
    CHANGES_MESSAGE,
    OnMessage,
    SqlConnection,
    SqlDatabase,
    SqlFunction,
    copy_tables,
)
from toolcrib.storage.time_series import SeriesAmount
from toolcrib.storage.tool_usage import ToolUsageTotal

# The usage tables are pruned once per this many calls or writes, so they can exceed their limits by that much.
PRUNE_INTERVAL: Final = 256
VECTOR_PRUNE_INTERVAL: Final = 10_000

T = TypeVar("T")
P = ParamSpec("P")
TableFunction = Callable[Concatenate[SqlConnection, P], T]
StoreMethod = Callable[Concatenate["Store", P], T]


def _read(function: TableFunction[P, T]) -> StoreMethod[P, T]:
    """Return a method of `Store` that only reads."""

    @wraps(function)
    def method(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return store._database.run(lambda connection: function(connection, *args, **kwargs))

    return method


def _write(function: TableFunction[P, T], *, durable: bool = False, lock: str = "") -> StoreMethod[P, T]:
    """Return a method of `Store` that runs a function of a table in a transaction."""

    @wraps(function)
    def method(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return store._database.write(
            lambda connection: function(connection, *args, **kwargs), durable=durable, lock=lock
        )

    return method


def _change(topic: ChangeTopic, function: TableFunction[P, T]) -> StoreMethod[P, T]:
    """Return a method of `Store` whose transaction also records a change of a topic without subjects."""

    @wraps(function)
    def method(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return store._change_topic(topic, lambda connection: function(connection, *args, **kwargs))

    return method


class Store:
    """Keeps manifests, pins, usage, results, the audit log, keys and access profiles in a database.

    The methods are synchronous, fast and thread-safe; call them from an event loop through a thread. Every failure
    raises `InvalidStore` with a message that names the remedy. Open a store after a fork, not before.
    """

    def __init__(self, database: SqlDatabase, journal_folder: Path | None = None) -> None:
        self._database = database
        self._journal_folder = journal_folder
        self._journals: list[Journal] = []
        self._calls_since_prune = PRUNE_INTERVAL
        self._key_writes = 0
        self._vectors_since_prune = VECTOR_PRUNE_INTERVAL
        self._result_pruning = results.ResultPruning()
        self._values_since_prune = shared_values.PRUNE_WRITES

    @property
    def notice(self) -> str:
        """A notice for the operator, such as a damaged file that was moved; empty if none."""
        return self._database.notice

    @property
    def is_available(self) -> bool:
        """Whether the database could be reached at the last attempt."""
        return self._database.is_available

    def listen(self, on_message: OnMessage) -> None:
        """Call a function with messages about changes, in another thread; see `SqlDatabase.listen`."""
        self._database.listen(on_message)

    @property
    def key_marker(self) -> Path | None:
        """The file that exists while the store has keys; None if the store is not a file."""
        return self._journal_folder and self._journal_folder.with_suffix(".keys")

    def open_journal(self, kind: JournalKind) -> Journal:
        """Return a journal, which keeps what is recorded until it is written if this process is killed."""
        opened = Journal(self._journal_folder, kind)
        self._journals.append(opened)
        return opened

    def recover_lines(self, own: Journal, apply: ApplyLines) -> None:
        """Write, once, what processes of this machine had recorded in a journal of the same kind when they were killed."""
        if own.is_recovered:
            return
        for abandoned in own.list_abandoned():
            abandoned.write_lines(lambda key: int(self.get_values("journal", [key], time.time()).get(key, "0")), apply)
            for path in abandoned.list_files():
                path.unlink()
            self.take_value("journal", abandoned.key, time.time())
        own.is_recovered = True

    # Each of these calls a function of a table with a connection. The functions have the docstrings.
    list_manifests = _read(manifests.read_manifests)
    get_pins = _read(pins.read_pins)
    list_pin_states = _read(pins.read_states)
    list_quarantined = _read(pins.read_quarantined)
    reject = _write(definitions.write_rejection, durable=True, lock="pins")
    list_rejections = _read(definitions.read_rejections)
    list_definition_versions = _read(definitions.read_versions)
    list_example_requests = _read(definitions.read_example_requests)
    put_saved_query = _write(definitions.write_query, durable=True)
    list_saved_queries = _read(definitions.read_queries)
    delete_saved_query = _write(definitions.delete_query, durable=True)
    get_revision = _read(changes.read_revision)
    list_changes = _read(changes.read_changes)
    get_usage = _read(tool_usage.read_calls)
    get_stats = _read(tool_usage.read_amounts)
    list_llm_usage = _read(llm_usage.read_usage)
    get_result = _read(results.read_result)
    list_audit = _read(audit.read_rows)
    prune_audit = _write(audit.prune_rows)
    list_series = _read(time_series.read_amounts)
    prune_series = _write(time_series.prune_amounts)
    put_key = _change("keys", access.write_key)
    list_keys = _read(access.read_keys)
    set_key_budget = _change("keys", access.update_key_budget)
    delete_key = _change("keys", access.delete_key)
    get_key_usage = _read(access.read_key_usage)
    put_profile = _change("profiles", access.write_profile)
    list_profiles = _read(access.read_profiles)
    delete_profile = _change("profiles", access.delete_profile)
    put_token = _write(oauth_tokens.write_token, durable=True)
    list_tokens = _read(oauth_tokens.read_tokens)
    delete_token = _write(oauth_tokens.delete_token, durable=True)
    claim_token = _write(oauth_tokens.claim_token)
    get_values = _read(shared_values.read_values)
    list_values = _read(shared_values.read_kind)
    extend_values = _write(shared_values.extend_values)
    take_value = _write(shared_values.take_value)
    take_lease = _write(shared_values.take_lease)
    release_lease = _write(shared_values.release_lease)

    def get_manifest(self, server: str) -> ServerManifest | None:
        """Return a server's manifest."""
        return self._database.run(lambda connection: manifests.read_manifests(connection, server)).get(server)

    def put_manifest(self, server: str, manifest: ServerManifest) -> RecordedChange | None:
        """Store a server's manifest in place of the previous one; return the change, or None if they are equal."""
        body = manifests.encode_manifest(manifest)

        def write(connection: SqlConnection) -> RecordedChange | None:
            is_new = manifests.write_manifest(connection, server, manifest, body)
            return changes.record_change(connection, "server", server) if is_new else None

        return self._change(write, lock="pins")

    def forget_server(self, server: str) -> None:
        """Delete a server's manifest and pins; its tools are trusted on first use again."""

        def write(connection: SqlConnection) -> None:
            manifests.delete_manifest(connection, server)
            connection.execute("DELETE FROM pins WHERE server = ?", (server,))
            definitions.delete_versions(connection, server)
            changes.record_change(connection, "server", server)

        self._change(write, lock="pins")

    def put_pins(self, server: str, new: Iterable[Pin]) -> RecordedChange | None:
        """Store pins; return the change. A candidate that was approved in the meantime stays approved."""
        new = list(new)
        rows = pins.encode_pins(server, new)

        def write(connection: SqlConnection) -> RecordedChange:
            pins.write_pins(connection, server, new, rows)
            return changes.record_change(connection, "server", server)

        return self._change(write, lock="pins") if rows else None

    def approve(self, server: str, tool: str | None = None, *, fingerprint: str | None = None) -> list[str]:
        """Approve the candidates of a server or of one tool; return the approved tools.

        With a `fingerprint`, approve only the candidate that has it, and not one that replaced it after the review.
        """

        def write(connection: SqlConnection) -> list[str]:
            tools = pins.approve_pins(connection, server, tool, fingerprint)
            if tools:
                changes.record_change(connection, "server", server)
            return tools

        return self._change(write, lock="pins")

    def put_example_requests(self, requests: Iterable[StoredRequests]) -> None:
        """Store the example requests of tools in place of earlier ones."""
        new = list(requests)
        self._change_topic("requests", lambda connection: definitions.write_example_requests(connection, new))

    def add_calls(
        self,
        totals: Mapping[str, ToolUsageTotal],
        amounts: Mapping[str, int] | None = None,
        mark: JournalMark | None = None,
    ) -> None:
        """Add tool calls to the usage totals, by tool id, and in the same transaction amounts to counters."""
        if not totals and not amounts:
            return
        self._calls_since_prune += sum(total.calls for total in totals.values())
        prune = self._calls_since_prune > PRUNE_INTERVAL

        def write(connection: SqlConnection) -> None:
            if totals:
                tool_usage.add_calls(connection, totals)
            if amounts:
                tool_usage.add_amounts(connection, amounts)
            if prune:
                tool_usage.prune_calls(connection)

        self._record(write, mark)
        if prune:
            self._calls_since_prune = 0

    def add_llm_usage(self, rows: Iterable[LlmUsage], mark: JournalMark | None = None) -> None:
        """Add requests and tokens to the rows of their day, key and model."""
        rows = list(rows)
        self._record(lambda connection: llm_usage.add_usage(connection, rows), mark)

    def put_result(self, result: StoredResult, max_bytes: int) -> None:
        """Store a large tool result; delete expired results, and the oldest over the limits."""
        limit = self._result_pruning.choose_limit(result, max_bytes)
        self._database.write(lambda connection: results.write_result(connection, result, limit))

    def append_audit(
        self,
        rows: Sequence[AuditRow],
        *,
        durable: bool = False,
        series: Sequence[SeriesAmount] = (),
        mark: JournalMark | None = None,
    ) -> None:
        """Append rows to the audit log, and in the same transaction add amounts to the time series.

        Durable rows survive a crash of the machine.
        """

        def write(connection: SqlConnection) -> None:
            audit.append_rows(connection, rows)
            if series:
                time_series.add_amounts(connection, series)

        # With the lock, ids are committed in order, so that a reader that follows the log misses no row.
        self._record(write, mark, durable=durable, lock="audit")

    def add_key_usage(self, usage: Sequence[KeyUsage], mark: JournalMark | None = None) -> None:
        """Add requests to the usage of API keys."""
        self._key_writes += 1
        prune = self._key_writes % PRUNE_INTERVAL == 1
        self._record(lambda connection: access.add_key_usage(connection, usage, prune=prune), mark)

    def get_token(self, name: str) -> bytes | None:
        """Return an encrypted OAuth token."""
        return self._database.run(lambda connection: oauth_tokens.read_tokens(connection, name)).get(name)

    def get_vectors(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the vectors that are stored for some keys."""
        return self._database.run(lambda connection: vectors.read_vectors(connection, keys)) if keys else {}

    def put_vectors(self, new: Mapping[bytes, bytes]) -> None:
        """Store vectors, and delete the oldest over the limit."""
        self._vectors_since_prune += len(new)
        prune = self._vectors_since_prune > VECTOR_PRUNE_INTERVAL

        def write(connection: SqlConnection) -> None:
            vectors.write_vectors(connection, new, time.time())
            if prune:
                vectors.prune_vectors(connection)

        self._database.write(write)
        if prune:
            self._vectors_since_prune = 0

    def put_values(self, values: Sequence[SharedValue], *, now: float, notify: str = "") -> None:
        """Store shared values; delete expired ones now and then. With `notify`, send that message too."""
        self._values_since_prune += len(values)
        prunes = self._values_since_prune >= shared_values.PRUNE_WRITES
        if prunes:
            self._values_since_prune = 0

        def write(connection: SqlConnection) -> None:
            shared_values.write_values(connection, values)
            if prunes:
                shared_values.prune_values(connection, now)

        self._database.write(write, notify=notify)

    def copy_to(self, target: Store) -> dict[str, int]:
        """Copy everything to an empty store in one transaction; return the number of rows by table."""
        return copy_tables(self._database, target._database)

    def close(self) -> None:
        """Close the store. Journals with lines that could not be written stay for the next process."""
        finished = [mark.key for opened in self._journals if (mark := opened.close())]
        if finished:
            with suppress(InvalidStore):
                self._database.write(lambda connection: shared_values.delete_values(connection, "journal", finished))
        self._database.close()

    def _record(
        self, write: SqlFunction[None], mark: JournalMark | None, *, durable: bool = False, lock: str = ""
    ) -> None:
        """Write what was recorded, and in the same transaction its position in a journal."""

        def write_marked(connection: SqlConnection) -> None:
            write(connection)
            if mark:
                expires = time.time() + journal.KEEP_MARKS_SECONDS
                shared_values.write_values(connection, [SharedValue("journal", mark.key, str(mark.position), expires)])

        self._database.write(write_marked, durable=durable, lock=lock)

    def _change_topic(self, topic: ChangeTopic, write: SqlFunction[T]) -> T:
        """Write something, and in the same transaction a change of a topic without subjects."""

        def write_change(connection: SqlConnection) -> T:
            result = write(connection)
            changes.record_change(connection, topic)
            return result

        return self._change(write_change, lock=topic)

    def _change(self, write: SqlFunction[T], lock: str) -> T:
        """Write something that running gateways read again."""
        return self._database.write(write, durable=True, lock=lock, notify=CHANGES_MESSAGE)
