"""Apply edits of the configuration file while the gateway runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import anyio

from toolcrib.config.settings import GatewayConfig
from toolcrib.config.watch import ConfigChange, ConfigDifference, ConfigWatcher
from toolcrib.errors import InvalidConfig, ToolcribError
from toolcrib.gateway.auth import check_bind_address
from toolcrib.gateway.mcp.server.router import McpRouter

# Sections that are used only at the start.
_RESTART_SECTIONS: Final = ("http", "store", "llm_gateway", "embedding")
# Names in the file of sections that have another field name.
_SECTION_KEYS: Final = {"tool_search": "toolSearch", "llm_gateway": "models"}
_RESTART_NOTICE: Final = "restart"
_INVALID_NOTICE: Final = "broken"
_log = logging.getLogger(__name__)


async def reload_on_change(router: McpRouter) -> None:
    """Apply every edit of the configuration file until cancelled."""
    running = router.hub.config
    if running.path is None:
        return
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
        return
    notices.pop(_INVALID_NOTICE, None)
    pending = [
        name
        for name in _RESTART_SECTIONS
        if getattr(change.config, name) != getattr(at_start, name)
    ]
    if pending:
        notices[_RESTART_NOTICE] = _format_restart_notice(pending)
    else:
        notices.pop(_RESTART_NOTICE, None)
    _log.info("the configuration was reloaded: %s", describe_change(change.difference, pending))


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
