"""The API keys of a running gateway: those of the configuration, and those that were created at run time."""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from toolcrib.config.settings import ApiKey
from toolcrib.errors import InvalidConfig, InvalidStore, RequestFailed
from toolcrib.gateway.auth import Principal, check_bind_address
from toolcrib.hub.hub import Hub
from toolcrib.storage.access import UNLIMITED, KeyBudget, KeyUsage, StoredKey
from toolcrib.storage.changes import Change
from toolcrib.storage.journal import JournalMark

MAX_KEY_NAME_CHARS: Final = 80
_PREFIX: Final = "toolcrib_"
_NOTICE: Final = "keys"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CreatedKey:
    """A new key. Its secret is not stored, so it can be shown only once."""

    key: StoredKey
    secret: str = field(repr=False)


class KeyRing:
    """Finds, creates and revokes keys, and counts their use. Thread-safe."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._lock = Lock()
        self._stored: tuple[StoredKey, ...] = tuple(hub.store.list_keys())
        marker = hub.store.key_marker
        if not (self._stored or hub.config.auth.keys) and marker is not None and marker.exists():
            raise InvalidConfig(
                f"the keys in the store are gone, and without them everyone could use your tools; restore a backup of the "
                f'store, set "auth": {{"keys": ["${{TOOLCRIB_KEY}}"]}}, or delete {marker} to go on without keys'
            )
        self._mark_keys()
        self._merged: tuple[tuple[ApiKey, ...], tuple[StoredKey, ...], tuple[ApiKey, ...]] = ((), (), ())
        self._journal = hub.store.open_journal("keys")
        self._uses: dict[str, tuple[int, float]] = {}
        hub.on_changes.append(self._apply_changes)

    def get_keys(self) -> tuple[ApiKey, ...]:
        """Return all keys. It is called for every request, so the result is kept until a key changes."""
        configured, stored = self._hub.config.auth.keys, self._stored
        if self._merged[0] is not configured or self._merged[1] is not stored:
            created = (
                ApiKey(
                    key.hash,
                    key.profile,
                    key.name,
                    tokens_per_day=key.budget.tokens_per_day,
                    requests_per_day=key.budget.requests_per_day,
                )
                for key in stored
            )
            self._merged = (configured, stored, (*configured, *created))
        return self._merged[2]

    def count_use(self, principal: Principal) -> None:
        """Count a request with a key."""
        if principal.key_hash:
            now = time.time()
            with self._lock:
                self._journal.append([principal.key_hash, now])
                count, _ = self._uses.get(principal.key_hash, (0, 0.0))
                self._uses[principal.key_hash] = (count + 1, now)

    def flush(self) -> None:
        """Write the use of keys."""
        self._hub.store.recover_lines(self._journal, self._write_lines)
        with self._lock:
            uses, self._uses = self._uses, {}
            mark = self._journal.take()
        if not uses:
            return
        try:
            self._hub.store.add_key_usage([KeyUsage(hash, *use) for hash, use in uses.items()], mark)
        except InvalidStore:
            # Write it at the next flush.
            with self._lock:
                for hash, (count, last_used) in uses.items():
                    newer, newest = self._uses.get(hash, (0, last_used))
                    self._uses[hash] = (count + newer, newest)
            raise
        self._journal.finish(mark)

    def _write_lines(self, lines: Sequence[Any], mark: JournalMark) -> None:
        """Write the use of keys that a process had counted when it was killed."""
        counts = Counter(hash for hash, _ in lines)
        last_used = dict(lines)
        self._hub.store.add_key_usage([KeyUsage(hash, count, last_used[hash]) for hash, count in counts.items()], mark)

    def _apply_changes(self, changes: Sequence[Change]) -> None:
        """Read keys that other processes have created or revoked."""
        if any(change.topic == "keys" for change in changes):
            self._refresh()

    def create_key(self, name: str, profile: str | None, created_by: str, budget: KeyBudget = UNLIMITED) -> CreatedKey:
        """Create a key and store its hash."""
        name = name.strip()
        if not name or len(name) > MAX_KEY_NAME_CHARS or not name.isprintable():
            raise RequestFailed(f"`name` must have 1 to {MAX_KEY_NAME_CHARS} printable characters", param="name")
        if any(key.name == name for key in self.get_keys()):
            raise RequestFailed(f"there is already a key with the name {name!r}; choose another", param="name")
        if profile is not None and not self.get_keys():
            raise RequestFailed("the first key needs full access, to manage the gateway; create that", param="profile")
        if profile is not None and profile not in self._hub.profiles:
            raise RequestFailed(f"there is no access profile {profile!r:.100}; create it first", param="profile")
        secret = f"{_PREFIX}{secrets.token_urlsafe(32)}"
        hash = ApiKey.from_secret(secret).hash
        key = StoredKey(secrets.token_hex(8), hash, name, profile, time.time(), created_by, budget)
        self._hub.store.put_key(key)
        self._refresh()
        return CreatedKey(key, secret)

    def set_budget(self, id: str, budget: KeyBudget) -> StoredKey:
        """Replace the budget of a key, from the next request on."""
        if not self._hub.store.set_key_budget(id, budget):
            raise RequestFailed("there is no such key; keys in toolcrib.json are changed there", 404)
        self._refresh()
        return next(key for key in self._stored if key.id == id)

    def revoke_key(self, id: str) -> StoredKey:
        """Delete a key. Requests with it are refused from now on, and its streams end."""
        key = next((key for key in self._stored if key.id == id), None)
        if key is None:
            raise RequestFailed("there is no such key; keys in toolcrib.json are removed there", 404)
        remaining = [each for each in self.get_keys() if each.hash != key.hash]
        check_bind_address(self._hub.config.http, remaining)
        self._hub.store.delete_key(id)
        self._refresh()
        return key

    def describe_keys(self) -> list[dict[str, Any]]:
        """Return all keys without their hashes, with their last use."""
        usage = self._hub.store.get_key_usage()
        stored = {key.hash: key for key in self._stored}
        rows = []
        for key in self.get_keys():
            created, used = stored.get(key.hash), usage.get(key.hash)
            rows.append(
                {
                    "id": created.id if created else "",
                    "name": key.name or f"key {key.hash[:8]}",
                    "profile": key.profile,
                    "created_at": created.created_at if created else None,
                    "created_by": created.created_by if created else "toolcrib.json",
                    "last_used": used.last_used if used else None,
                    "requests": used.requests if used else 0,
                    "tokens_per_day": key.tokens_per_day,
                    "requests_per_day": key.requests_per_day,
                }
            )
        return rows

    def _refresh(self) -> None:
        stored = tuple(self._hub.store.list_keys())
        if stored == self._stored:
            return
        if not stored and not self._hub.config.auth.keys:
            try:
                if self._hub.store.notice:
                    raise InvalidConfig(self._hub.store.notice)
                check_bind_address(self._hub.config.http, ())
            except InvalidConfig as error:
                # Without keys the gateway would be open, so the last keys stay valid.
                self._hub.notices[_NOTICE] = f"the keys in the store are gone: {error}"
                _log.error("%s", self._hub.notices[_NOTICE])
                return
        self._hub.notices.pop(_NOTICE, None)
        self._stored = stored
        self._mark_keys()

    def _mark_keys(self) -> None:
        """Leave a file beside the store while it has keys, so that their loss does not open the gateway."""
        marker = self._hub.store.key_marker
        with suppress(OSError):
            if marker is not None and self._stored:
                marker.touch(0o600)
            elif marker is not None:
                marker.unlink(missing_ok=True)
