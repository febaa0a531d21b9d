"""Open a hub: its store, its search engine and the embedding cache next to the store."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from toolcrib.config.settings import EmbeddingConfig, GatewayConfig
from toolcrib.config.store_paths import resolve_journal_folder, resolve_store_url, sqlite_path
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.embedders.fallback import FallbackRanker
from toolcrib.embedders.openai import OpenAIEmbedder
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.errors import InvalidCacheFile, InvalidStore, StoreUnavailable
from toolcrib.files.array_file import ArrayFile
from toolcrib.files.store_url import is_postgres_url
from toolcrib.hub.hub import Hub
from toolcrib.safety.pinning import Pin
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.engine import RANKERS
from toolcrib.search.hybrid.calibration import Calibration
from toolcrib.search.hybrid.ranker import HybridRanker, build_fast_ranker, build_hybrid_ranker
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.ranker import STORED_FORMAT, Ranker
from toolcrib.storage import open_store
from toolcrib.storage.store import Store

VECTORS_SUFFIX: Final = ".vectors.db"
# How long a gateway waits for PostgreSQL when it starts, and the time between two attempts.
START_WAIT_SECONDS: Final = 120.0
START_RETRY_SECONDS: Final = 1.0
_log = logging.getLogger(__name__)


def open_hub(config: GatewayConfig, *, wait_seconds: float = 0) -> Hub:
    """Open the store of a configuration and return a hub over it.

    While PostgreSQL is unavailable, wait for it for a time: keys, access profiles and approvals are in the store, and
    without them a gateway can't know who may call what.
    """
    url = resolve_store_url(config)
    store = _open_when_available(url, resolve_journal_folder(config), wait_seconds)
    return Hub(config, store, _build_rankers(config, url, store))


def _open_when_available(url: str, journal_folder: Path | None, wait_seconds: float) -> Store:
    deadline = time.monotonic() + wait_seconds
    is_waiting = False
    while True:
        try:
            return open_store(url, journal_folder)
        except StoreUnavailable as error:
            if time.monotonic() >= deadline:
                raise
            if not is_waiting:
                _log.warning("%s. The gateway starts as soon as it can, within %d seconds", error, wait_seconds)
            is_waiting = True
            time.sleep(START_RETRY_SECONDS)


class KnownServers(NamedTuple):
    """What a store has about the servers of a configuration: pins by server, and encrypted tokens."""

    pins: Mapping[str, list[Pin]] = {}
    tokens: Mapping[str, bytes] = {}


def load_known_servers(config: GatewayConfig) -> KnownServers:
    """Return what the store has about servers; do not create a file that does not exist."""
    url = resolve_store_url(config)
    path = sqlite_path(url)
    if not is_postgres_url(url) and (path is None or not path.is_file()):
        return KnownServers()
    with closing(open_store(url)) as store:
        pins = {server: list(store.get_pins(server).values()) for server in config.servers}
        return KnownServers(pins, store.list_tokens())


class SharedVectors:
    """The vectors of a store, which all replicas use. While it is unavailable, tools are encoded again."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the stored vectors by key."""
        try:
            return self._store.get_vectors(keys)
        except InvalidStore as error:
            _log.info("stored vectors cannot be read: %s", error)
            return {}

    def put(self, vectors: Mapping[bytes, bytes]) -> None:
        """Insert or replace vectors."""
        try:
            self._store.put_vectors(vectors)
        except InvalidStore as error:
            _log.info("vectors cannot be stored: %s", error)


def _build_rankers(config: GatewayConfig, url: str, store: Store) -> Mapping[str, Ranker]:
    """Return the rankers, with an embedding cache in PostgreSQL, or in a file next to a SQLite store.

    A configured embedder replaces the default encoder, which stays as the fallback. The indexes of a large
    catalog are kept in files, so that the next start is fast.
    """
    embedding = config.embedding
    store_path = sqlite_path(url)
    path = store_path.with_suffix(VECTORS_SUFFIX) if store_path else None
    source = SharedVectors(store) if is_postgres_url(url) else None
    words = _open_index_file(config, "words", STORED_FORMAT)
    hybrid = build_hybrid_ranker(DEFAULT_ENCODER, words=words)
    if path is not None or source is not None:
        try:
            encoder = CachedEmbedder(DEFAULT_ENCODER.uncached, DEFAULT_ENCODER.version, path, source=source)
            vectors = _open_index_file(config, "vectors", f"{STORED_FORMAT} {DEFAULT_ENCODER.version}")
            hybrid = build_hybrid_ranker(encoder, words=words, vectors=vectors)
        except InvalidCacheFile as error:
            _log.warning("the embedding cache is disabled: %s", error)
            path = None
    first: Ranker = hybrid
    if embedding.url:
        embedder = CachedEmbedder(
            _build_embedder(embedding), _compute_embedder_identity(embedding), path, source=source
        )
        primary = HybridRanker(hybrid.lexical, DenseRanker(embedder), calibration=Calibration(embedding.threshold))
        first = FallbackRanker(primary, hybrid)
    fast = build_fast_ranker(DEFAULT_ENCODER.static_embedder, words=words)
    return {**RANKERS, "hybrid": first, "fast": fast, "lexical": LexicalRanker(store=words)}


def _open_index_file(config: GatewayConfig, name: str, stamp: str) -> ArrayFile | None:
    """Return the file of an index: next to a SQLite store, or in the folder of journals; None without either."""
    path = sqlite_path(resolve_store_url(config))
    folder = resolve_journal_folder(config)
    if path is not None:
        return ArrayFile(path.with_suffix(f".{name}.npz"), stamp)
    return ArrayFile(folder / f"{name}.npz", stamp) if folder else None


def _build_embedder(embedding: EmbeddingConfig) -> OpenAIEmbedder:
    return OpenAIEmbedder(
        embedding.url,
        embedding.model,
        key=embedding.key,
        dimensions=embedding.dimensions,
        prefixes=(embedding.query_prefix, embedding.tool_prefix),
        timeout_seconds=embedding.timeout_seconds,
    )


def _compute_embedder_identity(embedding: EmbeddingConfig) -> str:
    """Return a digest of all settings that change the vectors of an embedder."""
    settings = [embedding.url, embedding.model, embedding.dimensions, embedding.tool_prefix, embedding.query_prefix]
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()
