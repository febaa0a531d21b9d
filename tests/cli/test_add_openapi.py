"""`toolcrib add --openapi`: an API from its OpenAPI document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.gateway.mcp.upstream.openapi.shop_api import build_document
from toolcrib.cli.main import toolcrib
from toolcrib.config.loader import load_config


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "toolcrib.json"
    path.write_text('{\n  // mine\n  "mcpServers": {},\n}\n', encoding="utf-8")
    return path


def write_document(folder: Path, **changes: Any) -> str:
    path = folder / "shop.json"
    path.write_text(json.dumps(build_document("https://shop.example/v1", **changes)), encoding="utf-8")
    return str(path)


def add(config: Path, *args: str) -> Result:
    return CliRunner().invoke(toolcrib, ["add", *args, "--config", str(config)])


def test_an_api_is_added_with_its_address(config: Path, tmp_path: Path) -> None:
    document = write_document(tmp_path)
    result = add(config, "--openapi", document)
    assert result.exit_code == 0, result.output
    assert "calls go to https://shop.example/v1" in result.stderr
    assert "--header 'Authorization: Bearer ${API_TOKEN}'" in result.stderr
    assert "// mine" in config.read_text(encoding="utf-8")
    server = load_config(config).servers["shop-api"]
    assert (server.openapi, server.base_url, server.transport) == (document, "https://shop.example/v1", "openapi")


def test_credentials_are_written_as_variables(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--header", "X-Key: ${SHOP_KEY}", "--query", "api_key=${SHOP_KEY}", "--basic-auth", "me:${SHOP_KEY}")
    result = add(config, "shop", "--openapi", write_document(tmp_path), "--base-url", "https://test.example", *options)
    assert result.exit_code == 0, result.output
    assert "If the API needs" not in result.stderr
    assert "Set before you start the gateway: SHOP_KEY" in result.stderr
    problem = load_config(config).servers["shop"].problem
    assert problem == "the environment variable SHOP_KEY is not set"
    monkeypatch.setenv("SHOP_KEY", "s3cret")
    server = load_config(config).servers["shop"]
    assert server.base_url == "https://test.example"
    assert (server.headers, server.query, server.basic_auth) == (
        {"X-Key": "s3cret"},
        {"api_key": "s3cret"},
        "me:s3cret",
    )


def test_operations_that_are_left_out_are_named(config: Path, tmp_path: Path) -> None:
    paths = {"/a": {"get": {}}, "/b": {"get": {"parameters": [{"$ref": "file:///etc/passwd"}]}}}
    result = add(config, "--openapi", write_document(tmp_path, paths=paths))
    assert "1 tool; calls go to" in result.stderr
    assert "1 left out: GET /b: it refers to 'file:///etc/passwd'" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"paths": {}}, "has no operation that can be used; it has no paths"),
        ({"openapi": "2.0"}, "has version 2.0; convert it"),
        ({"servers": []}, "does not name the address of the API; set `baseUrl`"),
    ],
)
def test_documents_that_cannot_be_added(config: Path, tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    before = config.read_bytes()
    result = add(config, "--openapi", write_document(tmp_path, **changes))
    assert result.exit_code != 0
    assert problem in " ".join(str(result.exception or "").split() + result.output.split())
    assert config.read_bytes() == before


def test_options_of_apis_need_a_document(config: Path) -> None:
    result = add(config, "x", "--query", "a=b", "--url", "https://example.com/mcp")
    assert "need --openapi" in result.output
