"""Reads page, filter by JSONPath and search a stored result, within budgets of tokens and time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolcrib.core.token_count import estimate_tokens
from toolcrib.errors import InvalidQuery, SearchTimeout, ToolcribError
from toolcrib.gateway.mcp.results import reading
from toolcrib.gateway.mcp.results.document import ResultDocument
from toolcrib.gateway.mcp.results.reading import ReadRequest, read_document

ITEMS = ResultDocument(
    json.dumps(
        {
            "total": 60,
            "items": [
                {"id": number, "name": f"tool {number}", "tags": ["a", f"t{number % 4}"], "note": "x\n" * 400}
                for number in range(60)
            ],
        }
    )
)
LOG = ResultDocument("\n".join(f"line {number} of the log, request {number * 7}" for number in range(1, 1001)))


def read(document: ResultDocument, tokens: int = 800, **request: object) -> str:
    return read_document(document, ReadRequest(**request), tokens)  # type: ignore[arg-type]


def test_path_selects_values_with_their_locations() -> None:
    assert read(ITEMS, path="$.total") == "$.total: 60"
    page = read(ITEMS, path="$.items[?@.id > 57].name")
    assert page.splitlines()[1:] == ["$.items[58].name: tool 58", "$.items[59].name: tool 59"]
    assert read(ITEMS, path="items[3].id") == "$.items[3].id: 3"
    assert "Nothing matches" in read(ITEMS, path="$.missing")
    assert "2 matches" in read(ITEMS, path="$.items[?search(@.name, '5[89]$')].id")


def test_items_are_paged_and_each_page_names_the_next_offset() -> None:
    page = read(ITEMS, path="$.items[*].id", limit=5)
    assert page.startswith("1 to 5 of 60 matches of $.items[*].id. Continue with offset=5.")
    page = read(ITEMS, path="$.items[*].id", limit=5, offset=55)
    assert "56 to 60 of 60" in page
    assert "Continue" not in page
    assert "beyond" in read(ITEMS, path="$.items[*].id", offset=60)


def test_offset_of_an_object_counts_the_items_of_its_preview() -> None:
    page = read(ITEMS, offset=55, limit=2)
    assert page.startswith("56 to 57 of 60 items of $.items. Continue with offset=57.\n$.items[55]: ")
    log = ResultDocument(json.dumps({"status": "ok", "log": LOG.text}))
    assert read(log, offset=999).endswith("1000: line 1000 of the log, request 7000")
    assert read(ResultDocument('{"status": "ok"}'), offset=5) == '$: {"status":"ok"}'


def test_search_returns_whole_records_with_equal_values_first() -> None:
    page = read(ITEMS, search="17")
    assert page.startswith('1 to 1 of 1 matches of "17".') or "$.items[17]:" in page.splitlines()[1]
    assert "tool 17" in page
    assert "$.items[3]" in read(ITEMS, path="$.items[2:6]", search="tool 3")
    assert '0 matches of "nothing like this"' in read(ITEMS, search="nothing like this")


def test_search_finds_the_keys_of_objects_but_not_the_numbers_of_items() -> None:
    packages = ResultDocument(json.dumps({"packages": {f"lib-{number}": {"depth": [0, 0]} for number in range(90)}}))
    assert read(packages, search="LIB-77").splitlines()[1:] == [
        "$.packages['lib-77'].depth[0]: 0",
        "$.packages['lib-77'].depth[1]: 0",
    ]
    assert read(packages, search="1]") == '0 matches of "1]".'


def test_search_without_a_literal_match_ranks_by_words() -> None:
    assert "tool 42" in read(ITEMS, search="the 42nd: tool 42!").splitlines()[1]
    assert "line 500:" in read(LOG, search="request 3500 log").splitlines()[1]


def test_long_strings_are_searched_and_read_by_line() -> None:
    document = ResultDocument(json.dumps({"page": "\n".join(f"row {n}" for n in range(900))}))
    assert "$.page line 78: row 77" in read(document, search="row 77")
    assert "101: row 100" in read(document, path="$.page", offset=100, limit=2)


def test_text_is_paged_by_lines_and_searched_by_pattern() -> None:
    page = read(LOG, offset=10, limit=3)
    assert page.splitlines() == [
        "Lines 11 to 13 of 1,000. Continue with offset=13.",
        "11: line 11 of the log, request 77",
        "12: line 12 of the log, request 84",
        "13: line 13 of the log, request 91",
    ]
    assert "line 1000: line 1000" in read(LOG, regex=r"LINE 1000\b")
    assert "beyond" in read(LOG, offset=1000)
    assert "Characters 0 to" in read(ResultDocument("y" * 100_000), tokens=300)


def test_a_page_of_matches_has_the_matches_and_not_only_the_lines_before_them() -> None:
    page = read(LOG, search="request 3500", limit=1)
    assert page.splitlines() == ['1 to 1 of 1 lines for "request 3500".', "line 500: line 500 of the log, request 3500"]
    assert "line 500:" in read(LOG, search="request 3500", limit=3)


def test_few_long_lines_are_read_by_characters() -> None:
    document = ResultDocument("start\n" + "x" * 50_000 + "end")
    assert read(document, offset=50_000).splitlines()[1].endswith("end")


def test_every_read_stays_within_its_tokens() -> None:
    for page in (read(ITEMS, 300, limit=60), read(ITEMS, 300, path="$.items"), read(LOG, 300, search="log", limit=900)):
        assert estimate_tokens(page) <= 400


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"path": "$.items["}, "not a valid JSONPath"),
        ({"path": "$[?@.total >"}, "not a valid JSONPath: unexpected end of expression; for example"),
        ({"path": "$" + ".a" * 400}, "more than 500 characters"),
        ({"search": "a", "regex": "b"}, "either `search` or `regex`"),
        ({"regex": "("}, "not a valid pattern"),
        ({"search": "y" * 501}, "more than 500 characters"),
    ],
)
def test_invalid_request_says_what_to_do(request_: dict[str, Any], message: str) -> None:
    with pytest.raises(ToolcribError, match=message):
        read(ITEMS, **request_)


def test_path_on_text_is_refused_with_the_alternative() -> None:
    with pytest.raises(InvalidQuery, match="use `search`"):
        read(LOG, path="$.a")


def test_expensive_patterns_and_paths_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "REGEX_BUDGET_SECONDS", 0.05)
    monkeypatch.setattr(reading, "BUDGET_SECONDS", 0.05)
    with pytest.raises(SearchTimeout):
        read(ResultDocument("a" * 5000 + "!"), regex="(a|aa)+$")
    deep = ResultDocument(json.dumps({"a": [[{"b": n} for n in range(60)] for _ in range(60)]}))
    with pytest.raises(SearchTimeout):
        read(deep, path="$..[?count(@..b) > 0]..[?count(@..b) > 0]..b")
    with pytest.raises(SearchTimeout):
        read(ResultDocument(json.dumps(["a" * 5000 + "!"])), path="$[?search(@, '(a|aa)+$')]")
    # Nothing matches these, so the deadline is checked without a match.
    monkeypatch.setattr(reading, "BUDGET_SECONDS", 0)
    for path in ("$..*..*..*..*..*..*..*", "$[*,*,*,*][*,*,*,*][*,*,*,*][0]", "$..[0,0,0,0,0,0,0,0].c"):
        with pytest.raises(SearchTimeout):
            read(deep, path=path)


def test_match_of_a_pattern_in_a_long_line_is_shown() -> None:
    document = ResultDocument("start\n" + "x" * 5_000 + " needle " + "y" * 5_000)
    assert "needle" in read(document, regex="need.e")


def test_offset_beyond_a_text_of_one_line_is_named() -> None:
    assert "beyond" in read(ResultDocument("y" * 100_000), tokens=300, offset=100_000)


def test_json_after_a_heading_is_read_as_json() -> None:
    rows = [{"id": number, "name": f"row {number}"} for number in range(50)]
    document = ResultDocument(f"Found 50 rows:\n\n{json.dumps(rows)}\n")
    assert read(document, path="$.value[49].name") == "$.value[49].name: row 49"
    assert read(document, path="$.text") == "$.text: Found 50 rows:"
    for text in ("a [1]\nb", f"{json.dumps(rows)} rows", "Found\n{not json}"):
        assert not ResultDocument(text).is_json


def test_json_lines_are_read_as_an_array() -> None:
    events = [{"level": "ERROR" if number % 50 == 0 else "INFO", "message": "a,\u2028b"} for number in range(200)]
    lines = "\n".join(json.dumps(event, ensure_ascii=False) for event in events)
    document = ResultDocument(f"{lines}\n\n")
    assert document.value == events
    assert read(document, path="$[?@.level == 'ERROR'].message").startswith("1 to 4 of 4 matches")
    assert not ResultDocument(f"{lines}\nthe end").is_json
