"""Messages between the replicas of a gateway, sent through the store that they share.

A short message is the payload of a notification. A long one is stored, and the notification has its key.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import anyio

from toolcrib.errors import InvalidStore, ServerUnavailable, ToolcribError
from toolcrib.files.store_url import is_postgres_url
from toolcrib.hub.hub import Hub
from toolcrib.storage.shared_values import SharedValue
from toolcrib.storage.sql_database import MISSED_MESSAGES

# PostgreSQL accepts payloads below 8,000 bytes.
MAX_NOTIFICATION_BYTES: Final = 7_000
# How long a long message is kept for its reader.
MESSAGE_SECONDS: Final = 60.0
MAX_RECEIVED_MESSAGES: Final = 10_000
ANSWER_SECONDS: Final = 900.0
PRESENCE_SECONDS: Final = 5.0
_PREFIX: Final = "replica:"
_ANSWER_TOPIC: Final = "answer"
# The topic of a message that a replica sends to itself when it may have missed messages of others.
MISSED_TOPIC: Final = "missed"
_log = logging.getLogger(__name__)

Body = Mapping[str, Any]
OnReplicaMessage = Callable[[Body], Awaitable[Any]]


class ReplicaChannel:
    """Sends messages to other replicas and calls a function for each message of theirs."""

    def __init__(self, hub: Hub) -> None:
        self._store = hub.store
        self.id: Final = secrets.token_hex(4)
        # Only a database server has several replicas. Without one, nothing is sent.
        self.is_shared: Final = is_postgres_url(hub.config.store)
        self._handlers: dict[str, list[OnReplicaMessage]] = {}
        self._answers: dict[str, asyncio.Future[Body]] = {}

    def add_handler(self, topic: str, handler: OnReplicaMessage) -> None:
        """Call a function for every message with a topic. What the last one returns answers a request."""
        self._handlers.setdefault(topic, []).append(handler)

    async def run(self) -> None:
        """Receive messages until cancelled."""
        if not self.is_shared:
            return
        loop = asyncio.get_running_loop()
        received: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_RECEIVED_MESSAGES)

        def enqueue(message: dict[str, Any]) -> None:
            if received.full():
                _log.warning("a message of another replica is dropped: too many wait")
            else:
                received.put_nowait(message)

        def on_message(text: str) -> None:
            message = self._parse_message(text)
            if message is not None and not loop.is_closed():
                loop.call_soon_threadsafe(enqueue, message)

        self._store.listen(on_message)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._report_presence)
            while True:
                tasks.start_soon(self._handle_message, await received.get())

    async def send(self, topic: str, body: Body, target: str = "", values: Sequence[SharedValue] = ()) -> None:
        """Send a message to one replica, or to all others, and store values in the same transaction."""
        message = {"topic": topic, "body": body, "to": target, "from": self.id}
        if values or self.is_shared:
            await anyio.to_thread.run_sync(self._publish, message, values)

    async def request(self, topic: str, body: Body, target: str) -> Body:
        """Send a message to one replica and return its answer; raise `ServerUnavailable` without one."""
        number = secrets.token_hex(8)
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            await self.send(topic, {**body, "request": number}, target)
            for _ in range(int(ANSWER_SECONDS / PRESENCE_SECONDS)):
                with anyio.move_on_after(PRESENCE_SECONDS):
                    answer: Body = await asyncio.shield(future)
                    return answer
                if not await self._is_present(target):
                    break
        except InvalidStore:
            pass
        finally:
            del self._answers[number]
        raise ServerUnavailable(
            "the replica that runs this call does not answer; it is unknown whether the call had an effect"
        )

    async def _report_presence(self) -> None:
        """Keep a lease with the name of this replica, so that others do not wait for it after it has died."""
        while True:
            try:
                await anyio.to_thread.run_sync(
                    self._store.take_lease, f"replica {self.id}", self.id, time.time(), 3 * PRESENCE_SECONDS
                )
            except ToolcribError as error:
                _log.debug("the presence of this replica is not known: %s", error)
            await anyio.sleep(PRESENCE_SECONDS)

    async def _is_present(self, replica: str) -> bool:
        name = f"replica {replica}"
        try:
            found = await anyio.to_thread.run_sync(self._store.get_values, "lease", [name], time.time())
        except ToolcribError:
            # While the store is unavailable, nothing is known of other replicas.
            return True
        return name in found

    def _publish(self, message: Body, values: Sequence[SharedValue]) -> None:
        now = time.time()
        text = f"{_PREFIX}{json.dumps(message)}" if self.is_shared else ""
        if len(text.encode()) > MAX_NOTIFICATION_BYTES:
            key = secrets.token_hex(16)
            values = [*values, SharedValue("message", key, json.dumps(message["body"]), now + MESSAGE_SECONDS)]
            text = f"{_PREFIX}{json.dumps({**message, 'body': {}, 'stored': key})}"
        self._store.put_values(values, now=now, notify=text)

    def _parse_message(self, text: str) -> dict[str, Any] | None:
        """Return a message for this replica, or None."""
        if text == MISSED_MESSAGES and MISSED_TOPIC in self._handlers:
            return {"topic": MISSED_TOPIC, "body": {}, "from": self.id}
        if not text.startswith(_PREFIX):
            return None
        message: dict[str, Any] = json.loads(text.removeprefix(_PREFIX))
        is_own = message["from"] == self.id
        return None if is_own or message["to"] not in ("", self.id) else message

    async def _handle_message(self, message: dict[str, Any]) -> None:
        try:
            body = message["body"]
            if stored := message.get("stored"):
                read = partial(self._store.get_values, "message", [stored], time.time())
                body = json.loads((await anyio.to_thread.run_sync(read))[stored])
            if message["topic"] == _ANSWER_TOPIC:
                future = self._answers.get(body["request"])
                if future is not None and not future.done():
                    future.set_result(body["answer"])
                return
            answer = None
            for handler in self._handlers[message["topic"]]:
                answer = await handler(body)
            if "request" in body:
                await self.send(_ANSWER_TOPIC, {"request": body["request"], "answer": answer}, message["from"])
        except Exception:
            # For example one of another version of Toolcrib, or one that has expired. It must not end this replica.
            _log.warning("a message of another replica could not be handled", exc_info=True)
