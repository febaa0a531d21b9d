"""Hidden parts of conversations, kept in memory between the requests of a client.

The client never sees the gateway's searches, so it cannot send them back. What is hidden is stored
with the reply of the model that the client sees, and with the messages of the client right before it.
So it is found again if the client drops or changes earlier messages. If an entry is lost, the model
has to search again; nothing else breaks.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from toolcrib.adapters.plain_json import parse_arguments
from toolcrib.gateway.llm.json_body import serialize_json

MAX_BYTES: Final = 64 << 20
MAX_ENTRY_BYTES: Final = 256 << 10


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
