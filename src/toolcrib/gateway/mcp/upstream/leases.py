"""Leases of servers that run on one replica only, kept in the store.

A lease expires within seconds after its holder has died. A holder that cannot extend its lease stops the
server before the lease expires, so that a server never runs twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio

from toolcrib.errors import ToolcribError
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.hub.hub import Hub
from toolcrib.storage.store import Store

LEASE_SECONDS: Final = 9.0
RENEW_SECONDS: Final = 2.0
_log = logging.getLogger(__name__)


async def run_with_lease(server: UpstreamServer, hub: Hub, replica: str) -> None:
    """Run a server whenever this replica holds its lease; otherwise note which replica does."""
    name, store = f"server {server.name}", hub.store
    try:
        while True:
            server.lease_holder = await _take(store, name, replica, server.lease_holder)
            if server.lease_holder == replica:
                server.lease_holder = ""
                _log.info("%s runs on this replica", server.name)
                await _run_while_held(server.run, store, name, replica)
                server.connection = None
                # Until the next attempt, it is unknown where the server runs.
                server.lease_holder = "nowhere"
            # The tools come from the store, where the other replica has put them.
            server.is_listed = hub.knows_tools_of(server.config)
            await anyio.sleep(RENEW_SECONDS)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(RENEW_SECONDS):
            await _release(store, name, replica)


async def _run_while_held(run: Callable[[], Coroutine[Any, Any, None]], store: Store, name: str, replica: str) -> None:
    expires_at = time.monotonic() + LEASE_SECONDS
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        while time.monotonic() + RENEW_SECONDS < expires_at:
            await anyio.sleep(RENEW_SECONDS)
            asked_at = time.monotonic()
            holder = await _take(store, name, replica, "")
            if holder == replica:
                expires_at = asked_at + LEASE_SECONDS
            elif holder:
                break
        _log.warning("the lease of %s was lost; it is stopped on this replica", name)
        tasks.cancel_scope.cancel()


async def _take(store: Store, name: str, replica: str, default: str) -> str:
    """Return the holder of a lease after trying to take or extend it; the default if the store is away."""
    holder = default
    with anyio.move_on_after(RENEW_SECONDS):
        try:
            holder = await anyio.to_thread.run_sync(
                store.take_lease, name, replica, time.time(), LEASE_SECONDS, abandon_on_cancel=True
            )
        except ToolcribError as error:
            _log.warning("the lease of %s cannot be extended: %s", name, error)
    return holder


async def _release(store: Store, name: str, replica: str) -> None:
    try:
        await anyio.to_thread.run_sync(store.release_lease, name, replica, abandon_on_cancel=True)
    except ToolcribError as error:
        _log.warning("the lease of %s expires later: %s", name, error)
