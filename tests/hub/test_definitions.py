from __future__ import annotations

from typing import Any

import pytest

from toolcrib.hub.definitions import (
    MAX_DEFINITION_BYTES,
    MAX_PROBLEMS,
    exceeds_size,
    parse_definitions,
    render_definition,
)


def test_what_can_be_used_is_kept_as_it_came() -> None:
    raw = {"name": "read", "description": "Read.", "inputSchema": {"type": "object"}, "x": 1}
    read = parse_definitions([raw], server="files", server_description="About files.")
    (one,) = read.definitions
    assert one.raw is raw
    assert one.tool.server == "files"
    assert one.tool.server_description == "About files."
    assert read.problems == ()


def test_what_cannot_be_used_is_said_and_holds_up_nothing() -> None:
    good = {"name": "good"}
    read = parse_definitions([None, {}, {"name": 7}, good, {**good, "title": "Again"}], server="s")
    assert [one.name for one in read.definitions] == ["good"]
    assert len(read.problems) == 4
    assert read.problems[0] == "tool 1 is not an object"
    assert "name is missing" in read.problems[1] or "name" in read.problems[1]
    assert read.problems[-1] == "tool 5: the name 'good' is taken by an earlier one"


def test_faults_are_not_listed_for_ever() -> None:
    read = parse_definitions([None] * 1000, server="s")
    assert len(read.problems) == MAX_PROBLEMS + 1
    assert read.problems[-1] == f"and {1000 - MAX_PROBLEMS} more"


def test_a_definition_beyond_measure_is_a_fault() -> None:
    heavy = {"name": "heavy", "_meta": {"x": "x" * MAX_DEFINITION_BYTES}}
    read = parse_definitions([heavy, {"name": "light"}], server="s")
    assert [one.name for one in read.definitions] == ["light"]
    assert "bytes" in read.problems[0]


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        (None, {"type": "object"}),
        ([1], {"type": "object"}),
        ({}, {"type": "object"}),
        ({"type": "object", "$defs": {}}, {"type": "object", "$defs": {}}),
        ({"type": ["object", "null"]}, {"type": "object"}),
        ({"type": 7, "x": 1}, {"type": "object", "x": 1}),
    ],
)
def test_what_is_listed_says_that_it_takes_an_object(schema: Any, shown: Any) -> None:
    definition = {"name": "own", "inputSchema": schema, "vendor": [None]}
    assert render_definition(definition, "server___own") == {
        "name": "server___own",
        "inputSchema": shown,
        "vendor": [None],
    }
    assert definition["name"] == "own"


@pytest.mark.parametrize(
    ("value", "heavy"),
    [
        ("x" * 97, False),
        ("x" * 99, True),
        ({"k" * 90: 1}, False),
        ({"k" * 97: 1}, True),
        ([0] * 24, False),
        ([0] * 26, True),
        ([[]] * 60, True),
        ({"a": {"b": ["x" * 100]}}, True),
        (None, False),
    ],
)
def test_weighing_stops_at_the_limit(value: Any, heavy: bool) -> None:
    assert exceeds_size(value, 100) is heavy
