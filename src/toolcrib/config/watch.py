"""Watching the file of the configuration: what an edit changed, told as a difference."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path

from toolcrib.config.loader import load_config
from toolcrib.config.settings import GatewayConfig, ServerConfig
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import MAX_FILE_BYTES

POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """What changed from one configuration to the next.

    `rest` names the other parts of `Config` that are not the same, such as `tool_search`.
    `order` says whether the servers that are in both stand in another order.
    """

    added: tuple[ServerConfig, ...] = ()
    changed: tuple[ServerConfig, ...] = ()
    removed: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    is_reordered: bool = False

    def __bool__(self) -> bool:
        return bool(
            self.added or self.changed or self.removed or self.sections or self.is_reordered
        )


def diff_configs(old: GatewayConfig, new: GatewayConfig) -> ConfigDifference:
    """What has to be done to come from one configuration to another; the path is no matter."""
    kept = [name for name in new.servers if name in old.servers]
    return ConfigDifference(
        added=tuple(server for name, server in new.servers.items() if name not in old.servers),
        changed=tuple(new.servers[name] for name in kept if new.servers[name] != old.servers[name]),
        removed=tuple(name for name in old.servers if name not in new.servers),
        sections=tuple(
            one.name
            for one in fields(GatewayConfig)
            if one.name not in ("servers", "path", "notes")
            and getattr(old, one.name) != getattr(new, one.name)
        ),
        is_reordered=kept != [name for name in old.servers if name in new.servers],
    )


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A configuration that was edited, and what changed; with `fault` set, the old one stays."""

    config: GatewayConfig
    difference: ConfigDifference = ConfigDifference()
    error: str = ""


@dataclass(frozen=True, slots=True)
class _FileSnapshot:
    """What one look at the file saw, and whether the look before it saw the same bytes."""

    stat_key: tuple[int, int, int] | None = None
    digest: bytes | None = None
    is_stable: bool = False


class ConfigWatcher:
    """Looks at the file of a configuration again and again.

    A broken edit, or a file that is gone, keeps the configuration there was and says why, once.
    Variables of the environment are those of the start: a process cannot be given others.
    """

    def __init__(
        self,
        config: GatewayConfig,
        path: str | PathLike[str],
        *,
        environment: Mapping[str, str] | None = None,
        allow_unset_variables: bool = False,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.config = config
        self._path = Path(path)
        self._environment = environment
        self._poll_seconds = poll_seconds
        self._allow_unset_variables = allow_unset_variables
        self._snapshot = _FileSnapshot()
        self._error = ""
        self._has_unreported_error = False

    def check_once(self) -> ConfigChange | None:
        """Look once: what an edit did, or None where there is nothing new."""
        stamp = _get_stat_key(self._path)
        # Two edits can share a time stamp, so the bytes are compared once more before it is relied on.
        if stamp is not None and stamp == self._snapshot.stat_key and self._snapshot.is_stable:
            return None
        digest = _hash_file(self._path)
        settled = digest == self._snapshot.digest
        self._snapshot = _FileSnapshot(stamp, digest, settled)
        return self._load_change(settled) if self._has_unreported_error or not settled else None

    async def iter_changes(self) -> AsyncIterator[ConfigChange]:
        """Every edit, for as long as it is asked for. Cancel the task to stop."""
        while True:
            edit = await asyncio.to_thread(self.check_once)
            if edit is not None:
                yield edit
            await asyncio.sleep(self._poll_seconds)

    def _load_change(self, settled: bool) -> ConfigChange | None:
        try:
            config = load_config(
                self._path, self._environment, allow_unset_variables=self._allow_unset_variables
            )
        except InvalidConfig as fault:
            # An editor may write in steps: what is broken is told when it has stayed so.
            self._has_unreported_error = not settled
            if not settled or str(fault) == self._error:
                return None
            self._error = str(fault)
            return ConfigChange(self.config, error=self._error)
        mended, self._error, self._has_unreported_error = bool(self._error), "", False
        changes = diff_configs(self.config, config)
        self.config = config
        return ConfigChange(config, changes) if changes or mended else None


def _get_stat_key(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _hash_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.sha256(file.read(MAX_FILE_BYTES + 1)).digest()
    except OSError:
        return b""
