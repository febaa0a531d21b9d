"""An embedder that remembers: a text it has seen is not encoded again."""

from __future__ import annotations

import hashlib
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from toolcrib.embedders.vector_file import VectorStore
from toolcrib.errors import EmbeddingFailed, InvalidCacheFile, InvalidConfig
from toolcrib.search.dense.embedder import (
    Embedder,
    ProvisionalEmbedder,
    Vectors,
    score_service_names,
)
from toolcrib.search.dense.vector_checks import validate_provisional, validate_vectors

CAPACITY: Final = 10_000
MAX_NAME_CHARS: Final = 512
# Texts encoded before they are kept: what was done stays done if the next ones fail.
_BATCH_TEXTS: Final = 256

_CHECK_BYTES: Final = 4
_SCALE_BYTES: Final = 4
_NUMBER_BYTES: Final = 2


class CachedEmbedder:
    """An embedder around another, with a memory of vectors by fingerprint of the text.

    `name` is that of the model: under another name everything is encoded anew. Where a `path` is
    given, tools' vectors are kept in that file too, for the next start and for other processes.
    Queries stay in memory: a search writes nothing.
    """

    def __init__(
        self,
        embedder: Embedder,
        name: str,
        path: str | PathLike[str] | None = None,
        *,
        capacity: int = CAPACITY,
    ) -> None:
        if not 0 < len(name) <= MAX_NAME_CHARS:
            raise InvalidConfig(
                f"an embedder's name has 1 to {MAX_NAME_CHARS} characters; name it after its model"
            )
        if capacity < 1:
            raise InvalidConfig(f"a cache holds 1 vector or more, not {capacity}")
        self._embedder = embedder
        self._name = name
        self._capacity = capacity
        self._recent: OrderedDict[bytes, bytes] = OrderedDict()
        # The one that all its vectors have, as soon as there are some.
        self._widths: frozenset[int] = frozenset()
        self._lock = Lock()
        self._store = None if path is None else VectorStore(path)
        self._fault: InvalidCacheFile | None = None
        self._damaged: set[bytes] = set()

    @property
    def file_error(self) -> InvalidCacheFile | None:
        """Why the file is no longer used; None while it is. Searching goes on without it."""
        return self._fault

    @property
    def damaged_count(self) -> int:
        """How many vectors of the file were damaged; they are encoded anew, and replaced."""
        return len(self._damaged)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """What people and models ask for."""
        return self._vectors("query", texts, self._embedder.embed_queries, None)

    def embed_tools(self, texts: Sequence[str]) -> Vectors:
        """What tools say of themselves."""
        store = None if self._fault else self._store
        return self._vectors("tool", texts, self._embedder.embed_tools, store)

    def score_service_names(self, text: str, names: Sequence[str]) -> Sequence[float]:
        """How likely each of the names that a query mentions is that of a service, from 0 to 1."""
        return score_service_names(self._embedder, text, names)

    def embed_provisional(self, texts: Sequence[str]) -> tuple[Vectors, NDArray[np.bool_]]:
        """What is kept of these tools, and for the others what the embedder can say at once."""
        if not isinstance(self._embedder, ProvisionalEmbedder):
            return self.embed_tools(texts), np.ones(len(texts), np.bool_)
        keys = [_fingerprint(self._name, "tool", text) for text in texts]
        wanted = dict(zip(keys, texts, strict=True))
        known = self._cached_vectors(wanted)
        if self._store and not self._fault:
            known |= self._load_stored(self._store, [key for key in wanted if key not in known])
        self._cache_vectors(known)
        unknown = [key for key in wanted if key not in known]
        rough: dict[bytes, tuple[Vectors, bool]] = {}
        if unknown:
            found = self._embedder.embed_provisional([wanted[key] for key in unknown])
            given, is_read = validate_provisional(
                found, len(unknown), f"the embedder {self._name!r}"
            )
            rough = dict(zip(unknown, zip(given, is_read.tolist(), strict=True), strict=True))
        told = [(unpack_vector(known[key]), True) if key in known else rough[key] for key in keys]
        rows = self._stack_rows([row for row, _ in told])
        return rows, np.array([read for _, read in told], np.bool_)

    def _vectors(
        self,
        side: str,
        texts: Sequence[str],
        encode: Callable[[Sequence[str]], Vectors],
        store: VectorStore | None,
    ) -> Vectors:
        keys = [_fingerprint(self._name, side, text) for text in texts]
        wanted = dict(zip(keys, texts, strict=True))
        known = self._cached_vectors(wanted)
        if store and len(known) < len(wanted):
            known |= self._load_stored(store, [key for key in wanted if key not in known])
        self._check_widths(map(_width, known.values()))
        missing = [key for key in wanted if key not in known]
        for start in range(0, len(missing), _BATCH_TEXTS):
            some = missing[start : start + _BATCH_TEXTS]
            found = encode([wanted[key] for key in some])
            rows = validate_vectors(found, len(some), f"the embedder {self._name!r}")
            # Before they are kept: else the file would hold vectors of two models for good.
            self._check_widths([rows.shape[1]])
            fresh = dict(zip(some, map(pack_vector, rows), strict=True))
            self._store_vectors(store, fresh)
            known |= fresh
        self._cache_vectors(known)
        # Fresh vectors are unpacked too: a restart must not change a score in the last digit.
        return self._stack_rows([unpack_vector(known[key]) for key in keys])

    def _cached_vectors(self, keys: dict[bytes, str]) -> dict[bytes, bytes]:
        with self._lock:
            return {key: self._recent[key] for key in keys if key in self._recent}

    def _cache_vectors(self, vectors: dict[bytes, bytes]) -> None:
        with self._lock:
            for key, vector in vectors.items():
                self._recent[key] = vector
                self._recent.move_to_end(key)
            while len(self._recent) > self._capacity:
                self._recent.popitem(last=False)

    def _load_stored(self, store: VectorStore, keys: list[bytes]) -> dict[bytes, bytes]:
        try:
            found = store.get(keys)
        except InvalidCacheFile as fault:
            self._fault = fault
            return {}
        whole = {key: vector for key, vector in found.items() if _is_intact(vector)}
        self._damaged |= found.keys() - whole.keys()
        return whole

    def _store_vectors(self, store: VectorStore | None, vectors: dict[bytes, bytes]) -> None:
        if store and not self._fault:
            try:
                store.put(vectors)
            except InvalidCacheFile as fault:
                self._fault = fault

    def _stack_rows(self, rows: list[Vectors]) -> Vectors:
        if not rows:
            return np.empty((0, 0), np.float32)
        self._check_widths(map(len, rows))
        return np.stack(rows)

    def _check_widths(self, widths: Iterable[int]) -> None:
        """Refuse vectors of another width than those before: they are another model's."""
        widths = self._widths.union(widths)
        if len(widths) > 1:
            raise EmbeddingFailed(
                f"vectors of several widths ({', '.join(map(str, sorted(widths)))}) go by the name "
                f"{self._name!r}: its model has changed; start anew and give the new one another "
                "name, or delete the file of vectors if there is one"
            )
        self._widths = widths


def pack_vector(row: Vectors) -> bytes:
    """A vector in 16 bits a number, with what the largest stands for, and a check of the whole."""
    scale = np.array(np.abs(row).max() or 1, "<f4")
    body: bytes = scale.tobytes() + (row / scale).astype("<f2").tobytes()
    return zlib.crc32(body).to_bytes(_CHECK_BYTES, "little") + body


def unpack_vector(vector: bytes) -> Vectors:
    """The vector that was packed, but for rounding."""
    scale = np.frombuffer(vector, "<f4", 1, _CHECK_BYTES)
    row = np.frombuffer(vector, "<f2", offset=_CHECK_BYTES + _SCALE_BYTES)
    return row.astype(np.float32) * scale.astype(np.float32)


def _width(vector: bytes) -> int:
    """How many numbers a packed vector has."""
    return (len(vector) - _CHECK_BYTES - _SCALE_BYTES) // _NUMBER_BYTES


def _is_intact(vector: bytes) -> bool:
    check = int.from_bytes(vector[:_CHECK_BYTES], "little")
    numbers = len(vector) - _CHECK_BYTES - _SCALE_BYTES
    return numbers > 0 and numbers % 2 == 0 and zlib.crc32(vector[_CHECK_BYTES:]) == check


def _fingerprint(name: str, side: str, text: str) -> bytes:
    """A text's key. The two sides differ: an embedder may read one text in two ways."""
    head = f"{side} {len(name)} {name} "
    return hashlib.blake2b((head + text).encode("utf-8", "surrogatepass"), digest_size=16).digest()
