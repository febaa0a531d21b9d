"""The `Store`: what a gateway keeps between runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

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
from toolcrib.storage.access import KeyBudget, KeyUsage, StoredKey
from toolcrib.storage.audit import AuditFilter, AuditRow
from toolcrib.storage.changes import Change, ChangeTopic, RecordedChange
from toolcrib.storage.definitions import DefinitionVersion, SavedQuery, StoredRequests
from toolcrib.storage.journal import ApplyLines, Journal, JournalKind, JournalMark
from toolcrib.storage.llm_usage import LlmUsage
from toolcrib.storage.manifests import ServerManifest
from toolcrib.storage.pins import PinSummary
from toolcrib.storage.results import StoredResult
from toolcrib.storage.shared_values import SharedValue, ValueKind
from toolcrib.storage.sql_database import (
    CHANGES_MESSAGE,
    OnMessage,
    SqlConnection,
    SqlDatabase,
    SqlFunction,
    copy_tables,
)
from toolcrib.storage.time_series import Resolution, SeriesAmount
from toolcrib.storage.tool_usage import ToolUsageTotal

# The usage tables are pruned once per this many calls or writes, so they can exceed their limits by that much.
PRUNE_INTERVAL: Final = 256
VECTOR_PRUNE_INTERVAL: Final = 10_000

T = TypeVar("T")


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
            abandoned.write_lines(self._get_position, apply)
            for path in abandoned.list_files():
                path.unlink()
            self.take_value("journal", abandoned.key, time.time())
        own.is_recovered = True

    def _get_position(self, key: str) -> int:
        return int(self.get_values("journal", [key], time.time()).get(key, "0"))

    def get_manifest(self, server: str) -> ServerManifest | None:
        """Return a server's manifest."""
        return self._database.run(lambda connection: manifests.read_manifests(connection, server)).get(server)

    def list_manifests(self) -> dict[str, ServerManifest]:
        """Return the manifests of all servers, by server."""
        return self._database.run(manifests.read_manifests)

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

    def get_pins(self, server: str) -> dict[str, Pin]:
        """Return a server's pins by tool name."""
        return self._database.run(lambda connection: pins.read_pins(connection, server))

    def list_pin_states(self, server: str | None = None) -> dict[str, dict[str, PinSummary]]:
        """Return the pins of all servers or of one without definitions, by server and tool name."""
        return self._database.run(lambda connection: pins.read_states(connection, server))

    def list_quarantined(self) -> dict[str, dict[str, Pin]]:
        """Return the pins that wait for approval, by server and tool name, both sorted."""
        return self._database.run(pins.read_quarantined)

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

    def reject(self, server: str, tool: str, fingerprint: str) -> bool:
        """Reject a candidate, so that it no longer waits; return whether it was still the candidate."""
        return self._database.write(
            lambda connection: definitions.write_rejection(connection, server, tool, fingerprint),
            durable=True,
            lock="pins",
        )

    def list_rejections(self) -> frozenset[tuple[str, str, str]]:
        """Return server, tool and fingerprint of every rejected candidate."""
        return self._database.run(definitions.read_rejections)

    def list_definition_versions(self, server: str, tool: str) -> list[DefinitionVersion]:
        """Return the earlier approved definitions of a tool, newest first."""
        return self._database.run(lambda connection: definitions.read_versions(connection, server, tool))

    def put_example_requests(self, requests: Iterable[StoredRequests]) -> None:
        """Store the example requests of tools in place of earlier ones."""
        new = list(requests)
        self._change_topic("requests", lambda connection: definitions.write_example_requests(connection, new))

    def list_example_requests(self) -> dict[str, tuple[str, ...]]:
        """Return all example requests, by the fingerprint of the definition."""
        return self._database.run(definitions.read_example_requests)

    def put_saved_query(self, saved: SavedQuery) -> None:
        """Save a test query in place of an earlier one with the same text."""
        self._database.write(lambda connection: definitions.write_query(connection, saved), durable=True)

    def list_saved_queries(self) -> list[SavedQuery]:
        """Return the saved test queries, the oldest first."""
        return self._database.run(definitions.read_queries)

    def delete_saved_query(self, query: str) -> bool:
        """Delete a saved test query; return whether it existed."""
        return self._database.write(lambda connection: definitions.delete_query(connection, query), durable=True)

    def get_revision(self) -> int:
        """Return the number of the last change. The call is cheap."""
        return self._database.run(changes.read_revision)

    def list_changes(self, after: int) -> list[Change]:
        """Return the changes of servers, keys and profiles after a number, the oldest first."""
        return self._database.run(lambda connection: changes.read_changes(connection, after))

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

    def get_usage(self) -> dict[str, ToolUsageTotal]:
        """Return the usage totals by tool id."""
        return self._database.run(tool_usage.read_calls)

    def get_stats(self) -> dict[str, int]:
        """Return all counters by name."""
        return self._database.run(tool_usage.read_amounts)

    def add_llm_usage(self, rows: Iterable[LlmUsage], mark: JournalMark | None = None) -> None:
        """Add requests and tokens to the rows of their day, key and model."""
        rows = list(rows)
        self._record(lambda connection: llm_usage.add_usage(connection, rows), mark)

    def list_llm_usage(self, since_day: str = "") -> list[LlmUsage]:
        """Return the usage from a day on, sorted by day, key and model."""
        return self._database.run(lambda connection: llm_usage.read_usage(connection, since_day))

    def put_result(self, result: StoredResult, max_bytes: int) -> None:
        """Store a large tool result; delete expired results, and the oldest over the limits."""
        limit = self._result_pruning.choose_limit(result, max_bytes)
        self._database.write(lambda connection: results.write_result(connection, result, limit))

    def get_result(self, handle: str, owner: str, now: float) -> StoredResult | None:
        """Return an owner's result, or None if there is none or it has expired."""
        return self._database.run(lambda connection: results.read_result(connection, handle, owner, now))

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

    def list_audit(self, where: AuditFilter, limit: int) -> list[AuditRow]:
        """Return audit rows: the newest first, or with `where.after` the oldest after that id first."""
        return self._database.run(lambda connection: audit.read_rows(connection, where, limit))

    def prune_audit(self, before: float, max_rows: int) -> int:
        """Delete some of the audit rows that are too old or too many; return how many."""
        return self._database.write(lambda connection: audit.prune_rows(connection, before, max_rows))

    def list_series(self, resolution: Resolution, since: float) -> list[SeriesAmount]:
        """Return the amounts of a resolution since a time, sorted by time."""
        return self._database.run(lambda connection: time_series.read_amounts(connection, resolution, since))

    def prune_series(self, now: float) -> None:
        """Delete the amounts that are too old or too many."""
        self._database.write(lambda connection: time_series.prune_amounts(connection, now))

    def put_key(self, key: StoredKey) -> None:
        """Store an API key."""
        self._change_topic("keys", lambda connection: access.write_key(connection, key))

    def list_keys(self) -> list[StoredKey]:
        """Return the stored API keys, the oldest first."""
        return self._database.run(access.read_keys)

    def set_key_budget(self, id: str, budget: KeyBudget) -> bool:
        """Replace the budget of an API key; return whether the key exists."""
        return self._change_topic("keys", lambda connection: access.update_key_budget(connection, id, budget))

    def delete_key(self, id: str) -> bool:
        """Delete an API key; return whether it existed."""
        return self._change_topic("keys", lambda connection: access.delete_key(connection, id))

    def add_key_usage(self, usage: Sequence[KeyUsage], mark: JournalMark | None = None) -> None:
        """Add requests to the usage of API keys."""
        self._key_writes += 1
        prune = self._key_writes % PRUNE_INTERVAL == 1
        self._record(lambda connection: access.add_key_usage(connection, usage, prune=prune), mark)

    def get_key_usage(self) -> dict[str, KeyUsage]:
        """Return the usage of API keys, by hash."""
        return self._database.run(access.read_key_usage)

    def put_profile(self, name: str, settings: Mapping[str, Any], at: float) -> None:
        """Store an access profile in place of a previous one."""
        self._change_topic("profiles", lambda connection: access.write_profile(connection, name, settings, at))

    def list_profiles(self) -> dict[str, dict[str, Any]]:
        """Return the settings of the stored access profiles, by name."""
        return self._database.run(access.read_profiles)

    def delete_profile(self, name: str) -> bool:
        """Delete a stored access profile; return whether it existed."""
        return self._change_topic("profiles", lambda connection: access.delete_profile(connection, name))

    def put_token(self, name: str, body: bytes) -> None:
        """Store an encrypted OAuth token in place of a previous one."""
        self._database.write(lambda connection: oauth_tokens.write_token(connection, name, body), durable=True)

    def list_tokens(self) -> dict[str, bytes]:
        """Return all encrypted OAuth tokens by name."""
        return self._database.run(oauth_tokens.read_tokens)

    def get_token(self, name: str) -> bytes | None:
        """Return an encrypted OAuth token."""
        return self._database.run(lambda connection: oauth_tokens.read_tokens(connection, name)).get(name)

    def delete_token(self, name: str) -> bool:
        """Delete an OAuth token; return whether it existed."""
        return self._database.write(lambda connection: oauth_tokens.delete_token(connection, name), durable=True)

    def claim_token(self, name: str, now: float, until: float) -> bool:
        """Claim the refresh of a token until a time; return False if another process has claimed it."""
        return self._database.write(lambda connection: oauth_tokens.claim_token(connection, name, now, until))

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

    def get_values(self, kind: ValueKind, keys: Sequence[str], now: float) -> dict[str, str]:
        """Return the shared values of some keys that have not expired."""
        return self._database.run(lambda connection: shared_values.read_values(connection, kind, keys, now))

    def list_values(self, kind: ValueKind, now: float, limit: int = shared_values.MAX_SHARED_VALUES) -> dict[str, str]:
        """Return the shared values of a kind that have not expired, by key, at most those that expire last."""
        return self._database.run(lambda connection: shared_values.read_kind(connection, kind, now, limit))

    def extend_values(self, kind: ValueKind, keys: Sequence[str], expires_at: float) -> None:
        """Keep shared values for longer."""
        self._database.write(lambda connection: shared_values.extend_values(connection, kind, keys, expires_at))

    def take_value(self, kind: ValueKind, key: str, now: float, *, notify: str = "") -> str | None:
        """Return a shared value and delete it, so that one caller gets it."""
        return self._database.write(
            lambda connection: shared_values.take_value(connection, kind, key, now), notify=notify
        )

    def take_lease(self, name: str, holder: str, now: float, seconds: float) -> str:
        """Take or extend a lease, unless another holder has it; return its holder."""
        return self._database.write(lambda connection: shared_values.take_lease(connection, name, holder, now, seconds))

    def release_lease(self, name: str, holder: str) -> None:
        """Give a lease back."""
        self._database.write(lambda connection: shared_values.release_lease(connection, name, holder))

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
