from __future__ import annotations

from typing import Any

import pytest

from toolcrib.hub.directory import (
    MAX_DEFINITION_BYTES,
    MAX_PROBLEMS,
    exceeds_size,
    filter_storable,
    parse_definitions,
    render_definition,
)


def test_usable_definition_is_kept_unchanged() -> None:
    raw = {"name": "read", "description": "Read.", "inputSchema": {"type": "object"}, "x": 1}
    parsed = parse_definitions([raw], server="files", server_description="About files.")
    (definition,) = parsed.definitions
    assert definition.raw is raw
    assert definition.tool.server == "files"
    assert definition.tool.server_description == "About files."
    assert parsed.problems == ()


def test_unusable_definition_is_reported_and_does_not_affect_others() -> None:
    good = {"name": "good"}
    parsed = parse_definitions([None, {}, {"name": 7}, good, {**good, "title": "Again"}], server="s")
    assert [definition.name for definition in parsed.definitions] == ["good"]
    assert len(parsed.problems) == 4
    assert parsed.problems[0] == "tool 1 is not an object"
    assert "name is missing" in parsed.problems[1] or "name" in parsed.problems[1]
    assert parsed.problems[-1] == "tool 5: an earlier tool has the same name 'good'"


def test_number_of_problems_is_limited() -> None:
    parsed = parse_definitions([None] * 1000, server="s")
    assert len(parsed.problems) == MAX_PROBLEMS + 1
    assert parsed.problems[-1] == f"and {1000 - MAX_PROBLEMS} more"


def test_oversized_definition_is_a_problem() -> None:
    large = {"name": "large", "_meta": {"x": "x" * MAX_DEFINITION_BYTES}}
    storable, problems = filter_storable([large, {"name": "small"}])
    assert [definition["name"] for definition in storable] == ["small"]
    assert "bytes" in problems[0]


@pytest.mark.parametrize(
    ("schema", "rendered"),
    [
        (None, {"type": "object"}),
        ([1], {"type": "object"}),
        ({}, {"type": "object"}),
        ({"type": "object", "$defs": {}}, {"type": "object", "$defs": {}}),
        ({"type": ["object", "null"]}, {"type": "object"}),
        ({"type": 7, "x": 1}, {"type": "object", "x": 1}),
    ],
)
def test_rendered_schema_has_type_object(schema: Any, rendered: Any) -> None:
    definition = {"name": "own", "inputSchema": schema, "vendor": [None]}
    assert render_definition(definition, "server___own") == {
        "name": "server___own",
        "inputSchema": rendered,
        "vendor": [None],
    }
    assert definition["name"] == "own"


@pytest.mark.parametrize(
    ("value", "expected"),
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
def test_exceeds_size(value: Any, expected: bool) -> None:
    assert exceeds_size(value, 100) is expected
