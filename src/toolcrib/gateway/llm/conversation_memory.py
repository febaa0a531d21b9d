"""Hidden parts of conversations, kept in memory between the requests of a client.

The client never sees the gateway's searches, so it cannot send them back. What is hidden is stored
with the reply of the model that the client sees, and with the messages of the client right before it.
So it is found again if the client drops or changes earlier messages. If an entry is lost, the model
has to search again; nothing else breaks. Replicas copy entries from each other through the store.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from threading import Lock
from typing import Any, Final, cast

import anyio

from toolcrib.adapters.plain_json import parse_arguments
from toolcrib.errors import ToolcribError
from toolcrib.gateway.llm.json_body import serialize_json
from toolcrib.gateway.replicas import MISSED_TOPIC, ReplicaChannel
from toolcrib.storage.shared_values import SharedValue, ValueKind
from toolcrib.storage.store import Store

MAX_BYTES: Final = 64 << 20
MAX_ENTRY_BYTES: Final = 256 << 10
FLUSH_SECONDS: Final = 0.1
KEEP_SECONDS: Final = 86_400.0
# How many values a replica reads when it starts, and how many wait while the store is unavailable.
MAX_LOADED_VALUES: Final = 2_000
MAX_UNWRITTEN_VALUES: Final = 5_000
_TOPIC: Final = "conversations"
_log = logging.getLogger(__name__)


class ConversationMemory:
    """A thread-safe LRU cache of JSON values, limited by number and by total bytes."""

    def __init__(self, max_entries: int, max_bytes: int = MAX_BYTES) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: dict[str, tuple[Any, int]] = {}
        self._bytes = 0
        self._lock = threading.Lock()
        # Called with every new value, and with None for a removed one.
        self.on_put: Callable[[str, Any], None] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> Any:
        """Return the value of a key, or None. The caller must not change the value."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is None:
                return None
            self._entries[key] = entry
            return entry[0]

    def put(self, key: str, value: Any) -> None:
        """Store a value, unless it is too large, and evict the least recently used ones."""
        self.restore(key, value)
        if self.on_put is not None:
            self.on_put(key, value)

    def restore(self, key: str, value: Any) -> None:
        """Store a value that another replica has put; None removes what is stored."""
        if value is None:
            self._remove(key)
            return
        size = len(serialize_json(value)) + len(key)
        if size > min(MAX_ENTRY_BYTES, self._max_bytes):
            return
        with self._lock:
            self._bytes += size - self._entries.pop(key, (None, 0))[1]
            self._entries[key] = (value, size)
            while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
                self._bytes -= self._entries.pop(next(iter(self._entries)))[1]

    def discard(self, key: str) -> None:
        """Remove a value, if there is one."""
        if self._remove(key) and self.on_put is not None:
            self.on_put(key, None)

    def _remove(self, key: str) -> bool:
        with self._lock:
            count = len(self._entries)
            self._bytes -= self._entries.pop(key, (None, 0))[1]
            return len(self._entries) < count

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._entries.clear()
            self._bytes = 0


class ScopedMemory:
    """The part of a memory that belongs to one client, or to one conversation of a client."""

    def __init__(self, memory: ConversationMemory, *scope: object) -> None:
        self._memory = memory
        # Hashed once: a scope may contain a long text and is used for every lookup.
        self._scope = _digest(scope)

    def get(self, *key: object) -> Any:
        """Return the value of a key in this scope, or None."""
        return self._memory.get(_digest((self._scope, *key)))

    def put(self, value: Any, *key: object) -> None:
        """Store a value under a key in this scope; an empty one removes what is stored there."""
        digest = _digest((self._scope, *key))
        if value:
            self._memory.put(digest, value)
        else:
            self._memory.discard(digest)

    def narrow(self, *scope: object) -> ScopedMemory:
        """Return the memory of a smaller scope within this one."""
        return ScopedMemory(self._memory, self._scope, *scope)


class ReplyMemory:
    """What was hidden behind the replies of one conversation.

    Equal replies are distinguished by their order, so a history has to be read from its start.
    """

    def __init__(self, memory: ScopedMemory) -> None:
        self._memory = memory
        self._counts: Counter[str] = Counter()

    def recall(self, *key: object) -> Any:
        """Return what was hidden behind the next reply with this key, or None."""
        digest = _digest(key)
        number = self._counts[digest]
        self._counts[digest] += 1
        return self._memory.get(number, digest)

    def remember(self, hidden: Any, *key: object) -> None:
        """Store what is hidden behind the reply that follows the history; nothing removes what is stored."""
        digest = _digest(key)
        self._memory.put(hidden, self._counts[digest], digest)


def strip_formatting(arguments: object) -> object:
    """Return the arguments of a call without the white space of their JSON text, which some clients change."""
    parsed = parse_arguments(arguments)
    return arguments if parsed is None else parsed


def _digest(parts: tuple[object, ...]) -> str:
    return hashlib.blake2b(serialize_json(parts), digest_size=16).hexdigest()


class MemorySharing:
    """Writes new values of memories to the store, and reads those of other replicas."""

    def __init__(
        self, store: Store, replicas: ReplicaChannel, memories: Mapping[ValueKind, ConversationMemory]
    ) -> None:
        self._store = store
        self._replicas = replicas
        self._memories = memories
        self._lock = Lock()
        self._unwritten: dict[tuple[ValueKind, str], Any] = {}

    async def run(self) -> None:
        """Share the memories until cancelled; then write what is left."""
        if not self._replicas.is_shared:
            return
        self._replicas.add_handler(_TOPIC, self._receive)
        self._replicas.add_handler(MISSED_TOPIC, self._load_all)
        await self._load_all({})
        for kind, memory in self._memories.items():
            memory.on_put = partial(self._enqueue, kind)
        try:
            while True:
                await anyio.sleep(FLUSH_SECONDS)
                await self._flush()
        finally:
            with anyio.CancelScope(shield=True):
                await self._flush()

    def _enqueue(self, kind: ValueKind, key: str, value: Any) -> None:
        with self._lock:
            self._unwritten[kind, key] = value
            while len(self._unwritten) > MAX_UNWRITTEN_VALUES:
                del self._unwritten[next(iter(self._unwritten))]

    async def _flush(self) -> None:
        with self._lock:
            values, self._unwritten = self._unwritten, {}
        if not values:
            return
        now = time.time()
        rows = [SharedValue(kind, key, json.dumps(value), now + KEEP_SECONDS) for (kind, key), value in values.items()]
        try:
            await self._replicas.send(_TOPIC, {"keys": list(values)}, values=rows)
        except ToolcribError as error:
            _log.warning("conversations are shared later: %s", error)
            with self._lock:
                self._unwritten = {**values, **self._unwritten}

    async def _receive(self, body: Mapping[str, Any]) -> None:
        for kind in {kind for kind, _ in body["keys"]}:
            keys = [key for other, key in body["keys"] if other == kind]
            self._put(kind, await anyio.to_thread.run_sync(self._store.get_values, kind, keys, time.time()))

    async def _load_all(self, body: Mapping[str, Any]) -> None:
        for kind in self._memories:
            await self._load(kind)

    async def _load(self, kind: ValueKind) -> None:
        try:
            read = partial(self._store.list_values, kind, time.time(), limit=MAX_LOADED_VALUES)
            self._put(kind, await anyio.to_thread.run_sync(read))
        except ToolcribError as error:
            _log.warning("earlier conversations are not known: %s", error)

    def _put(self, kind: str, values: Mapping[str, str]) -> None:
        memory = self._memories[cast(ValueKind, kind)]
        for key, body in values.items():
            memory.restore(key, json.loads(body))
