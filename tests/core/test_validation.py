from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.validation import MAX_PROBLEMS, check_schema, find_problems
from toolcrib.errors import InvalidSchema

SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "description": "How many."},
        "unit": {"enum": ["g", "kg"]},
        "to": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                "required": ["name"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["count"],
    "additionalProperties": False,
}


def test_valid_arguments_have_no_problems() -> None:
    assert find_problems(SCHEMA, {"count": 1, "unit": "kg", "to": [{"name": None}]}) == ()
    assert find_problems({}, {"anything": [1]}) == ()


def test_each_problem_names_the_field_and_what_was_expected() -> None:
    found = find_problems(SCHEMA, {"unit": "lb", "to": [{}, {"name": 3}]})
    assert sorted(found) == [
        "`count` is missing; expected integer: How many.",
        "`to[0].name` is missing; expected string | null",
        "`to[1].name`: 3 is not valid under any of the schemas listed in the 'anyOf' keyword; expected string | null",
        '`unit`: "lb" is not one of "g" or "kg"; expected string (g, kg)',
    ]


def test_unknown_field_suggests_the_nearest_known_one() -> None:
    assert find_problems(SCHEMA, {"count": 1, "units": "kg", "zzz": 1}) == (
        "`units` is not a known field; did you mean `unit`?",
        "`zzz` is not a known field; the fields are count, unit, to",
    )
    assert find_problems({"additionalProperties": False}, {"a": 1}) == ("nothing is allowed here; leave it out",)
    assert find_problems({"properties": {"a": False}}, {"a": 1}) == ("nothing is allowed in `a`; leave it out",)
    closed = {"properties": {"a": {"patternProperties": {"x": {}}, "additionalProperties": False}}}
    assert find_problems(closed, {"a": {"b": 1}}) == ("`a.b` is not a known field; leave it out",)


def test_arguments_that_are_not_an_object_are_reported() -> None:
    assert find_problems(SCHEMA, [1]) == ('the arguments: [1] is not of type "object"',)
    assert find_problems(SCHEMA, {"count": {1}})[0].startswith("the arguments are not JSON")


def test_missing_field_without_description_is_named() -> None:
    assert find_problems({"required": ["x"]}, {}) == ("`x` is missing",)


def test_number_and_length_of_problems_are_limited() -> None:
    many = {"additionalProperties": {"type": "string"}}
    assert len(find_problems(many, {str(number): number for number in range(99)})) == MAX_PROBLEMS
    assert all(len(one) < 700 for one in find_problems(SCHEMA, {"count": "x" * 9_999, "y" * 9_999: 1}))


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, {"a": [1]}),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema"}, {"a": [1]}),
        ({}, {"a": [1]}),
        ({"$schema": "https://example.test/own"}, {"a": [1]}),
    ],
)
def test_every_schema_version_is_supported_even_undeclared(schema: dict[str, Any], arguments: object) -> None:
    older = {**schema, "properties": {"a": {"items": [{"type": "string"}]}}}
    newer = {**schema, "properties": {"a": {"prefixItems": [{"type": "string"}]}}}
    if "2020" not in str(schema):
        assert find_problems(older, arguments) == ('`a[0]`: 1 is not of type "string"',)
    if "07" not in str(schema):
        assert find_problems(newer, arguments) == ('`a[0]`: 1 is not of type "string"',)


def test_boolean_keywords_of_draft_4_are_supported() -> None:
    schema = {"properties": {"a": {"minimum": 1, "exclusiveMinimum": True}}}
    assert len(find_problems(schema, {"a": 1})) == 1
    assert find_problems(schema, {"a": 2}) == ()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "whatever"},
        {"$ref": "https://example.test/elsewhere.json"},
        {"$ref": "file:///etc/hostname"},
        {"properties": {"a": {"$ref": "#/$defs/none"}}},
        {"properties": {"a": {"pattern": "("}}},
        {"x": {1}},
    ],
)
def test_broken_schema_raises_invalid_schema(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchema):
        check_schema(schema)


def test_error_about_a_broken_schema_has_its_location() -> None:
    with pytest.raises(InvalidSchema, match=r"\(at properties.a.type\)"):
        check_schema({"properties": {"a": {"type": "strng"}}})


def test_usable_parts_of_a_broken_schema_are_checked() -> None:
    schema = {
        "type": "object",
        "$defs": {"count": {"type": "integer"}},
        "properties": {
            "broken": {"type": "strng"},
            "dangling": {"$ref": "#/$defs/nothing"},
            "remote": {"$ref": "https://example.test/elsewhere.json"},
            "count": {"$ref": "#/$defs/count"},
        },
        "required": ["count"],
        "minProperties": "many",
    }
    assert find_problems(schema, {"broken": 1, "dangling": 2, "remote": 3, "count": 4}) == ()
    assert find_problems(schema, {}) == ("`count` is missing; expected integer",)
    assert "`count`" in find_problems(schema, {"count": "four"})[0]
    broken_definitions = {"definitions": {"a": {"type": 7}}, "properties": {"a": {"$ref": "#/definitions/a"}}}
    assert find_problems(broken_definitions, {"a": 1}) == ()
    assert find_problems({"properties": 7, "required": ["a"]}, {}) == ("`a` is missing",)


def test_catastrophic_pattern_ends() -> None:
    for pattern in ("(a+)+$", r"(?=a)(a+)+\1$"):
        schema = {"properties": {"a": {"pattern": pattern}}}
        assert len(find_problems(schema, {"a": "a" * 5_000 + "b"})) == 1


def _fan(width: int) -> dict[str, Any]:
    steps: dict[str, Any] = {f"s{at}": {"anyOf": [{"$ref": f"#/$defs/s{at + 1}"}] * 2} for at in range(width)}
    return {"properties": {"a": {"$ref": "#/$defs/s0"}}, "$defs": {**steps, f"s{width}": {"type": "string"}}}


def test_exponential_alternatives_are_rejected_before_validation() -> None:
    assert len(find_problems(_fan(6), {"a": 1})) == 1
    with pytest.raises(InvalidSchema, match="would take over 10,020 steps"):
        find_problems(_fan(60), {"a": 1})


def _nest_value(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize(
    "inner",
    [
        {"properties": {"a": {"items": {"$ref": "#"}}}},
        {"properties": {"a": {"items": [{"$ref": "#"}]}}},
        {"patternProperties": {".": {"contains": {"$ref": "#"}}}},
        {"dependencies": {"a": {"properties": {"a": {"additionalItems": {"$ref": "#"}}}}}},
        {"if": {"properties": {"a": {"items": {"$ref": "#"}}}}},
        {"additionalProperties": {"contains": {"allOf": [{"$ref": "#/oneOf/0"}, {"$ref": "#/oneOf/1"}]}}},
    ],
)
def test_recursive_references_are_counted_in_every_notation(inner: dict[str, Any]) -> None:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "oneOf": [inner, inner]}
    with pytest.raises(InvalidSchema):
        find_problems(schema, _nest_value(60))


_OLDER = {"$schema": "http://json-schema.org/draft-07/schema#"}
_NUMBER = {"type": "integer"}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#name"}}, "$defs": {"x": {"$anchor": "name", **_NUMBER}}},
        {"properties": {"a": {"$dynamicRef": "#n"}}, "$defs": {"x": {"$dynamicAnchor": "n", **_NUMBER}}},
        {**_OLDER, "properties": {"a": {"$ref": "#n"}}, "definitions": {"x": {"$id": "#n", **_NUMBER}}},
        {"properties": {"a": {"$ref": "#/$defs/a%20b"}}, "$defs": {"a b": _NUMBER}},
        {"properties": {"a": {"$ref": "#/$defs/a%7E1b/anyOf/0"}}, "$defs": {"a/b": {"anyOf": [_NUMBER]}}},
        {"properties": {"a": {"$id": "https://example.test/a", **_NUMBER}}},
        {"properties": {"a": {"$ref": "T0"}}, "$defs": {"x": {"$id": "T0", **_NUMBER}}},
        {"$id": "https://example.test/all/", "properties": {"a": {"$ref": "T0#"}}, "$defs": {"x": {"$id": "T0", **_NUMBER}}},
        {"properties": {"a": {"$ref": "T0#/$defs/b"}}, "$defs": {"x": {"$id": "T0", "$defs": {"b": _NUMBER}}}},
        {"properties": {"a": {"$id": "T0", "$ref": "#/$defs/b", "$defs": {"b": _NUMBER}}}},
        {"properties": {"a": {"$ref": "#/own/b"}}, "own": {"b": {"$id": "T0", "$ref": "#/$defs/c"}}, "$defs": {"c": _NUMBER}},
    ],
)  # fmt: skip
def test_references_of_every_type_are_resolved(schema: dict[str, Any]) -> None:
    assert find_problems(schema, {"a": 1}) == ()
    assert len(find_problems(schema, {"a": "x"})) == 1


def _twice(again: dict[str, Any]) -> dict[str, Any]:
    inner = {"properties": {"a": {"items": again}}}
    return {"oneOf": [inner, inner]}


@pytest.mark.parametrize(
    "schema",
    [
        {"$id": "https://example.test/list", **_twice({"$ref": "list"})},
        {"$anchor": "list", **_twice({"$ref": "#list"})},
        {"$dynamicAnchor": "list", **_twice({"$dynamicRef": "#list"})},
        {"$schema": "https://json-schema.org/draft/2019-09/schema", **_twice({"$recursiveRef": "#"})},
        # The same $id twice; the second one is in an example, where it has no effect.
        {"$id": "list", "examples": [{"$id": "list"}], **_twice({"$ref": "list"})},
        # A subschema with its own $id, in which the same path refers to another definition.
        {
            "$defs": {"list": {}},
            "allOf": [{"$id": "own", "$ref": "#/$defs/list", "$defs": {"list": _twice({"$ref": "#/$defs/list"})}}],
        },
        # A subschema that declares draft 4, in which `id` sets the base URI.
        {
            "definitions": {"list": {}},
            "properties": {
                "a": {
                    "$schema": "http://json-schema.org/draft-04/schema#",
                    "items": {
                        "id": "http://example.test/own",
                        "allOf": [{"$ref": "#/definitions/list"}],
                        "definitions": {"list": _twice({"$ref": "#/definitions/list"})},
                    },
                }
            },
        },
    ],
)  # fmt: skip
def test_list_schema_that_refers_to_itself_twice_is_counted(schema: dict[str, Any]) -> None:
    assert isinstance(find_problems(schema, _nest_value(5)), tuple)
    with pytest.raises(InvalidSchema, match="would take over"):
        find_problems(schema, _nest_value(60))


def _objects(levels: int) -> dict[str, Any]:
    return {"a": _objects(levels - 1)} if levels else {}


def _inside(levels: int) -> dict[str, Any]:
    part: dict[str, Any] = {"$ref": "#"}
    for level in range(levels):
        part = {"$id": f"https://example.test/{level}", "properties": {"a": part}}
    return part


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"$id": "https://json-schema.org/draft/2020-12/a", "$ref": "schema", "$defs": {"x": {"$id": "/schema"}}},
        {"$ref": "a/?b", "$defs": {"x": {"$id": "a/?b"}}},
        {"allOf": [_inside(9)]},
    ],
)  # fmt: skip
def test_unresolvable_reference_is_rejected(schema: dict[str, Any]) -> None:
    check_schema(schema)
    with pytest.raises(InvalidSchema, match="cannot be resolved"):
        find_problems(schema, _objects(10))


def test_large_arguments_are_validated_up_to_a_limit() -> None:
    row = {"properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    schema = {"properties": {"rows": {"type": "array", "items": row}}}
    rows = [{"a": 1, "b": "x"}] * 6_000
    assert find_problems(schema, {"rows": rows}) == ()
    assert len(find_problems(schema, {"rows": [*rows, {"a": "x"}]})) == 1
    some = {"properties": {"rows": {"items": {"allOf": [{"not": {"type": "object"}}] * 20}}}}
    with pytest.raises(InvalidSchema, match="send less at once"):
        find_problems(some, {"rows": (1,) * 6_000})


def test_reference_to_itself_ends() -> None:
    with pytest.raises(InvalidSchema):
        find_problems({"$ref": "#"}, {})


def test_deeply_nested_schema_or_arguments_are_rejected() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"properties": {"a": deep}}
    with pytest.raises(InvalidSchema):
        find_problems(deep, {})
    assert isinstance(find_problems({"type": "object"}, _nest_value(400)), tuple)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["type", "items", "anyOf", "$ref", "properties"]), _JSON), _JSON)
def test_only_documented_errors_are_raised(schema: dict[str, Any], value: object) -> None:
    with suppress(InvalidSchema):
        assert all(isinstance(one, str) for one in find_problems(schema, value))
