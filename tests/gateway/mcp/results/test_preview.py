"""Previews show structure, ranges, frequent values and samples within their budget."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.core.token_count import estimate_tokens
from toolcrib.gateway.mcp.results.document import ResultDocument, collect_text
from toolcrib.gateway.mcp.results.preview import describe_size, render_preview

ISSUES = {
    "total": 300,
    "items": [
        {
            "number": 1000 + number,
            "title": f"Fix page {number}",
            "state": "closed" if number % 3 == 0 else "open",
            "user": {"login": "ann" if number % 2 else "bob"},
            "created_at": f"2026-01-{1 + number % 28:02}T10:00:00Z",
            "labels": [{"name": "bug"}],
            "url": f"https://example.com/{number}",
        }
        for number in range(300)
    ],
}


def preview(text: str, tokens: int = 1000) -> str:
    return render_preview(ResultDocument(text), tokens)


def test_preview_of_json_has_ranges_counts_and_first_and_last_rows() -> None:
    shown = preview(json.dumps(ISSUES))
    assert " total: 300" in shown
    assert "items: array of 300" in shown
    assert "number: 1000 to 1299, 300 different, sum 344850" in shown
    assert 'state: "open" 200×, "closed" 100×' in shown
    assert 'created_at: "2026-01-01T10:00:00Z" to "2026-01-28T10:00:00Z"' in shown
    assert "# | number | title | state | user.login | created_at" in shown
    assert "0 | 1000 | Fix page 0 | closed | bob" in shown
    assert "299 | 1299 | Fix page 299" in shown
    assert estimate_tokens(shown) <= 1100


def test_preview_of_csv_has_columns_and_rows_with_line_numbers() -> None:
    rows = "\n".join(f'{number},"Smith, {number}",{number * 2}' for number in range(500))
    document = ResultDocument(f"id,name,amount\n{rows}")
    assert describe_size(document) == "a table of 500 rows and 3 columns"
    shown = render_preview(document, 400)
    assert " amount: 0 to 998, 500 different, sum 249500" in shown
    assert "2: 0 | Smith, 0 | 0" in shown
    assert "501: 499 | Smith, 499 | 998" in shown


def test_size_of_one_line_is_singular() -> None:
    assert describe_size(ResultDocument("x" * 9)) == "text of 1 line and 9 characters"


def test_preview_of_a_markdown_table_reads_its_columns() -> None:
    rows = "\n".join(f"| {number} | row {number} |" for number in range(100))
    shown = preview(f"| id | name |\n|---|---|\n{rows}", 300)
    assert " id: 0 to 99, 100 different" in shown
    assert "3: 0 | row 0" in shown


def test_preview_of_a_log_has_head_tail_and_levels() -> None:
    lines = [f"10:00 {'ERROR' if number == 70 else 'INFO'} request {number}" for number in range(1000)]
    shown = preview("\n".join(lines), 300)
    assert "Lines with ERROR 1 (first at line 71)" in shown
    assert "1: 10:00 INFO request 0" in shown
    assert "1000: 10:00 INFO request 999" in shown
    assert "are left out" in shown


def test_preview_of_a_page_has_its_outline() -> None:
    text = "\n".join(f"## Part {number}\n" + "word " * 50 for number in range(40))
    shown = preview(text, 500)
    assert "1: ## Part 0" in shown
    assert "headings" in shown


def test_long_string_in_json_is_previewed_as_text_with_its_path() -> None:
    content = "\n".join(f"line {number}" for number in range(2000))
    shown = preview(json.dumps({"url": "https://example.com", "content": content}), 300)
    assert '"url":"https://example.com"' in shown
    assert "The text at $.content:" in shown
    assert "2000: line 1999" in shown


def test_object_with_many_keys_is_summarized_as_a_table() -> None:
    shown = preview(json.dumps({f"key-{number}": {"size": number} for number in range(500)}), 400)
    assert "object with 500 keys" in shown
    assert "size: 0 to 499" in shown
    assert "key-0 | 0" in shown


def test_several_json_texts_are_one_array_and_distinct_structure_is_kept() -> None:
    parts = [{"type": "text", "text": json.dumps({"a": number})} for number in range(3)]
    assert json.loads(collect_text({"content": parts})) == [{"a": 0}, {"a": 1}, {"a": 2}]
    text = {"type": "text", "text": "three rows"}
    both = collect_text({"content": [text], "structuredContent": {"rows": [1]}})
    assert json.loads(both) == {"text": "three rows", "structuredContent": {"rows": [1]}}
    wrapped = collect_text({"content": [text], "structuredContent": {"result": "three rows"}})
    assert wrapped == "three rows"
    resource = {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}
    assert collect_text({"content": [resource]}) == "inside"
    assert json.loads(collect_text({"content": [], "structuredContent": {"a": 1}})) == {"a": 1}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(), inner, max_size=60),
    max_leaves=60,
)


@settings(max_examples=80)
@given(json_values)
def test_preview_of_any_json_stays_within_its_budget(value: Any) -> None:
    shown = preview(json.dumps(value, ensure_ascii=False), 300)
    assert estimate_tokens(shown) <= 600


@pytest.mark.parametrize("text", ["", "x" * 300_000, "\n" * 50_000, "[" * 5000, "a,b\n" * 4, "|" * 1000])
def test_preview_of_odd_text_stays_within_its_budget(text: str) -> None:
    assert estimate_tokens(preview(text, 300)) <= 450
