"""Client sessions that every replica can serve: stored at the handshake, restored where a request arrives.

A session has local parts on each replica that has served it: its streams and the subscriptions to upstream
servers. What all replicas share is stored: the handshake, the access profile, the revealed tools, the log
level and the subscribed resources.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio

from toolcrib.errors import ToolcribError
from toolcrib.gateway.mcp.server.client import SessionState
from toolcrib.gateway.replicas import ReplicaChannel
from toolcrib.hub.hub import Hub
from toolcrib.storage.shared_values import SharedValue

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredSession:
    """What is stored of a client session."""

    # The parameters of `initialize`, and the negotiated protocol revision.
    handshake: Mapping[str, Any]
    protocol: str
    # Who may use the session: the name of the key and its profile; empty without keys.
    owner: str
    state: Mapping[str, Any]


class SessionStore:
    """Stores client sessions, and extends those that are used."""

    def __init__(self, hub: Hub, replicas: ReplicaChannel) -> None:
        self._hub = hub
        self.replicas = replicas
        self._sessions: dict[str, StoredSession] = {}
        # When the stored expiry of a session was last extended, and sessions that could not be written.
        self._extended_at: dict[str, float] = {}
        self._unwritten: set[str] = set()

    @property
    def _idle_seconds(self) -> float:
        return self._hub.config.http.session_idle_seconds

    async def save(self, id: str, session: StoredSession) -> None:
        """Store a session. If the store is away, it is written later."""
        self._sessions[id] = session
        self._extended_at[id] = time.time()
        try:
            await anyio.to_thread.run_sync(self._write, [id])
        except ToolcribError as error:
            _log.warning("a session is stored later: %s", error)
            self._unwritten.add(id)

    async def save_state(self, id: str, state: SessionState) -> None:
        """Store the changed state of a session, and tell the other replicas."""
        session = self._sessions.get(id)
        if session is not None:
            changed = StoredSession(session.handshake, session.protocol, session.owner, state.to_dict())
            await self.save(id, changed)
            await self._announce("session", id)

    async def load(self, id: str) -> StoredSession | None:
        """Return a session that this or another replica has stored; raise `InvalidStore` if the store is away."""
        read = partial(self._hub.store.get_values, "session", [id], time.time())
        body = (await anyio.to_thread.run_sync(read)).get(id)
        if body is None:
            return None
        session = StoredSession(**json.loads(body))
        self._sessions[id] = session
        self._extended_at.setdefault(id, 0.0)
        return session

    async def delete(self, id: str) -> None:
        """End a session on all replicas."""
        self.forget(id)
        try:
            await anyio.to_thread.run_sync(partial(self._hub.store.take_value, "session", id, time.time()))
        except ToolcribError as error:
            _log.warning("a session is deleted when it expires: %s", error)
        await self._announce("session-end", id)

    def forget(self, id: str) -> None:
        """Forget a session that has ended on this replica."""
        self._sessions.pop(id, None)
        self._extended_at.pop(id, None)
        self._unwritten.discard(id)

    async def flush(self, used: list[str]) -> None:
        """Write what could not be written, and extend the sessions that are in use and expire soon."""
        now = time.time()
        due = [id for id in used if now - self._extended_at.get(id, now) > self._idle_seconds / 4]
        unwritten = [id for id in self._unwritten if id in self._sessions]
        try:
            if unwritten:
                await anyio.to_thread.run_sync(self._write, unwritten)
                self._unwritten.difference_update(unwritten)
            if due:
                extend = partial(self._hub.store.extend_values, "session", due, now + self._idle_seconds)
                await anyio.to_thread.run_sync(extend)
                self._extended_at.update(dict.fromkeys(due, now))
        except ToolcribError as error:
            _log.warning("sessions are stored later: %s", error)

    async def _announce(self, topic: str, id: str) -> None:
        try:
            await self.replicas.send(topic, {"session": id})
        except ToolcribError as error:
            _log.warning("other replicas learn of a changed session later: %s", error)

    def _write(self, ids: list[str]) -> None:
        now = time.time()
        values = [
            SharedValue("session", id, json.dumps(_to_json(self._sessions[id])), now + self._idle_seconds) for id in ids
        ]
        self._hub.store.put_values(values, now=now)


def _to_json(session: StoredSession) -> dict[str, Any]:
    return {
        "handshake": session.handshake,
        "protocol": session.protocol,
        "owner": session.owner,
        "state": session.state,
    }
