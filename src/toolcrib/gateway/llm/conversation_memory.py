"""What clients were not shown, so that the next request of a conversation goes on where it was.

Losing it costs the model a search and nothing else. So it is kept in memory, and is bounded.
"""

from __future__ import annotations

import hashlib
import threading
from typing import Any, Final

from toolcrib.gateway.llm.json_body import serialize_json

MAX_BYTES: Final = 64 << 20
MAX_ENTRY_BYTES: Final = 256 << 10


class ConversationMemory:
    """JSON values by their keys: at most so many, and so many bytes. The longest unused go first."""

    def __init__(self, most: int, max_bytes: int = MAX_BYTES) -> None:
        self._most = most
        self._max_bytes = max_bytes
        self._kept: dict[str, tuple[Any, int]] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> Any:
        """What was kept under a key; None if nothing was, or if it is forgotten. Not to be changed."""
        with self._lock:
            found = self._kept.pop(key, None)
            if found is None:
                return None
            self._kept[key] = found
            return found[0]

    def put(self, key: str, value: Any) -> None:
        """Keep a value. One that is too large is not kept."""
        size = len(serialize_json(value)) + len(key)
        if size > min(MAX_ENTRY_BYTES, self._max_bytes):
            return
        with self._lock:
            self._bytes += size - self._kept.pop(key, (None, 0))[1]
            self._kept[key] = (value, size)
            while len(self._kept) > self._most or self._bytes > self._max_bytes:
                self._bytes -= self._kept.pop(next(iter(self._kept)))[1]


class ScopedMemory:
    """One client's part of a memory, within one conversation: nobody is given another's."""

    def __init__(self, memory: ConversationMemory, *owner: object) -> None:
        self._memory = memory
        # Digested here: what a conversation is known by may be long, and is asked for often.
        self._owner = _digest(owner)

    def get(self, *anchor: object) -> Any:
        """What was kept at an anchor: something that the client will send again."""
        return self._memory.get(_digest((self._owner, *anchor)))

    def put(self, value: Any, *anchor: object) -> None:
        """Keep a value at an anchor."""
        self._memory.put(_digest((self._owner, *anchor)), value)

    def narrow(self, *part: object) -> ScopedMemory:
        """The part of it that belongs to something narrower, such as one conversation."""
        return ScopedMemory(self._memory, self._owner, *part)


def _digest(parts: tuple[object, ...]) -> str:
    return hashlib.blake2b(serialize_json(parts), digest_size=16).hexdigest()
