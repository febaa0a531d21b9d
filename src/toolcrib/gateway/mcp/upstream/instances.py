"""Instances of stateful servers: one process or connection for each client session or each user.

A server that must run only once runs on the replica that holds its lease. If this replica crashes, the lease expires
within seconds. If it cannot extend the lease, it stops the server before the lease expires, so that the server never
runs twice.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

import anyio

from toolcrib.config.server_settings import ServerConfig
from toolcrib.errors import ServerUnavailable, ToolcribError
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.hub.hub import Hub
from toolcrib.storage.store import Store

LEASE_SECONDS: Final = 9.0
RENEW_SECONDS: Final = 2.0
_log = logging.getLogger(__name__)


class ServerInstance(NamedTuple):
    """A running instance; cancelling the scope stops it."""

    upstream: UpstreamServer
    scope: anyio.CancelScope


StartInstance = Callable[[ServerConfig], ServerInstance]


class ServerInstances:
    """The instances of all servers. Idle ones are stopped, and their number is limited."""

    def __init__(self, start: StartInstance) -> None:
        self._start = start
        # By server and by session or user; the one that was used last comes last.
        self._instances: dict[str, OrderedDict[object, ServerInstance]] = {}

    def count(self, server: str) -> int:
        """Return the number of instances of a server."""
        return len(self._instances.get(server, ()))

    def find(self, shared: UpstreamServer, key: object) -> UpstreamServer:
        """Return the instance of a session or user, or start one; raise `ServerUnavailable` if there are too many."""
        if shared.is_halted:
            return shared
        instances = self._instances.setdefault(shared.name, OrderedDict())
        instance = instances.get(key)
        if instance is None:
            self._make_room(shared, instances)
            instance = instances[key] = self._start(shared.config)
        instances.move_to_end(key)
        shared.call_count += 1
        return instance.upstream

    def stop_session(self, key: object) -> None:
        """Stop the instances of a session that has ended."""
        for instances in self._instances.values():
            if instance := instances.pop(key, None):
                instance.scope.cancel()

    def stop_server(self, server: str) -> None:
        """Stop all instances of a server that was removed or reconfigured."""
        for instance in self._instances.pop(server, OrderedDict()).values():
            instance.scope.cancel()

    def remove_idle(self) -> None:
        """Forget the instances that have stopped after their idle time."""
        for instances in self._instances.values():
            for key, instance in list(instances.items()):
                upstream = instance.upstream
                if upstream.is_stopped and upstream.call_count and not upstream.in_flight:
                    del instances[key]
                    instance.scope.cancel()

    def _make_room(self, shared: UpstreamServer, instances: OrderedDict[object, ServerInstance]) -> None:
        if len(instances) < shared.config.max_instances:
            return
        used = (one.upstream.in_flight or one.upstream.waiting_calls for one in instances.values())
        unused = next((key for key, is_used in zip(instances, used, strict=True) if not is_used), None)
        if unused is None:
            raise ServerUnavailable(
                f"{shared.name} already has {len(instances)} instances in use; try again later, or raise `maxInstances`"
            )
        instances.pop(unused).scope.cancel()


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
    """Return the holder of a lease after trying to take or extend it; the default if the store is unavailable."""
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
