from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from toolcrib.cli.main import toolcrib
from toolcrib.search.engine import RANKERS

TOOLS: list[dict[str, Any]] = [
    {
        "name": "refund_charge",
        "server": "payments",
        "category": "finance",
        "tags": ["money"],
        "description": "Give the money of a charge back.",
    },
    {
        "name": "list_charges",
        "server": "payments",
        "description": "Every charge of a customer.",
        "annotations": {"readOnlyHint": True},
    },
    {"name": "send_mail", "description": "Send a mail."},
]


@pytest.fixture
def catalog(tmp_path: Path) -> str:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return str(path)


def search(*arguments: str, columns: int = 100) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(toolcrib, ["search", *arguments])


def ids(result: Result) -> list[str]:
    return [hit["tool"]["id"] for hit in json.loads(result.stdout)["hits"]]


def test_rows_have_score_id_and_description(catalog: str) -> None:
    result = search("refund", "--catalog", catalog)
    assert result.exit_code == 0
    assert result.stderr == ""
    score, id, description = result.stdout.splitlines()[0].split("  ")
    assert 0 < float(score) <= 1
    assert (id, description) == ("payments___refund_charge", "Give the money of a charge back.")


def test_empty_query_lists_the_catalog_without_scores(catalog: str) -> None:
    result = search("", "--catalog", catalog)
    assert result.exit_code == 0
    assert not re.search(r"\d\.\d\d", result.stdout)
    document = json.loads(search("", "--catalog", catalog, "--json").stdout)
    assert document["hits"] and all(hit["score"] is None for hit in document["hits"])


@pytest.mark.parametrize("command", ["search", "tools"])
def test_catalog_without_tools_is_named(command: str, tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text("[]", encoding="utf-8")
    arguments = [command, *(["refund"] if command == "search" else []), "--catalog", str(path)]
    result = CliRunner().invoke(toolcrib, arguments)
    assert (result.exit_code, result.stderr) == (0, "This catalog has no tools.\n")


@pytest.mark.filterwarnings("default::RuntimeWarning")
def test_broken_schema_is_a_warning_on_standard_error(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([*TOOLS, {"name": "pay", "input_schema": {"type": "strng"}}]))
    result = search("refund", "--catalog", str(path), "--json", columns=500)
    assert ids(result)[0] == "payments___refund_charge"
    assert result.stderr.startswith(f"Warning: {path}, line 1: the schema of tool 'pay' is broken: ")
    assert len(result.stderr.splitlines()) == 1


def test_why_takes_a_name_without_its_server(catalog: str) -> None:
    ids = [hit["tool"]["id"] for hit in json.loads(search("", "--catalog", catalog, "--json").stdout)["hits"]]
    [id] = [id for id in ids if "___" in id][:1]
    result = search("email", "--catalog", catalog, "--why", id.partition("___")[2])
    assert result.exit_code == 0, result.output
    assert f"Why {id}?" in result.stdout


def test_output_to_a_pipe_has_whole_lines(tmp_path: Path) -> None:
    text = "Send an email " + "with a long description " * 20
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([{"name": f"send_email_{number}", "description": text} for number in range(2_000)]))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "toolcrib", "tools", "--catalog", str(path)]
    whole = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    lines = whole.stdout.splitlines()
    assert len(lines) == 2_002 and lines[0].endswith(text.strip())
    # The reader closes the pipe after one line.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout and process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


def test_narrow_terminal_has_two_lines_per_hit(catalog: str) -> None:
    result = search("charge", "--catalog", catalog, "--explain", "--why", "send_mail", columns=40)
    lines = result.stdout.splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert "      Give the money of a charge back." in lines


def test_demo_catalog_is_the_default() -> None:
    result = search("refund a charge", "--limit", "1")
    assert result.stderr == "No --catalog given, so this is the demo catalog.\n"
    assert "payments___refund_charge" in result.stdout


def test_json_output(catalog: str) -> None:
    result = search("charge", "--catalog", catalog, "--json", "--limit", "1")
    document = json.loads(result.stdout)
    assert list(document) == ["query", "mode", "confident", "confidence", "hits", "groups", "more", "unserved", "notes"]
    assert (document["query"], document["mode"], document["more"]) == ("charge", "hybrid", True)
    assert document["confident"] == (document["confidence"] >= 0.5)
    (hit,) = document["hits"]
    assert list(hit) == ["score", "reasons", "tool"]
    assert list(hit["reasons"][0]) == ["term", "field", "share"]
    assert hit["tool"]["name"] in ("refund_charge", "list_charges")


def test_output_is_deterministic(catalog: str) -> None:
    first, second = (search("charge", "--catalog", catalog, "--json") for _ in range(2))
    assert first.stdout_bytes == second.stdout_bytes


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["--server", "payments"], ["payments___list_charges", "payments___refund_charge"]),
        (["--category", "finance"], ["payments___refund_charge"]),
        (["--tag", "money"], ["payments___refund_charge"]),
        (["--tag", "money", "--tag", "undo"], []),
        (["--read-only"], ["payments___list_charges"]),
    ],
)
def test_filters(catalog: str, filters: list[str], expected: list[str]) -> None:
    assert sorted(ids(search("charge", "--catalog", catalog, "--json", *filters))) == expected


@pytest.mark.parametrize("mode", list(RANKERS))
def test_every_mode_finds_a_word(catalog: str, mode: str) -> None:
    assert "payments___refund_charge" in ids(search("refund", "--catalog", catalog, "--json", "--mode", mode))


def test_patterns_are_case_sensitive_by_default(catalog: str) -> None:
    pattern = ["REFUND", "--catalog", catalog, "--mode", "regex"]
    assert "try --ignore-case" in search(*pattern).stdout
    assert ids(search(*pattern, "--ignore-case", "--json")) == ["payments___refund_charge"]


def test_malformed_query_is_an_error_unless_lenient(catalog: str) -> None:
    strict = search("refund AND", "--catalog", catalog, "--mode", "lexical")
    assert strict.exit_code == 1
    assert strict.stderr.startswith("Error: ")
    lenient = search("refund AND", "--catalog", catalog, "--mode", "lexical", "--lenient")
    assert "payments___refund_charge" in lenient.stdout
    assert "Note: " in lenient.stdout


@pytest.mark.parametrize("switch", [["--ignore-case"], ["--lenient", "--mode", "regex"]])
def test_option_of_another_mode_is_wrong_usage(switch: list[str]) -> None:
    assert search("refund", *switch).exit_code == 2


def test_pages(catalog: str) -> None:
    browse = ["", "--catalog", catalog, "--limit", "2"]
    first, second = search(*browse), search(*browse, "--offset", "2")
    assert first.stdout.endswith("There are more tools: add --offset 2.\n")
    assert "send_mail" in second.stdout
    assert "There are more" not in second.stdout
    assert "try a smaller --offset" in search(*browse, "--offset", "3").stdout


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["zzqx"], "or --mode fuzzy"),
        (["zzqx", "--mode", "fuzzy"], "Try other words; `toolcrib tools`"),
        (["refund", "--server", "mail"], "Try again without the filters."),
        (["zzqx", "--mode", "regex", "--ignore-case"], "Try other words"),
    ],
)
def test_nothing_found_prints_a_hint(catalog: str, arguments: list[str], hint: str) -> None:
    result = search(*arguments, "--catalog", catalog)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"No tools found for '{arguments[0]}'.")
    assert hint in result.stdout


def test_poor_matches_are_marked() -> None:
    query = "translate the annual tax statement of a moon colony into whale song by service"
    result = search(query, "--mode", "lexical")
    assert "No tool fits well. The nearest are:" in result.stdout


def test_explain_prints_matched_words_and_fields(catalog: str) -> None:
    printed = search("refund", "--catalog", catalog, "--explain").stdout
    assert re.search(r"matched refund \(meaning \d+%, name \d+%\)", printed)


def test_why_explains_hits_and_misses(catalog: str) -> None:
    arguments = ["refund", "--catalog", catalog]
    hit = search(*arguments, "--why", "payments___refund_charge").stdout
    assert "Why payments___refund_charge?\n  Returned: number 1" in hit
    assert re.search(r"from refund \(meaning \d+%, name \d+%\)", hit)
    miss = search(*arguments, "--why", "send_mail", "--json").stdout
    why = json.loads(miss)["why"]
    assert list(why) == ["id", "returned", "rank", "score", "verdict", "reasons"]
    assert (why["id"], why["returned"], why["rank"]) == ("send_mail", False, None)
    assert "Why send_mail?" in search(*arguments, "--why", "send_mail").stdout


def test_why_of_an_unknown_tool_is_an_error(catalog: str) -> None:
    result = search("refund", "--catalog", catalog, "--why", "nope")
    assert result.exit_code == 1
    assert "no tool 'nope'" in result.stderr


def test_words_are_joined_to_one_query(catalog: str) -> None:
    result = search("refund", "the", "charge", "--catalog", catalog, "--json")
    assert json.loads(result.stdout)["query"] == "refund the charge"


def test_query_that_starts_with_a_minus(catalog: str) -> None:
    result = search("-email send", "--catalog", catalog)
    assert result.exit_code == 2
    assert "last, after --" in " ".join(result.stderr.split())
    result = search("--json", "--catalog", catalog, "--", "-email send")
    assert json.loads(result.stdout)["query"] == "-email send"
    assert "after --" not in search("x", "--limt", "3").stderr


def test_several_catalog_files(catalog: str, tmp_path: Path) -> None:
    more = tmp_path / "more.json"
    more.write_text('{"name": "refund_all", "description": "Refund everything."}')
    result = search("refund", "--catalog", catalog, "--catalog", str(more), "--json")
    assert {"refund_all", "payments___refund_charge"} <= set(ids(result))


def test_similar_tools_of_other_servers_are_grouped(tmp_path: Path) -> None:
    about = "Send an email to people."
    names = ("gmail", "outlook")
    twins = [{"name": "send_email", "server": name, "description": about} for name in names]
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([*twins, {"name": "pay", "description": "Pay a bill."}]))
    arguments = ("email people", "--catalog", str(path), "--limit", "2")
    best, other = ids(search(*arguments, "--json"))
    assert {best, other} == {"gmail___send_email", "outlook___send_email"}
    assert json.loads(search(*arguments, "--json").stdout)["groups"] == [[best, other]]
    row, below, *_ = search(*arguments).stdout.splitlines()
    assert best in row
    assert below == f"      also: {other}"
    # Lexical search does not group similar tools.
    by_words = json.loads(search(*arguments, "--mode", "lexical", "--json").stdout)
    assert sorted(by_words["groups"]) == sorted([[best], [other]])


def test_many_hits_are_not_grouped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.cli.catalog.search.MAX_GROUPED_HITS", 1)
    twins = [{"name": "pay", "server": name, "description": "Pay a bill."} for name in "ab"]
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(twins))
    result = search("pay a bill", "--catalog", str(path), "--json")
    assert json.loads(result.stdout)["groups"] == [["a___pay"], ["b___pay"]]


def test_uncovered_part_of_a_query_is_printed(catalog: str) -> None:
    arguments = ("send a mail and play the trombone", "--catalog", catalog)
    assert search(*arguments).stdout.splitlines()[-1] == "No tool fits: play the trombone"
    assert json.loads(search(*arguments, "--json").stdout)["unserved"] == ["play the trombone"]


@pytest.mark.parametrize("mode", ["hybrid", "fast", "lexical"])
def test_index_of_a_large_catalog_is_kept_in_the_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("TOOLCRIB_CACHE", str(tmp_path / "cache"))
    tools = [{"name": f"send_{n}", "description": f"Send letter {n}", "input_schema": {}} for n in range(1_000)]
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(tools))
    arguments = ["search", "letter 17", "--catalog", str(file), "--mode", mode, "--json"]
    first = CliRunner().invoke(toolcrib, arguments)
    index = tmp_path / "cache" / "words.npz"
    written = index.stat()
    again = CliRunner().invoke(toolcrib, arguments)
    assert (again.exit_code, again.output) == (0, first.output)
    assert index.stat().st_mtime_ns == written.st_mtime_ns
    monkeypatch.setenv("TOOLCRIB_CACHE", "off")
    assert CliRunner().invoke(toolcrib, arguments).output == first.output
