"""The vectors of the shipped encoder in the user's cache folder, so that a tool is encoded once per machine."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from toolcrib.embedders.cache import CachedEmbedder, VectorStore
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.errors import InvalidCacheFile
from toolcrib.search.dense.embedder import Vectors

# About 50 MB. The oldest vectors are deleted first.
MAX_USER_VECTORS: Final = 50_000
CACHE_VARIABLE: Final = "TOOLCRIB_CACHE"
_DISABLED: Final = frozenset({"0", "off", "false", "no"})
_FOLDER: Final = "toolcrib"
_FILE: Final = "vectors.db"

_log = logging.getLogger(__name__)


def find_cache_folder(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path | None:
    """Return the user's cache folder of Toolcrib; None if `TOOLCRIB_CACHE` is `off` or there is no home folder.

    `TOOLCRIB_CACHE` can also name another folder.
    """
    chosen = environment.get(CACHE_VARIABLE, "")
    if chosen:
        return None if chosen.lower() in _DISABLED else Path(chosen).expanduser()
    try:
        home = Path.home()
    except RuntimeError:
        return None
    xdg = environment.get("XDG_CACHE_HOME", "")
    if xdg and Path(xdg).is_absolute():
        base = Path(xdg)
    elif platform == "darwin":
        base = home / "Library" / "Caches"
    elif platform == "win32":
        base = Path(environment.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        base = home / ".cache"
    return base / _FOLDER


@contextmanager
def use_vector_cache(folder: str | os.PathLike[str] | None = None) -> Iterator[None]:
    """Keep tool vectors of the shipped encoder in a folder, until the context ends.

    Without a `folder` it is the user's cache folder. If that is not writable, vectors stay in memory.
    Results do not depend on the cache.
    """
    target = find_cache_folder() if folder is None else Path(folder)
    cache = None if target is None else _open_cache(target / _FILE)
    previous = DEFAULT_ENCODER.vector_cache
    DEFAULT_ENCODER.vector_cache = cache
    try:
        yield
    finally:
        DEFAULT_ENCODER.vector_cache = previous


def _open_cache(path: Path) -> Callable[[Sequence[str]], Vectors] | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        store = VectorStore(path, MAX_USER_VECTORS)
        # The encoder keeps the vectors in memory.
        return CachedEmbedder(DEFAULT_ENCODER.uncached, DEFAULT_ENCODER.version, source=store, capacity=1).embed_tools
    except (InvalidCacheFile, OSError) as error:
        _log.info("vectors are not cached: %s", error)
        return None
