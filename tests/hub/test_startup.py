"""A service is opened from a configuration, and reads no tool again that it has read before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcrib.config.settings import GatewayConfig, ServerConfig
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.hub.hub import build_manifest
from toolcrib.hub.startup import VECTORS_SUFFIX, open_hub

SERVER = ServerConfig("shop", command="shop")
TOOLS = [
    {"name": "refund", "description": "Give a customer the money back.", "inputSchema": {}},
    {"name": "ship", "description": "Send an order to the customer.", "inputSchema": {}},
]


def _config(folder: Path) -> GatewayConfig:
    return GatewayConfig(
        servers={"shop": SERVER}, store="sqlite:///shop.db", path=folder / "toolcrib.json"
    )


def test_what_was_read_of_a_tool_outlasts_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_hub(_config(tmp_path))
    first.update_server(SERVER, build_manifest(SERVER, TOOLS, {}))
    assert first.engine.warm_up() == 0
    before = first.engine.search("reimburse the buyer")
    first.close()
    assert (tmp_path / "shop.db").is_file()
    assert (tmp_path / f"shop{VECTORS_SUFFIX}").is_file()

    def read_again(texts: Any) -> Any:
        raise AssertionError(f"read again: {texts}")

    monkeypatch.setattr(DEFAULT_ENCODER, "tools", read_again)
    again = open_hub(_config(tmp_path))
    assert again.engine.warm_up() == 0
    assert again.engine.search("reimburse the buyer") == before
    again.close()


def test_a_damaged_memory_of_vectors_costs_only_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"shop{VECTORS_SUFFIX}").write_bytes(b"not a database" * 1000)
    service = open_hub(_config(tmp_path))
    service.update_server(SERVER, build_manifest(SERVER, TOOLS, {}))
    service.engine.warm_up()
    assert service.engine.search("reimburse the buyer").hits[0].tool.name == "refund"
    service.close()


def test_a_store_in_memory_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    service = open_hub(GatewayConfig(servers={"shop": SERVER}, store="sqlite://"))
    service.update_server(SERVER, build_manifest(SERVER, TOOLS, {}))
    assert service.engine.search("refund").hits[0].tool.name == "refund"
    service.close()
    assert list(tmp_path.iterdir()) == []
