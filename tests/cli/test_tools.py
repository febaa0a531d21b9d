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
    return CliRunner(env={"COLUMNS": "80"}).invoke(toolcrib, ["tools", "--catalog", "-", *arguments], input=catalog)


def test_tools_are_listed_in_order_with_counts_per_server() -> None:
    assert tools().stdout == (
        "mail___send\nmail___read\nping         Is it there?\n3 tools:\n  mail 2, (no server) 1\n"
    )


def test_page_prints_the_total() -> None:
    result = tools("--limit", "1", "--offset", "1").stdout
    assert result == "mail___read\n1 of 3 tools:\n  mail 2, (no server) 1\n"


@pytest.mark.parametrize(
    ("filters", "expected"),
    [(["--server", "mail"], ["mail___send", "mail___read"]), (["--tag", "net"], ["ping"]), (["--read-only"], [])],
)
def test_filters(filters: list[str], expected: list[str]) -> None:
    document = json.loads(tools("--json", *filters).stdout)
    assert [tool["id"] for tool in document["tools"]] == expected
    assert document["total"] == len(expected)


def test_empty_catalog() -> None:
    assert tools(catalog="[]").stdout == "0 tools.\n"


def test_filter_without_matches_prints_the_servers() -> None:
    assert tools("--server", "none", "--tag", "net").stdout == (
        "0 tools: no tool at all has server none, tag net. Without the filters:\n  mail 2, (no server) 1\n"
    )


def test_several_catalog_files(tmp_path: Path) -> None:
    more, duplicate = tmp_path / "more.json", tmp_path / "duplicate.json"
    more.write_text('{"name": "pong"}', encoding="utf-8")
    duplicate.write_text('\n[{"name": "ping"}]', encoding="utf-8")
    assert "4 tools:" in tools("--catalog", str(more)).stdout
    result = tools("--catalog", str(more), "--catalog", str(duplicate))
    assert result.exit_code == 1
    assert f"{duplicate}, line 2: the id 'ping' is already used by the tool on line 1 of" in result.stderr
    assert "of standard input; rename one of them" in result.stderr


def test_json_output_is_a_valid_catalog() -> None:
    result = tools("--json", "--limit", "2").stdout
    document = json.loads(result)
    assert list(document) == ["tools", "total", "servers"]
    assert document["servers"] == {"mail": 2, "": 1}
    assert "2 tools:" in tools(catalog=result).stdout


def test_number_of_printed_servers_is_limited() -> None:
    catalog = json.dumps([{"name": "a", "server": f"s{number:02}"} for number in range(20)])
    assert tools(catalog=catalog).stdout.endswith("s11 1, and 8 more servers\n")


def test_unpaired_surrogate_is_escaped_in_json() -> None:
    result = tools("--json", catalog='{"name": "a", "description": "\\ud800 é"}')
    assert r'"\ud800 é"' in result.stdout
    assert json.loads(result.stdout)["tools"][0]["description"] == "\ud800 é"
