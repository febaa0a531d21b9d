"""`/api/overrides`: list, save and delete overrides in toolcrib.json, and preview their effect on searches."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolcrib.adapters.plain_json import dict_or_empty
from toolcrib.config.clients.file_writes import replace_file
from toolcrib.config.fields import ConfigSection, InvalidSetting
from toolcrib.config.jsonc import remove_members, set_member
from toolcrib.config.loader import read_document
from toolcrib.config.settings import ToolOverride
from toolcrib.errors import InvalidConfig, InvalidQuery, RequestFailed
from toolcrib.gateway.mcp.admin.api_routes import ApiCall, ApiRoutes
from toolcrib.gateway.mcp.admin.config_api import plan_edit
from toolcrib.hub.directory import DirectoryEntry
from toolcrib.hub.overrides import find_override, find_override_problems, override_entry, restore_entry
from toolcrib.search.engine import SearchEngine

MAX_PREVIEWED_TOOLS: Final = 20
MAX_PREVIEWED_QUERIES: Final = 20
PREVIEW_DEPTH: Final = 20
_SECTION: Final = "overrides"
_SHOWN_HITS: Final = 5


def add_override_routes(routes: ApiRoutes) -> None:
    """Add the routes of overrides."""
    routes.add("GET", "/api/overrides", _list_overrides, needs_full_access=True)
    routes.add("POST", "/api/overrides/preview", _preview_override, needs_full_access=True)
    routes.add("PUT", "/api/overrides/{pattern:path}", _save_override, needs_full_access=True)
    routes.add("DELETE", "/api/overrides/{pattern:path}", _delete_override, needs_full_access=True)


def _list_overrides(call: ApiCall) -> dict[str, Any]:
    hub = call.router.hub
    path = hub.config.path
    document = {} if path is None else dict_or_empty(read_document(path).value).get(_SECTION, {})
    overridden = [entry for entry in hub.directory if entry.override is not None]
    return {
        "overrides": [
            {
                "pattern": pattern,
                "override": document.get(pattern, {}),
                "changes": list(override.changed_fields),
                "tools": [entry.name for entry in overridden if _matches(entry, override)][:MAX_PREVIEWED_TOOLS],
            }
            for pattern, override in hub.config.overrides.items()
        ],
        "tools": [
            {"name": entry.name, "definition": entry.wire_definition, "original": entry.original}
            for entry in overridden[:MAX_PREVIEWED_TOOLS]
        ],
    }


def _save_override(call: ApiCall) -> dict[str, Any]:
    """Write an override to toolcrib.json. The gateway reloads the file."""
    pattern, value = call.text("pattern"), call.body.get("override")
    if not isinstance(value, dict):
        raise InvalidQuery("`override` must be an object")
    _read_override(pattern, value)
    return _write_edit(call, lambda text: set_member(text, (_SECTION,), pattern, value))


def _delete_override(call: ApiCall) -> dict[str, Any]:
    pattern = call.text("pattern")
    if pattern not in call.router.hub.config.overrides:
        raise RequestFailed(f"there is no override {pattern!r:.200}", 404)
    return _write_edit(call, lambda text: remove_members(text, (_SECTION,), [pattern]))


def _write_edit(call: ApiCall, change: Callable[[str], str]) -> dict[str, Any]:
    """Change the file and return the difference; with a `revision`, only if the file still has it."""
    path = call.router.hub.config.path
    if path is None:
        raise RequestFailed("the gateway runs without a configuration file; start it with one", 409)
    edit = plan_edit(path, lambda text, content: change(text))
    revision = call.body.get("revision")
    if revision is not None and revision != edit.revision:
        raise RequestFailed("the file has changed in the meantime; load it again", 409)
    replace_file(path, edit.after, edit.before)
    return {"path": str(path), "diff": edit.render_diff(), "revision": edit.revision, "applied": True}


def _read_override(pattern: str, value: Mapping[str, Any]) -> ToolOverride:
    try:
        settings = ConfigSection.from_value(value, (_SECTION, pattern), os.environ).read_settings(ToolOverride)
    except InvalidSetting as error:
        raise InvalidConfig(str(error)) from None
    return ToolOverride(pattern, **settings)


def _matches(entry: DirectoryEntry, override: ToolOverride) -> bool:
    return find_override({override.pattern: override}, entry, entry.tool.server) is not None


def _preview_override(call: ApiCall) -> dict[str, Any]:
    """Return how tools and searches would change with an override, or without it if `override` is null."""
    hub, body = call.router.hub, call.body
    pattern, value = body.get("pattern"), body.get("override")
    if not isinstance(pattern, str) or not pattern or not isinstance(value, dict | None):
        raise InvalidQuery("`pattern` must be text, and `override` an object or null")
    overrides = {key: one for key, one in hub.config.overrides.items() if key != pattern}
    if value is not None:
        overrides[pattern] = _read_override(pattern, value)
    changes: list[tuple[DirectoryEntry, DirectoryEntry]] = []
    problems: list[str] = []
    for entry in hub.directory:
        original = restore_entry(entry, hub.config.tool_search)
        override = find_override(overrides, original, original.tool.server)
        after = original
        if override is not None:
            problems += find_override_problems(original, override)
            after = override_entry(original, override, hub.config.tool_search)
        if after.definition != entry.definition or after.tool != entry.tool:
            changes.append((entry, after))
    catalog = hub.engine.catalog
    if changes:
        catalog = catalog.without([before.name for before, _ in changes]).with_tools([new.tool for _, new in changes])
    return {
        "tools": [
            {"name": before.name, "before": before.wire_definition, "after": after.wire_definition}
            for before, after in changes[:MAX_PREVIEWED_TOOLS]
        ],
        "total": len(changes),
        "problems": problems[:MAX_PREVIEWED_TOOLS],
        "searches": _compare_searches(hub.engine, hub.engine.with_catalog(catalog), changes, body.get("queries")),
    }


def _compare_searches(
    before: SearchEngine, after: SearchEngine, changes: list[tuple[DirectoryEntry, DirectoryEntry]], queries: object
) -> list[dict[str, Any]]:
    """Return the ranks of the changed tools in searches, before and after; a rank starts at 1."""
    asked = [query for query in queries if isinstance(query, str) and query] if isinstance(queries, list) else []
    compared: list[dict[str, Any]] = []
    for query in asked[:MAX_PREVIEWED_QUERIES]:
        old = [hit.tool.id for hit in before.search(query, limit=PREVIEW_DEPTH)]
        new = [hit.tool.id for hit in after.search(query, limit=PREVIEW_DEPTH)]
        ranks = [
            {"name": changed.name, "before": _rank(old, entry.name), "after": _rank(new, changed.name)}
            for entry, changed in changes[:MAX_PREVIEWED_TOOLS]
        ]
        compared.append({"query": query, "ranks": ranks, "hits": new[:_SHOWN_HITS]})
    return compared


def _rank(names: list[str], name: str) -> int | None:
    return names.index(name) + 1 if name in names else None
