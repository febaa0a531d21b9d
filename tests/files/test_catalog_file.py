from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.catalog import Catalog
from toolcrib.errors import InvalidCatalogFile, ToolcribError
from toolcrib.files.catalog_file import read_catalog_file
from toolcrib.files.json_file import MAX_FILE_BYTES

PING = {"name": "ping"}
MCP = {"name": "issue", "inputSchema": {"type": "object"}}
CHAT = {"type": "function", "function": {"name": "weather"}}
GEMINI = {"functionDeclarations": [{"name": "map"}, {"name": "route"}]}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=5) | st.sampled_from(["name", "type", "tools", "input_schema", "functionDeclarations"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


def read(folder: Path, content: str | bytes) -> Catalog:
    path = folder / "tools.json"
    path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
    return read_catalog_file(path)


def read_error(folder: Path, content: str | bytes) -> str:
    """Return the error message for an invalid file, without its folder."""
    with pytest.raises(InvalidCatalogFile) as error:
        read(folder, content)
    return str(error.value).removeprefix(f"{folder}/")


def names(catalog: Catalog) -> list[str]:
    return [tool.name for tool in catalog]


@pytest.mark.parametrize("document", [[PING, MCP, CHAT, GEMINI], {"model": "m", "tools": [PING, MCP, CHAT, GEMINI]}])
def test_json_document_may_mix_formats(tmp_path: Path, document: Any) -> None:
    for indent in (None, 2):
        catalog = read(tmp_path, json.dumps(document, indent=indent))
        assert names(catalog) == ["ping", "issue", "weather", "map", "route"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", "\n  \n"])
def test_json_lines_may_mix_formats(tmp_path: Path, end: str) -> None:
    content = end.join(json.dumps(entry) for entry in (PING, MCP, CHAT, GEMINI)) + end
    assert names(read(tmp_path, content)) == ["ping", "issue", "weather", "map", "route"]


@pytest.mark.parametrize("entry", [PING, MCP, CHAT])
def test_single_tool_is_a_catalog(tmp_path: Path, entry: dict[str, Any]) -> None:
    assert len(read(tmp_path, json.dumps(entry, indent=2))) == 1


def test_single_container_is_a_catalog(tmp_path: Path) -> None:
    assert names(read(tmp_path, json.dumps(GEMINI, indent=2))) == ["map", "route"]


@pytest.mark.parametrize("content", ["[]", '{"tools": []}'])
def test_empty_list_is_an_empty_catalog(tmp_path: Path, content: str) -> None:
    assert len(read(tmp_path, content)) == 0


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    assert names(read(tmp_path, b"\xef\xbb\xbf" + json.dumps(PING).encode())) == ["ping"]


def test_unicode_line_separator_does_not_end_a_line(tmp_path: Path) -> None:
    entry = json.dumps({"name": "a", "description": "b\u2028c\x85d"}, ensure_ascii=False)
    assert read(tmp_path, f'{entry}\n{{"name": "b"}}')["a"].description == "b\u2028c\x85d"


def test_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def set_stdin(content: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    set_stdin(b'{"name": "a"}\n{"name": "b"}')
    assert names(read_catalog_file("-")) == ["a", "b"]
    set_stdin(b"[")
    with pytest.raises(InvalidCatalogFile, match="standard input, line 1"):
        read_catalog_file("-")


def test_error_in_json_lines_names_line_and_field(tmp_path: Path) -> None:
    content = '{"name": "a"}\n\n{"name": "b", "input_schema": 7}\n'
    assert read_error(tmp_path, content) == "tools.json, line 3: tool 'b': input_schema must be an object, not a number"


def test_error_in_a_list_names_the_first_line_of_the_entry(tmp_path: Path) -> None:
    entries: list[Any] = [{"name": f"tool_{number}", "tags": ["a", "b"]} for number in range(60)]
    entries[57]["description"] = 7
    content = json.dumps(entries, indent=1)
    line = content[: content.index("tool_57")].count("\n")
    assert f"line {line}: tool 'tool_57': description" in read_error(tmp_path, content)


@pytest.mark.parametrize("field", ["tools", "functionDeclarations"])
def test_error_in_a_container_names_the_first_line_of_the_entry(tmp_path: Path, field: str) -> None:
    content = f"""{{
      "note": {{"{field}": [1, 2]}},
      "{field}" : [
        {{"name": "a"}},

        {{"name": "b"
         , "description": 7}}
      ],
      "model": "m"
    }}"""
    assert read_error(tmp_path, content).startswith("tools.json, line 6: tool 'b': description must")


def test_last_of_two_equal_keys_is_used(tmp_path: Path) -> None:
    content = '{"tools": [],\n"tools": [\n7]}'
    assert read_error(tmp_path, content) == "tools.json, line 3: a tool is an object, not a number"


def test_error_in_a_saved_mcp_response_names_the_line(tmp_path: Path) -> None:
    content = '{"jsonrpc": "2.0",\n"result":\n{"tools":\n[{}]}}'
    assert read_error(tmp_path, content).startswith("tools.json, line 4: an object with no fields")


def test_duplicate_id_names_both_lines(tmp_path: Path) -> None:
    message = "the id 'a' is already used by the tool on line 1; rename one of them, or set `server` for both"
    lines = '{"name": "a"}\n{"name": "b"}\n{"name": "a"}'
    assert read_error(tmp_path, lines) == f"tools.json, line 3: {message}"
    document = '[{"name": "a"},\n{"name": "b"},\n{"name": "a"}]'
    assert read_error(tmp_path, document) == f"tools.json, line 3: {message}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "tools.json: the file is empty"),
        (" \n\t\n", "tools.json: the file is empty"),
        (b"\xef\xbb\xbf", "tools.json: the file is empty"),
        (b'{"name":\n"\xff"}', "line 2: byte 0xff is not valid UTF-8; save the file as UTF-8"),
        ('{"name": "a"}'.encode("utf-16"), "line 1: byte 0xff is not valid UTF-8"),
        (b"\x00\x01\x02", "line 1: column 1: invalid JSON: expecting value"),
        ("[\n{}, \n", "line 3: column 1: the text ends in the middle of a value"),
        ('[\n{"name": "a', "line 2: column 10: the text ends in the middle of a value"),
        ('[\n{"name": "a"},\n]', "there is a comma before the closing bracket; remove it"),
        ('{"name": "a",\n}', "there is a comma before the closing bracket; remove it"),
        ('{"name": "a"},\n{"name": "b"}', "line 1: column 14: there is more text after the value"),
        ('{"name": "a"}\n{"name": "b"},\n', "line 2: column 14: there is more text after the value"),
        ('{"name": "a"}\n{"name": "b"\n', "line 2: column 13: the text ends in the middle"),
        ("{'name': 'a'}", "line 1: column 2: invalid JSON: expecting property name"),
        ('{"name": "a\tb"}', "line 1: column 12: invalid JSON: invalid control character"),
        ('{\n"name": NaN}', "line 2: NaN is not a valid JSON number; use null"),
        ('{"name": "NaN \\" ",\n"x": -Infinity}', "line 2: -Infinity is not a valid JSON number"),
        (f'{{\n\n"x": {"9" * 5000}}}', "line 3: 9999999999… is not a valid JSON number"),
        ('{"name": "a"}\n{"x": NaN}', "line 2: NaN is not a valid JSON number"),
        ('{"name": "a", "input_schema": {"x": 1e999}}', "line 1: tool 'a': input_schema"),
        ("7", "line 1: a tool is an object, not a number"),
        ('"text"', "line 1: a tool is an object, not text"),
        ('\n\n[\n"text"]', "line 4: a tool is an object, not text"),
    ],
)
def test_invalid_file_is_reported_with_line_and_remedy(tmp_path: Path, content: str | bytes, message: str) -> None:
    assert message in read_error(tmp_path, content)


@pytest.mark.parametrize("before", ["", '{"name": "a"}\n'])
def test_deep_nesting_is_reported_with_its_line(tmp_path: Path, before: str) -> None:
    deep = "[" * 200_000 + "]" * 200_000
    line = before.count("\n") + 1
    message = read_error(tmp_path, f'{before}{{"name": "b", "x": [], "input_schema": {deep}}}')
    assert message.startswith(f"tools.json, line {line}: the values are nested too deeply")


def test_deepest_line_is_reported_without_a_depth_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.files.json_file.SUSPICIOUS_DEPTH", 1_000_000)
    deep = "[" * 199_999 + "\n[" + "]" * 200_000
    assert read_error(tmp_path, f"[[], {deep}]").startswith("tools.json, line 2: the values are")


def test_number_beyond_a_lower_digit_limit_is_rejected(tmp_path: Path) -> None:
    default = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(700)
    try:
        assert "a number is not a valid JSON number" in read_error(tmp_path, f"[{'9' * 800}]")
    finally:
        sys.set_int_max_str_digits(default)


def test_file_size_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_FILE_BYTES == 50 * 1024 * 1024
    monkeypatch.setattr("toolcrib.files.json_file.MAX_FILE_BYTES", 1024 * 1024)
    assert read(tmp_path, json.dumps(PING).ljust(1024 * 1024))
    message = read_error(tmp_path, json.dumps(PING).ljust(1024 * 1024 + 1))
    assert message.startswith("tools.json: the file is larger than the limit of 1 MiB")


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "this is a folder; choose a file in it"), ("none.json", "there is no such file"), ("\0", "cannot")],
)
def test_path_without_a_file_is_rejected(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(InvalidCatalogFile, match=message):
        read_catalog_file(tmp_path / name)


def test_empty_path_is_rejected() -> None:
    with pytest.raises(InvalidCatalogFile, match=r"^the path of the file is empty"):
        read_catalog_file("")


def test_unreadable_file_is_reported(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(InvalidCatalogFile, match="loop: cannot be read: Too many levels"):
        read_catalog_file(loop)


@given(values=st.lists(json_values, min_size=1, max_size=3), indent=st.sampled_from([None, 1]))
def test_any_json_is_read_or_raises_invalid_catalog_file(
    tmp_path_factory: pytest.TempPathFactory, values: list[object], indent: int | None
) -> None:
    content = "\n".join(json.dumps(value, indent=indent) for value in values)
    try:
        read(tmp_path_factory.getbasetemp(), content)
    except ToolcribError as error:
        assert isinstance(error, InvalidCatalogFile)


@given(st.binary(max_size=40) | st.text('[]{},:"\\ \n7aN', max_size=30))
def test_any_content_is_read_or_raises_invalid_catalog_file(
    tmp_path_factory: pytest.TempPathFactory, content: str | bytes
) -> None:
    try:
        read(tmp_path_factory.getbasetemp(), content)
    except ToolcribError as error:
        assert isinstance(error, InvalidCatalogFile)


BROKEN_SCHEMAS = [
    {"properties": {"a": {"type": "strng"}}},
    {"properties": {"a": {"$ref": "#/$defs/missing"}}},
    {"properties": {"a": {"$ref": "https://example.com/schema.json"}}},
]


@pytest.mark.parametrize("schema", BROKEN_SCHEMAS)
def test_broken_schema_is_a_warning_with_the_line_and_the_tool(tmp_path: Path, schema: dict[str, Any]) -> None:
    content = f"{json.dumps(PING)}\n{json.dumps({'name': 'pay', 'input_schema': schema})}\n"
    with pytest.warns(RuntimeWarning, match=r"tools.json, line 2: the schema of tool 'pay' is broken: .*; correct it$"):
        assert names(read(tmp_path, content)) == ["ping", "pay"]


def test_several_broken_schemas_are_one_warning(tmp_path: Path) -> None:
    tools = [{"name": f"tool_{number}", "input_schema": schema} for number, schema in enumerate(BROKEN_SCHEMAS)]
    with pytest.warns(RuntimeWarning, match=r"tool 'tool_0' is .* \(in total, 3 tools have") as caught:
        read(tmp_path, json.dumps(tools))
    assert len(caught) == 1


@pytest.mark.parametrize("path", [None, 5, b"tools.json"])
def test_path_is_text_or_a_path(path: Any) -> None:
    with pytest.raises(InvalidCatalogFile, match="a file is given by its path, not by"):
        read_catalog_file(path)
