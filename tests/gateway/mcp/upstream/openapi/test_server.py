"""An API behind the gateway: real HTTP calls, credentials, errors, limits."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types import ImageContent

from tests.gateway.mcp.harness import (
    build_config,
    call_text,
    connect_client,
    gateway,
    list_tool_names,
    part_text,
    serve_app,
    upstreams,
    wait_until,
)
from tests.gateway.mcp.upstream.openapi.shop_api import TokenIssuer, build_app, build_document, build_large_document
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import ResultsConfig
from toolcrib.gateway.mcp.server.router import McpRouter

pytestmark = pytest.mark.anyio
SECRETS: dict[str, Any] = {
    "headers": {"Authorization": "Bearer t0ken", "X-Key": "k"},
    "query": {"api_key": "q-secret"},
    "max_result_bytes": 1_000_000,
}


def write_document(folder: Path, document: dict[str, Any]) -> str:
    path = folder / "openapi.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def api_server(openapi: str, **options: Any) -> ServerConfig:
    return ServerConfig("shop", openapi=openapi, transport="openapi", **options)


@pytest.fixture(scope="module")
async def router(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[McpRouter]:
    async with serve_app(build_app()) as url:
        document = write_document(tmp_path_factory.mktemp("api"), build_document(f"{url}/v1"))
        async with gateway(build_config(api_server(document, **SECRETS), mode="search")) as running:
            yield running


async def call(router: McpRouter, tool: str, **arguments: Any) -> Any:
    async with connect_client(router) as client:
        return await client.call_tool("call_tool", {"name": f"shop___{tool}", "arguments": arguments})


async def echo(router: McpRouter, tool: str, **arguments: Any) -> Any:
    result = await call(router, tool, **arguments)
    assert not result.is_error, result
    return json.loads(part_text(result.content[0]))


async def test_operations_are_found_and_described(router: McpRouter) -> None:
    async with connect_client(router) as client:
        found = await call_text(client, "search_tools", {"query": "get an item with its stock"})
        assert "shop___getItem" in found
        described = await call_text(client, "describe_tool", {"names": ["shop___replaceItem"]})
    assert '"parts"' in described


async def test_a_call_sends_the_request_with_the_credentials(router: McpRouter) -> None:
    received = await echo(router, "getItem", itemId="a/../b", fields=["id", "n&m"], **{"X-Trace": "7"})
    assert received["method"] == "GET"
    assert received["path"] == "/v1/items/a%2F..%2Fb"
    assert received["query"] == "fields=id&fields=n%26m&api_key=q-secret"
    assert received["headers"]["authorization"] == "Bearer t0ken"
    assert received["headers"]["x-key"] == "k"
    assert received["headers"]["x-trace"] == "7"


async def test_bodies_are_sent_as_json_and_forms(router: McpRouter) -> None:
    received = await echo(router, "replaceItem", itemId="1", name="Lämp", price=None)
    assert json.loads(received["body"]) == {"name": "Lämp", "price": None}
    assert received["headers"]["content-type"] == "application/json"
    received = await echo(router, "create_item", name="a b", tags=["x", "y"])
    assert received["body"] == "name=a+b&tags=x&tags=y"
    received = await echo(router, "upload", file="data:text/plain;base64,aGk=")
    assert 'name="file"; filename="file"' in received["body"]


async def test_invalid_arguments_are_refused_before_the_request(router: McpRouter) -> None:
    result = await call(router, "replaceItem", itemId="1")
    assert result.is_error
    assert "name" in part_text(result.content[0])


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("broken", 'HTTP 409 Conflict\n{"error":"no stock","code":17}'),
        ("huge", "larger than 1,000,000 bytes"),
        ("away", "redirects to 'elsewhere.invalid', which is not followed"),
        ("limited", "Try again after: 30"),
        ("locked", "The API rejects the credentials"),
    ],
)
async def test_errors_of_the_api_are_results(router: McpRouter, tool: str, expected: str) -> None:
    result = await call(router, tool)
    assert result.is_error
    assert expected in part_text(result.content[0])


async def test_a_redirect_on_the_same_host_is_followed(router: McpRouter) -> None:
    assert (await echo(router, "moved"))["path"] == "/v1/items/7"


async def test_other_content(router: McpRouter) -> None:
    image = (await call(router, "image")).content[0]
    assert isinstance(image, ImageContent)
    assert image.mime_type == "image/png"
    texts = {name: part_text((await call(router, name)).content[0]) for name in ("nothing", "latin", "bytes")}
    assert texts["nothing"] == "HTTP 204 No Content"
    assert texts["latin"] == "é"
    assert "3 bytes of application/zip" in texts["bytes"]


async def test_a_large_api_is_searched_and_its_results_are_stored(tmp_path: Path) -> None:
    document = build_large_document()
    async with serve_app(build_app()) as url:
        document["servers"] = [{"url": f"{url}/v1"}]
        document["paths"]["/huge"] = {"get": {"operationId": "export_everything"}}
        server = api_server(write_document(tmp_path, document))
        config = build_config(server, mode="search", results=ResultsConfig())
        async with gateway(config) as running, connect_client(running) as client:
            found = await call_text(client, "search_tools", {"query": "create a coupon", "limit": 3})
            assert "shop___create_coupon" in found.splitlines()[1]
            arguments = {"name": "shop___export_everything", "arguments": {}}
            preview = await call_text(client, "call_tool", arguments)
            assert "read_result" in preview
            assert len(preview) < 20_000


async def test_an_api_that_is_down_is_a_readable_result(tmp_path: Path) -> None:
    server = api_server(write_document(tmp_path, build_document("http://127.0.0.1:9/v1")))
    async with gateway(build_config(server, mode="direct")) as running, connect_client(running) as client:
        result = await client.call_tool("shop___getItem", {"itemId": "1"})
    assert result.is_error
    assert "127.0.0.1 could not be reached" in part_text(result.content[0])


async def test_basic_credentials_and_another_address(tmp_path: Path) -> None:
    async with serve_app(build_app()) as url:
        path = write_document(tmp_path, build_document())
        server = api_server(path, base_url=f"{url}/v1/", basic_auth="me:pass:word")
        async with gateway(build_config(server, mode="direct")) as running, connect_client(running) as client:
            received = json.loads(await call_text(client, "shop___getItem", {"itemId": "1"}))
    assert received["headers"]["authorization"] == "Basic bWU6cGFzczp3b3Jk"


async def test_a_document_at_a_url_is_read(tmp_path: Path) -> None:
    async with serve_app(build_app(build_document("/v1"))) as url:
        config = build_config(api_server(f"{url}/openapi.json"), mode="direct")
        async with gateway(config) as running, connect_client(running) as client:
            assert json.loads(await call_text(client, "shop___getItem", {"itemId": "1"}))["path"] == "/v1/items/1"


async def test_a_document_that_names_another_host_is_not_trusted() -> None:
    async with serve_app(build_app(build_document("http://internal.example/v1"))) as url:
        config = build_config(api_server(f"{url}/openapi.json"))
        async with gateway(config) as running:
            (upstream,) = upstreams(running)
            assert "set `baseUrl` if you trust it" in upstream.error


async def test_a_missing_document_is_named(tmp_path: Path) -> None:
    async with gateway(build_config(api_server(str(tmp_path / "none.json")))) as running:
        (upstream,) = upstreams(running)
        assert "none.json: cannot be read" in upstream.error
        assert str(tmp_path) not in upstream.public_error


async def call_with_token(folder: Path, issuer: TokenIssuer, calls: int = 1, **options: Any) -> list[Any]:
    credentials = {"oauth_client_id": "shop client", "oauth_client_secret": "s:1", "oauth_scope": "read", **options}
    async with serve_app(issuer.build_app()) as url:
        path = write_document(folder, build_document(f"{url}/v1"))
        server = api_server(path, oauth_token_url=f"{url}/token", **credentials)
        async with gateway(build_config(server, mode="direct")) as running, connect_client(running) as client:
            return [await client.call_tool("shop___getItem", {"itemId": "1"}) for _ in range(calls)]


@pytest.mark.parametrize("reads_header", [True, False])
async def test_a_token_is_fetched_with_client_credentials_and_used_again(tmp_path: Path, reads_header: bool) -> None:
    issuer = TokenIssuer(reads_header=reads_header)
    results = await call_with_token(tmp_path, issuer, calls=2)
    assert [json.loads(part_text(result.content[0]))["token"] for result in results] == ["Bearer token-1"] * 2
    (form,) = issuer.forms
    assert (form["grant_type"], form["scope"]) == ("client_credentials", "read")
    assert ("client_secret" in form) is not reads_header


async def test_a_token_that_the_api_rejects_is_replaced(tmp_path: Path) -> None:
    class Forgetful(TokenIssuer):
        async def answer(self, request: Any) -> Any:
            self.accepted.discard("Bearer token-1")
            return await super().answer(request)

    (result,) = await call_with_token(tmp_path, Forgetful())
    assert json.loads(part_text(result.content[0]))["token"] == "Bearer token-2"


async def test_refused_client_credentials_are_explained_without_the_secret(tmp_path: Path) -> None:
    (result,) = await call_with_token(tmp_path, TokenIssuer(), oauth_client_secret="wrong-secret")
    text = part_text(result.content[0])
    assert result.is_error
    assert "did not issue an access token (HTTP 401: invalid_client)" in text
    assert "oauthClientSecret" in text
    assert "wrong-secret" not in text


async def test_results_have_the_structure_of_the_document(tmp_path: Path) -> None:
    async with serve_app(build_app()) as url:
        document = build_document(f"{url}/v1")
        schema = {"type": "object", "properties": {"method": {"type": "string"}, "body": {"type": "integer"}}}
        response = {"200": {"description": "", "content": {"application/json": {"schema": schema}}}}
        document["paths"]["/items/{itemId}"]["get"]["responses"] = response
        document["paths"]["/nothing"] = {"get": {"operationId": "nothing", "responses": response}}
        server = api_server(write_document(tmp_path, document))
        async with gateway(build_config(server, mode="direct")) as running, connect_client(running) as client:
            # The client of the SDK rejects a result that does not match the schema.
            found = await client.call_tool("shop___getItem", {"itemId": "1"})
            empty = await client.call_tool("shop___nothing", {})
    assert found.structured_content == json.loads(part_text(found.content[0]))
    assert found.structured_content["method"] == "GET"
    assert empty.structured_content == {"result": "HTTP 204 No Content"}


async def test_a_changed_document_changes_the_tools(tmp_path: Path) -> None:
    async with serve_app(build_app()) as url:
        document = build_document(f"{url}/v1")
        path = write_document(tmp_path, document)
        server = api_server(path, refresh_seconds=0.2)
        async with gateway(build_config(server, mode="direct")) as running, connect_client(running) as client:
            assert "shop___added" not in await list_tool_names(client)
            (upstream,) = upstreams(running)
            Path(path).write_text("{", encoding="utf-8")
            document["paths"]["/items"]["get"]["operationId"] = "added"
            write_document(tmp_path, document)
            await wait_until(lambda: "shop___added" in running.hub.get_view(None).entries)
            assert "shop___added" in await list_tool_names(client)
            assert json.loads(await call_text(client, "shop___added", {"api_key": "k"}))["path"] == "/v1/items"
            assert upstream.start_count == 1
