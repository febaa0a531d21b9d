"""Tasks: calls that a server answers with a handle, and whose result the client fetches later.

A task belongs to the caller whose call created it. Clients get ids of the gateway in place of those of
the server, because two servers may use the same id, and another caller must not use it.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, cast

import anyio
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RequestId,
    ServerNotification,
    SubscriptionsAcknowledgedNotification,
)

from toolcrib.errors import InvalidStore, ServerUnavailable
from toolcrib.gateway.mcp.server.client import MISSING_CAPABILITY, TASKS_EXTENSION, ConnectedClient
from toolcrib.gateway.mcp.server.large_results import LargeResults
from toolcrib.gateway.mcp.server.meta_tools import text_result
from toolcrib.gateway.mcp.server.server_requests import ServerRequestBridge
from toolcrib.gateway.mcp.upstream.pool import UpstreamPool
from toolcrib.gateway.mcp.upstream.sdk import RequestContext
from toolcrib.gateway.mcp.upstream.supervisor import UpstreamServer
from toolcrib.hub.directory import DirectoryEntry
from toolcrib.hub.hub import Hub
from toolcrib.storage.results import StoredResult

# A task without a time to live is forgotten after this time.
MAX_TASK_SECONDS: Final = 7 * 86_400.0
MIN_POLL_SECONDS: Final = 0.1
MAX_POLL_SECONDS: Final = 10.0
CANCEL_SECONDS: Final = 2.0
# A stream of notifications reports the states of at most this many tasks.
MAX_WATCHED_TASKS: Final = 100
TASK_NOTIFICATION: Final = "notifications/tasks"
_ID_BYTES: Final = 16
_ID_PREFIX: Final = "task_"
_MAX_REMOTE_ID_CHARS: Final = 4_096


class KnownTask(NamedTuple):
    """A task of a server, as the gateway remembers it."""

    server: UpstreamServer
    remote_id: str
    entry: DirectoryEntry
    is_listed: bool


def is_task(result: Mapping[str, Any]) -> bool:
    """Return whether a result is the handle of a task."""
    return result.get("resultType") == "task" and isinstance(result.get("taskId"), str)


def requires_tasks(error: MCPError) -> bool:
    """Return whether a server refuses a call because the client does not support tasks."""
    data = error.error.data
    required = data.get("requiredCapabilities") if isinstance(data, Mapping) else None
    extensions = required.get("extensions") if isinstance(required, Mapping) else None
    is_named = isinstance(extensions, Mapping) and TASKS_EXTENSION in extensions
    return error.error.code == MISSING_CAPABILITY and is_named


@dataclass(frozen=True, slots=True)
class AcknowledgingSession:
    """The session of a stream of notifications, which adds the tasks to the acknowledgement of the SDK."""

    session: ServerSession
    task_ids: list[str]
    is_acknowledged: anyio.Event = field(default_factory=anyio.Event)

    async def send_notification(
        self, notification: ServerNotification, related_request_id: RequestId | None = None
    ) -> None:
        """Send a notification of the stream."""
        if isinstance(notification, SubscriptionsAcknowledgedNotification):
            honored = notification.params.notifications.model_copy(update={"taskIds": self.task_ids})
            params = notification.params.model_copy(update={"notifications": honored})
            notification = notification.model_copy(update={"params": params})
        await self.session.send_notification(notification, related_request_id)
        self.is_acknowledged.set()


class TaskRelay:
    """Relays `tasks/get`, `tasks/update` and `tasks/cancel` to the servers of the tasks, and reports their states."""

    def __init__(self, hub: Hub, pool: UpstreamPool, bridge: ServerRequestBridge, large_results: LargeResults) -> None:
        self._hub = hub
        self._pool = pool
        self._bridge = bridge
        self._large_results = large_results

    async def register(
        self, client: ConnectedClient, entry: DirectoryEntry, result: Mapping[str, Any], *, is_listed: bool
    ) -> dict[str, Any]:
        """Remember a new task for its caller; return the handle with the id of the gateway."""
        remote_id = str(result["taskId"])
        if len(remote_id) > _MAX_REMOTE_ID_CHARS:
            return text_result(f"{entry.server} created a task with an id that is too long", is_error=True)
        ttl = result.get("ttlMs")
        seconds = ttl / 1000 if isinstance(ttl, int | float) and not isinstance(ttl, bool) else MAX_TASK_SECONDS
        now, id = time.time(), f"{_ID_PREFIX}{secrets.token_urlsafe(_ID_BYTES)}"
        text = json.dumps({"server": entry.server, "id": remote_id, "listed": is_listed})
        expires = now + min(max(seconds, 60.0), MAX_TASK_SECONDS)
        stored = StoredResult(id, client.owner, entry.name, text, now, expires)
        max_bytes = self._hub.config.results.max_stored_bytes
        try:
            await anyio.to_thread.run_sync(self._hub.store.put_result, stored, max_bytes)
        except InvalidStore as error:
            raise MCPError(INTERNAL_ERROR, f"the task cannot be stored: {error}") from None
        return {**result, "taskId": id}

    async def get(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of a task, with its result if it is completed."""
        id, task = await self._find(client, params)
        state = await self._forward(client, "tasks/get", task, params)
        state["taskId"] = id
        if state.get("status") == "completed" and isinstance(state.get("result"), dict):
            limit = self._large_results.limit_result
            state["result"] = await limit(client, task.entry, state["result"], has_schema=task.is_listed)
        return state

    async def update(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send the input that a task requires to its server."""
        _, task = await self._find(client, params)
        return await self._forward(client, "tasks/update", task, params)

    async def cancel(self, client: ConnectedClient, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the server of a task to cancel it."""
        _, task = await self._find(client, params)
        return await self._forward(client, "tasks/cancel", task, params)

    @asynccontextmanager
    async def watch(self, client: ConnectedClient, ids: object) -> AsyncIterator[RequestContext]:
        """Send the states of tasks on the stream of a client's request, until the block ends.

        The servers are polled, because they need not send notifications. The stream acknowledges only the tasks
        that the client can use. Yields the context with which the stream has to be opened.
        """
        known = await self._list_known(client, ids) if isinstance(ids, list) else []
        if not known:
            yield client.ctx
            return
        session = AcknowledgingSession(client.ctx.session, known)
        refusal: MCPError | None = None
        async with anyio.create_task_group() as tasks:
            for id in known:
                tasks.start_soon(self._report_states, client, id, session.is_acknowledged)
            try:
                yield replace(client.ctx, session=cast("ServerSession", session))
            except MCPError as error:
                # Raised below, because the task group would wrap it.
                refusal = error
            tasks.cancel_scope.cancel()
        if refusal is not None:
            raise refusal

    async def _list_known(self, client: ConnectedClient, ids: Iterable[object]) -> list[str]:
        known: dict[str, None] = {}
        for id in ids:
            if len(known) == MAX_WATCHED_TASKS:
                break
            try:
                known[(await self._find(client, {"taskId": id}))[0]] = None
            except MCPError as error:
                if error.error.code != INVALID_PARAMS:
                    raise
        return list(known)

    async def _report_states(self, client: ConnectedClient, id: str, is_acknowledged: anyio.Event) -> None:
        """Send the state of a task, and each later state, until it has ended or the client can't use it any more."""
        await is_acknowledged.wait()
        meta = {SUBSCRIPTION_ID_META_KEY: client.ctx.request_id}
        sent: dict[str, Any] = {}
        while sent.get("status", "working") in ("working", "input_required"):
            try:
                state = await self.get(client, {"taskId": id})
            except MCPError as error:
                if error.error.code == INVALID_PARAMS:
                    return
                await anyio.sleep(MAX_POLL_SECONDS)
                continue
            shown = {key: value for key, value in state.items() if key not in ("resultType", "_meta")}
            if shown != sent:
                await client.notify(TASK_NOTIFICATION, {**shown, "_meta": meta})
                sent = shown
            await anyio.sleep(_get_poll_seconds(state))

    async def wait_for_result(
        self, client: ConnectedClient, server: UpstreamServer, handle: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the result of a task for a client that does not support tasks.

        A task that is not finished in time, or whose caller has gone, is cancelled.
        """
        task_id, state = str(handle["taskId"]), dict(handle)
        seconds = server.config.call_seconds
        try:
            with anyio.fail_after(seconds):
                while state.get("status") == "working":
                    await anyio.sleep(_get_poll_seconds(state))
                    state = await self._bridge.forward_request(server, "tasks/get", {"taskId": task_id}, client)
        except BaseException as failure:
            await self._abandon(client, server, task_id)
            if isinstance(failure, TimeoutError):
                reason = f"{server.name} did not finish within {seconds:g} seconds; raise its `callSeconds`"
                raise ServerUnavailable(reason) from None
            raise
        status, result, error = state.get("status"), state.get("result"), state.get("error")
        if status == "completed" and isinstance(result, dict):
            return result
        if status == "failed" and isinstance(error, Mapping):
            code = error.get("code")
            raise MCPError(code if isinstance(code, int) else INTERNAL_ERROR, str(error.get("message", "")))
        if status == "input_required":
            await self._abandon(client, server, task_id)
            return text_result(f"{server.name} needs input for this call; use a client with tasks", is_error=True)
        return text_result(f"{server.name} has not completed the call: {status!s:.40}", is_error=True)

    async def _abandon(self, client: ConnectedClient, server: UpstreamServer, task_id: str) -> None:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CANCEL_SECONDS):
            try:
                await self._bridge.forward_request(server, "tasks/cancel", {"taskId": task_id}, client)
            except (MCPError, ServerUnavailable):
                # The server may have finished or forgotten it.
                return

    async def _find(self, client: ConnectedClient, params: Mapping[str, Any]) -> tuple[str, KnownTask]:
        """Return the task of a request; raise an error if the caller has no such task."""
        if not client.is_stateless:
            raise MCPError(METHOD_NOT_FOUND, "Method not found")
        client.require_tasks()
        id = params.get("taskId")
        task = None
        if isinstance(id, str) and id.startswith(_ID_PREFIX):
            stored = await anyio.to_thread.run_sync(self._hub.store.get_result, id, client.owner, time.time())
            task = self._resolve(client, stored) if stored is not None else None
        if task is None:
            raise MCPError(INVALID_PARAMS, "there is no such task; it has expired, or belongs to another caller")
        return str(id), task

    def _resolve(self, client: ConnectedClient, stored: StoredResult) -> KnownTask | None:
        about = json.loads(stored.text)
        # The rights of the caller may have changed since.
        entry = self._hub.get_view(client.profile).entries.get(stored.tool)
        server = self._pool.servers.get(about["server"])
        if entry is None or server is None:
            return None
        return KnownTask(server, about["id"], entry, about["listed"])

    async def _forward(
        self, client: ConnectedClient, method: str, task: KnownTask, params: Mapping[str, Any]
    ) -> dict[str, Any]:
        remote = client.with_meta({**params, "taskId": task.remote_id})
        try:
            return await self._bridge.forward_request(task.server, method, remote, client, may_repeat=True)
        except ServerUnavailable as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from None


def _get_poll_seconds(state: Mapping[str, Any]) -> float:
    interval = state.get("pollIntervalMs")
    is_number = isinstance(interval, int | float) and not isinstance(interval, bool)
    return min(max(interval / 1000 if is_number and interval else 1.0, MIN_POLL_SECONDS), MAX_POLL_SECONDS)
