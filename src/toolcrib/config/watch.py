"""Watch the configuration file and report what each edit changed."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path

from toolcrib.config.loader import load_config
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import GatewayConfig
from toolcrib.errors import InvalidConfig
from toolcrib.files.json_file import MAX_FILE_BYTES

POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """What changed from one configuration to the next.

    `sections` names the other changed fields of `GatewayConfig`, such as `tool_search`.
    `is_reordered` is true if the servers in both configurations have a different order.
    """

    added: tuple[ServerConfig, ...] = ()
    changed: tuple[ServerConfig, ...] = ()
    removed: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    is_reordered: bool = False

    def __bool__(self) -> bool:
        return self != ConfigDifference()


def diff_configs(old: GatewayConfig, new: GatewayConfig) -> ConfigDifference:
    """Return the difference between two configurations, ignoring their paths and notes."""
    common = [name for name in new.servers if name in old.servers]
    return ConfigDifference(
        added=tuple(server for name, server in new.servers.items() if name not in old.servers),
        changed=tuple(new.servers[name] for name in common if new.servers[name] != old.servers[name]),
        removed=tuple(name for name in old.servers if name not in new.servers),
        sections=tuple(
            section.name
            for section in fields(GatewayConfig)
            if section.name not in ("servers", "path", "notes")
            and getattr(old, section.name) != getattr(new, section.name)
        ),
        is_reordered=common != [name for name in old.servers if name in new.servers],
    )


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """The configuration after an edit and the difference; with an `error`, the old one is kept."""

    config: GatewayConfig
    difference: ConfigDifference = ConfigDifference()
    error: str = ""


@dataclass(frozen=True, slots=True)
class _FileSnapshot:
    """The state of the file at a check; `is_stable` if the check before found the same bytes."""

    stat_key: tuple[int, int, int] | None = None
    digest: bytes | None = None
    is_stable: bool = False


class ConfigWatcher:
    """Polls a configuration file for edits.

    An invalid edit or a missing file keeps the previous configuration and is reported once.
    Environment variables keep the values from the start of the process.
    """

    def __init__(
        self,
        config: GatewayConfig,
        path: str | PathLike[str],
        *,
        environment: Mapping[str, str] | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.config = config
        self._path = Path(path)
        self._environment = environment
        self._poll_seconds = poll_seconds
        self._snapshot = _FileSnapshot()
        self._error = ""
        self._has_unreported_error = False

    def check_once(self) -> ConfigChange | None:
        """Return the change since the last check, or None."""
        stat_key = _get_stat_key(self._path)
        # Two edits can have the same timestamp, so a new timestamp is trusted only after a second
        # check found the same bytes.
        if stat_key is not None and stat_key == self._snapshot.stat_key and self._snapshot.is_stable:
            return None
        digest = _hash_file(self._path)
        is_stable = digest == self._snapshot.digest
        self._snapshot = _FileSnapshot(stat_key, digest, is_stable)
        return self._load_change(is_stable) if self._has_unreported_error or not is_stable else None

    async def iter_changes(self) -> AsyncIterator[ConfigChange]:
        """Yield every change until the task is cancelled."""
        while True:
            change = await asyncio.to_thread(self.check_once)
            if change is not None:
                yield change
            await asyncio.sleep(self._poll_seconds)

    def _load_change(self, is_stable: bool) -> ConfigChange | None:
        try:
            config = load_config(self._path, self._environment)
        except InvalidConfig as error:
            # An editor may write in steps, so an error is reported when the file is stable.
            self._has_unreported_error = not is_stable
            if not is_stable or str(error) == self._error:
                return None
            self._error = str(error)
            return ConfigChange(self.config, error=self._error)
        had_error, self._error, self._has_unreported_error = bool(self._error), "", False
        difference = diff_configs(self.config, config)
        self.config = config
        return ConfigChange(config, difference) if difference or had_error else None


def _get_stat_key(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _hash_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.sha256(file.read(MAX_FILE_BYTES + 1)).digest()
    except OSError:
        return b""
