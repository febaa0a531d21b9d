"""Conversation memory that the replicas of a gateway share.

Requests read and write only the memory of their replica. In the background, new values are written to the
store in batches, and the other replicas read them. So a request never waits for the store. A value that has
not arrived yet is missing, and the model searches again.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from functools import partial
from threading import Lock
from typing import Any, Final, cast

import anyio

from toolcrib.errors import ToolcribError
from toolcrib.gateway.llm.conversation_memory import ConversationMemory
from toolcrib.gateway.replicas import MISSED_TOPIC, ReplicaChannel
from toolcrib.storage.shared_values import SharedValue, ValueKind
from toolcrib.storage.store import Store

FLUSH_SECONDS: Final = 0.1
KEEP_SECONDS: Final = 86_400.0
# How many values a replica reads when it starts, and how many wait while the store is away.
MAX_LOADED_VALUES: Final = 2_000
MAX_UNWRITTEN_VALUES: Final = 5_000
_TOPIC: Final = "conversations"
_log = logging.getLogger(__name__)


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
