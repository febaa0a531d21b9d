"""Operations of OpenAPI documents as tools: names, schemas, hostile documents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.gateway.mcp.upstream.openapi.shop_api import RESOURCES, build_document, build_large_document
from toolcrib.core.validation import check_schema, find_problems
from toolcrib.errors import InvalidConfig, RequestFailed
from toolcrib.gateway.mcp.upstream.openapi.document import (
    MAX_REFERENCE_STEPS,
    MAX_SCHEMA_PARTS,
    OpenApiDocument,
    find_base_url,
    is_private_host,
    parse_document,
)
from toolcrib.gateway.mcp.upstream.openapi.operations import (
    MAX_OPERATIONS,
    MAX_PARAMETERS,
    ApiOperation,
    ApiOperations,
    read_operations,
)
from toolcrib.gateway.mcp.upstream.openapi.requests import build_request

BASE = "https://api.example.com"
ITEM_REFERENCE = "#/components/schemas/Item"


def read(document: dict[str, Any], **configured: frozenset[str]) -> ApiOperations:
    return read_operations(OpenApiDocument("api.json", document), BASE, configured)


def by_name(found: ApiOperations) -> dict[str, ApiOperation]:
    return {operation.name: operation for operation in found.operations}


def schema_of(operation: ApiOperation) -> dict[str, Any]:
    schema: dict[str, Any] = operation.definition["inputSchema"]
    return schema


def one_operation(operation: dict[str, Any], method: str = "get", path: str = "/x", **root: Any) -> dict[str, Any]:
    return {"openapi": "3.1.0", "paths": {path: {method: operation}}, **root}


def test_operations_get_names_texts_and_annotations() -> None:
    tools = by_name(read(build_document()))
    assert {"getItem", "replaceItem", "deleteItem", "get_items", "create_item", "upload"} <= set(tools)
    get_item = tools["getItem"].definition
    assert get_item["title"] == "Get an item"
    assert get_item["description"] == "Get an item\n\nReturns one item with its stock.\n\nGET /items/{itemId}"
    assert get_item["annotations"] == {"readOnlyHint": True, "openWorldHint": True}
    assert tools["deleteItem"].definition["annotations"]["destructiveHint"] is True
    assert tools["replaceItem"].definition["annotations"]["destructiveHint"] is False
    assert tools["deleteItem"].definition["description"].startswith("Deprecated.")


def test_half_of_an_emoji_in_a_document_is_replaced() -> None:
    document = json.dumps({**one_operation({"summary": "Get a \ud83d"}), "info": {}})
    (operation,) = read(dict(parse_document("api.json", document.encode()).root)).operations
    assert operation.definition["description"].startswith("Get a �")


def test_parameters_of_path_and_operation_become_arguments() -> None:
    schema = schema_of(by_name(read(build_document()))["getItem"])
    assert list(schema["properties"]) == ["itemId", "fields", "X-Trace"]
    assert schema["required"] == ["itemId"]


def test_configured_headers_and_queries_are_no_arguments() -> None:
    found = read(build_document(), header=frozenset({"x-trace"}), query=frozenset({"api_key"}))
    assert list(schema_of(by_name(found)["getItem"])["properties"]) == ["itemId", "fields"]
    assert "api_key" not in schema_of(by_name(found)["get_items"])["properties"]


def test_a_body_is_flattened_and_keeps_its_recursion() -> None:
    schema = schema_of(by_name(read(build_document()))["replaceItem"])
    assert list(schema["properties"]) == ["itemId", "name", "price", "parts"]
    assert schema["required"] == ["itemId", "name"]
    assert schema["properties"]["name"]["examples"] == ["Lamp"]
    assert schema["properties"]["price"] == {"type": ["number", "null"], "exclusiveMinimum": 0}
    check_schema(schema)
    nested = {"itemId": "1", "name": "a", "parts": [{"name": "b", "parts": [{"name": "c"}]}]}
    assert not find_problems(schema, nested)
    assert find_problems(schema, {"itemId": "1", "name": "a", "parts": [{"parts": []}]})


def test_a_body_that_is_a_choice_is_one_argument() -> None:
    choice = {"oneOf": [{"type": "object", "properties": {"a": {}}}, {"type": "array", "items": {"type": "string"}}]}
    body = {"required": True, "content": {"application/vnd.api+json": {"schema": choice}}}
    (operation,) = read(one_operation({"requestBody": body}, "post")).operations
    assert schema_of(operation)["required"] == ["body"]
    request = build_request(operation, {"body": ["é"]})
    assert request.body == {"content": '["é"]'.encode()}
    assert request.headers["Content-Type"] == "application/vnd.api+json"
    with pytest.raises(RequestFailed, match="`body` is missing"):
        build_request(operation, {})


def test_a_large_document_gives_valid_bounded_tools() -> None:
    found = read(build_large_document())
    assert len(found.operations) == 5 * len(RESOURCES) == 250
    assert not found.problems
    for operation in found.operations:
        check_schema(schema_of(operation))
        assert len(json.dumps(operation.definition)) < 100_000


def test_equal_operation_ids_get_numbers() -> None:
    document = {
        "openapi": "3.1.0",
        "paths": {"/a": {"get": {"operationId": "x"}}, "/b": {"get": {"operationId": "x"}}, "/{c}": {"get": {}}},
    }
    found = read(document)
    assert [operation.name for operation in found.operations] == ["x", "x_2"]
    assert "'c', which is not a parameter" in found.problems[0]


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"$ref": "file:///etc/passwd"}, "is not read; bundle"),
        ({"$ref": "http://169.254.169.254/latest"}, "is not read; bundle"),
        ({"$ref": "other.yaml#/Pet"}, "is not read; bundle"),
        ({"$ref": "#/components/schemas/Missing"}, "which the document does not have"),
    ],
)
def test_operations_with_foreign_references_are_left_out(schema: dict[str, Any], problem: str) -> None:
    parameter = {"name": "a", "in": "query", "schema": schema}
    found = read({"openapi": "3.1.0", "paths": {"/x": {"get": {"parameters": [parameter]}, "delete": {}}}})
    assert [operation.method for operation in found.operations] == ["DELETE"]
    assert problem in found.problems[0]


def test_references_in_circles_end() -> None:
    parameters = {"a": {"$ref": "#/components/parameters/b"}, "b": {"$ref": "#/components/parameters/a"}}
    operation = {"parameters": [{"$ref": "#/components/parameters/a"}]}
    found = read(one_operation(operation, components={"parameters": parameters}))
    assert "refers to itself" in found.problems[0]
    assert MAX_REFERENCE_STEPS < 100


def test_schemas_that_grow_exponentially_are_cut() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(25):
        deep = {"anyOf": [deep, deep]}
    parameter = {"name": "a", "in": "query", "schema": deep}
    (operation,) = read(one_operation({"parameters": [parameter]})).operations
    assert len(json.dumps(schema_of(operation))) < 100 * MAX_SCHEMA_PARTS
    nested: dict[str, Any] = {}
    for _ in range(400):
        nested = {"items": nested}
    (operation,) = read(one_operation({"parameters": [{**parameter, "schema": nested}]})).operations
    check_schema(schema_of(operation))


def test_numbers_of_operations_and_parameters_are_limited() -> None:
    many: dict[str, Any] = {f"/{number}": {"get": {}} for number in range(MAX_OPERATIONS + 5)}
    found = read({"openapi": "3.1.0", "paths": many})
    assert len(found.operations) == MAX_OPERATIONS
    assert len(found.problems) == 1
    parameters = [{"name": f"p{number}", "in": "query"} for number in range(MAX_PARAMETERS + 1)]
    assert "parameters" in read(one_operation({"parameters": parameters})).problems[0]


def test_an_operation_on_another_host_is_left_out() -> None:
    document = one_operation({"servers": [{"url": "http://10.0.0.1"}]})
    assert "another host" in read(document).problems[0]
    assert not read(one_operation({"servers": [{"url": f"{BASE}/v2"}]})).problems


def test_a_body_of_an_unknown_type_is_left_out_only_if_required() -> None:
    body: dict[str, Any] = {"content": {"application/octet-stream": {}}}
    assert len(read(one_operation({"requestBody": body}, "post")).operations) == 1
    assert "octet-stream" in read(one_operation({"requestBody": {**body, "required": True}}, "post")).problems[0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "neither JSON nor YAML"),
        ("[1]", "is not an OpenAPI document"),
        ("{}", "is not an OpenAPI document"),
        ('{"swagger": "2.0"}', "has version 2.0; convert it"),
        ('{"openapi": "4.0.0"}', "has version 4.0.0; convert it"),
        ("[" * 200_000, "nested too deeply"),
        ('{"a":' * 200_000, "neither JSON nor YAML"),
        ("a: &a [x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" + "".join(
            f"c{n}: &c{n} [{','.join(['*' + ('b' if n == 0 else f'c{n - 1}')] * 9)}]\n" for n in range(9)
        ), "more than"),
    ],
)  # fmt: skip
def test_documents_that_cannot_be_used(text: str, problem: str) -> None:
    with pytest.raises(InvalidConfig, match=problem):
        parse_document("api", text.encode())


def test_a_yaml_document_is_read() -> None:
    text = "openapi: 3.0.0\ninfo: {title: T, version: 1.0}\npaths:\n  /x:\n    get: {operationId: x}\n"
    document = parse_document("api.yaml", text.encode())
    assert [operation.name for operation in read_operations(document, BASE).operations] == ["x"]


@pytest.mark.parametrize(
    ("source", "url", "expected"),
    [
        ("api.json", "https://a.example/v1/", "https://a.example/v1"),
        ("https://a.example/openapi.json", "/v2", "https://a.example/v2"),
        ("https://a.example/openapi.json", "", "https://a.example"),
        ("https://a.example/openapi.json", "https://a.example:443/v3", "https://a.example:443/v3"),
        ("https://a.example/openapi.json", "http://169.254.169.254/", "another host"),
        ("https://a.example/openapi.json", "http://a.example/", "another host"),
        ("https://a.example/openapi.json", "file:///etc", "does not name the address"),
        ("api.json", "/v1", "does not name the address"),
        ("api.json", "ftp://a.example", "does not name the address"),
        ("api.json", "http://[", "does not name the address"),
    ],
)
def test_the_address_of_an_api(source: str, url: str, expected: str) -> None:
    document = OpenApiDocument(source, {"servers": [{"url": url}]})
    if expected.startswith("https"):
        assert find_base_url(document) == expected
    else:
        with pytest.raises(InvalidConfig, match=expected):
            find_base_url(document)
    assert find_base_url(document, "https://b.example/") == "https://b.example"


def test_server_variables_have_defaults() -> None:
    server = {"url": "https://{region}.example/{v}", "variables": {"region": {"default": "eu"}}}
    assert find_base_url(OpenApiDocument("a", {"servers": [server]})) == "https://eu.example/{v}"


def test_private_hosts() -> None:
    private = ("http://10.1.2.3", "http://localhost:3", "http://[::1]", "http://db.internal", "http://169.254.169.254")
    assert all(map(is_private_host, private))
    assert not is_private_host("https://example.com")


def request_of(parameter: dict[str, Any], value: object, path: str = "/x") -> Any:
    (operation,) = read(one_operation({"parameters": [parameter]}, path=path)).operations
    return build_request(operation, {parameter["name"]: value})


@pytest.mark.parametrize(
    ("options", "value", "expected"),
    [
        ({}, ["a", "b"], [("q", "a"), ("q", "b")]),
        ({"explode": False}, ["a", "b"], [("q", "a,b")]),
        ({"style": "pipeDelimited"}, ["a", "b"], [("q", "a|b")]),
        ({"style": "spaceDelimited"}, [1, 2], [("q", "1 2")]),
        ({"style": "deepObject"}, {"a": {"b": [1]}}, [("q[a][b][0]", "1")]),
        ({}, {"a": 1, "b": True}, [("a", "1"), ("b", "true")]),
        ({"explode": False}, {"a": 1}, [("q", "a,1")]),
        ({"content": {"application/json": {}}}, {"a": [1]}, [("q", '{"a": [1]}')]),
        ({}, 3.0, [("q", "3")]),
        ({}, "a&b=c", [("q", "a&b=c")]),
        ({}, None, []),
    ],
)
def test_query_styles(options: dict[str, Any], value: object, expected: list[tuple[str, str]]) -> None:
    assert request_of({"name": "q", "in": "query", **options}, value).query == expected


@pytest.mark.parametrize("value", ["../../admin", "a/b", "a?b=c", "a#b", "%2e%2e", ";x"])
def test_a_path_argument_stays_one_segment(value: str) -> None:
    path = request_of({"name": "p", "in": "path"}, value, "/x/{p}/y").path
    assert path.startswith("/x/")
    assert path.endswith("/y")
    assert path.count("/") == 3
    assert not set("?#") & set(path)


@pytest.mark.parametrize("value", ["", ".", "..", None])
def test_a_path_argument_that_changes_the_path_is_refused(value: object) -> None:
    with pytest.raises(RequestFailed, match="`p`"):
        request_of({"name": "p", "in": "path"}, value, "/x/{p}")


def test_headers_and_cookies() -> None:
    assert request_of({"name": "X-A", "in": "header"}, ["a", "b"]).headers == {"X-A": "a,b"}
    assert request_of({"name": "X-A", "in": "header"}, "é").headers == {"X-A": "%C3%A9"}
    assert request_of({"name": "c", "in": "cookie"}, "a; d=e").headers == {"Cookie": "c=a%3B%20d%3De"}
    with pytest.raises(RequestFailed, match="line breaks"):
        request_of({"name": "X-A", "in": "header"}, "a\r\nX-B: c")


def test_a_multipart_body_can_have_files() -> None:
    upload = by_name(read(build_document()))["upload"]
    body = build_request(upload, {"file": "data:text/plain;base64,aGk="}).body
    assert body == {"files": [("file", ("file", b"hi", "text/plain"))]}
    assert build_request(upload, {"file": "hi"}).body == {"files": [("file", (None, "hi"))]}
    with pytest.raises(RequestFailed, match="base64"):
        build_request(upload, {"file": "data:text/plain;base64,?"})


ITEM: dict[str, Any] = {
    "type": "object",
    "required": ["id", "secret"],
    "properties": {
        "id": {"type": "integer", "readOnly": True},
        "secret": {"type": "string", "writeOnly": True},
        "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Item"}},
    },
}


def output_of(responses: dict[str, Any]) -> Any:
    (operation,) = read(one_operation({"responses": responses}, components={"schemas": {"Item": ITEM}})).operations
    return operation.definition.get("outputSchema")


def json_response(schema: dict[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    return {"description": "", "content": {media_type: {"schema": schema}}}


def test_the_response_is_the_output_schema() -> None:
    output = output_of({"default": json_response({"type": "string"}), "200": json_response({"$ref": ITEM_REFERENCE})})
    assert output["type"] == "object"
    assert output["properties"]["id"]["anyOf"][0]["type"] == "integer"
    assert list(output["properties"]) == ["id", "parts"]
    assert "secret" not in json.dumps(output)
    # An API that differs from its document is not refused.
    assert not find_problems(output, {"id": "no number", "new": 1})


@pytest.mark.parametrize("media_type", ["application/json; charset=utf-8", "application/problem+json"])
def test_a_response_that_is_no_object_is_wrapped(media_type: str) -> None:
    items = {"type": "array", "items": {"$ref": ITEM_REFERENCE}}
    output = output_of({"204": {"description": ""}, "201": json_response(items, media_type)})
    assert list(output["properties"]) == ["result"]
    assert output["properties"]["result"]["anyOf"][0] == {"type": "array", "items": {"$ref": "#/$defs/Item"}}
    assert not find_problems(output, {"result": [{"id": 1}]})


@pytest.mark.parametrize(
    "responses",
    [
        {},
        {"404": json_response(ITEM)},
        {"200": json_response(ITEM, "text/csv")},
        {"200": {"$ref": "#/components/responses/Missing"}},
        {"200": json_response({"$ref": "other.yaml#/Item"})},
    ],
)
def test_without_a_json_response_there_is_no_output_schema(responses: dict[str, Any]) -> None:
    assert output_of(responses) is None
