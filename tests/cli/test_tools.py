from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from toolcrib.cli.main import toolcrib

CATALOG = json.dumps(
    [
        {"server": "mail", "tools": [{"name": "send"}, {"name": "read"}]},
        {"name": "ping", "description": "Is it there?", "tags": ["net"]},
    ]
)


def tools(*arguments: str, catalog: str = CATALOG) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(
        toolcrib, ["tools", "--catalog", "-", *arguments], input=catalog
    )


def test_tools_are_listed_in_order_and_counted_by_server() -> None:
    assert tools().stdout == (
        "mail___send\nmail___read\nping         Is it there?\n3 tools:\n  mail 2, (no server) 1\n"
    )


def test_a_page_says_of_how_many_it_is() -> None:
    answer = tools("--limit", "1", "--offset", "1").stdout
    assert answer == "mail___read\n1 of 3 tools:\n  mail 2, (no server) 1\n"


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["--server", "mail"], ["mail___send", "mail___read"]),
        (["--tag", "net"], ["ping"]),
        (["--read-only"], []),
    ],
)
def test_filters_narrow_the_list(filters: list[str], expected: list[str]) -> None:
    document = json.loads(tools("--json", *filters).stdout)
    assert [tool["id"] for tool in document["tools"]] == expected
    assert document["total"] == len(expected)


def test_an_empty_list_says_so() -> None:
    assert tools(catalog="[]").stdout == "0 tools.\n"


def test_a_filter_that_nothing_fits_is_named_with_what_there_is() -> None:
    assert tools("--server", "none", "--tag", "net").stdout == (
        "0 tools: no tool at all has server none, tag net. Without the filters there are:\n"
        "  mail 2, (no server) 1\n"
    )


def test_several_files_are_one_catalog(tmp_path: Path) -> None:
    more, twin = tmp_path / "more.json", tmp_path / "twin.json"
    more.write_text('{"name": "pong"}', encoding="utf-8")
    twin.write_text('\n[{"name": "ping"}]', encoding="utf-8")
    assert "4 tools:" in tools("--catalog", str(more)).stdout
    answer = tools("--catalog", str(more), "--catalog", str(twin))
    assert answer.exit_code == 1
    assert f"{twin}, line 2: the id 'ping' is that of the tool on line 1 of" in answer.stderr
    assert "of standard input already; rename one" in answer.stderr


def test_one_json_document_counts_the_servers_and_can_be_read_as_a_catalog() -> None:
    answer = tools("--json", "--limit", "2").stdout
    document = json.loads(answer)
    assert list(document) == ["tools", "total", "servers"]
    assert document["servers"] == {"mail": 2, "": 1}
    assert "2 tools:" in tools(catalog=answer).stdout


def test_of_many_servers_the_largest_are_counted() -> None:
    catalog = json.dumps([{"name": "a", "server": f"s{number:02}"} for number in range(20)])
    assert tools(catalog=catalog).stdout.endswith("s11 1, and 8 servers more\n")


def test_half_a_character_is_written_as_its_escape() -> None:
    answer = tools("--json", catalog='{"name": "a", "description": "\\ud800 é"}')
    assert r'"\ud800 é"' in answer.stdout
    assert json.loads(answer.stdout)["tools"][0]["description"] == "\ud800 é"
