"""Client sessions that every replica can serve: stored at the handshake, restored where a request arrives.

A session has local parts on each replica that has served it: its streams and the subscriptions to upstream
servers. The parts that all replicas share are stored: the handshake, the access profile, the revealed tools, the
log level and the subscribed resources. Every replica has copies of all sessions, which it uses while the store is
unavailable.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import anyio

from toolcrib.errors import InvalidStore, ToolcribError
from toolcrib.gateway.mcp.server.client import SessionState
from toolcrib.gateway.replicas import MISSED_TOPIC, ReplicaChannel
from toolcrib.hub.hub import Hub
from toolcrib.storage.shared_values import SharedValue

# The sessions of all replicas in memory, as JSON; their number is limited by `maxSessions`.
MAX_COPIED_CHARS: Final = 64 << 20
SESSION_TOPIC: Final = "session"
SESSION_END_TOPIC: Final = "session-end"
_EXTENDED_TOPIC: Final = "sessions-extended"
_WRITTEN_TOGETHER: Final = 100
_log = logging.getLogger(__name__)


class StoredSession(NamedTuple):
    """What is stored of a client session."""

    # The parameters of `initialize`, and the negotiated protocol revision.
    handshake: Mapping[str, Any]
    protocol: str
    # Who may use the session: the name of the key and its profile; empty without keys.
    owner: str
    state: Mapping[str, Any]


class SessionCopies:
    """Stored sessions as JSON, limited by number and size. An ended session stays ended."""

    def __init__(self) -> None:
        # The JSON, which is empty after the end of a session, and until when it is kept.
        self._copies: dict[str, tuple[str, float]] = {}
        self._chars = 0

    def put(self, id: str, body: str, expires_at: float, max_sessions: int) -> None:
        """Add or replace a session, unless it has ended, and remove the least recently extended ones over the limits."""
        if not self.is_ended(id):
            self.remove(id)
            self._copies[id] = (body, expires_at)
            self._chars += len(body)
            while len(self._copies) > max_sessions or self._chars > MAX_COPIED_CHARS:
                self.remove(next(iter(self._copies)))

    def get(self, id: str) -> str | None:
        """Return a session that has not ended or expired."""
        body, expires_at = self._copies.get(id, ("", 0.0))
        return body if body and time.time() < expires_at else None

    def list_ids(self) -> set[str]:
        """Return the ids of the sessions that have not ended."""
        return {id for id, (body, _) in self._copies.items() if body}

    def is_ended(self, id: str) -> bool:
        """Return whether the end of a session is known."""
        return id in self._copies and not self._copies[id][0]

    def remove(self, id: str) -> None:
        """Forget a session."""
        body, _ = self._copies.pop(id, ("", 0.0))
        self._chars -= len(body)


class SessionStore:
    """Stores client sessions, and extends those that are used."""

    def __init__(self, hub: Hub, replicas: ReplicaChannel) -> None:
        self._hub = hub
        self.replicas = replicas
        self._sessions: dict[str, StoredSession] = {}
        self._copies = SessionCopies()
        # When the stored expiry of a session was last extended, and sessions that could not be written or deleted.
        self._extended_at: dict[str, float] = {}
        self._unwritten: set[str] = set()
        self._undeleted: set[str] = set()
        replicas.add_handler(SESSION_TOPIC, self._receive_sessions)
        replicas.add_handler(SESSION_END_TOPIC, self._receive_end)
        replicas.add_handler(_EXTENDED_TOPIC, self._receive_extended)
        replicas.add_handler(MISSED_TOPIC, self.load_copies)

    @property
    def _idle_seconds(self) -> float:
        return self._hub.config.http.session_idle_seconds

    async def save(self, id: str, session: StoredSession) -> None:
        """Store a session and send it to the other replicas. If the store is unavailable, it is written later."""
        if self._copies.is_ended(id):
            return
        self._sessions[id] = session
        self._extended_at[id] = time.time()
        try:
            await self._write([id])
        except ToolcribError as error:
            _log.warning("a session is stored later: %s", error)
            self._unwritten.add(id)

    async def save_state(self, id: str, state: SessionState) -> None:
        """Store the changed state of a session, and tell the other replicas."""
        session = self._sessions.get(id)
        if session is not None:
            await self.save(id, session._replace(state=state.to_dict()))

    async def load(self, id: str) -> StoredSession | None:
        """Return a session that this or another replica has stored.

        While the store is unavailable, return the copy of it; raise `InvalidStore` if there is none.
        """
        if self._copies.is_ended(id):
            return None
        body = self._copies.get(id)
        try:
            if body is None or self._hub.store.is_available:
                read = partial(self._hub.store.get_values, "session", [id], time.time())
                body = (await anyio.to_thread.run_sync(read)).get(id)
        except InvalidStore:
            if body is None:
                raise
        if body is None:
            return None
        session = StoredSession(**json.loads(body))
        self._sessions[id] = session
        self._extended_at.setdefault(id, 0.0)
        return session

    async def delete(self, id: str) -> None:
        """End a session on all replicas. If the store is unavailable, it is deleted later."""
        self._end(id)
        try:
            await self._delete(id)
        except ToolcribError as error:
            _log.warning("a session is deleted later: %s", error)
            self._undeleted.add(id)

    def forget(self, id: str) -> None:
        """Forget a session that has ended on this replica."""
        self._sessions.pop(id, None)
        self._extended_at.pop(id, None)
        self._unwritten.discard(id)

    async def flush(self, used: list[str]) -> None:
        """Write and delete what could not be written and deleted, and extend used sessions that expire soon."""
        now = time.time()
        due = [id for id in used if now - self._extended_at.get(id, now) > self._idle_seconds / 4]
        try:
            for id in list(self._undeleted):
                await self._delete(id)
                self._undeleted.discard(id)
            while unwritten := [id for id in self._unwritten if id in self._sessions][:_WRITTEN_TOGETHER]:
                await self._write(unwritten)
                self._unwritten.difference_update(unwritten)
            if due:
                extend = partial(self._hub.store.extend_values, "session", due, now + self._idle_seconds)
                await anyio.to_thread.run_sync(extend)
                self._extended_at.update(dict.fromkeys(due, now))
                await self._receive_extended({"ids": due})
                await self.replicas.send(_EXTENDED_TOPIC, {"ids": due})
        except ToolcribError as error:
            _log.warning("sessions are stored later: %s", error)

    async def _write(self, ids: Sequence[str]) -> None:
        bodies = {id: json.dumps(self._sessions[id]._asdict()) for id in ids}
        self._copy(bodies)
        expires_at = time.time() + self._idle_seconds
        values = [SharedValue("session", id, body, expires_at) for id, body in bodies.items()]
        await self.replicas.send(SESSION_TOPIC, {"sessions": bodies}, values=values)

    async def _delete(self, id: str) -> None:
        await anyio.to_thread.run_sync(partial(self._hub.store.take_value, "session", id, time.time()))
        await self.replicas.send(SESSION_END_TOPIC, {"session": id})

    def _copy(self, bodies: Mapping[str, str]) -> None:
        if self.replicas.is_shared:
            expires_at, limit = time.time() + self._idle_seconds, self._hub.config.http.max_sessions
            for id, body in bodies.items():
                self._copies.put(id, body, expires_at, limit)

    def _end(self, id: str) -> None:
        self.forget(id)
        self._copies.remove(id)
        self._copy({id: ""})

    async def _receive_sessions(self, body: Mapping[str, Any]) -> None:
        self._copy(body["sessions"])

    async def _receive_end(self, body: Mapping[str, Any]) -> None:
        self._end(str(body["session"]))

    async def _receive_extended(self, body: Mapping[str, Any]) -> None:
        self._copy({id: copy for id in body["ids"] if (copy := self._copies.get(id))})

    async def load_copies(self, body: Mapping[str, Any] | None = None) -> None:
        """Copy all sessions of the store, and forget those that were deleted meanwhile."""
        before, limit = self._copies.list_ids(), self._hub.config.http.max_sessions
        try:
            read = partial(self._hub.store.list_values, "session", time.time(), limit=limit)
            stored = await anyio.to_thread.run_sync(read)
        except ToolcribError as error:
            _log.warning("the sessions of other replicas are not known: %s", error)
            return
        for id in before - stored.keys() - self._unwritten:
            self._copies.remove(id)
        self._copy(stored)
