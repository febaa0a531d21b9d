"""A gateway searches with the embedder that its configuration names, and with ours while it is down."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.embedders.endpoint import Endpoint, error_reply, serve_endpoint
from toolcrib.config.parser import parse_config
from toolcrib.config.settings import GatewayConfig, ServerConfig
from toolcrib.errors import InvalidConfig
from toolcrib.gateway.secrets import collect_config_secrets
from toolcrib.hub.hub import Hub, build_manifest
from toolcrib.hub.startup import open_hub

SERVER = ServerConfig("shop", command="shop")
TOOLS = [
    {"name": "refund", "description": "Give a customer the money back.", "inputSchema": {}},
    {"name": "ship", "description": "Send an order.", "inputSchema": {}},
]


def _config(folder: Path, endpoint: Endpoint, **more: Any) -> GatewayConfig:
    document = {
        "mcpServers": {"shop": {"command": "shop"}},
        "embedding": {"url": endpoint.url, "model": "tiny", "key": "${EMBEDDER_KEY}", **more},
    }
    return parse_config(document, {"EMBEDDER_KEY": "very secret"}, folder / "toolcrib.json")


def _opened(config: GatewayConfig) -> Hub:
    service = open_hub(config)
    service.update_server(SERVER, build_manifest(SERVER, TOOLS, {}))
    return service


def test_queries_and_tools_are_read_by_it_with_their_marks_and_tools_only_once(
    tmp_path: Path,
) -> None:
    with serve_endpoint() as endpoint:
        config = _config(tmp_path, endpoint, queryPrefix="q: ", toolPrefix="t: ", dimensions=2)
        with closing(_opened(config)) as service:
            service.get_view().engine.search("reimburse the buyer")
            assert service.embedder_error == ""
        texts = [text for asked in endpoint.requests for text in asked["input"]]
        assert texts.count("q: reimburse the buyer") == 1
        assert len([text for text in texts if text.startswith("t: ")]) == len(TOOLS)
        assert {asked["model"] for asked in endpoint.requests} == {"tiny"}
        assert {asked["dimensions"] for asked in endpoint.requests} == {2}
        assert endpoint.headers[0]["authorization"] == "Bearer very secret"
        endpoint.requests.clear()
        with closing(_opened(config)) as service:
            service.get_view().engine.search("send the parcel")
        assert [asked["input"] for asked in endpoint.requests] == [["q: send the parcel"]]


def test_while_it_is_down_ours_answers_and_it_is_said(tmp_path: Path) -> None:
    with serve_endpoint() as endpoint:
        endpoint.script = [error_reply(401, "no")] * 9
        with closing(_opened(_config(tmp_path, endpoint))) as service:
            found = service.get_view().engine.search("reimburse the buyer")
            assert found.hits[0].tool.name == "refund"
            assert any("the embedder is down" in note for note in found.notes)
            assert "check it" in service.embedder_error
            assert "very secret" not in service.embedder_error


def test_its_key_is_a_secret(tmp_path: Path) -> None:
    config = _config(tmp_path, Endpoint(), url="http://localhost:11434/v1")
    assert "very secret" in set(collect_config_secrets(config))
    assert "very secret" not in repr(config)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": "http://localhost/v1"}, "embedding.model"),
        ({"model": "tiny"}, "embedding.url"),
        ({"url": "localhost", "model": "tiny"}, "embedding.url"),
        ({"url": "http://localhost/v1", "modle": "tiny"}, "model"),
    ],
)
def test_what_is_half_told_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        parse_config({"embedding": given}, {})
