from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.cli.printing import ToolTable, sanitize, truncate, wrap


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("two  words\n and\ta third", "two words and a third"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;a new title\x07text", "text"),
        ("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP$q\x1b\\text\x1b(Bmore\x1bcend", "textmoreend"),
        ("\u202etxet\u202c \ufeffhid\u200bden\U000e0041", "txet hidden"),
        ("half \ud800 a character", "half a character"),
        ("café 天気 🙂", "café 天気 🙂"),
    ],
)
def test_terminal_control_is_removed(text: str, expected: str) -> None:
    assert sanitize(text) == expected


@given(st.text())
def test_sanitized_text_is_one_line_of_utf_8(text: str) -> None:
    line = sanitize(text)
    assert not set(line) & set(map(chr, [*range(32), *range(127, 160), 0x202E]))
    assert line.encode().decode() == line
    assert sanitize(line) == line


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("short", 5, "short"),
        ("too long", 5, "too…"),
        ("天気予報", 8, "天気予報"),
        ("天気予報", 7, "天気予…"),
        ("天気予報", 6, "天気…"),
        ("e\u0301te\u0301", 3, "e\u0301te\u0301"),
    ],
)
def test_truncate_counts_display_columns(text: str, columns: int, expected: str) -> None:
    assert truncate(text, columns) == expected


def test_columns_are_aligned_for_wide_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    table = ToolTable.for_ids(["天気", "weather"], lead_columns=6)
    rows = [click.unstyle(table.format_row("1.00", id, "text")) for id in ("天気", "weather")]
    assert rows == ["1.00  天気     text", "1.00  weather  text"]


def test_wrap_does_not_break_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert wrap("mail 12, a-hyphenated-server 3") == "mail 12,\na-hyphenated-server\n3"


def test_mark_of_a_list_item_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert wrap("send an email to my boss", "  + ") == "  + send an email to\n    my boss"


def test_long_id_is_not_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    id = "a_very_long_identifier_of_a_tool"
    row = ToolTable.for_ids([id], lead_columns=6).format_row("1.00", id, "")
    assert id in row
    assert "\n" not in row
