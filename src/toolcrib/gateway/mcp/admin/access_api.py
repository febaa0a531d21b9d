"""The API of access: keys and access profiles, and what each may use."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from toolcrib.config.fields import list_settings
from toolcrib.config.parser import read_profile
from toolcrib.config.settings import AccessProfile, ToolOverride
from toolcrib.errors import RequestFailed
from toolcrib.gateway.keys import KeyRing
from toolcrib.gateway.mcp.admin.api_routes import ApiCall, ApiRoutes
from toolcrib.hub.hub import Hub
from toolcrib.storage.access import KeyBudget
from toolcrib.storage.llm_usage import KeyTotals, sum_by_key

MAX_SAMPLE_TOOLS: Final = 10
MAX_BUDGET: Final = 10**12


def add_access_routes(routes: ApiRoutes, hub: Hub, keys: KeyRing) -> None:
    """Add the routes of keys and access profiles."""
    api = _AccessApi(hub, keys)
    routes.add("GET", "/api/keys", api.list_keys, needs_full_access=True)
    routes.add("POST", "/api/keys", api.create_key, needs_full_access=True)
    routes.add("PUT", "/api/keys/{id}", api.set_budget, needs_full_access=True)
    routes.add("DELETE", "/api/keys/{id}", api.revoke_key, needs_full_access=True)
    routes.add("GET", "/api/profiles", api.list_profiles, needs_full_access=True)
    routes.add("POST", "/api/profiles", api.create_profile, needs_full_access=True)
    routes.add("PUT", "/api/profiles/{name}", api.replace_profile, needs_full_access=True)
    routes.add("DELETE", "/api/profiles/{name}", api.delete_profile, needs_full_access=True)


class _AccessApi:
    """Handles `/api/keys` and `/api/profiles`."""

    def __init__(self, hub: Hub, keys: KeyRing) -> None:
        self._hub = hub
        self._keys = keys

    def list_keys(self, call: ApiCall) -> dict[str, Any]:
        self._keys.flush()
        # What each key has used today for requests to LLMs.
        totals = sum_by_key(self._hub.store.list_llm_usage(f"{datetime.now(UTC):%Y-%m-%d}"))
        rows = self._keys.describe_keys()
        for row in rows:
            used = totals.get(row["name"], KeyTotals())
            row.update(tokens_today=used.tokens, requests_today=used.requests)
        return {"keys": rows}

    def create_key(self, call: ApiCall) -> dict[str, Any]:
        name, profile = call.body.get("name"), call.body.get("profile")
        if not isinstance(name, str) or not (profile is None or isinstance(profile, str)):
            raise RequestFailed("`name` must be a string, and `profile` a string or null")
        budget = _read_budget(call.body)
        created = self._keys.create_key(name, profile or None, call.caller, budget)
        call.record_change("key", {"change": "created", "name": name, "profile": profile, "budget": asdict(budget)})
        return {"id": created.key.id, "name": created.key.name, "profile": created.key.profile, "key": created.secret}

    def set_budget(self, call: ApiCall) -> dict[str, Any]:
        key = self._keys.set_budget(call.text("id"), _read_budget(call.body))
        call.record_change("key", {"change": "changed the budget", "name": key.name, "budget": asdict(key.budget)})
        return {"id": key.id, "name": key.name, **asdict(key.budget)}

    def revoke_key(self, call: ApiCall) -> dict[str, Any]:
        revoked = self._keys.revoke_key(call.text("id"))
        call.record_change("key", {"change": "revoked", "name": revoked.name})
        return {"revoked": revoked.name}

    def list_profiles(self, call: ApiCall) -> dict[str, Any]:
        names = ["", *self._hub.profiles]
        return {
            "profiles": [self._describe_profile(call, name) for name in names],
            "servers": list(self._hub.config.servers),
        }

    def create_profile(self, call: ApiCall) -> dict[str, Any]:
        settings = dict(call.body)
        name = settings.pop("name", None)
        if not isinstance(name, str):
            raise RequestFailed("`name` must be a string", param="name")
        if name in self._hub.profiles:
            raise RequestFailed(f"there is already an access profile {name!r:.100}; choose another name", param="name")
        return self._put_profile(call, name, settings, "created an access profile")

    def replace_profile(self, call: ApiCall) -> dict[str, Any]:
        name = call.text("name")
        if name not in self._hub.store.list_profiles():
            raise RequestFailed("there is no such access profile; those in toolcrib.json are changed there", 404)
        return self._put_profile(call, name, dict(call.body), "changed an access profile")

    def _put_profile(self, call: ApiCall, name: str, settings: dict[str, Any], change: str) -> dict[str, Any]:
        profile = read_profile(name, settings)
        for server in profile.servers or ():
            if server not in self._hub.config.servers:
                raise RequestFailed(f"there is no server {server!r:.100}; check `servers`", param="servers")
        self._hub.store.put_profile(name, settings, time.time())
        self._hub.refresh_profiles()
        call.record_change("config", {"change": change, "name": name, "settings": settings})
        return self._describe_profile(call, name)

    def delete_profile(self, call: ApiCall) -> dict[str, Any]:
        name = call.text("name")
        users = [key.name for key in self._keys.get_keys() if key.profile == name]
        if users:
            raise RequestFailed(f"the keys {', '.join(users[:5])} use this access profile; revoke them first", 409)
        if not self._hub.store.delete_profile(name):
            raise RequestFailed("there is no such access profile; those in toolcrib.json are removed there", 404)
        self._hub.refresh_profiles()
        call.record_change("config", {"change": "deleted an access profile", "name": name})
        return {"deleted": name}

    def _describe_profile(self, call: ApiCall, name: str) -> dict[str, Any]:
        """Return the settings of a profile and what it sees; the empty name means full access."""
        view = self._hub.get_view(name or None)
        return {
            "name": name,
            "source": "" if not name else "toolcrib.json" if name in self._hub.config.profiles else "store",
            "settings": _describe_settings(view.profile),
            "mode": view.configured_mode,
            "servers": sorted({entry.server for entry in view.entries.values()}),
            "tools": len(view.entries),
            "sample": list(view.entries)[:MAX_SAMPLE_TOOLS],
            "tokens": view.total_tokens,
            "keys": [key.name for key in self._keys.get_keys() if (key.profile or "") == name],
            "records_content": call.router.audit.records_content(name or None),
        }


def _read_budget(body: Mapping[str, Any]) -> KeyBudget:
    """Return the budget in a request. A missing limit and null mean no limit."""
    limits = []
    for name in ("tokensPerDay", "requestsPerDay"):
        limit = body.get(name)
        if limit is not None and (type(limit) is not int or not 0 <= limit <= MAX_BUDGET):
            raise RequestFailed(f"`{name}` must be a number from 0 to {MAX_BUDGET:,}, or null for no limit", param=name)
        limits.append(limit)
    return KeyBudget(*limits)


def _describe_settings(profile: AccessProfile) -> dict[str, Any]:
    values = {setting.key: getattr(profile, setting.name) for setting in list_settings(AccessProfile)}
    overrides = {
        pattern: {one.key: value for one in list_settings(ToolOverride) if (value := getattr(override, one.name))}
        for pattern, override in profile.overrides.items()
    }
    return {**values, "overrides": overrides}
