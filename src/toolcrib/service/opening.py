"""A service from a configuration: its store opened, what is known of its servers recalled."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from toolcrib.config.settings import Config
from toolcrib.core.engine import RANKERS
from toolcrib.core.ranking.dense import Dense
from toolcrib.core.ranking.hybrid import Hybrid
from toolcrib.core.ranking.lexical import Lexical
from toolcrib.core.ranking.ranker import Ranker
from toolcrib.embedding.cache import CachedEmbedder
from toolcrib.errors import InvalidCacheFile
from toolcrib.model.shipped import SHIPPED
from toolcrib.safety.pin import Pin
from toolcrib.service.place import store_url
from toolcrib.service.service import Service
from toolcrib.storage import open_store

_FILE: Final = "sqlite:///"
VECTORS: Final = ".vectors.db"
_log = logging.getLogger(__name__)


def open_service(config: Config) -> Service:
    """A service over this configuration."""
    url = store_url(config)
    return Service(config, open_store(url), _rankers(url))


def _rankers(url: str) -> Mapping[str, Ranker]:
    """Search as ever, but what was read of a tool is kept beside the store: no start reads it again."""
    if not url.startswith(_FILE):
        return RANKERS
    path = Path(url.removeprefix(_FILE)).expanduser().with_suffix(VECTORS)
    try:
        reader = CachedEmbedder(SHIPPED, SHIPPED.version, path)
    except InvalidCacheFile as fault:
        _log.warning("tools are read anew at every start: %s", fault)
        return RANKERS
    return {**RANKERS, "hybrid": Hybrid(Lexical(syntax="lenient"), Dense(reader))}


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
