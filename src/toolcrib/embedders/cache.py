"""An embedder that caches the vectors of another embedder in memory and in a SQLite file."""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import sys
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from os import PathLike, fspath
from pathlib import Path
from threading import Lock
from typing import Final, Protocol

import numpy as np

from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.errors import EmbeddingFailed, InvalidCacheFile, InvalidConfig
from toolcrib.files.sqlite_file import SqliteFileType, migrate_file, open_connection, transaction
from toolcrib.search.dense.embedder import Embedder, ProvisionalEmbedder, Vectors, score_service_names, validate_vectors

CAPACITY: Final = 10_000
MAX_NAME_CHARS: Final = 512
# About 200 MB with 384 dimensions. The oldest vectors are deleted first.
MAX_STORED_VECTORS: Final = 200_000
# Vectors are stored after each batch, so that a later failure does not lose them.
_BATCH_TEXTS: Final = 256
# Stored vectors are read in batches, so that the first missing one ends the reading.
_READ_TEXTS: Final = 5_000
# The number of parameters per statement that every SQLite build supports.
_MAX_SQL_PARAMETERS: Final = 500

_CHECKSUM_BYTES: Final = 4
_SCALE_BYTES: Final = 4
_NUMBER_BYTES: Final = 2
_HEADER_BYTES: Final = _CHECKSUM_BYTES + _SCALE_BYTES

_FILE_TYPE: Final = SqliteFileType(
    # "crib" in ASCII.
    application_id=0x63726962,
    migrations=(
        (
            "CREATE TABLE vectors (id INTEGER PRIMARY KEY AUTOINCREMENT, "
            "key BLOB NOT NULL UNIQUE, vector BLOB NOT NULL)",
        ),
    ),
    error_type=InvalidCacheFile,
    recovery_note="it is filled again",
)
# About 50 MB. The oldest vectors are deleted first.
MAX_USER_VECTORS: Final = 50_000
CACHE_VARIABLE: Final = "TOOLCRIB_CACHE"
_DISABLED: Final = frozenset({"0", "off", "false", "no"})
_FOLDER: Final = "toolcrib"
_FILE: Final = "vectors.db"
_log = logging.getLogger(__name__)


class VectorSource(Protocol):
    """Where vectors are stored between runs. Thread-safe."""

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the stored vectors by key."""

    def put(self, vectors: Mapping[bytes, bytes]) -> None:
        """Insert or replace vectors."""


class VectorStore:
    """A SQLite file of vectors that threads and processes can share.

    Each operation opens its own connection, so no connection is shared between threads or inherited
    by a forked process. Every error is raised as `InvalidCacheFile`.
    """

    def __init__(self, path: str | PathLike[str], max_vectors: int = MAX_STORED_VECTORS) -> None:
        self._path = fspath(path)
        self._max_vectors = max_vectors
        with self._connection():
            pass

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the stored vectors by key. Values of another SQL type are returned as bytes."""
        vectors: dict[bytes, bytes] = {}
        with self._connection() as connection:
            for start in range(0, len(keys), _MAX_SQL_PARAMETERS):
                batch = keys[start : start + _MAX_SQL_PARAMETERS]
                marks = ",".join("?" * len(batch))
                sql = f"SELECT key, CAST(vector AS BLOB) FROM vectors WHERE key IN ({marks})"
                vectors.update(connection.execute(sql, batch))
        return vectors

    def put(self, vectors: Mapping[bytes, bytes]) -> None:
        """Insert or replace vectors in one transaction."""
        with self._connection() as connection, transaction(connection):
            connection.executemany(
                "INSERT INTO vectors (key, vector) VALUES (?, ?) ON CONFLICT (key) "
                "DO UPDATE SET vector = excluded.vector WHERE vector IS NOT excluded.vector",
                vectors.items(),
            )
            connection.execute(
                "DELETE FROM vectors WHERE id <= (SELECT max(id) FROM vectors) - ?", (self._max_vectors,)
            )

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(open_connection(self._path)) as connection:
                # Every time, because the file may have been deleted since the last operation.
                migrate_file(connection, self._path, _FILE_TYPE)
                yield connection
        except (sqlite3.Error, ValueError) as error:
            raise _FILE_TYPE.build_error(self._path, error) from error


class CachedEmbedder:
    """Caches the vectors of another embedder by a hash of the text.

    `name` identifies the model; vectors are never shared between names. With a `path` or a `source`, tool
    vectors are also stored there, for the next start and for other processes. Query vectors stay in
    memory, so a search never writes to disk.
    """

    def __init__(
        self,
        embedder: Embedder,
        name: str,
        path: str | PathLike[str] | None = None,
        *,
        source: VectorSource | None = None,
        capacity: int = CAPACITY,
    ) -> None:
        if not 0 < len(name) <= MAX_NAME_CHARS:
            raise InvalidConfig(
                f"the name of an embedder must have 1 to {MAX_NAME_CHARS} characters; use the name of its model"
            )
        if capacity < 1:
            raise InvalidConfig(f"the capacity of a cache must be at least 1, not {capacity}")
        self._embedder = embedder
        if isinstance(embedder, ProvisionalEmbedder):
            # Provisional vectors are not cached: they take less time than a look-up.
            self.embed_provisional = embedder.embed_provisional
        self._name = name
        self._source = f"the embedder {name!r}"
        self._capacity = capacity
        self._recent: OrderedDict[bytes, bytes] = OrderedDict()
        # The width of all vectors, once there are some.
        self._widths: frozenset[int] = frozenset()
        self._lock = Lock()
        self._store = source if path is None else VectorStore(path)
        self._file_error: InvalidCacheFile | None = None
        self._damaged: set[bytes] = set()

    @property
    def file_error(self) -> InvalidCacheFile | None:
        """The error that disabled the file, or None. Without its file the cache still works."""
        return self._file_error

    @property
    def damaged_count(self) -> int:
        """How many stored vectors were damaged and have been replaced."""
        return len(self._damaged)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Return one vector per query."""
        return self._embed_texts("query", texts, self._embedder.embed_queries, None)

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        """Return one vector per tool text."""
        return self._embed_texts("tool", texts, self._embedder.embed_tools, self._usable_store)

    def read_stored(self, texts: Sequence[str]) -> Vectors | None:
        """Return one vector per tool text if all of them are stored, else None. They are not cached in memory."""
        store = self._usable_store
        keys = [hash_text(self._name, "tool", text) for text in texts]
        packed: list[bytes] = []
        for start in range(0, len(keys) if store else 0, _READ_TEXTS):
            batch = keys[start : start + _READ_TEXTS]
            found = self._look_up(batch, store)
            if any(key not in found for key in batch):
                return None
            packed += map(found.__getitem__, batch)
        if not packed:
            return None
        self._check_widths({_packed_width(vector) for vector in packed})
        return unpack_vectors(packed)

    def score_service_names(self, text: str, names: Sequence[str]) -> Sequence[float]:
        """Return the underlying embedder's scores of the names in a query."""
        return score_service_names(self._embedder, text, names)

    @property
    def _usable_store(self) -> VectorSource | None:
        return None if self._file_error else self._store

    def _embed_texts(
        self, side: str, texts: Sequence[str], embed: Callable[[Sequence[str]], Vectors], store: VectorSource | None
    ) -> Vectors:
        keys = [hash_text(self._name, side, text) for text in texts]
        texts_by_key = dict(zip(keys, texts, strict=True))
        vectors = self._look_up(texts_by_key, store)
        self._check_widths(map(_packed_width, vectors.values()))
        missing = [key for key in texts_by_key if key not in vectors]
        for start in range(0, len(missing), _BATCH_TEXTS):
            batch = missing[start : start + _BATCH_TEXTS]
            result = embed([texts_by_key[key] for key in batch])
            rows = validate_vectors(result, len(batch), self._source)
            # Before storing, so that the file never holds vectors of two models.
            self._check_widths([rows.shape[1]])
            new = dict(zip(batch, map(pack_vector, rows), strict=True))
            self._store_vectors(store, new)
            vectors |= new
        self._cache_vectors(vectors)
        # New vectors are rounded like stored ones, so that a restart does not change any score.
        self._check_widths(map(_packed_width, vectors.values()))
        return unpack_vectors([vectors[key] for key in keys]) if keys else np.empty((0, 0), np.float32)

    def _look_up(self, keys: Iterable[bytes], store: VectorSource | None) -> dict[bytes, bytes]:
        """Return the intact vectors from memory and from the file."""
        keys = list(keys)
        with self._lock:
            vectors = {key: self._recent[key] for key in keys if key in self._recent}
        missing = [key for key in keys if key not in vectors]
        if store is None or not missing:
            return vectors
        try:
            stored = store.get(missing)
        except InvalidCacheFile as error:
            self._file_error = error
            return vectors
        intact = {key: vector for key, vector in stored.items() if is_intact(vector)}
        self._damaged |= stored.keys() - intact.keys()
        return vectors | intact

    def _cache_vectors(self, vectors: dict[bytes, bytes]) -> None:
        with self._lock:
            for key, vector in vectors.items():
                self._recent[key] = vector
                self._recent.move_to_end(key)
            while len(self._recent) > self._capacity:
                self._recent.popitem(last=False)

    def _store_vectors(self, store: VectorSource | None, vectors: dict[bytes, bytes]) -> None:
        if store and not self._file_error:
            try:
                store.put(vectors)
            except InvalidCacheFile as error:
                self._file_error = error

    def _check_widths(self, widths: Iterable[int]) -> None:
        """Raise if a vector is not as wide as the others: it comes from another model."""
        widths = self._widths.union(widths)
        if len(widths) > 1:
            raise EmbeddingFailed(
                f"the vectors under the name {self._name!r} have several widths "
                f"({', '.join(map(str, sorted(widths)))}), so the model has changed; restart with "
                "another name for the new model, or delete the vector file if there is one"
            )
        self._widths = widths


def pack_vector(row: Vectors) -> bytes:
    """Return a vector as a checksum, a scale and 16-bit floats."""
    scale = np.array(np.abs(row).max() or 1, "<f4")
    body: bytes = scale.tobytes() + (row / scale).astype("<f2").tobytes()
    return zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "little") + body


def unpack_vectors(vectors: list[bytes]) -> Vectors:
    """Return packed vectors of one width as rows, rounded to 16-bit precision."""
    parts = [("checksum", "<u4"), ("scale", "<f4"), ("row", "<f2", (_packed_width(vectors[0]),))]
    table = np.frombuffer(b"".join(vectors), parts)
    return table["row"].astype(np.float32) * table["scale"].astype(np.float32)[:, None]


def _packed_width(vector: bytes) -> int:
    return (len(vector) - _HEADER_BYTES) // _NUMBER_BYTES


def is_intact(vector: bytes) -> bool:
    """Return whether a packed vector has its checksum and a valid size."""
    checksum = int.from_bytes(vector[:_CHECKSUM_BYTES], "little")
    size = len(vector) - _HEADER_BYTES
    return size > 0 and size % 2 == 0 and zlib.crc32(vector[_CHECKSUM_BYTES:]) == checksum


def hash_text(name: str, side: str, text: str) -> bytes:
    """Return the cache key of a text. Query and tool keys differ, as their vectors may."""
    head = f"{side} {len(name)} {name} "
    return hashlib.blake2b((head + text).encode("utf-8", "surrogatepass"), digest_size=16).digest()


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
