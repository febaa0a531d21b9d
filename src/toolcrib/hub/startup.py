"""A service from a configuration: its store opened, what is known of its servers recalled."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from toolcrib.config.settings import Config, Embedding
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.embedders.fallback import WithFallback
from toolcrib.embedders.openai import OpenAIEmbedder
from toolcrib.encoder.default import SHIPPED
from toolcrib.errors import InvalidCacheFile
from toolcrib.hub.feedback import Lessons
from toolcrib.hub.hub import Service
from toolcrib.hub.paths import store_url
from toolcrib.safety.pin import Pin
from toolcrib.search.dense.index import Dense
from toolcrib.search.engine import RANKERS
from toolcrib.search.feedback.experience import MIN_SALT_BYTES
from toolcrib.search.hybrid.fusion import Fusion, Hybrid, hybrid_with
from toolcrib.search.lexical.ranker import Lexical
from toolcrib.search.ranker import Ranker
from toolcrib.storage import open_store

_FILE: Final = "sqlite:///"
VECTORS: Final = ".vectors.db"
# Not in the store: who has a copy of that alone cannot try words on what was learned.
SALT: Final = ".salt"
_SALT_BYTES: Final = 32
_LOOKS: Final = 20
_LOOK_SECONDS: Final = 0.02
_log = logging.getLogger(__name__)


def open_service(config: Config) -> Service:
    """A service over this configuration."""
    url = store_url(config)
    store = open_store(url)
    lessons = Lessons(store.lessons, partial(_salt, url))
    return Service(config, store, _rankers(config.embedding, url), lessons=lessons)


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


def _salt(url: str) -> bytes:
    """The secret under which words are hashed, made when it is first needed; empty if it cannot be."""
    if not url.startswith(_FILE):
        return secrets.token_bytes(_SALT_BYTES)
    path = Path(url.removeprefix(_FILE)).expanduser().with_suffix(SALT)
    try:
        with suppress(FileExistsError):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(file, "wb") as new:
                new.write(secrets.token_bytes(_SALT_BYTES))
        salt = _settled(path)
    except OSError as fault:
        _log.warning("nothing is learned from use: %s", fault)
        return b""
    if len(salt) < MIN_SALT_BYTES:
        _log.warning("nothing is learned from use: %s is damaged; delete it to begin anew", path)
        return b""
    return salt


def _settled(path: Path) -> bytes:
    """What is in the file, once whoever has just made it has written it."""
    for _ in range(_LOOKS):
        salt = path.read_bytes()
        if len(salt) >= MIN_SALT_BYTES:
            break
        time.sleep(_LOOK_SECONDS)
    return salt


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
