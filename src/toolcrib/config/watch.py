"""Watching the file of the configuration: what an edit changed, told as a difference."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path

from toolcrib.config.loader import load
from toolcrib.config.settings import Config, Server
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import MAX_FILE_BYTES

POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed from one configuration to the next.

    `rest` names the other parts of `Config` that are not the same, such as `tool_search`.
    `order` says whether the servers that are in both stand in another order.
    """

    added: tuple[Server, ...] = ()
    changed: tuple[Server, ...] = ()
    removed: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()
    order: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.rest or self.order)


def difference(old: Config, new: Config) -> Difference:
    """What has to be done to come from one configuration to another; the path is no matter."""
    kept = [name for name in new.servers if name in old.servers]
    return Difference(
        added=tuple(server for name, server in new.servers.items() if name not in old.servers),
        changed=tuple(new.servers[name] for name in kept if new.servers[name] != old.servers[name]),
        removed=tuple(name for name in old.servers if name not in new.servers),
        rest=tuple(
            one.name
            for one in fields(Config)
            if one.name not in ("servers", "path", "notes")
            and getattr(old, one.name) != getattr(new, one.name)
        ),
        order=kept != [name for name in old.servers if name in new.servers],
    )


@dataclass(frozen=True, slots=True)
class Edit:
    """A configuration that was edited, and what changed; with `fault` set, the old one stays."""

    config: Config
    difference: Difference = Difference()
    fault: str = ""


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look at the file saw, and whether the look before it saw the same bytes."""

    stamp: tuple[int, int, int] | None = None
    digest: bytes | None = None
    settled: bool = False


class Watcher:
    """Looks at the file of a configuration again and again.

    A broken edit, or a file that is gone, keeps the configuration there was and says why, once.
    Variables of the environment are those of the start: a process cannot be given others.
    """

    def __init__(
        self,
        config: Config,
        path: str | PathLike[str],
        *,
        environment: Mapping[str, str] | None = None,
        tolerant: bool = False,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.config = config
        self._path = Path(path)
        self._environment = environment
        self._poll_seconds = poll_seconds
        self._tolerant = tolerant
        self._seen = _Look()
        self._fault = ""
        self._is_broken = False

    def look(self) -> Edit | None:
        """Look once: what an edit did, or None where there is nothing new."""
        stamp = _stamp(self._path)
        # Two edits can share a time stamp, so the bytes are compared once more before it is relied on.
        if stamp is not None and stamp == self._seen.stamp and self._seen.settled:
            return None
        digest = _digest(self._path)
        settled = digest == self._seen.digest
        self._seen = _Look(stamp, digest, settled)
        return self._edit(settled) if self._is_broken or not settled else None

    async def edits(self) -> AsyncIterator[Edit]:
        """Every edit, for as long as it is asked for. Cancel the task to stop."""
        while True:
            edit = await asyncio.to_thread(self.look)
            if edit is not None:
                yield edit
            await asyncio.sleep(self._poll_seconds)

    def _edit(self, settled: bool) -> Edit | None:
        try:
            config = load(self._path, self._environment, tolerant=self._tolerant)
        except InvalidConfig as fault:
            # An editor may write in steps: what is broken is told when it has stayed so.
            self._is_broken = not settled
            if not settled or str(fault) == self._fault:
                return None
            self._fault = str(fault)
            return Edit(self.config, fault=self._fault)
        mended, self._fault, self._is_broken = bool(self._fault), "", False
        changes = difference(self.config, config)
        self.config = config
        return Edit(config, changes) if changes or mended else None


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.sha256(file.read(MAX_FILE_BYTES + 1)).digest()
    except OSError:
        return b""
