"""The configuration while the gateway runs: what an edit of its file changes, and what it cannot."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import anyio

from toolcrib.config.settings import GatewayConfig
from toolcrib.config.watch import ConfigChange, ConfigDifference, ConfigWatcher
from toolcrib.errors import InvalidConfig, ToolcribError
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.gateway.middleware import check_bind_address

# What is built once, before anything is served.
_RESTART_SECTIONS: Final = ("http", "store", "models", "embedding")
_RESTART_NOTICE: Final = "restart"
_INVALID_NOTICE: Final = "broken"
_log = logging.getLogger(__name__)


async def reload_on_change(front: McpRouter) -> None:
    """Bring the gateway in line with its file, edit after edit, until cancelled."""
    running = front.hub.config
    if running.path is None:
        return
    watcher = ConfigWatcher(running, running.path)
    first = await anyio.to_thread.run_sync(watcher.check_once)
    # Where the command line says otherwise than the file, that is no edit.
    if first and not set(first.difference.sections) - {"http"}:
        first = replace(first, difference=replace(first.difference, sections=()))
    at_start = watcher.config
    if first and (first.difference or first.error):
        await _apply_change(front, first, at_start)
    async for edit in watcher.iter_changes():
        await _apply_change(front, edit, at_start)


async def _apply_change(front: McpRouter, edit: ConfigChange, at_start: GatewayConfig) -> None:
    """Go on under an edited configuration, unless it is broken."""
    notices = front.hub.notices
    try:
        if edit.error:
            raise InvalidConfig(edit.error)
        merged = _merge_config(front.hub.config, edit.config)
        if merged.auth != front.hub.config.auth:
            check_bind_address(merged.http, merged.auth)
        await front.pool.reconfigure(merged)
    except ToolcribError as fault:
        notices[_INVALID_NOTICE] = f"the configuration is kept as it was: {fault}"
        _log.warning("%s", notices[_INVALID_NOTICE])
        return
    notices.pop(_INVALID_NOTICE, None)
    late = [
        name for name in _RESTART_SECTIONS if getattr(edit.config, name) != getattr(at_start, name)
    ]
    if late:
        notices[_RESTART_NOTICE] = _format_restart_notice(late)
    else:
        notices.pop(_RESTART_NOTICE, None)
    _log.info("the configuration was read again: %s", describe_change(edit.difference, late))


def _merge_config(running: GatewayConfig, edited: GatewayConfig) -> GatewayConfig:
    """The edited configuration, but for what is not changed while the gateway runs."""
    return replace(edited, **{name: getattr(running, name) for name in _RESTART_SECTIONS})


def describe_change(difference: ConfigDifference, late: Sequence[str]) -> str:
    """What an edit did, in words; `late` are the parts that are not as the gateway runs."""
    says = [f"added {server.name}" for server in difference.added]
    says += [f"changed {server.name}" for server in difference.changed]
    says += [f"removed {name}" for name in difference.removed]
    says += ["changed the order of the servers"] * difference.is_reordered
    says += [f"changed {name}" for name in difference.sections if name not in _RESTART_SECTIONS]
    back = [name for name in difference.sections if name in _RESTART_SECTIONS and name not in late]
    says += [f"put {name} back to what runs" for name in back]
    says += [_format_restart_notice(late)] * bool(late)
    return "; ".join(says) or "nothing changed"


def _format_restart_notice(late: Iterable[str]) -> str:
    return f"start the gateway again for what changed in {', '.join(late)}"
