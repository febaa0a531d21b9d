"""The running MCP gateway: a router, its upstream servers, its background tasks and its reloads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final

import anyio

from toolcrib.config.settings import GatewayConfig
from toolcrib.config.watch import POLL_SECONDS, ConfigChange, ConfigDifference, ConfigWatcher
from toolcrib.errors import InvalidConfig, StoreUnavailable, ToolcribError
from toolcrib.gateway.audit import AuditLog
from toolcrib.gateway.auth import check_bind_address
from toolcrib.gateway.mcp.server.router import GetProfile, McpRouter
from toolcrib.gateway.mcp.upstream.pool import OnServerStart
from toolcrib.gateway.mcp.upstream.stdio import kill_orphaned_processes
from toolcrib.gateway.quotas import EXCHANGE_SECONDS, has_quotas
from toolcrib.hub.hub import Hub
from toolcrib.storage.audit import AuditRow
from toolcrib.storage.sql_database import CHANGES_MESSAGE, MISSED_MESSAGES
from toolcrib.storage.store import Store

HOUSEKEEPING_SECONDS: Final = 2.0
# A step encodes more tools while steps are fast.
MIN_ENCODED_PER_STEP: Final = 16
MAX_ENCODED_PER_STEP: Final = 2_048
_FAST_STEP_SECONDS: Final = 0.1
# Sections that are used only at the start.
_RESTART_SECTIONS: Final = ("http", "store", "journal", "token_keys", "embedding")
# Names in the file of sections that have another field name.
_SECTION_KEYS: Final = {
    "tool_search": "toolSearch",
    "llm_gateway": "models",
    "token_keys": "tokenKeys",
    "code_mode": "codeMode",
}
_RESTART_NOTICE: Final = "restart"
_INVALID_NOTICE: Final = "broken"
_log = logging.getLogger(__name__)


@asynccontextmanager
async def run_gateway(
    hub: Hub, get_profile: GetProfile, on_started: OnServerStart | None = None, audit: AuditLog | None = None
) -> AsyncIterator[McpRouter]:
    """Run the upstream servers and the background tasks; yield the router that serves clients."""
    router = McpRouter(hub, get_profile, audit)
    await anyio.to_thread.run_sync(kill_orphaned_processes)
    async with anyio.create_task_group() as tasks:
        await tasks.start(router.pool.run)
        tasks.start_soon(_run_housekeeping, router)
        tasks.start_soon(router.audit.run)
        tasks.start_soon(router.replicas.run)
        tasks.start_soon(_share_quotas, router)
        tasks.start_soon(_warm_up_engine, router)
        tasks.start_soon(reload_on_change, router)
        if on_started is not None:
            tasks.start_soon(router.pool.report_starts, on_started)
        try:
            yield router
        finally:
            tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await router.tool_handlers.code_mode.close()
                await run_and_log_errors(router.audit.flush)


async def run_and_log_errors(function: Callable[[], object]) -> bool:
    """Call a function in a thread and return whether its result is true; log a `ToolcribError`."""
    try:
        return bool(await anyio.to_thread.run_sync(function))
    except ToolcribError as error:
        # The store itself reports once that it is unavailable.
        _log.log(logging.DEBUG if isinstance(error, StoreUnavailable) else logging.WARNING, "%s", error)
        return False


async def _run_housekeeping(router: McpRouter) -> None:
    """Pick up what other processes have changed in the store: after a message, or else regularly."""
    hub = router.hub
    changed = StoreChanges(hub.store)
    while True:
        await changed.wait(HOUSEKEEPING_SECONDS)
        if await run_and_log_errors(hub.refresh):
            await router.notify_tools_changed()
        router.pool.relist(sorted(hub.forgotten_servers))
        router.pool.instances.remove_idle()


class StoreChanges:
    """Wakes a task when the store has changed."""

    def __init__(self, store: Store) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        store.listen(self._on_message)

    async def wait(self, timeout_seconds: float) -> None:
        """Wait for a change, at most for a time."""
        with anyio.move_on_after(timeout_seconds):
            await self._event.wait()
        self._event.clear()

    def _on_message(self, message: str) -> None:
        if message in (CHANGES_MESSAGE, MISSED_MESSAGES):
            # The loop is closed if the gateway has ended.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._event.set)


async def _share_quotas(router: McpRouter) -> None:
    """Keep the use of quotas in step with other replicas."""
    exchange = partial(router.tool_handlers.quotas.exchange_use, router.hub.store, router.replicas.id)
    while router.replicas.is_shared:
        await anyio.sleep(EXCHANGE_SECONDS)
        if any(has_quotas(profile) for profile in router.hub.profiles.values()):
            await run_and_log_errors(exchange)


async def _warm_up_engine(router: McpRouter) -> None:
    """Encode new tools in small steps, so that searches do not have to."""
    # The first requests of a client come before the encoding.
    await anyio.sleep(HOUSEKEEPING_SECONDS)
    step = MIN_ENCODED_PER_STEP
    while True:
        engine = router.hub.engine
        started = anyio.current_time()
        warm_up = partial(engine.warm_up, max_tools=step)
        remaining = await anyio.to_thread.run_sync(warm_up) if len(engine.catalog) else 0
        step = choose_next_step(step, anyio.current_time() - started, remaining)
        await anyio.sleep(0.05 if remaining else HOUSEKEEPING_SECONDS)


def choose_next_step(step: int, seconds: float, remaining: int) -> int:
    """Return how many tools to encode next. Stored vectors are read much faster than new ones are computed."""
    # A step cannot be interrupted, so the first one for new tools is small.
    is_reading = remaining > 0 and seconds < _FAST_STEP_SECONDS
    return min(step * 2, MAX_ENCODED_PER_STEP) if is_reading else MIN_ENCODED_PER_STEP


async def reload_on_change(router: McpRouter) -> None:
    """Apply every edit of the configuration file until cancelled."""
    while (running := router.hub.config).path is None:
        # The console may write the first file.
        await anyio.sleep(POLL_SECONDS)
    assert running.path is not None
    watcher = ConfigWatcher(running, running.path)
    first = await anyio.to_thread.run_sync(watcher.check_once)
    # Options of the command line override `http`, so a difference there is not an edit.
    if first and not set(first.difference.sections) - {"http"}:
        first = replace(first, difference=replace(first.difference, sections=()))
    at_start = watcher.config
    if first and (first.difference or first.error):
        await _apply_change(router, first, at_start)
    async for change in watcher.iter_changes():
        await _apply_change(router, change, at_start)


async def _apply_change(router: McpRouter, change: ConfigChange, at_start: GatewayConfig) -> None:
    notices = router.hub.notices
    running = router.hub.config
    try:
        if change.error:
            raise InvalidConfig(change.error)
        unchanged = {name: getattr(running, name) for name in _RESTART_SECTIONS}
        config = replace(change.config, **unchanged)
        if config.auth != running.auth:
            check_bind_address(config.http, config.auth.keys)
        await router.pool.reconfigure(config)
    except ToolcribError as error:
        notices[_INVALID_NOTICE] = f"the edited configuration is not used: {error}"
        _log.warning("%s", notices[_INVALID_NOTICE])
        router.audit.record(AuditRow("config", "refused", details={"error": str(error)}))
        return
    notices.pop(_INVALID_NOTICE, None)
    pending = [name for name in _RESTART_SECTIONS if getattr(change.config, name) != getattr(at_start, name)]
    if pending:
        notices[_RESTART_NOTICE] = _format_restart_notice(pending)
    else:
        notices.pop(_RESTART_NOTICE, None)
    changes = describe_change(change.difference, pending)
    _log.info("the configuration was reloaded: %s", changes)
    row = AuditRow("config", client="toolcrib.json", details={"change": changes})
    await run_and_log_errors(partial(router.audit.record_change, row))


def describe_change(difference: ConfigDifference, pending: Sequence[str]) -> str:
    """Return what an edit changed; `pending` are the sections that take effect after a restart."""
    parts = [f"added {server.name}" for server in difference.added]
    parts += [f"changed {server.name}" for server in difference.changed]
    parts += [f"removed {name}" for name in difference.removed]
    parts += ["changed the order of the servers"] * difference.is_reordered
    for name in difference.sections:
        if name not in _RESTART_SECTIONS:
            parts.append(f"changed {_SECTION_KEYS.get(name, name)}")
        elif name not in pending:
            parts.append(f"reverted {_SECTION_KEYS.get(name, name)} to the running settings")
    parts += [_format_restart_notice(pending)] * bool(pending)
    return "; ".join(parts) or "nothing changed"


def _format_restart_notice(pending: Iterable[str]) -> str:
    keys = ", ".join(_SECTION_KEYS.get(name, name) for name in pending)
    return f"restart the gateway to apply the changes of {keys}"
