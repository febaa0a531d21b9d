"""The configuration while the gateway runs: what an edit of its file changes, and what it cannot."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import anyio

from toolcrib.config.settings import Config
from toolcrib.config.watch import Difference, Edit, Watcher
from toolcrib.errors import InvalidConfig, ToolcribError
from toolcrib.gateway.mcp.server.router import Front
from toolcrib.gateway.middleware import check_binding

# What is built once, before anything is served.
_AT_START: Final = ("http", "store", "models", "embedding")
_RESTART: Final = "restart"
_BROKEN: Final = "broken"
_log = logging.getLogger(__name__)


async def follow_file(front: Front) -> None:
    """Bring the gateway in line with its file, edit after edit, until cancelled."""
    running = front.service.config
    if running.path is None:
        return
    watcher = Watcher(running, running.path)
    first = await anyio.to_thread.run_sync(watcher.look)
    # Where the command line says otherwise than the file, that is no edit.
    if first and not set(first.difference.rest) - {"http"}:
        first = replace(first, difference=replace(first.difference, rest=()))
    at_start = watcher.config
    if first and (first.difference or first.fault):
        await _take(front, first, at_start)
    async for edit in watcher.edits():
        await _take(front, edit, at_start)


async def _take(front: Front, edit: Edit, at_start: Config) -> None:
    """Go on under an edited configuration, unless it is broken."""
    notices = front.service.notices
    try:
        if edit.fault:
            raise InvalidConfig(edit.fault)
        merged = _merged(front.service.config, edit.config)
        if merged.auth != front.service.config.auth:
            check_binding(merged.http, merged.auth)
        await front.fleet.reconfigure(merged)
    except ToolcribError as fault:
        notices[_BROKEN] = f"the configuration is kept as it was: {fault}"
        _log.warning("%s", notices[_BROKEN])
        return
    notices.pop(_BROKEN, None)
    late = [name for name in _AT_START if getattr(edit.config, name) != getattr(at_start, name)]
    if late:
        notices[_RESTART] = _restart(late)
    else:
        notices.pop(_RESTART, None)
    _log.info("the configuration was read again: %s", told(edit.difference, late))


def _merged(running: Config, edited: Config) -> Config:
    """The edited configuration, but for what is not changed while the gateway runs."""
    return replace(edited, **{name: getattr(running, name) for name in _AT_START})


def told(difference: Difference, late: Sequence[str]) -> str:
    """What an edit did, in words; `late` are the parts that are not as the gateway runs."""
    says = [f"added {server.name}" for server in difference.added]
    says += [f"changed {server.name}" for server in difference.changed]
    says += [f"removed {name}" for name in difference.removed]
    says += ["changed the order of the servers"] * difference.order
    says += [f"changed {name}" for name in difference.rest if name not in _AT_START]
    back = [name for name in difference.rest if name in _AT_START and name not in late]
    says += [f"put {name} back to what runs" for name in back]
    says += [_restart(late)] * bool(late)
    return "; ".join(says) or "nothing changed"


def _restart(late: Iterable[str]) -> str:
    return f"start the gateway again for what changed in {', '.join(late)}"
