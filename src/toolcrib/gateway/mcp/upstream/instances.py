"""Instances of stateful servers: one process or connection for each client session or each user."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import anyio

from toolcrib.config.server_settings import ServerConfig
from toolcrib.errors import ServerUnavailable
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer


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

    def count_busy(self, server: str) -> int:
        """Return the number of instances of a server that have calls in flight."""
        return sum(bool(one.upstream.in_flight) for one in self._instances.get(server, {}).values())

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
        unused = next((key for key, one in instances.items() if not one.upstream.in_flight), None)
        if unused is None:
            raise ServerUnavailable(
                f"{shared.name} already has {len(instances)} instances in use; try again later, or raise `maxInstances`"
            )
        instances.pop(unused).scope.cancel()
