from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from toolcrib import Tool
from toolcrib.core.tool import MAX_JSON_DEPTH, MAX_NAME_CHARS, MAX_SCHEMA_CHARS
from toolcrib.errors import InvalidSchema, InvalidTool

SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
FULL: dict[str, Any] = {
    "name": "send",
    "description": "Send a letter",
    "input_schema": SCHEMA,
    "title": "Send",
    "server": "post",
    "server_description": "Letters and parcels",
    "category": "mail",
    "tags": ("letter", "paper"),
    "hint": "For paper only",
    "version": "2",
    "examples": [{"to": "Ada"}],
    "output_schema": {"type": "string"},
    "annotations": {"readOnlyHint": False},
    "policy": "never",
}


def test_tool_keeps_its_fields() -> None:
    tool = Tool(**FULL)
    assert {field: getattr(tool, field) for field in FULL} == FULL


def test_default_id_is_server_and_name() -> None:
    assert Tool("send").id == "send"
    assert Tool("send", server="post").id == "post___send"
    assert Tool("send", server="post", id="7").id == "7"


def test_tool_does_not_share_dictionaries_with_the_caller() -> None:
    schema = copy.deepcopy(SCHEMA)
    tool = Tool("send", "", schema)
    schema["type"] = "array"
    tool.input_schema["type"] = "array"
    assert tool.input_schema == SCHEMA


def test_tool_is_immutable() -> None:
    tool = Tool("send")
    with pytest.raises(AttributeError, match=r"tool\.replace\(name=…\)"):
        tool.name = "receive"
    with pytest.raises(AttributeError):
        del tool.name


def test_replace_changes_fields_and_the_default_id() -> None:
    tool = Tool(**FULL)
    assert tool.replace(name="post").id == "post___post"
    assert tool.replace(name="post").description == tool.description
    assert Tool("a", id="7").replace(name="b").id == "7"
    assert Tool("a").replace(name="b").id == "b"


def test_equal_tools_have_equal_hash_and_fingerprint() -> None:
    one, other = Tool(**FULL), Tool(**FULL)
    assert one == other
    assert hash(one) == hash(other)
    assert one.fingerprint == other.fingerprint
    assert one != "send"


@pytest.mark.parametrize("field", sorted(FULL))
def test_any_changed_field_changes_the_fingerprint(field: str) -> None:
    tool = Tool(**FULL)
    fields = {**FULL, field: "changed"} if isinstance(FULL[field], str) else dict(FULL)
    if field == "policy":
        fields["policy"] = "always"
    elif field in ("input_schema", "output_schema", "annotations"):
        fields[field] = {"title": "changed"}
    elif field in ("tags", "examples"):
        fields[field] = ("changed",)
    other = Tool(**fields)
    assert other != tool
    assert other.fingerprint != tool.fingerprint


def test_tool_survives_pickling_and_to_dict() -> None:
    tool = Tool(**FULL)
    assert pickle.loads(pickle.dumps(tool)) == tool
    assert Tool(**tool.to_dict()) == tool
    assert Tool("a").to_dict() == {"id": "a", "name": "a", "policy": "automatic"}


def test_only_a_true_hint_makes_a_tool_read_only() -> None:
    assert Tool("a", annotations={"readOnlyHint": True}).read_only
    assert not Tool("a", annotations={"readOnlyHint": False}).read_only
    assert not Tool("a", annotations={"readOnlyHint": "yes"}).read_only
    assert not Tool("a").read_only
    # The word inside another value is not the hint.
    assert not Tool("a", annotations={"title": "readOnlyHint"}).read_only


def test_long_default_id_is_rejected_immediately() -> None:
    with pytest.raises(InvalidTool, match="id has 1,003 characters"):
        Tool("n" * 500, server="s" * 500)


def test_key_order_of_a_schema_is_part_of_a_tool() -> None:
    one = Tool("a", "", {"properties": {"x": {}, "y": {}}})
    other = Tool("a", "", {"properties": {"y": {}, "x": {}}})
    assert one != other
    assert one.fingerprint != other.fingerprint


def test_single_tag_or_example_may_be_passed_as_a_string() -> None:
    assert Tool("a", tags="mail").tags == ("mail",)
    assert Tool("a", examples="write to Ann").example_requests == ("write to Ann",)


def test_tool_prints_as_its_id() -> None:
    assert repr(Tool("send", server="post")) == "Tool('post___send')"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "needs a name"),
        ({"name": "  "}, "needs a name"),
        ({"name": None}, "name must be text, not NoneType"),
        ({"name": "a\nb"}, "line break"),
        ({"name": "a\u2028b"}, "line break"),
        ({"name": "a\ud800"}, "control"),
        ({"name": "a", "server": "x\x1b[31m"}, "server holds a line break or another control"),
        ({"name": "a" * (MAX_NAME_CHARS + 1)}, "name has 513 characters; the limit is 512"),
        ({"name": "a", "server": {}}, "server must be text, not dict"),
        ({"name": "a", "description": 5}, "description must be text, not int"),
        ({"name": "a", "hint": "x" * 1_000_001}, "hint has 1,000,001 characters; the limit is"),
        ({"name": "a", "id": 5}, "id must be text, not int"),
        ({"name": "a", "id": "x\ny"}, "id holds a line break"),
        ({"name": "a", "tags": 5}, "tags must be a list"),
        ({"name": "a", "examples": {"to": "Ann"}}, "examples must be a list, not dict"),
        ({"name": "a", "examples": 5}, "examples must be a list"),
        ({"name": "a", "tags": [1]}, "tags must be a list of texts"),
        ({"name": "a", "policy": "sometimes"}, "not one of never, automatic, always"),
    ],
)
def test_invalid_tool_is_rejected_with_the_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTool, match=message):
        Tool(**fields)


def _cycle() -> dict[str, Any]:
    schema: dict[str, Any] = {}
    schema["properties"] = schema
    return schema


def _deep(levels: int = 100_000) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("text", "must be an object, not str"),
        ({"default": float("nan")}, "not valid JSON"),
        ({"default": object()}, "not valid JSON"),
        (_cycle(), "not valid JSON"),
        (_deep(), "not valid JSON"),
        (_deep(MAX_JSON_DEPTH), "input_schema is nested more than 400 deep"),
        ([], "must be an object, not list"),
        (False, "must be an object, not bool"),
        ({"description": "x" * MAX_SCHEMA_CHARS}, "the limit is 4,194,304"),
    ],
    ids=["text", "nan", "object", "cycle", "too_deep_to_write", "too_deep", "empty_list", "false", "huge"],
)
def test_invalid_schema_is_rejected_with_the_reason(schema: Any, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        Tool("a", "", schema)


def test_replaced_fields_are_validated() -> None:
    tool = Tool("send", "Sends.", {"type": "object"}, server="mail", annotations={"a": 1})
    renamed = tool.replace(name="post")
    assert (renamed.id, renamed.input_schema) == ("mail___post", {"type": "object"})
    assert renamed == Tool("post", "Sends.", {"type": "object"}, server="mail", annotations={"a": 1})
    assert tool.replace(id="own").replace(name="post").id == "own"
    assert tool.replace(input_schema={"type": "array"}, name="post").id == "mail___post"
    assert tool.replace(input_schema={"type": "array"}).input_schema == {"type": "array"}
    with pytest.raises(InvalidTool, match="description must be text"):
        tool.replace(description=None)
    with pytest.raises(InvalidTool, match="server must be text"):
        tool.replace(server=7)
