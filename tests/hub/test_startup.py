"""A hub opened from a configuration keeps the embeddings of its tools across restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.hub.hub import build_manifest
from toolcrib.hub.startup import VECTORS_SUFFIX, open_hub

SERVER = ServerConfig("shop", command="shop")
TOOLS = [
    {"name": "refund", "description": "Give a customer the money back.", "inputSchema": {}},
    {"name": "ship", "description": "Send an order to the customer.", "inputSchema": {}},
]


def _build_config(folder: Path) -> GatewayConfig:
    return GatewayConfig(servers={"shop": SERVER}, store="sqlite:///shop.db", path=folder / "toolcrib.json")


def test_embeddings_are_kept_across_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_hub(_build_config(tmp_path))
    first.update_server(SERVER, build_manifest(SERVER, TOOLS, {}))
    assert first.engine.warm_up() == 0
    before = first.engine.search("reimburse the buyer")
    first.close()
    assert (tmp_path / "shop.db").is_file()
    assert (tmp_path / f"shop{VECTORS_SUFFIX}").is_file()

    def encode_again(texts: Any) -> Any:
        raise AssertionError(f"encoded again: {texts}")

    monkeypatch.setattr(DEFAULT_ENCODER, "embed_tools", encode_again)
    again = open_hub(_build_config(tmp_path))
    assert again.engine.warm_up() == 0
    assert again.engine.search("reimburse the buyer") == before
    again.close()


def test_damaged_embedding_cache_is_rebuilt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / f"shop{VECTORS_SUFFIX}").write_bytes(b"not a database" * 1000)
    hub = open_hub(_build_config(tmp_path))
    hub.update_server(SERVER, build_manifest(SERVER, TOOLS, {}))
    hub.engine.warm_up()
    assert hub.engine.search("reimburse the buyer").hits[0].tool.name == "refund"
    hub.close()


def test_store_in_memory_writes_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hub = open_hub(GatewayConfig(servers={"shop": SERVER}, store="sqlite://"))
    hub.update_server(SERVER, build_manifest(SERVER, TOOLS, {}))
    assert hub.engine.search("refund").hits[0].tool.name == "refund"
    hub.close()
    assert list(tmp_path.iterdir()) == []
