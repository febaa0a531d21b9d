"""`toolcrib audit` prints rows, and commands that change something add rows."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolcrib.cli.main import toolcrib
from toolcrib.safety.pinning import Pin
from toolcrib.storage import open_store
from toolcrib.storage.audit import AuditFilter, AuditRow


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'toolcrib.db'}"
    store = open_store(url)
    now = time.time()
    rows = [
        AuditRow("search", at=now - 7_200, client="cursor", details={"query": "send \x1b[31mmail"}),
        AuditRow("call", "error", now - 60, "laptop", server="mail", tool="mail___send", seconds=1.5),
        AuditRow("call", "ok", now - 30, "laptop", server="git", tool="git___push"),
    ]
    store.append_audit(rows)
    store.close()
    return url


def run(*args: str) -> Result:
    return CliRunner().invoke(toolcrib, ["audit", *args])


def test_rows_are_printed_oldest_first(url: str) -> None:
    result = run("--store", url)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert len(lines) == 3
    assert "cursor  send mail" in lines[0] and "\x1b[31m" not in lines[0]
    assert "error" in lines[1] and "laptop  mail___send  1,500 ms" in lines[1]
    assert run("--store", url, "--limit", "1").output.splitlines() == lines[2:]


def test_json_has_one_object_per_line(url: str) -> None:
    rows = [json.loads(line) for line in run("--store", url, "--json").output.splitlines()]
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert rows[1]["outcome"] == "error" and rows[1]["tool"] == "mail___send"


def test_rows_are_selected(url: str) -> None:
    def ids(*args: str) -> list[int]:
        return [json.loads(line)["id"] for line in run("--store", url, "--json", *args).output.splitlines()]

    assert ids("--since", "1h") == [2, 3]
    assert ids("--until", "1h") == [1]
    assert ids("--action", "search") == [1]
    assert ids("--outcome", "error") == [2]
    assert ids("--where", "server=git", "--where", "key=lap") == [3]
    assert ids("--since", "2020-01-01", "--until", "2020-01-02T10:00") == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--since", "yesterday"), "is not a time; use 30m, 2h"),
        (("--where", "color=red"), "use one of key, client"),
        (("--action", "odd"), "is not one of"),
    ],
)
def test_wrong_option_is_explained(url: str, args: tuple[str, ...], message: str) -> None:
    result = run("--store", url, *args)
    assert result.exit_code == 2 and message in result.output


def test_empty_log_and_missing_store_are_explained(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    assert "there is no such file" in run("--store", url).output
    open_store(url).close()
    assert "There are no rows" in run("--store", url).output
    assert run("--store", url, "--json").output == ""


def test_approval_is_recorded(url: str) -> None:
    store = open_store(url)
    definition = {"name": "send"}
    store.put_pins("mail", [Pin("send", "first", definition, "changed", 1.0, definition, "second")])
    store.close()
    result = CliRunner().invoke(toolcrib, ["approve", "mail___send", "--store", url, "--forget", "mail"])
    assert result.exit_code == 1
    result = CliRunner().invoke(toolcrib, ["approve", "mail___send", "--store", url])
    assert result.exit_code == 0
    store = open_store(url)
    (row,) = store.list_audit(AuditFilter(action="approval"), 10)
    store.close()
    assert (row.server, row.tool, row.client) == ("mail", "mail___send", "toolcrib approve")
    assert row.user and row.details == {"change": "approved", "fingerprint": "second"}
