from __future__ import annotations

import json
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


def ids(answer: Result) -> list[str]:
    return [hit["tool"]["id"] for hit in json.loads(answer.stdout)["hits"]]


def test_hits_are_rows_of_score_id_and_description(catalog: str) -> None:
    answer = search("refund", "--catalog", catalog)
    assert answer.exit_code == 0
    assert answer.stderr == ""
    score, id, description = answer.stdout.rstrip().split("  ")
    assert 0 < float(score) <= 1
    assert (id, description) == ("payments___refund_charge", "Give the money of a charge back.")


def test_a_narrow_terminal_gets_two_lines_a_hit_and_no_line_too_wide(catalog: str) -> None:
    answer = search("charge", "--catalog", catalog, "--explain", "--why", "send_mail", columns=40)
    lines = answer.stdout.splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert "      Give the money of a charge back." in lines


def test_without_a_catalog_the_demo_is_searched_and_that_is_said() -> None:
    answer = search("refund a charge", "--limit", "1")
    assert answer.stderr == "No --catalog given: this is the demo catalog.\n"
    assert "payments___refund_charge" in answer.stdout


def test_one_json_document_has_everything(catalog: str) -> None:
    answer = search("charge", "--catalog", catalog, "--json", "--limit", "1")
    document = json.loads(answer.stdout)
    assert list(document) == [
        "query",
        "mode",
        "confident",
        "confidence",
        "hits",
        "groups",
        "more",
        "unserved",
        "notes",
    ]
    assert (document["query"], document["mode"], document["more"]) == ("charge", "hybrid", True)
    assert document["confident"] == (document["confidence"] >= 0.5)
    (hit,) = document["hits"]
    assert list(hit) == ["score", "reasons", "tool"]
    assert list(hit["reasons"][0]) == ["term", "field", "share"]
    assert hit["tool"]["name"] in ("refund_charge", "list_charges")


def test_the_same_question_gives_the_same_bytes(catalog: str) -> None:
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
def test_filters_narrow_the_search(catalog: str, filters: list[str], expected: list[str]) -> None:
    assert sorted(ids(search("charge", "--catalog", catalog, "--json", *filters))) == expected


@pytest.mark.parametrize("mode", list(RANKERS))
def test_every_mode_finds_a_word(catalog: str, mode: str) -> None:
    assert "payments___refund_charge" in ids(
        search("refund", "--catalog", catalog, "--json", "--mode", mode)
    )


def test_a_pattern_minds_case_unless_told_otherwise(catalog: str) -> None:
    pattern = ["REFUND", "--catalog", catalog, "--mode", "regex"]
    assert "try --ignore-case" in search(*pattern).stdout
    assert ids(search(*pattern, "--ignore-case", "--json")) == ["payments___refund_charge"]


def test_a_malformed_query_is_an_error_or_with_lenient_plain_words(catalog: str) -> None:
    strict = search("(refund", "--catalog", catalog, "--mode", "lexical")
    assert strict.exit_code == 1
    assert strict.stderr.startswith("Error: ")
    lenient = search("(refund", "--catalog", catalog, "--mode", "lexical", "--lenient")
    assert "payments___refund_charge" in lenient.stdout
    assert "Note: " in lenient.stdout


@pytest.mark.parametrize("switch", [["--ignore-case"], ["--lenient", "--mode", "regex"]])
def test_a_switch_of_another_mode_is_wrong_usage(switch: list[str]) -> None:
    assert search("refund", *switch).exit_code == 2


def test_pages_follow_one_another(catalog: str) -> None:
    browse = ["", "--catalog", catalog, "--limit", "2"]
    first, second = search(*browse), search(*browse, "--offset", "2")
    assert first.stdout.endswith("There are more: add --offset 2.\n")
    assert "send_mail" in second.stdout
    assert "There are more" not in second.stdout
    assert "try a smaller --offset" in search(*browse, "--offset", "3").stdout


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["zzqx"], "or --mode fuzzy"),
        (["zzqx", "--mode", "fuzzy"], "Try other words; `toolcrib tools`"),
        (["refund", "--server", "mail"], "Try it without the filters."),
        (["zzqx", "--mode", "regex", "--ignore-case"], "Try other words"),
    ],
)
def test_nothing_found_is_an_answer_with_a_hint(
    catalog: str, arguments: list[str], hint: str
) -> None:
    answer = search(*arguments, "--catalog", catalog)
    assert answer.exit_code == 0
    assert answer.stdout.startswith(f"Nothing found for '{arguments[0]}'.")
    assert hint in answer.stdout


def test_a_poor_fit_is_called_the_nearest_there_is() -> None:
    query = "translate the annual tax statement of a moon colony into whale song by service"
    found = search(query, "--mode", "lexical")
    assert "Nothing fits well; these are the nearest." in found.stdout


def test_reasons_say_which_word_hit_which_field(catalog: str) -> None:
    assert "for refund (name " in search("refund", "--catalog", catalog, "--explain").stdout


def test_why_tells_a_hit_from_a_miss(catalog: str) -> None:
    asked = ["refund", "--catalog", catalog]
    found = search(*asked, "--why", "payments___refund_charge").stdout
    assert "Why payments___refund_charge?\n  Returned: number 1" in found
    assert "from refund (name " in found
    missed = search(*asked, "--why", "send_mail", "--json").stdout
    why = json.loads(missed)["why"]
    assert list(why) == ["id", "returned", "rank", "score", "verdict", "reasons"]
    assert (why["id"], why["returned"], why["rank"]) == ("send_mail", False, None)
    assert "Why send_mail?" in search(*asked, "--why", "send_mail").stdout


def test_why_of_a_tool_that_does_not_exist_is_an_error(catalog: str) -> None:
    answer = search("refund", "--catalog", catalog, "--why", "nope")
    assert answer.exit_code == 1
    assert "no tool 'nope'" in answer.stderr


def test_several_words_are_one_query(catalog: str) -> None:
    answer = search("refund", "the", "charge", "--catalog", catalog, "--json")
    assert json.loads(answer.stdout)["query"] == "refund the charge"


def test_a_query_that_begins_with_a_minus_is_told_where_it_goes(catalog: str) -> None:
    answer = search("-email send", "--catalog", catalog)
    assert answer.exit_code == 2
    assert "comes last, behind --" in " ".join(answer.stderr.split())
    told = search("--json", "--catalog", catalog, "--", "-email send")
    assert json.loads(told.stdout)["query"] == "-email send"
    assert "behind --" not in search("x", "--limt", "3").stderr


def test_several_files_are_searched_together(catalog: str, tmp_path: Path) -> None:
    more = tmp_path / "more.json"
    more.write_text('{"name": "refund_all", "description": "Refund everything."}')
    answer = search("refund", "--catalog", catalog, "--catalog", str(more), "--json")
    assert {"refund_all", "payments___refund_charge"} <= set(ids(answer))


def test_what_does_the_same_on_another_server_is_told_below_a_hit(tmp_path: Path) -> None:
    about = "Send an email to people."
    names = ("gmail", "outlook")
    twins = [{"name": "send_email", "server": name, "description": about} for name in names]
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([*twins, {"name": "pay", "description": "Pay a bill."}]))
    asked = ("email people", "--catalog", str(path), "--limit", "2")
    best, other = ids(search(*asked, "--json"))
    assert {best, other} == {"gmail___send_email", "outlook___send_email"}
    assert json.loads(search(*asked, "--json").stdout)["groups"] == [[best, other]]
    row, below, *_ = search(*asked).stdout.splitlines()
    assert best in row
    assert below == f"      also: {other}"
    # Words do not know what means the same.
    by_words = json.loads(search(*asked, "--mode", "lexical", "--json").stdout)
    assert sorted(by_words["groups"]) == sorted([[best], [other]])


def test_more_hits_than_anybody_reads_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.cli.search._MAX_GROUPED_HITS", 1)
    twins = [{"name": "pay", "server": name, "description": "Pay a bill."} for name in "ab"]
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(twins))
    answer = search("pay a bill", "--catalog", str(path), "--json")
    assert json.loads(answer.stdout)["groups"] == [["a___pay"], ["b___pay"]]


def test_a_need_that_nothing_serves_is_told(catalog: str) -> None:
    asked = ("send a mail and play the trombone", "--catalog", catalog)
    assert search(*asked).stdout.splitlines()[-1] == "Nothing fits: play the trombone"
    assert json.loads(search(*asked, "--json").stdout)["unserved"] == ["play the trombone"]
