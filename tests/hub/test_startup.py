"""A service is opened from a configuration, and reads no tool again that it has read before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcrib.config.settings import Config, Server
from toolcrib.encoder.default import SHIPPED
from toolcrib.hub.hub import manifest_of
from toolcrib.hub.startup import VECTORS, open_service

SERVER = Server("shop", command="shop")
TOOLS = [
    {"name": "refund", "description": "Give a customer the money back.", "inputSchema": {}},
    {"name": "ship", "description": "Send an order to the customer.", "inputSchema": {}},
]


def _config(folder: Path) -> Config:
    return Config(
        servers={"shop": SERVER}, store="sqlite:///shop.db", path=folder / "toolcrib.json"
    )


def test_what_was_read_of_a_tool_outlasts_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_service(_config(tmp_path))
    first.learn(SERVER, manifest_of(SERVER, TOOLS, {}))
    assert first.engine.settle() == 0
    before = first.engine.search("reimburse the buyer")
    first.close()
    assert (tmp_path / "shop.db").is_file()
    assert (tmp_path / f"shop{VECTORS}").is_file()

    def read_again(texts: Any) -> Any:
        raise AssertionError(f"read again: {texts}")

    monkeypatch.setattr(SHIPPED, "tools", read_again)
    again = open_service(_config(tmp_path))
    assert again.engine.settle() == 0
    assert again.engine.search("reimburse the buyer") == before
    again.close()


def test_a_damaged_memory_of_vectors_costs_only_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"shop{VECTORS}").write_bytes(b"not a database" * 1000)
    service = open_service(_config(tmp_path))
    service.learn(SERVER, manifest_of(SERVER, TOOLS, {}))
    service.engine.settle()
    assert service.engine.search("reimburse the buyer").hits[0].tool.name == "refund"
    service.close()


def test_a_store_in_memory_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    service = open_service(Config(servers={"shop": SERVER}, store="sqlite://"))
    service.learn(SERVER, manifest_of(SERVER, TOOLS, {}))
    assert service.engine.search("refund").hits[0].tool.name == "refund"
    service.close()
    assert list(tmp_path.iterdir()) == []
