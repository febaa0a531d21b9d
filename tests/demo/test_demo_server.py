"""The tools of the demo server work, are found by search, and are served over MCP."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.gateway.serving import environment
from toolcrib import SearchEngine
from toolcrib.demo.server import build_registry, build_server
from toolcrib.safety.scan import scan_definition

TOOLS = build_registry()

CALLS: list[tuple[str, dict[str, Any], object]] = [
    ("count_words", {"text": "two words"}, 2),
    ("uppercase_text", {"text": "ä"}, "Ä"),
    ("lowercase_text", {"text": "Ä"}, "ä"),
    ("title_case_text", {"text": "the long road"}, "The Long Road"),
    ("snake_case_name", {"text": "parseHTTP2 now"}, "parse_http2_now"),
    ("slugify_title", {"text": "Crème brûlée!"}, "creme-brulee"),
    ("reverse_text", {"text": "abc"}, "cba"),
    ("replace_text", {"text": "a-b", "find": "-", "replacement": "+"}, "a+b"),
    ("replace_text", {"text": "a", "find": "", "replacement": "+"}, "a"),
    ("find_in_text", {"text": "a.b.c", "find": "."}, [1, 3]),
    ("wrap_text", {"text": "one two three", "columns": 10}, "one two\nthree"),
    ("shorten_text", {"text": "one two three four", "characters": 10}, "one two …"),
    ("compare_texts", {"first": "a\nb", "second": "a\nc"}, "  a\n- b\n+ c"),
    ("text_similarity", {"first": "same", "second": "same"}, 1.0),
    ("check_palindrome", {"text": "Never odd or even"}, True),
    ("most_frequent_words", {"text": "b a b", "limit": 1}, ["b (2)"]),
    ("extract_email_addresses", {"text": "Ask <a.b@c.org>, or x@y."}, ["a.b@c.org"]),
    ("extract_numbers", {"text": "1 and -2.5"}, [1.0, -2.5]),
    ("remove_accents", {"text": "naïve"}, "naive"),
    ("caesar_cipher", {"text": "Abz!", "shift": 1}, "Bca!"),
    ("add_numbers", {"numbers": [0.1, 0.2, 0.3]}, 0.6),
    ("multiply_numbers", {"numbers": [2, 3]}, 6.0),
    ("divide_numbers", {"dividend": 1, "divisor": 4}, 0.25),
    ("percentage_of", {"part": 1, "whole": 4}, 25.0),
    ("percentage_change", {"old": 50, "new": 75}, 50.0),
    ("average_of_numbers", {"numbers": [1, 3]}, 2.0),
    ("median_of_numbers", {"numbers": [1, 9, 3]}, 3.0),
    ("standard_deviation", {"numbers": [1, 3]}, 1.0),
    ("linear_trend", {"x": [0, 1], "y": [1, 3]}, {"slope": 2.0, "intercept": 1.0}),
    ("greatest_common_divisor", {"first": 12, "second": 18}, 6),
    ("prime_factors", {"number": 84}, [2, 2, 3, 7]),
    ("factorial_of", {"number": 5}, "120"),
    ("simplify_fraction", {"numerator": 6, "denominator": 8}, "3/4"),
    ("compound_interest", {"amount": 100, "percent_a_year": 10, "years": 2}, 121.0),
    ("monthly_loan_payment", {"amount": 1200, "percent_a_year": 0, "months": 12}, 100.0),
    ("monthly_loan_payment", {"amount": 1000, "percent_a_year": 12, "months": 12}, 88.85),
    ("split_bill", {"total": 100, "people": 4, "tip_percent": 20}, 30.0),
    ("convert_length", {"amount": 1, "from_unit": "mile", "to_unit": "metre"}, 1609.344),
    ("convert_weight", {"amount": 1, "from_unit": "kilogram", "to_unit": "gram"}, 1000.0),
    ("convert_volume", {"amount": 1, "from_unit": "litre", "to_unit": "millilitre"}, 1000.0),
    ("convert_speed", {"amount": 1, "from_unit": "knots", "to_unit": "kilometres_per_hour"}, 1.852),
    ("convert_data_size", {"amount": 1, "from_unit": "mebibyte", "to_unit": "kibibyte"}, 1024.0),
    ("convert_temperature", {"amount": 100, "from_unit": "celsius", "to_unit": "fahrenheit"}, 212.0),
    ("days_between", {"first": "2026-01-01", "second": "2026-12-25"}, 358),
    ("add_days", {"day": "2026-02-28", "days": 1}, "2026-03-01"),
    ("add_working_days", {"day": "2026-07-24", "days": 1}, "2026-07-27"),
    ("day_of_week", {"day": "2026-07-28"}, "Tuesday"),
    ("week_number", {"day": "2026-01-01"}, 1),
    ("check_leap_year", {"year": 2028}, True),
    ("days_in_month", {"year": 2028, "month": 2}, 29),
    ("age_in_years", {"birthday": "2000-07-29", "on": "2026-07-28"}, 25),
    ("date_of_easter", {"year": 2026}, "2026-04-05"),
    ("date_of_easter", {"year": 2038}, "2038-04-25"),
    ("unix_time_to_date", {"seconds": 0}, "1970-01-01T00:00:00+00:00"),
    ("date_to_unix_time", {"moment": "1970-01-02T00:00:00+00:00"}, 86400),
    ("format_duration", {"seconds": 90061}, "1 d 1 h 1 min 1 s"),
    ("sort_list", {"items": ["b", "A"]}, ["A", "b"]),
    ("sort_numbers", {"numbers": [1, 2], "descending": True}, [2.0, 1.0]),
    ("remove_duplicates", {"items": ["a", "b", "a"]}, ["a", "b"]),
    ("count_items", {"items": ["a", "b", "a"]}, {"a": 2, "b": 1}),
    ("common_items", {"first": ["a", "b"], "second": ["b"]}, ["b"]),
    ("missing_items", {"first": ["a", "b"], "second": ["b"]}, ["a"]),
    ("split_into_groups", {"items": ["a", "b", "c"], "size": 2}, [["a", "b"], ["c"]]),
    ("format_json", {"text": '{"a":1}'}, '{\n  "a": 1\n}'),
    ("minify_json", {"text": '{ "a": 1 }'}, '{"a":1}'),
    ("csv_to_json", {"text": "a,b\n1,2"}, [{"a": "1", "b": "2"}]),
    ("encode_base64", {"text": "hi"}, "aGk="),
    ("decode_base64", {"text": "aGk="}, "hi"),
    ("encode_url", {"text": "a b/c"}, "a%20b%2Fc"),
    ("decode_url", {"text": "a%20b"}, "a b"),
    ("hash_text", {"text": "", "algorithm": "md5"}, "d41d8cd98f00b204e9800998ecf8427e"),
    ("number_to_base", {"number": 255, "base": 16}, "ff"),
    ("to_roman_numeral", {"number": 1994}, "MCMXCIV"),
    ("hex_to_rgb", {"colour": "#ff8800"}, [255, 136, 0]),
    ("rgb_to_hex", {"red": 255, "green": 136, "blue": 0}, "#ff8800"),
    ("complementary_colour", {"colour": "#ff0000"}, "#00ffff"),
    ("colour_contrast", {"first": "#000000", "second": "#ffffff"}, 21.0),
]
# Tools whose results are long or differ from call to call.
OTHERS = {"count_characters", "summarize_numbers", "current_time", "roll_dice"}


@pytest.mark.parametrize(("name", "arguments", "expected"), CALLS)
def test_tool_returns_the_expected_result(name: str, arguments: dict[str, Any], expected: object) -> None:
    assert TOOLS.execute(name, arguments) == expected


def test_every_tool_is_tested() -> None:
    assert {name for name, _, _ in CALLS} | OTHERS == {tool.id for tool in TOOLS.tools}
    counts = TOOLS.execute("count_characters", {"text": "a 1\nb"})
    assert counts == {"characters": 5, "letters": 2, "digits": 1, "spaces": 2, "lines": 2}
    assert TOOLS.execute("summarize_numbers", {"numbers": [1, 2, 6]})["mean"] == 3
    assert TOOLS.execute("current_time", {}).endswith("+00:00")
    rolls = TOOLS.execute("roll_dice", {"dice": 3, "seed": 7})
    assert rolls == TOOLS.execute("roll_dice", {"dice": 3, "seed": 7})
    assert all(1 <= roll <= 6 for roll in rolls)


def test_tools_are_read_only_and_pass_the_scan() -> None:
    assert 60 <= len(TOOLS) <= 80
    for tool in TOOLS.tools:
        assert tool.description and tool.read_only
        assert not scan_definition(tool.to_dict())


@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("how many days until christmas", "days_between"),
        ("is this text the same backwards", "check_palindrome"),
        ("miles to kilometres", "convert_length"),
        ("mortgage instalment", "monthly_loan_payment"),
        ("is white text readable on this background", "colour_contrast"),
    ],
)
def test_search_finds_the_tool(query: str, tool: str) -> None:
    result = SearchEngine(TOOLS.catalog).search(query, limit=5)
    assert tool in [hit.tool.name for hit in result]


def test_arguments_out_of_range_are_refused() -> None:
    for name, arguments in (
        ("factorial_of", {"number": 10**6}),
        ("hash_text", {"text": "x" * 20_001}),
        ("add_numbers", {"numbers": []}),
    ):
        assert TOOLS.call(name, arguments).is_error
    assert "division by zero" in TOOLS.call("divide_numbers", {"dividend": 1, "divisor": 0}).text


@pytest.mark.anyio
async def test_server_supports_both_protocol_revisions() -> None:
    for revision in ("legacy", "2026-07-28"):
        async with Client(build_server(), mode=revision) as client:
            listed = await client.list_tools()
            assert len(listed.tools) == len(TOOLS)
            result = await client.call_tool("count_words", {"text": "one two"})
            assert json.loads(getattr(result.content[0], "text")) == 2  # noqa: B009


@pytest.mark.anyio
async def test_server_runs_as_a_process() -> None:
    command = StdioServerParameters(command=sys.executable, args=["-m", "toolcrib.demo"], env=environment())
    async with Client(command) as client:
        failed = await client.call_tool("no_such_tool", {})
        assert failed.is_error
