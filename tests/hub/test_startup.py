"""A hub opened from a configuration keeps the embeddings of its tools across restarts."""

from __future__ import annotations

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gateway.serving import wait_until
from tests.support.postgres import PostgresServer
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig
from toolcrib.embedders.cache import CachedEmbedder, VectorStore, hash_text, pack_vector, use_vector_cache
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.errors import StoreUnavailable
from toolcrib.hub.hub import Hub, build_manifest
from toolcrib.hub.startup import VECTORS_SUFFIX, open_hub
from toolcrib.search.dense.tool_text import build_tool_text
from toolcrib.search.lexical.analysis import ToolAnalyzer
from toolcrib.search.ranker import MIN_STORED_TOOLS
from toolcrib.search.results import SearchResult
from toolcrib.storage import open_store

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
    modes = [path.stat().st_mode & 0o777 for path in tmp_path.glob("shop*.db")]
    assert os.name == "nt" or modes == [0o600, 0o600]

    def encode_again(texts: Any) -> Any:
        raise AssertionError(f"encoded again: {texts}")

    monkeypatch.setattr(DEFAULT_ENCODER, "encode_tools", encode_again)
    again = open_hub(_build_config(tmp_path))
    assert again.engine.warm_up() == 0
    assert again.engine.search("reimburse the buyer") == before
    again.close()


def test_vectors_next_to_a_store_are_not_in_the_cache_of_the_user_too(tmp_path: Path) -> None:
    with use_vector_cache(tmp_path / "cache"):
        hub = open_hub(_build_config(tmp_path))
        hub.update_server(SERVER, build_manifest(SERVER, TOOLS, {}))
        assert hub.engine.warm_up() == 0
        hub.close()
    with closing(sqlite3.connect(tmp_path / "cache" / "vectors.db")) as connection:
        assert connection.execute("SELECT count(*) FROM vectors").fetchone() == (0,)


def test_replicas_share_the_embeddings_in_postgresql(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = GatewayConfig(servers={"shop": SERVER}, store=postgres_url)
    first = open_hub(config)
    first.update_server(SERVER, build_manifest(SERVER, TOOLS, {}))
    assert first.engine.warm_up() == 0
    before = first.engine.search("reimburse the buyer")

    def encode_again(texts: Any) -> Any:
        raise AssertionError(f"encoded again: {texts}")

    monkeypatch.setattr(DEFAULT_ENCODER, "encode_tools", encode_again)
    second = open_hub(config)
    assert second.engine.warm_up() == 0
    assert second.engine.search("reimburse the buyer") == before
    first.close()
    second.close()


def test_indexes_of_a_replica_are_in_the_folder_of_its_journal(postgres_url: str, tmp_path: Path) -> None:
    config = GatewayConfig(servers={"shop": SERVER}, store=postgres_url, path=tmp_path / "toolcrib.json")
    tools = [{**TOOLS[number % 2], "name": f"tool_{number}"} for number in range(MIN_STORED_TOOLS)]
    found = []
    for _ in range(2):
        with closing(open_hub(config)) as hub:
            hub.update_server(SERVER, build_manifest(SERVER, tools, {}))
            found.append(hub.engine.search("order of the customer", mode="lexical"))
        assert (tmp_path / "toolcrib.journal" / "words.npz").is_file()
    assert found[0] == found[1]


def test_start_waits_for_postgresql(
    postgres_server: PostgresServer, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = GatewayConfig(servers={"shop": SERVER}, store=postgres_url)
    open_hub(config).close()
    postgres_server.stop()
    with ThreadPoolExecutor(1) as executor:
        try:
            with pytest.raises(StoreUnavailable, match="start it, or correct `store`"):
                open_hub(config)
            opening = executor.submit(open_hub, config, wait_seconds=60)
            wait_until(lambda: "as soon as it can" in caplog.text)
        finally:
            postgres_server.start()
        hub = opening.result()
    assert hub.store.is_available
    hub.close()


def test_tools_are_encoded_while_postgresql_is_away(postgres_server: PostgresServer, postgres_url: str) -> None:
    hub = open_hub(GatewayConfig(servers={"shop": SERVER}, store=postgres_url))
    hub.update_server(SERVER, build_manifest(SERVER, TOOLS, {}))
    postgres_server.stop()
    try:
        assert hub.engine.search("reimburse the buyer").hits[0].tool.name == "refund"
        changed = [{**TOOLS[0], "description": "Another text."}, TOOLS[1]]
        # The server lists a changed tool, which is compared with the pins that were read last.
        hub.update_server(SERVER, build_manifest(SERVER, changed, {}))
        assert [entry.remote_name for entry in hub.directory] == ["ship"]
        assert "cannot be stored" in hub.notices["store"]
        hub.record_call("shop___ship", True, 0.1)
    finally:
        postgres_server.start()
    wait_until(lambda: refresh(hub))
    assert "store" not in hub.notices
    assert list(hub.store.list_quarantined()["shop"]) == ["refund"]
    hub.store.approve("shop")
    assert hub.refresh()
    assert [entry.remote_name for entry in hub.directory] == ["refund", "ship"]
    hub.close()
    with closing(open_store(postgres_url)) as store:
        assert store.get_usage()["shop___ship"].calls == 1


def refresh(hub: Hub) -> bool:
    """Return whether the store could be read."""
    try:
        hub.refresh()
    except StoreUnavailable:
        return False
    return True


def test_damaged_embedding_cache_is_rebuilt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / f"shop{VECTORS_SUFFIX}").write_bytes(b"not a database" * 1000)
    hub = open_hub(_build_config(tmp_path))
    hub.update_server(SERVER, build_manifest(SERVER, TOOLS, {}))
    hub.engine.warm_up()
    assert hub.engine.search("reimburse the buyer").hits[0].tool.name == "refund"
    hub.close()


def test_indexes_of_a_large_catalog_are_kept_across_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = [{**TOOLS[number % 2], "name": f"tool_{number}"} for number in range(MIN_STORED_TOOLS)]
    hub = open_hub(_build_config(tmp_path))
    hub.update_server(SERVER, build_manifest(SERVER, tools, {}))
    texts = [build_tool_text(entry.tool) for entry in hub.directory]
    rows = np.random.default_rng(1).standard_normal((len(texts), 384), np.float32)
    keys = [hash_text(DEFAULT_ENCODER.version, "tool", text) for text in texts]
    VectorStore(tmp_path / f"shop{VECTORS_SUFFIX}").put(dict(zip(keys, map(pack_vector, rows), strict=True)))
    hub.close()

    def search() -> list[SearchResult]:
        with closing(open_hub(_build_config(tmp_path))) as hub:
            found = [hub.engine.search("reimburse tool_7", mode=mode, limit=20) for mode in ("hybrid", "lexical")]
        assert all(result.fully_encoded for result in found)
        return found

    expected = search()
    files = [tmp_path / "shop.vectors.npz", tmp_path / "shop.words.npz"]
    assert sorted(tmp_path.glob("*.npz")) == files
    assert os.name == "nt" or [path.stat().st_mode & 0o777 for path in files] == [0o600, 0o600]

    def read_again(*arguments: object) -> Any:
        raise AssertionError("not read from the file")

    with monkeypatch.context() as patch:
        patch.setattr(CachedEmbedder, "read_stored", read_again)
        patch.setattr(ToolAnalyzer, "analyze_batches", read_again)
        assert search() == expected
    for path in files:
        path.write_bytes(path.read_bytes()[:1_000])
    assert search() == expected
    monkeypatch.setattr("toolcrib.hub.startup.STORED_FORMAT", "other")
    before = [path.read_bytes() for path in files]
    assert search() == expected
    assert all(path.read_bytes() != content for path, content in zip(files, before, strict=True))


def test_store_in_memory_writes_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hub = open_hub(GatewayConfig(servers={"shop": SERVER}, store="sqlite://"))
    hub.update_server(SERVER, build_manifest(SERVER, TOOLS, {}))
    assert hub.engine.search("refund").hits[0].tool.name == "refund"
    hub.close()
    assert list(tmp_path.iterdir()) == []
