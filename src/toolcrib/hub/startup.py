"""A service from a configuration: its store opened, what is known of its servers recalled."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from toolcrib.config.settings import Config, Embedding
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.embedders.fallback import WithFallback
from toolcrib.embedders.openai import OpenAIEmbedder
from toolcrib.encoder.default import SHIPPED
from toolcrib.errors import InvalidCacheFile
from toolcrib.hub.hub import Service
from toolcrib.hub.paths import store_url
from toolcrib.safety.pin import Pin
from toolcrib.search.dense.index import Dense
from toolcrib.search.engine import RANKERS
from toolcrib.search.hybrid.fusion import Fusion, Hybrid, hybrid_with
from toolcrib.search.lexical.ranker import Lexical
from toolcrib.search.ranker import Ranker
from toolcrib.storage import open_store

_FILE: Final = "sqlite:///"
VECTORS: Final = ".vectors.db"
_log = logging.getLogger(__name__)


def open_service(config: Config) -> Service:
    """A service over this configuration."""
    url = store_url(config)
    store = open_store(url)
    return Service(config, store, _rankers(config.embedding, url))


def _rankers(embedding: Embedding, url: str) -> Mapping[str, Ranker]:
    """Search as ever, but what was read of a tool is kept beside the store: no start reads it again.

    With an embedder of the user's own, ours is there for when that one is down.
    """
    path: Path | None = None
    if url.startswith(_FILE):
        path = Path(url.removeprefix(_FILE)).expanduser().with_suffix(VECTORS)
    hybrid = RANKERS["hybrid"]
    if path is not None:
        try:
            reader = CachedEmbedder(SHIPPED, SHIPPED.version, path)
            hybrid = hybrid_with(reader)
        except InvalidCacheFile as fault:
            _log.warning("tools are read anew at every start: %s", fault)
            path = None
    if embedding.url:
        theirs = CachedEmbedder(_embedder(embedding), _name(embedding), path)
        fusion = Fusion(floor=embedding.floor)
        hybrid = WithFallback(Hybrid(Lexical(syntax="lenient"), Dense(theirs), fusion), hybrid)
    return {**RANKERS, "hybrid": hybrid}


def _embedder(embedding: Embedding) -> OpenAIEmbedder:
    return OpenAIEmbedder(
        embedding.url,
        embedding.model,
        key=embedding.key,
        dimensions=embedding.dimensions,
        prefixes=(embedding.query_prefix, embedding.tool_prefix),
        timeout_seconds=embedding.timeout_seconds,
    )


def _name(embedding: Embedding) -> str:
    """What its vectors are known by: another server, model, width or mark gives other vectors."""
    said = [embedding.url, embedding.model, embedding.dimensions, embedding.tool_prefix]
    return hashlib.sha256(json.dumps([*said, embedding.query_prefix]).encode()).hexdigest()


def pins_so_far(config: Config) -> dict[str, list[Pin]]:
    """What was approved of the servers' tools, by server. Where there is no store yet, none is made."""
    url = store_url(config)
    if not url.startswith(_FILE) or not Path(url.removeprefix(_FILE)).expanduser().is_file():
        return {}
    store = open_store(url)
    try:
        return {server: list(store.pins(server).values()) for server in config.servers}
    finally:
        store.close()
