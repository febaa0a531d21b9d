"""The API of traffic: audit rows and their live stream, clients that are connected, time series and savings."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final, get_args

import anyio
from pydantic_core import to_json
from starlette.responses import Response, StreamingResponse

from toolcrib.errors import InvalidQuery, RequestFailed
from toolcrib.gateway.mcp.admin.api_routes import ApiCall, ApiRoutes
from toolcrib.gateway.mcp.server.client import get_session_state
from toolcrib.gateway.mcp.server.router import McpRouter
from toolcrib.storage.audit import AuditAction, AuditFilter, AuditOutcome, AuditRow
from toolcrib.storage.time_series import RESOLUTION_SECONDS, Resolution, SeriesAmount, build_point

MAX_ACTIVITY_PAGE: Final = 500
DEFAULT_ACTIVITY_PAGE: Final = 50
# What followed a search is looked for during this time.
FOLLOW_SECONDS: Final = 600.0
MAX_FOLLOWING_ROWS: Final = 50
MAX_STREAMS: Final = 100
STREAM_BATCH_ROWS: Final = 200
# A stream that is further behind skips rows and reports how many.
MAX_ROWS_BEHIND: Final = 1_000
# Rows of other processes are found by polling.
STREAM_POLL_SECONDS: Final = 2.0
STREAM_PING_SECONDS: Final = 15.0
# A client without a session counts as connected for this time after its last request.
CONNECTED_SECONDS: Final = 300.0
MAX_SHOWN_NAMES: Final = 100
SAVING_DAYS: Final = 30

# The resolution and the number of points of each range.
_RANGES: Final[dict[str, tuple[Resolution, int]]] = {"hour": ("minute", 60), "day": ("hour", 24), "month": ("day", 30)}


def add_activity_routes(routes: ApiRoutes) -> None:
    """Add the routes of traffic."""
    routes.add("GET", "/api/activity", _list_activity, needs_full_access=True)
    routes.add("GET", "/api/activity/stream", ActivityStreams().open_stream, needs_full_access=True)
    routes.add("GET", "/api/activity/{id}", _get_activity, needs_full_access=True)
    routes.add("GET", "/api/sessions", _list_sessions, needs_full_access=True)
    routes.add("GET", "/api/timeseries", _get_time_series, needs_full_access=True)
    routes.add("GET", "/api/savings", _get_savings, needs_full_access=True)


class ActivityStreams:
    """Streams of new audit rows, with a limit for their number."""

    def __init__(self) -> None:
        self._streams = 0

    async def open_stream(self, call: ApiCall) -> Response:
        """Stream new rows as server-sent events; `Last-Event-ID` continues after a row."""
        if self._streams >= MAX_STREAMS:
            raise RequestFailed(f"there are {MAX_STREAMS} streams, which is the limit; close a page", 503)
        where = _parse_filter(call)
        last_id = call.request.headers.get("last-event-id") or call.text("last_event_id")
        if last_id and not (last_id.isascii() and last_id.isdigit() and len(last_id) <= 18):
            raise InvalidQuery("the last event id must be the id of a row")
        start = int(last_id) if last_id else await anyio.to_thread.run_sync(_find_newest_id, call.router)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        events = self._iter_events(call.router, where, start)
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    async def _iter_events(self, router: McpRouter, where: AuditFilter, last_id: int) -> AsyncIterator[bytes]:
        """Yield events. A stream keeps only the last id, so a slow reader takes no memory."""
        self._streams += 1
        try:
            yield b"retry: 1000\nid: %d\n\n" % last_id
            quiet_since = time.monotonic()
            while True:
                rows, skipped = await anyio.to_thread.run_sync(_read_new_rows, router, last_id)
                if skipped:
                    yield _format_event(rows[0].id - 1, "skipped", {"rows": skipped})
                for row in rows:
                    last_id = row.id
                    if where.matches(row):
                        quiet_since = time.monotonic()
                        yield _format_event(row.id, "row", row.to_json())
                if time.monotonic() - quiet_since > STREAM_PING_SECONDS:
                    quiet_since = time.monotonic()
                    yield b"id: %d\nevent: ping\ndata: {}\n\n" % last_id
                if len(rows) < STREAM_BATCH_ROWS:
                    await router.audit.wait_for_rows(STREAM_POLL_SECONDS)
        finally:
            self._streams -= 1


def _read_new_rows(router: McpRouter, last_id: int) -> tuple[list[AuditRow], int]:
    """Return the next rows after an id, and how many were skipped because the reader is too far behind."""
    skipped = _find_newest_id(router) - last_id - MAX_ROWS_BEHIND
    start = last_id + max(skipped, 0)
    rows = router.hub.store.list_audit(AuditFilter(after=start), STREAM_BATCH_ROWS)
    return rows, max(skipped, 0) if rows else 0


def _find_newest_id(router: McpRouter) -> int:
    rows = router.hub.store.list_audit(AuditFilter(), 1)
    return rows[0].id if rows else 0


def _format_event(id: int, event: str, data: dict[str, Any]) -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (id, event.encode(), to_json(data, inf_nan_mode="null"))


def _parse_filter(call: ApiCall) -> AuditFilter:
    action, outcome = call.text("action"), call.text("outcome")
    for name, value, known in (("action", action, get_args(AuditAction)), ("outcome", outcome, get_args(AuditOutcome))):
        if value and value not in known:
            raise InvalidQuery(f"`{name}` must be one of {', '.join(known)}")
    return AuditFilter(
        action,
        outcome,
        key=call.text("key"),
        client=call.text("client"),
        session=call.text("session"),
        server=call.text("server"),
        tool=call.text("tool"),
    )


def _list_activity(call: ApiCall) -> dict[str, Any]:
    """Return a page of rows, newest first; `before` is the id of the last row of the page before."""
    limit = call.integer("limit", DEFAULT_ACTIVITY_PAGE, MAX_ACTIVITY_PAGE)
    before = call.integer("before", 0) or None
    call.router.audit.flush()
    where = replace(_parse_filter(call), before=before)
    rows = call.router.hub.store.list_audit(where, limit + 1)
    has_more = len(rows) > limit
    return {"rows": [row.to_json() for row in rows[:limit]], "next": rows[limit - 1].id if has_more and limit else None}


def _get_activity(call: ApiCall) -> dict[str, Any]:
    """Return one row; for a search, also the calls that followed, and for a call, the search before it."""
    id = call.text("id")
    if not (id.isascii() and id.isdigit() and len(id) <= 18):
        raise InvalidQuery("the id of a row is a number")
    store = call.router.hub.store
    found = store.list_audit(AuditFilter(after=int(id) - 1), 1)
    if not found or found[0].id != int(id):
        raise RequestFailed("there is no such row; it may have been deleted because of its age", 404)
    row = found[0]
    related = AuditFilter(
        session=row.session, since=row.at - FOLLOW_SECONDS, until=row.at + FOLLOW_SECONDS, client=row.client
    )
    following: list[AuditRow] = []
    if row.action == "search":
        for each in store.list_audit(replace(related, after=row.id), MAX_FOLLOWING_ROWS):
            if each.action == "search" and _is_same_client(each, row):
                break
            if each.action == "call" and _is_same_client(each, row):
                following.append(each)
    search: AuditRow | None = None
    if row.action == "call":
        earlier = store.list_audit(replace(related, before=row.id, action="search"), MAX_FOLLOWING_ROWS)
        search = next((each for each in earlier if _is_same_client(each, row)), None)
    return {
        "row": row.to_json(),
        "following": [each.to_json() for each in following],
        "search": search.to_json() if search else None,
    }


def _is_same_client(left: AuditRow, right: AuditRow) -> bool:
    return (left.key, left.client, left.session) == (right.key, right.client, right.session)


def _list_sessions(call: ApiCall) -> dict[str, Any]:
    router = call.router
    router.activity.flush()
    open_sessions = {get_session_state(connection).id for connection in list(router.connections.values())}
    now = time.time()
    clients = [
        client
        for client in router.activity.list_clients()
        if (client.session in open_sessions if client.session else now - client.last_seen < CONNECTED_SECONDS)
    ]
    shown = [[tool["name"] for tool in client.shown[:MAX_SHOWN_NAMES]] for client in clients]
    counted = ({**vars(client), "shown_tools": len(client.shown)} for client in clients)
    return {"sessions": [{**client, "shown": names} for client, names in zip(counted, shown, strict=True)]}


def _get_time_series(call: ApiCall) -> dict[str, Any]:
    """Return points of equal distance over a range, with zeros where nothing happened."""
    name = call.text("range", "hour")
    if name not in _RANGES:
        raise InvalidQuery(f"`range` must be one of {', '.join(_RANGES)}")
    resolution, count = _RANGES[name]
    client = call.text("client")
    step = RESOLUTION_SECONDS[resolution]
    last = int(time.time() // step) * step
    start = last - (count - 1) * step
    call.router.audit.flush()
    amounts = call.router.hub.store.list_series(resolution, start)
    if client:
        amounts = [amount for amount in amounts if amount.client == client]
    steps: dict[float, list[SeriesAmount]] = {}
    for amount in amounts:
        steps.setdefault(amount.at, []).append(amount)
    points = [{"at": at, **build_point(steps.get(at, ()))} for at in range(start, last + step, step)]
    return {"range": name, "step": step, "points": points, "total": build_point(amounts)}


def _get_savings(call: ApiCall) -> dict[str, Any]:
    """Return the tokens of the full list and the tokens sent, per day and client."""
    since = time.time() - (SAVING_DAYS - 1) * RESOLUTION_SECONDS["day"]
    call.router.audit.flush()
    amounts = call.router.hub.store.list_series("day", since)
    by_client = sorted(amounts, key=lambda amount: amount.client)
    clients = [
        {"client": client, **_select_tokens(build_point(group))}
        for client, group in groupby(by_client, lambda amount: amount.client)
    ]
    days = [
        {"day": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d"), **_select_tokens(build_point(group))}
        for at, group in groupby(amounts, lambda amount: amount.at)
    ]
    clients.sort(key=lambda client: -client["tokens_saved"])
    return {"days": days, "clients": clients, "total": _select_tokens(build_point(amounts))}


def _select_tokens(point: dict[str, Any]) -> dict[str, int]:
    names = ("tokens_full", "tokens_sent", "tokens_saved", "calls", "searches", "lists")
    return {name: point[name] for name in names}
