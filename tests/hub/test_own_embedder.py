"""The hub searches with the configured embedder, and with the default encoder as its fallback."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.embedders.endpoint import Endpoint, error_reply, serve_endpoint
from toolcrib.config.parser import parse_config
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig
from toolcrib.errors import InvalidConfig
from toolcrib.gateway.secrets import collect_config_secrets
from toolcrib.hub.hub import Hub, build_manifest
from toolcrib.hub.startup import open_hub

SERVER = ServerConfig("shop", command="shop")
TOOLS = [
    {"name": "refund", "description": "Give a customer the money back.", "inputSchema": {}},
    {"name": "ship", "description": "Send an order.", "inputSchema": {}},
]


def _build_config(folder: Path, endpoint: Endpoint, **more: Any) -> GatewayConfig:
    document = {
        "mcpServers": {"shop": {"command": "shop"}},
        "embedding": {"url": endpoint.url, "model": "tiny", "key": "${EMBEDDER_KEY}", **more},
    }
    return parse_config(document, {"EMBEDDER_KEY": "very secret"}, folder / "toolcrib.json")


def _open_hub(config: GatewayConfig) -> Hub:
    hub = open_hub(config)
    hub.update_server(SERVER, build_manifest(SERVER, TOOLS, {}))
    return hub


def test_queries_and_tools_are_embedded_with_prefixes_and_tools_only_once(tmp_path: Path) -> None:
    with serve_endpoint() as endpoint:
        config = _build_config(tmp_path, endpoint, queryPrefix="q: ", toolPrefix="t: ", dimensions=2)
        with closing(_open_hub(config)) as hub:
            hub.get_view().engine.search("reimburse the buyer")
            assert hub.embedder_error == ""
        texts = [text for request in endpoint.requests for text in request["input"]]
        assert texts.count("q: reimburse the buyer") == 1
        assert len([text for text in texts if text.startswith("t: ")]) == len(TOOLS)
        assert {request["model"] for request in endpoint.requests} == {"tiny"}
        assert {request["dimensions"] for request in endpoint.requests} == {2}
        assert endpoint.headers[0]["authorization"] == "Bearer very secret"
        endpoint.requests.clear()
        with closing(_open_hub(config)) as hub:
            hub.get_view().engine.search("send the parcel")
        assert [request["input"] for request in endpoint.requests] == [["q: send the parcel"]]


def test_fallback_is_used_and_reported_while_the_embedder_fails(tmp_path: Path) -> None:
    with serve_endpoint() as endpoint:
        endpoint.script = [error_reply(401, "no")] * 9
        with closing(_open_hub(_build_config(tmp_path, endpoint))) as hub:
            result = hub.get_view().engine.search("reimburse the buyer")
            assert result.hits[0].tool.name == "refund"
            assert any("the embedder is unavailable" in note for note in result.notes)
            assert "check it" in hub.embedder_error
            assert "very secret" not in hub.embedder_error


def test_embedder_key_is_a_secret(tmp_path: Path) -> None:
    config = _build_config(tmp_path, Endpoint(), url="http://localhost:11434/v1")
    assert "very secret" in set(collect_config_secrets(config))
    assert "very secret" not in repr(config)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "http://localhost/v1"}, "embedding.model"),
        ({"model": "tiny"}, "embedding.url"),
        ({"url": "localhost", "model": "tiny"}, "embedding.url"),
        ({"url": "http://localhost/v1", "modle": "tiny"}, "model"),
    ],
)
def test_incomplete_embedder_settings_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        parse_config({"embedding": settings}, {})
