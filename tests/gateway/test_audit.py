"""The audit log writes in batches, survives a store that fails, and exports lines of JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import AuditConfig, GatewayConfig
from toolcrib.errors import InvalidStore
from toolcrib.gateway import audit
from toolcrib.gateway.audit import AuditLog
from toolcrib.gateway.logs import is_secret_name
from toolcrib.hub.hub import Hub
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.storage.audit import AuditFilter, AuditRow
from toolcrib.storage.journal import JournalMark
from toolcrib.storage.sqlite.database import SqliteDatabase
from toolcrib.storage.store import Store
from toolcrib.storage.time_series import OTHER_CLIENTS, SeriesAmount, SeriesCounter, build_point


class FailingStore(Store):
    """A store whose disk can be full."""

    is_full = False
    attempts = 0

    def append_audit(
        self,
        rows: Sequence[AuditRow],
        *,
        durable: bool = False,
        series: Sequence[SeriesAmount] = (),
        mark: JournalMark | None = None,
    ) -> None:
        self.attempts += 1
        if self.is_full:
            raise InvalidStore("the disk is full")
        super().append_audit(rows, durable=durable, series=series, mark=mark)


def open_hub(path: Path | None = None, **settings: Any) -> Hub:
    server = ServerConfig("git", command="git", env={"GIT_TOKEN": "a-very-private-token"})
    config = GatewayConfig(servers={"git": server}, audit=AuditConfig(**settings), path=path)
    return Hub(config, FailingStore(SqliteDatabase(":memory:")), {"lexical": LexicalRanker()})


@pytest.fixture
def hub() -> Iterator[Hub]:
    opened = open_hub()
    yield opened
    opened.close()


def stored(hub: Hub) -> list[AuditRow]:
    return hub.store.list_audit(AuditFilter(after=0), 100_000)


def test_rows_are_written_in_order_with_time_and_without_configured_secrets(hub: Hub) -> None:
    log = AuditLog(hub)
    log.record(AuditRow("call", details={"error": "refused a-very-private-token", "count": 3, "none": None}))
    log.record(AuditRow("search", at=4e9))
    assert stored(hub) == []
    log.flush()
    first, second = stored(hub)
    assert first.details == {"error": "refused [redacted]", "count": 3, "none": None}
    assert first.at > 1_700_000_000 and second.at == 4e9


def test_change_is_stored_at_once(hub: Hub) -> None:
    log = AuditLog(hub)
    log.record_change(AuditRow("approval", server="git", tool="push"))
    assert [row.tool for row in stored(hub)] == ["push"]


def test_change_that_cannot_be_stored_raises(hub: Hub) -> None:
    hub.store.is_full = True  # type: ignore[attr-defined]
    with pytest.raises(InvalidStore, match="disk is full"):
        AuditLog(hub).record_change(AuditRow("approval"))


def test_rows_wait_for_a_store_that_fails_and_lost_rows_are_reported(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "MAX_UNWRITTEN_ROWS", 5)
    log = AuditLog(hub)
    hub.store.is_full = True  # type: ignore[attr-defined]
    for number in range(4):
        log.record(AuditRow("call", tool=str(number)))
    with pytest.raises(InvalidStore):
        log.flush()
    assert "cannot be written" in hub.notices["audit"]
    for number in range(4, 8):
        log.record(AuditRow("call", tool=str(number)))
    hub.store.is_full = False  # type: ignore[attr-defined]
    log.flush()
    assert [row.tool for row in stored(hub)] == ["3", "4", "5", "6", "7"]
    assert hub.notices["audit"] == "3 audit rows are lost: the store could not be written"


def test_lost_rows_are_logged_once(hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(audit, "MAX_UNWRITTEN_ROWS", 1)
    log = AuditLog(hub)
    hub.store.is_full = True  # type: ignore[attr-defined]
    log.record(AuditRow("call"))
    log.record(AuditRow("call"))
    with pytest.raises(InvalidStore):
        log.flush()
    hub.store.is_full = False  # type: ignore[attr-defined]
    for _ in range(3):
        log.record(AuditRow("call"))
        log.flush()
    assert [record.getMessage() for record in caplog.records] == [hub.notices["audit"]]


@pytest.mark.anyio
async def test_the_same_failure_of_the_store_is_logged_once(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit, "FLUSH_SECONDS", 0.001)
    log = AuditLog(hub)
    log.record(AuditRow("call"))
    hub.store.is_full = True  # type: ignore[attr-defined]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(log.run)
        while hub.store.attempts < 4:  # type: ignore[attr-defined]
            await log.wait_for_rows(10)
        tasks.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records] == ["the disk is full"]


def test_old_rows_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "PRUNE_ROWS", 10)
    hub = open_hub(retention_days=1.0, max_rows=15)
    log = AuditLog(hub)
    log.record(AuditRow("call", at=1.0))
    log.flush()
    assert stored(hub) == []
    for _ in range(5):
        for _ in range(10):
            log.record(AuditRow("call"))
        log.flush()
    assert len(stored(hub)) == 15
    hub.close()


def test_rows_are_exported_to_a_file_beside_the_configuration(tmp_path: Path) -> None:
    hub = open_hub(tmp_path / "toolcrib.json", export="audit.jsonl")
    log = AuditLog(hub)
    log.record(AuditRow("call", at=1.0, tool="one\nline"))
    log.flush()
    log.record_change(AuditRow("approval", at=2.0))
    lines = (tmp_path / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    assert [(json.loads(line)["action"], json.loads(line)["tool"]) for line in lines] == [
        ("call", "one\nline"),
        ("approval", ""),
    ]
    hub.close()


def test_rows_are_exported_to_standard_output() -> None:
    output = io.StringIO()
    hub = open_hub(export="-")
    log = AuditLog(hub, standard_output=output)
    log.record(AuditRow("login", key="laptop"))
    log.flush()
    assert json.loads(output.getvalue())["key"] == "laptop"
    hub.close()


def test_export_that_fails_is_reported_and_the_store_has_the_rows(tmp_path: Path) -> None:
    hub = open_hub(export=str(tmp_path / "missing" / "audit.jsonl"))
    log = AuditLog(hub)
    log.record(AuditRow("call"))
    log.flush()
    assert len(stored(hub)) == 1
    assert "cannot be written" in hub.notices["audit"]
    hub.close()


def test_details_are_bounded(hub: Hub) -> None:
    nested: Any = "x"
    for _ in range(30):
        nested = [nested]
    log = AuditLog(hub)
    log.record(AuditRow("call", details={"text": "a" * 100_000, "many": list(range(1_000)), "deep": nested}))
    log.flush()
    details = stored(hub)[0].details
    assert len(details["text"]) == audit.MAX_TEXT_CHARS + 1
    assert len(details["many"]) == audit.MAX_DETAIL_ITEMS
    assert str(details["deep"]).count("[") < 30


@pytest.mark.parametrize("name", ["password", "apiKey", "api_key", "dbPassword", "AUTH_TOKEN", "x-api-key", "secret"])
def test_names_of_secrets_are_recognized(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["max_tokens", "key", "monkey", "author", "tokenize", "signature_date"])
def test_other_names_are_not_secrets(name: str) -> None:
    assert not is_secret_name(name)


def test_percentiles_are_close_to_the_durations() -> None:
    counter = SeriesCounter()
    for milliseconds in range(1, 1_001):
        counter.add_row(AuditRow("call", at=60.0, client="a", seconds=milliseconds / 1_000))
    point = build_point(counter.take_amounts())
    assert point["calls"] == 1_000 and point["errors"] == 0
    assert point["p50"] == pytest.approx(0.5, rel=0.15)
    assert point["p95"] == pytest.approx(0.95, rel=0.15)
    empty = build_point([])
    assert (empty["calls"], empty["p50"]) == (0, None)
    assert (
        build_point([SeriesAmount(0, "a", "tokens_full", 10), SeriesAmount(0, "a", "tokens_sent", 4)])["tokens_saved"]
        == 6
    )


def test_number_of_clients_is_bounded() -> None:
    counter = SeriesCounter()
    for number in range(200):
        counter.add_row(AuditRow("search", at=60.0, client=f"client {number}"))
    clients = {amount.client: amount.amount for amount in counter.take_amounts()}
    assert len(clients) == 51
    assert clients[OTHER_CLIENTS] == 150


@pytest.mark.parametrize("client", ["a\0b", "a\ud800b"])
def test_name_that_no_store_accepts_does_not_keep_rows_back(store: Store, client: str) -> None:
    log = AuditLog(Hub(GatewayConfig(), store))
    for _ in range(2):
        log.record(AuditRow("call", client=client))
    log.flush()
    rows = store.list_audit(AuditFilter(), 10)
    assert len(rows) == 2
    assert {each.client for each in store.list_series("day", 0.0)} == {rows[0].client}
