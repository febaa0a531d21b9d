"""Stubs show how to call a tool in a script."""

from __future__ import annotations

from toolcrib.core.stubs import build_paths, render_stub, to_identifier, unwrap_result
from toolcrib.core.tool import Tool


def test_stub_has_typed_parameters_and_the_returned_shape() -> None:
    schema = {
        "type": "object",
        "properties": {
            "limit": {"type": "integer"},
            "repo": {"type": "string"},
            "state": {"enum": ["open", "closed"]},
            "labels": {"type": "array", "items": {"type": "string"}},
            "where": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "point": {"$ref": "#/$defs/point"},
            "any": True,
            "kind": {"type": ["string", "null"]},
        },
        "required": ["repo"],
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}}},
    }
    output = {"type": "object", "properties": {"result": {"type": "array", "items": {"type": "object"}}}}
    tool = Tool("list-issues", "List issues.", schema, server="git hub", output_schema=output)
    assert render_stub(tool) == (
        "await tools.git_hub.list_issues(repo: str, limit: int = …, "
        'state: Literal["open", "closed"] = …, labels: list[str] = …, where: str | None = …, '
        'point: {"x": float} = …, any: Any = …, kind: str | None = …) -> list[dict]'
    )
    assert render_stub(Tool("ping")) == "await tools.local.ping() -> Any"


def test_names_become_identifiers_and_the_first_tool_of_a_name_gets_it() -> None:
    assert [to_identifier(name) for name in ("a-b", "1st", "class", "", "é")] == ["a_b", "_1st", "class_", "_", "_"]
    first, second = Tool("a-b", server="s"), Tool("a_b", server="s", id="other")
    assert build_paths([first, second]) == {("s", "a_b"): first}


def test_wrapped_results_are_unwrapped() -> None:
    assert unwrap_result({"result": [1]}) == [1]
    assert unwrap_result({"result": 1, "more": 2}) == {"result": 1, "more": 2}


def test_long_stub_is_cut() -> None:
    properties = {f"parameter_{number}": {"type": "string"} for number in range(200)}
    assert len(render_stub(Tool("big", "", {"type": "object", "properties": properties}))) <= 1000


def test_unusual_schemas_have_general_types() -> None:
    def stub(parameter: object, **more: object) -> str:
        schema = {"type": "object", "properties": {"p": parameter}, "required": ["p"], **more}
        return render_stub(Tool("t", "", schema)).partition("(p: ")[2].partition(")")[0]

    assert stub({"const": 1}) == "Literal[1]"
    assert stub({"enum": list(range(20))}).endswith("11, …]")
    assert stub({"oneOf": []}) == "Any"
    assert stub({"type": []}) == "Any"
    assert stub({"type": "object"}) == "dict"
    assert stub({"properties": {"a": {"properties": {"b": {"properties": {"c": {"properties": {"d": {}}}}}}}}}) == (
        '{"a": {"b": {"c": dict}}}'
    )
    assert stub({"$ref": "#/$defs/missing"}) == "dict"
    assert stub({"$ref": "#/$defs/a/b"}, **{"$defs": {"a": 1}}) == "dict"
    loop = {"$defs": {"loop": {"anyOf": [{"$ref": "#/$defs/loop"}]}}}
    assert stub({"$ref": "#/$defs/loop"}, **loop) == "dict"
    assert render_stub(Tool("t", "", {"type": "object", "required": "p"})) == "await tools.local.t() -> Any"
    assert render_stub(Tool("t", output_schema={"type": "object"})).endswith("-> dict")
