from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.schema import MAX_PARAMETERS, Parameter, list_parameters, render_signature


def _paths(schema: dict[str, Any]) -> list[str]:
    return [parameter.path for parameter in list_parameters(schema)]


def test_parameters_keep_the_order_of_the_schema() -> None:
    schema = {
        "properties": {
            "to": {"type": "string", "description": "Who gets it"},
            "kind": {"enum": ["letter", 2, True, None]},
            "anything": True,
        },
        "required": ["to"],
    }
    assert list_parameters(schema) == (
        Parameter("to", "to", "string", "Who gets it", is_required=True),
        Parameter("kind", "kind", "string", choices=("letter", "2")),
        Parameter("anything", "anything", "any"),
    )


def test_nested_objects_and_arrays_are_read_completely() -> None:
    schema = {
        "properties": {
            "order": {"properties": {"lines": {"type": "array", "items": {"properties": {"sku": {}, "count": {}}}}}},
            "pair": {"prefixItems": [{"properties": {"left": {}}}, True]},
            "map": {"additionalProperties": {"properties": {"value": {}}}},
        }
    }
    assert _paths(schema) == [
        "order",
        "order.lines",
        "order.lines.sku",
        "order.lines.count",
        "pair",
        "pair.left",
        "map",
        "map.value",
    ]
    assert list_parameters(schema)[2].name == "sku"


def test_alternatives_and_branches_are_all_read() -> None:
    schema = {
        "anyOf": [{"properties": {"email": {}}}, {"properties": {"phone": {}}}, False],
        "then": {"properties": {"reason": {}}},
    }
    assert _paths(schema) == ["email", "phone", "reason"]


def test_declaration_with_a_description_wins() -> None:
    schema = {
        "properties": {"a": {"type": "string"}, "b": {"description": "first"}},
        "allOf": [{"properties": {"a": {"description": "told"}, "b": {"description": "second"}}}],
    }
    assert [parameter.description for parameter in list_parameters(schema)] == ["told", "first"]


def test_local_references_are_resolved_with_their_sibling_keywords() -> None:
    schema = {
        "$defs": {"City": {"type": "string", "description": "A city"}, "a/b~c": {"type": "null"}},
        "properties": {
            "from": {"$ref": "#/$defs/City"},
            "to": {"$ref": "#/$defs/City", "description": "Where to"},
            "odd": {"$ref": "#/$defs/a~1b~0c"},
        },
    }
    assert [(p.type, p.description) for p in list_parameters(schema)] == [
        ("string", "A city"),
        ("string", "Where to"),
        ("null", ""),
    ]


@pytest.mark.parametrize("reference", ["#/nowhere/at/all", "#anchor", "https://example.com/x.json", "#/type/x"])
def test_unresolvable_reference_is_ignored(reference: str) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": reference}}}
    assert list_parameters(schema) == (Parameter("a", "a", "any"),)


def test_recursive_schema_ends() -> None:
    tree = {
        "$ref": "#/$defs/Node",
        "$defs": {
            "Node": {"properties": {"value": {}, "left": {"$ref": "#/$defs/Node"}}},
            "A": {"$ref": "#/$defs/B"},
            "B": {"$ref": "#/$defs/A"},
        },
    }
    assert _paths(tree) == ["value", "left"]
    assert list_parameters({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": tree["$defs"]})[0].type == "any"


def test_huge_or_deep_schema_is_truncated() -> None:
    wide: dict[str, Any] = {"properties": {str(number): {} for number in range(5_000)}}
    assert len(list_parameters(wide)) == MAX_PARAMETERS
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"properties": {"a": deep}}
    assert len(list_parameters(deep)) < 20
    lists: dict[str, Any] = {"properties": {"a": {}}}
    for _ in range(900):
        lists = {"items": lists}
    assert list_parameters(lists) == ()


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "string"}, "string"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": []}, "any"),
        ({"type": "array", "items": {"type": "integer"}}, "integer[]"),
        ({"type": "array"}, "any[]"),
        ({"type": "array", "items": {"type": ["string", "null"]}}, "(string | null)[]"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "null"}]}, "string | null"),
        ({"oneOf": []}, "any"),
        ({"properties": {}}, "object"),
        ({"const": "x"}, "string"),
        ({"items": {"enum": ["a"]}}, "string"),
        ({}, "any"),
        (True, "any"),
    ],
)
def test_types_have_short_names(schema: object, name: str) -> None:
    assert list_parameters({"properties": {"a": schema}})[0].type == name


def test_exponential_schema_is_abandoned() -> None:
    fan = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 10} for n in range(12)}
    bomb = {"$defs": fan, "properties": {"x": {"$ref": "#/$defs/a0"}, "y": {}}}
    assert list_parameters(bomb)[0].name == "x"
    assert render_signature("f", bomb).startswith("f(x?: any")


def test_name_with_a_dot_is_one_name() -> None:
    schema = {"properties": {"filter.status": {"type": "string"}}}
    assert list_parameters(schema)[0].name == "filter.status"
    assert render_signature("f", schema) == "f(filter.status?: string)"


def test_recursive_types_have_names() -> None:
    lists = {"type": "array", "items": {"$ref": "#/properties/lists"}}
    either = {"anyOf": [{"$ref": "#/properties/either"}]}
    types = [parameter.type for parameter in list_parameters({"properties": {"lists": lists, "either": either}})]
    assert types[0].startswith("any[]")
    assert types[1] == "any"


def test_signature_is_one_line_and_marks_optional_parameters() -> None:
    schema = {
        "properties": {
            "to": {"type": "string"},
            "cc": {"type": "array", "items": {"type": "string"}},
            "deep": {"properties": {"inner": {}}},
        },
        "required": ["to"],
    }
    assert render_signature("send", schema) == "send(to: string, cc?: string[], deep?: object)"
    assert render_signature("ping", {}) == "ping()"


_keys = st.sampled_from(
    [
        "properties",
        "items",
        "anyOf",
        "$ref",
        "$defs",
        "enum",
        "const",
        "type",
        "required",
        "a",
        "description",
        "title",
        "additionalProperties",
        "prefixItems",
        "then",
    ]
)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["#", "#/a", "#/$defs/a", "array"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(_keys, _values, max_size=5))
def test_any_json_is_read_without_an_error(schema: dict[str, Any]) -> None:
    for parameter in list_parameters(schema):
        assert parameter.path
    assert render_signature("x", schema).startswith("x(")
