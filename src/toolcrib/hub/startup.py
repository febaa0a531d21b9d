"""A service from a configuration: its store opened, what is known of its servers recalled."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from toolcrib.config.settings import EmbeddingConfig, GatewayConfig
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.embedders.fallback import FallbackRanker
from toolcrib.embedders.openai import OpenAIEmbedder
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.errors import InvalidCacheFile
from toolcrib.hub.hub import Hub
from toolcrib.hub.paths import resolve_store_url
from toolcrib.safety.pin import Pin
from toolcrib.search.dense.index import DenseRanker
from toolcrib.search.engine import RANKERS
from toolcrib.search.hybrid.fusion import FusionWeights, HybridRanker, build_hybrid_ranker
from toolcrib.search.lexical.ranker import LexicalRanker
from toolcrib.search.ranker import Ranker
from toolcrib.storage import open_store

_SQLITE_PREFIX: Final = "sqlite:///"
VECTORS_SUFFIX: Final = ".vectors.db"
_log = logging.getLogger(__name__)


def open_hub(config: GatewayConfig) -> Hub:
    """A service over this configuration."""
    url = resolve_store_url(config)
    store = open_store(url)
    return Hub(config, store, _build_rankers(config.embedding, url))


def _build_rankers(embedding: EmbeddingConfig, url: str) -> Mapping[str, Ranker]:
    """Search as ever, but what was read of a tool is kept beside the store: no start reads it again.

    With an embedder of the user's own, ours is there for when that one is down.
    """
    path: Path | None = None
    if url.startswith(_SQLITE_PREFIX):
        path = Path(url.removeprefix(_SQLITE_PREFIX)).expanduser().with_suffix(VECTORS_SUFFIX)
    hybrid = RANKERS["hybrid"]
    if path is not None:
        try:
            reader = CachedEmbedder(DEFAULT_ENCODER, DEFAULT_ENCODER.version, path)
            hybrid = build_hybrid_ranker(reader)
        except InvalidCacheFile as fault:
            _log.warning("tools are read anew at every start: %s", fault)
            path = None
    if embedding.url:
        theirs = CachedEmbedder(
            _build_embedder(embedding), _compute_embedder_identity(embedding), path
        )
        fusion = FusionWeights(threshold=embedding.threshold)
        hybrid = FallbackRanker(
            HybridRanker(LexicalRanker(syntax="lenient"), DenseRanker(theirs), fusion), hybrid
        )
    return {**RANKERS, "hybrid": hybrid}


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
    """What its vectors are known by: another server, model, width or mark gives other vectors."""
    said = [embedding.url, embedding.model, embedding.dimensions, embedding.tool_prefix]
    return hashlib.sha256(json.dumps([*said, embedding.query_prefix]).encode()).hexdigest()


def load_pins(config: GatewayConfig) -> dict[str, list[Pin]]:
    """What was approved of the servers' tools, by server. Where there is no store yet, none is made."""
    url = resolve_store_url(config)
    if (
        not url.startswith(_SQLITE_PREFIX)
        or not Path(url.removeprefix(_SQLITE_PREFIX)).expanduser().is_file()
    ):
        return {}
    store = open_store(url)
    try:
        return {server: list(store.get_pins(server).values()) for server in config.servers}
    finally:
        store.close()
