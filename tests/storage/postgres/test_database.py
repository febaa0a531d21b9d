"""The store in PostgreSQL: errors with a remedy, start of many replicas, restarts and broken connections."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from queue import Queue
from threading import Thread

import psycopg
import pytest

from tests.support.postgres import PASSWORD_USER, PostgresServer
from tests.support.tcp_proxy import run_proxy
from toolcrib.errors import InvalidConfig, InvalidStore, StoreUnavailable
from toolcrib.safety.pinning import Pin
from toolcrib.storage import open_store
from toolcrib.storage.audit import AuditFilter, AuditRow
from toolcrib.storage.postgres import migrations, pool
from toolcrib.storage.postgres.migrations import migrate_database
from toolcrib.storage.sql_database import CHANGES_MESSAGE, MISSED_MESSAGES
from toolcrib.storage.tool_usage import ToolUsageTotal

SECRET = "s3cret-p%40ss"


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_wrong_password_is_reported_without_the_password(postgres_server: PostgresServer, postgres_url: str) -> None:
    execute(postgres_url, f"CREATE ROLE {PASSWORD_USER} LOGIN PASSWORD 'right'")
    url = postgres_url.replace("postgres@", f"{PASSWORD_USER}:{SECRET}@")
    with pytest.raises(InvalidStore, match="the user name or the password is wrong; correct them in `store`") as raised:
        open_store(url)
    assert "s3cret" not in str(raised.value)
    with pytest.raises(InvalidStore, match="wants a password; add it to `store`"):
        open_store(postgres_url.replace("postgres@", f"{PASSWORD_USER}@"))


def test_unreachable_server_missing_database_and_missing_user_are_reported(postgres_server: PostgresServer) -> None:
    with pytest.raises(InvalidStore, match="PostgreSQL cannot be reached; start it, or correct `store`"):
        open_store("postgresql://me:s3cret@127.0.0.1:1/toolcrib")
    with pytest.raises(InvalidStore, match="there is no such database; create it with CREATE DATABASE"):
        open_store(postgres_server.url("missing"))
    with pytest.raises(InvalidStore, match="there is no such user; create it with CREATE ROLE"):
        open_store(postgres_server.url("postgres").replace("postgres@", "nobody_there@"))
    with pytest.raises(InvalidStore, match="the host name is unknown"):
        open_store("postgresql://me:s3cret@nowhere.invalid/toolcrib")


@pytest.mark.parametrize("url", ["postgresql://me:s3cret@[host/db", "postgresql://me:s3cret@host/db?nonsense=1"])
def test_invalid_url_is_reported_without_the_password(url: str) -> None:
    with pytest.raises(InvalidConfig, match="use postgresql://user@host/database") as raised:
        open_store(url)
    assert "s3cret" not in str(raised.value)


def test_missing_extra_is_reported_with_the_command() -> None:
    script = """
import sys
sys.modules["psycopg"] = None
from toolcrib.errors import InvalidConfig
from toolcrib.storage import open_store
try:
    open_store("postgresql://me@host/db")
except InvalidConfig as error:
    print(error)
"""
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "pip install 'toolcrib[postgres]'" in printed


def test_user_without_rights_is_reported_with_the_statement(postgres_url: str) -> None:
    execute(postgres_url, "CREATE ROLE powerless LOGIN")
    with pytest.raises(InvalidStore, match="CREATE SCHEMA toolcrib AUTHORIZATION"):
        open_store(postgres_url.replace("postgres@", "powerless@"))
    execute(postgres_url, "CREATE SCHEMA toolcrib AUTHORIZATION powerless")
    with closing(open_store(postgres_url.replace("postgres@", "powerless@"))) as store:
        store.add_calls({}, {"searches": 1})
        assert store.get_stats() == {"searches": 1}


_OPENER = """
import sys
from toolcrib.storage import open_store
store = open_store(sys.argv[1])
for number in range(20):
    store.add_calls({}, {"opened": 1})
store.close()
"""


def test_replicas_can_start_at_the_same_time(postgres_url: str) -> None:
    command = [sys.executable, "-c", _OPENER, postgres_url]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    with closing(open_store(postgres_url)) as store:
        assert store.get_stats() == {"opened": 80}


def test_failed_migration_changes_nothing_and_a_later_one_keeps_the_data(postgres_url: str) -> None:
    with closing(open_store(postgres_url)) as store:
        store.add_calls({}, {"kept": 1})
    added = (*migrations.MIGRATIONS, ("ALTER TABLE counters ADD COLUMN note TEXT",))
    with closing(pool.PostgresPool(postgres_url).connect()) as connection:
        with pytest.raises(psycopg.errors.SyntaxError):
            migrate_database(connection, (*added, ("NONSENSE",)))
        migrate_database(connection, migrations.MIGRATIONS)
        migrate_database(connection, added)
        assert connection.execute("SELECT name, amount, note FROM counters").fetchall() == [("kept", 1, None)]
    with pytest.raises(InvalidStore, match=r"newer version of Toolcrib.*update Toolcrib"):
        open_store(postgres_url)


def test_tables_of_other_programs_are_left_alone(postgres_url: str) -> None:
    execute(postgres_url, "CREATE TABLE audit (ours TEXT)")
    with closing(open_store(postgres_url)) as store:
        store.append_audit([AuditRow("call", at=1.0)])
        assert len(store.list_audit(AuditFilter(), 10)) == 1
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM public.audit").fetchone() == (0,)


def test_audit_rows_cannot_be_changed(postgres_url: str) -> None:
    with closing(open_store(postgres_url)) as store:
        store.append_audit([AuditRow("call", at=1.0)])
    with pytest.raises(psycopg.errors.RaiseException, match=r"cannot be changed"):
        execute(postgres_url, "UPDATE toolcrib.audit SET outcome = 'ok'")


def test_name_with_a_nul_character_is_refused(postgres_url: str) -> None:
    with closing(open_store(postgres_url)) as store:
        with pytest.raises(InvalidStore, match="NUL character, which cannot be stored; rename it"):
            store.put_pins("mail", [Pin("bad \0", "print", {})])
        assert store.get_pins("mail") == {}


def test_writers_of_the_same_rows_in_another_order_all_succeed(postgres_url: str) -> None:
    names = [f"tool {number}" for number in range(20)]
    with closing(open_store(postgres_url)) as store:

        def write(order: list[str]) -> None:
            for _ in range(10):
                store.add_calls({name: ToolUsageTotal(1, 0, 1.0) for name in order})

        threads = [Thread(target=write, args=(order,)) for order in (names, names[::-1], names, names[::-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {total.calls for total in store.get_usage().values()} == {40}


def test_store_works_after_a_restart_or_a_crash_of_the_server(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    with closing(open_store(postgres_url)) as store:
        store.add_calls({}, {"writes": 1})
        for end in (postgres_server.stop, postgres_server.kill):
            end()
            try:
                for _ in range(3):
                    with pytest.raises(InvalidStore, match=r"cannot be reached|connection to PostgreSQL broke"):
                        store.add_calls({}, {"writes": 1})
            finally:
                postgres_server.start()
            write_until_it_succeeds(store.add_calls, {}, {"writes": 1})
        assert store.get_stats() == {"writes": 3}


def write_until_it_succeeds(write: Callable[..., object], *values: object) -> None:
    while True:
        try:
            write(*values)
            return
        except InvalidStore:
            time.sleep(0.02)


@pytest.mark.parametrize("reaches_server", [True, False])
def test_commit_whose_connection_breaks_counts_once(
    postgres_server: PostgresServer, postgres_url: str, reaches_server: bool
) -> None:
    cuts: list[bytes] = []

    def cut_first_commit(data: bytes) -> tuple[bool, bool]:
        if b"COMMIT" not in data or cuts:
            return True, False
        cuts.append(data)
        return reaches_server, True

    with (
        run_proxy(postgres_server.port) as proxy,
        closing(open_store(postgres_url.replace(str(postgres_server.port), str(proxy.port)))) as store,
    ):
        proxy.on_data = cut_first_commit
        store.append_audit([AuditRow("call", at=1.0)])
        assert cuts
        assert len(store.list_audit(AuditFilter(), 10)) == 1


def test_messages_and_changes_of_another_process_arrive_and_are_caught_up_after_a_restart(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    messages: Queue[str] = Queue()
    with closing(open_store(postgres_url)) as store, closing(open_store(postgres_url)) as other:
        store.listen(messages.put)
        assert messages.get(timeout=60) == MISSED_MESSAGES
        other.put_pins("mail", [Pin("send", "print", {})])
        assert messages.get(timeout=60) == CHANGES_MESSAGE
        seen = store.get_revision()
        postgres_server.stop()
        try:
            wait_until(lambda: not store.is_available)
            assert "Searches and calls continue" in store.notice
        finally:
            postgres_server.start()
        write_until_it_succeeds(other.put_pins, "git", [Pin("push", "print", {})])
        assert messages.get(timeout=60) == MISSED_MESSAGES
        assert store.is_available and store.notice == ""
        wait_until(lambda: store.list_changes(seen) == [(seen + 1, "server", "git")])


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.skipif(not Path("/proc").exists(), reason="the processes of the server are found in /proc")
def test_server_that_does_not_answer_is_given_up(
    postgres_server: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "RESPONSE_SECONDS", 0.5)
    monkeypatch.setitem(pool.DEFAULT_PARAMETERS, "connect_timeout", 2)
    with closing(open_store(postgres_url)) as store:
        store.add_calls({}, {"writes": 1})
        with postgres_server.paused(), pytest.raises(StoreUnavailable):
            store.add_calls({}, {"writes": 1})
        write_until_it_succeeds(store.add_calls, {}, {"writes": 1})
        # The server may have got the first statements of the write that failed, but not its commit.
        assert store.get_stats() == {"writes": 2}
